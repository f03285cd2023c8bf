"""What is removed from a corpus whatever its quality: items of benchmarks, takedown lists, evaluation documents.

`decontamination` drops or cuts documents that hold items of benchmarks, or only reports them. Its three stages are
`decontamination_index`, `decontamination_hits` and `decontamination`. The digests of the benchmarks' files are in the
key of the first, so all later stages are made again when a benchmark is added or changed. `takedowns` keeps the curated
documents that the recipe's takedown lists do not name. `evaluation_removal` keeps the documents that are not evaluation
documents, near-duplicates of one, or texts that contain one.
"""

from dataclasses import dataclass
from functools import partial

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusAndStage, CorpusPlaces, pinned, work_of_steps
from gristmill.storage import files
from gristmill.storage.fingerprint import fingerprint
from gristmill.tasks.decontamination.index import build_index
from gristmill.tasks.decontamination.shards import (
    STEP,
    cut_shard,
    drop_shard,
    find_shard,
    hits_file,
    hits_folder,
    split_benchmarks,
    unsearched_shard,
)
from gristmill.tasks.decontamination.step import Decontamination, Fields, Indexing, Policy
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.dedup.takedowns import keep_allowed
from gristmill.tasks.documents.by_shard import Parts
from gristmill.tasks.documents.decisions import keep_shard
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, Work
from gristmill.tasks.evaluation.documents import evaluation_file
from gristmill.tasks.evaluation.removal import (
    collect_texts,
    found_folder,
    remove_shard,
    rewrites_folder,
    rewritten_folder,
    texts_file,
)
from gristmill.tasks.evaluation.removal import find_shard as find_evaluation_documents
from gristmill.tasks.evaluation.similar import THRESHOLD, index_examples, index_folder
from gristmill.tasks.url.step import Url

INDEX, HITS = "decontamination_index", "decontamination_hits"
# Fewest shingles of five words of a document that counts as contained: most shorter ones, of a sentence or two, are in
# many texts, and a set judges little by them.
MIN_SHINGLES = 25


class BenchmarkIndex(Settings):
    """`benchmarks`: the fields of each, by name, in the recipe's order."""

    benchmarks: dict[str, Fields]
    settings: Indexing


class BenchmarkSearch(Settings):
    settings: Indexing


class BenchmarkRemoval(Settings):
    policy: Policy
    threshold: float


def decontamination(context: RunContext, _: Recipe, corpus: Corpus, step: Decontamination) -> Corpus:
    """The corpus without documents, or without their pieces, that hold items of the step's benchmarks; with the policy
    `report` as it is. Every document has its score as a signal. Raises BenchmarkError."""
    index = decontamination_index(context, step)
    hits = decontamination_hits(context, corpus, step, index)
    settings = step.part(Indexing)
    spec = StageSpec(
        name=step.step,
        version=1,
        body=_remove_hits,
        record=BenchmarkRemoval(
            policy=step.part(Policy), threshold=settings.threshold if settings.method == "overlap" else 0.0
        ),
        inputs=corpus.inputs(hits),
        places=CorpusAndStage(corpus.places, hits.folder),
    )
    stage = context.build(spec)
    remaining = corpus.rewritten(stage, index, hits) if step.policy == "cut" else corpus.then(stage, index, hits)
    return remaining.measuring(hits)


def _remove_hits(phases: PhaseRunner, record: BenchmarkRemoval, places: CorpusAndStage) -> dict:
    """Drop or cut documents that contain items of benchmarks."""
    corpus, policy = places.corpus, record.policy
    if policy.policy == "cut":
        jobs = Each(corpus.shards(), lambda i: {**corpus.shard(i), "hits": hits_file(places.stage, i)})
        phases.map("cut", cut_shard, jobs, common={"policy": policy})
    elif policy.policy == "drop":
        jobs = Each(corpus.shards(), lambda i: {"kept": corpus.kept[i], "hits": hits_file(places.stage, i)})
        phases.map("drop", drop_shard, jobs, common={"threshold": record.threshold})
    else:
        phases.map("keep", keep_shard, Each(corpus.shards(), lambda i: {"kept": corpus.kept[i]}), common={"step": STEP})
    return {}


def decontamination_index(context: RunContext, step: Decontamination) -> StageResult:
    """The index of the step's benchmarks."""
    benchmarks = [context.placed(benchmark) for benchmark in step.benchmarks]
    paths = tuple(files.absolute(each.path) for each in benchmarks)
    notes = f"{context.settings.local_folder}/fingerprints"
    digests = {
        f"benchmark {each.name}": context.outside(
            {"file": path}, partial(fingerprint, path, notes, context.settings.remote_io)
        )
        for each, path in zip(benchmarks, paths, strict=True)
    }
    spec = StageSpec(
        name=INDEX,
        version=1,
        body=_index,
        record=BenchmarkIndex(
            benchmarks={each.name: each.part(Fields) for each in benchmarks}, settings=step.part(Indexing)
        ),
        inputs=digests,
        places=paths,
        work=Work(steps=(step.step,)),
    )
    return context.build(spec)


def _index(phases: PhaseRunner, record: BenchmarkIndex, places: tuple[str, ...]) -> dict:
    """Index the benchmarks."""
    return phases.once(
        "index", build_index, {"paths": places, "fields": record.benchmarks, "settings": record.settings}
    )


def decontamination_hits(context: RunContext, corpus: Corpus, step: Decontamination, index: StageResult) -> StageResult:
    """The items of benchmarks in each document, with the documents' scores as a signal."""
    spec = StageSpec(
        name=HITS,
        version=1,
        body=_find,
        record=BenchmarkSearch(settings=step.part(Indexing)),
        inputs=corpus.inputs(index),
        places=CorpusAndStage(corpus.places, index.folder),
        work=work_of_steps((step,)),
    )
    return context.build(spec)


def _find(phases: PhaseRunner, record: BenchmarkSearch, places: CorpusAndStage) -> dict:
    """Find items of benchmarks in documents."""
    common = {"index": places.stage, "settings": record.settings}
    corpus, shards = places.corpus, places.corpus.shards()
    judged, passed = corpus.judged()
    phases.map("find", find_shard, Each(judged, corpus.shard), common=common)
    phases.map("pass", unsearched_shard, passed)
    return phases.once(
        "split",
        split_benchmarks,
        {"index": places.stage, "hits": Parts(hits_folder(phases.folder), shards)},
        grows="documents",
    )


class TakedownLists(Settings):
    """`takedowns`: the lists, tied to the content that they have now."""

    takedowns: Url


@dataclass(frozen=True)
class AllowedCorpus(Corpus):
    """A corpus without the documents that takedown lists and lists of sites exclude. `before`: the corpus before
    them."""

    before: Corpus


def takedown_lists(context: RunContext, recipe: Recipe) -> Url:
    """The recipe's lists, tied to the content that they have now."""
    [lists] = pinned(context, (Url(takedowns=recipe.takedowns),))
    return lists


def takedowns(context: RunContext, recipe: Recipe, corpus: Corpus) -> Corpus:
    """The corpus without the documents that are named by id, URL, folder or host; as it is if there are no lists."""
    if not recipe.takedowns:
        return corpus
    lists = takedown_lists(context, recipe)
    spec = StageSpec(
        name="takedowns",
        version=1,
        body=_drop,
        record=TakedownLists(takedowns=lists),
        inputs=corpus.inputs(),
        places=corpus.places,
        work=work_of_steps((lists,)),
    )
    stage = context.build(spec)
    stages = (*corpus.stages, stage)
    before = corpus.before if isinstance(corpus, AllowedCorpus) else corpus
    return AllowedCorpus(corpus.sources, corpus.documents, stage, corpus.measured, stages, before=before)


def _drop(phases: PhaseRunner, record: TakedownLists, places: CorpusPlaces) -> dict:
    """Drop documents that were taken down."""
    phases.map("drop", keep_allowed, Each(places.shards(), places.shard), common={"takedowns": record.takedowns})
    return {}


class EvaluationRemoval(Settings):
    """`threshold`: least Jaccard similarity, and least share of a document's shingles in a text that contains it."""

    shingling: Shingling
    threshold: float
    least: int


@dataclass(frozen=True)
class EvaluationRemovalPlaces:
    """`extracted`: the parts with the documents as they were extracted, by shard; `evaluation`: the file with the
    evaluation documents."""

    corpus: CorpusPlaces
    extracted: Parts
    evaluation: str

    def forms(self, i: int) -> tuple[str, ...]:
        """The parts that have texts of a shard's documents."""
        return tuple(dict.fromkeys((self.extracted[i], self.corpus.documents[i])))


def evaluation_removal(context: RunContext, extracted: Corpus, corpus: Corpus, evaluation: StageResult) -> Corpus:
    """The corpus without the evaluation documents, by their records, without all whose Jaccard similarity to one of
    them is at least THRESHOLD, and without all that contain such a share of the shingles of one that has MIN_SHINGLES.
    `extracted`: the documents that the corpus began with.

    Exact, not by MinHash: see `gristmill.tasks.evaluation.similar`.
    """
    spec = StageSpec(
        name="evaluation_removal",
        version=1,
        body=_remove_evaluation,
        record=EvaluationRemoval(shingling=Shingling(), threshold=THRESHOLD, least=MIN_SHINGLES),
        inputs=corpus.inputs(evaluation) | {"extracted": extracted.documents},
        places=EvaluationRemovalPlaces(corpus.places, extracted.places.documents, evaluation_file(evaluation.folder)),
    )
    return corpus.then(context.build(spec))


def _remove_evaluation(phases: PhaseRunner, record: EvaluationRemoval, places: EvaluationRemovalPlaces) -> dict:
    """Remove evaluation documents, their near-duplicates and documents that contain them."""
    shards = places.corpus.shards()
    own = {"evaluation": places.evaluation}
    extracted = Each(shards, lambda i: {"extracted": places.extracted[i]})
    phases.map("find", find_evaluation_documents, extracted, temporary=True, common=own)
    collected = phases.once("collect", collect_texts, own)
    indexing = {"examples": texts_file(phases.folder), "shingling": record.shingling}
    phases.once("index", index_examples, indexing, temporary=True)
    against = {"shingling": record.shingling, "threshold": record.threshold, "least": record.least}
    jobs = Each(shards, lambda i: {"kept": places.corpus.kept[i], "forms": places.forms(i)})
    phases.map("remove", remove_shard, jobs, common=against)
    for folder in (found_folder, index_folder, rewrites_folder, rewritten_folder):
        files.remove(folder(phases.folder))
    return collected
