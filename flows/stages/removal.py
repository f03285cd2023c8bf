"""What is taken out of a corpus whatever its quality: items of benchmarks, and documents of takedown lists.

`decontamination` drops or cuts documents that hold items of benchmarks, or only reports them. Its three stages are
`decontamination_index`, `decontamination_hits` and `decontamination`. The digests of the benchmarks' files are in the
key of the first, so that all stages behind it are made anew when one is added or changed. `takedowns` keeps the curated
documents that the recipe's takedown lists do not name.
"""

from dataclasses import dataclass
from functools import partial

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, pinned, work_of_steps
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
)
from gristmill.tasks.decontamination.step import Decontamination, Fields, Indexing, Policy
from gristmill.tasks.dedup.takedowns import keep_allowed
from gristmill.tasks.documents.by_shard import Parts
from gristmill.tasks.documents.decisions import keep_shard
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.url.step import Url

INDEX, HITS = "decontamination_index", "decontamination_hits"


class IndexRecord(Settings):
    """`benchmarks`: the fields of each, by name, in the recipe's order."""

    benchmarks: dict[str, Fields]
    settings: Indexing


class HitsRecord(Settings):
    settings: Indexing


class PolicyRecord(Settings):
    policy: Policy
    threshold: float


@dataclass(frozen=True)
class HitsPlaces:
    """`index`: the folder of the index; `hits`: that of the stage with the hits."""

    corpus: CorpusPlaces
    index: str = ""
    hits: str = ""


def decontamination(context: RunContext, _: Recipe, corpus: Corpus, step: Decontamination) -> Corpus:
    """The corpus without documents, or without their pieces, that hold items of the step's benchmarks; with the policy
    `report` as it is. Every document has its score as a signal. Raises BenchmarkError."""
    places, settings = corpus.places, step.part(Indexing)
    benchmarks = [context.placed(benchmark) for benchmark in step.benchmarks]
    paths = tuple(files.absolute(each.path) for each in benchmarks)
    notes = f"{context.settings.local_folder}/fingerprints"
    digests = {
        f"benchmark {each.name}": context.outside(
            {"file": path}, partial(fingerprint, path, notes, context.settings.remote_io)
        )
        for each, path in zip(benchmarks, paths, strict=True)
    }
    fields = {each.name: each.part(Fields) for each in benchmarks}
    given = IndexRecord(benchmarks=fields, settings=settings)
    index = context.build(StageSpec(INDEX, _index, given, digests, paths, version=1, steps=(step.step,)))

    where = HitsPlaces(places, index.folder)
    spec = StageSpec(
        HITS, _find, HitsRecord(settings=settings), corpus.inputs(index), where, version=1, **work_of_steps((step,))
    )
    hits = context.build(spec)

    record = PolicyRecord(
        policy=step.part(Policy), threshold=settings.threshold if settings.method == "overlap" else 0.0
    )
    spec = StageSpec(step.step, _apply, record, corpus.inputs(hits), HitsPlaces(places, hits=hits.folder), version=1)
    made = context.build(spec)
    left = corpus.rewritten(made, index, hits) if step.policy == "cut" else corpus.then(made, index, hits)
    return left.measuring(hits)


def _index(phases: PhaseRunner, record: IndexRecord, places: tuple[str, ...]) -> dict:
    """Index the benchmarks."""
    return phases.once(
        "index", build_index, {"paths": places, "fields": record.benchmarks, "settings": record.settings}
    )


def _find(phases: PhaseRunner, record: HitsRecord, places: HitsPlaces) -> dict:
    """Find items of benchmarks in documents."""
    given = {"index": places.index, "settings": record.settings}
    shards = places.corpus.shards()
    phases.map("find", find_shard, Each(shards, places.corpus.shard), common=given)
    return phases.once(
        "split",
        split_benchmarks,
        {"index": places.index, "hits": Parts(hits_folder(phases.folder), shards)},
        grows="documents",
    )


def _apply(phases: PhaseRunner, record: PolicyRecord, places: HitsPlaces) -> dict:
    """Drop or cut documents that hold items of benchmarks."""
    corpus, policy = places.corpus, record.policy
    if policy.policy == "cut":
        jobs = Each(corpus.shards(), lambda i: {**corpus.shard(i), "hits": hits_file(places.hits, i)})
        phases.map("cut", cut_shard, jobs, common={"policy": policy})
    elif policy.policy == "drop":
        jobs = Each(corpus.shards(), lambda i: {"kept": corpus.kept[i], "hits": hits_file(places.hits, i)})
        phases.map("drop", drop_shard, jobs, common={"threshold": record.threshold})
    else:
        phases.map("keep", keep_shard, Each(corpus.shards(), lambda i: {"kept": corpus.kept[i]}), common={"step": STEP})
    return {}


class Record(Settings):
    """`takedowns`: the lists, tied to the content that they have now."""

    takedowns: Url


@dataclass(frozen=True)
class AllowedCorpus(Corpus):
    """A corpus without what was taken down. `before`: the corpus ahead of the lists."""

    before: Corpus


def takedown_lists(context: RunContext, recipe: Recipe) -> Url:
    """The recipe's lists, tied to the content that they have now."""
    [given] = pinned(context, (Url(takedowns=recipe.takedowns),))
    return given


def without_taken_down(context: RunContext, recipe: Recipe, corpus: Corpus) -> Corpus:
    """The corpus without the documents that are named by id, URL, folder or host; as it is if there are no lists."""
    if not recipe.takedowns:
        return corpus
    given = takedown_lists(context, recipe)
    record = Record(takedowns=given)
    spec = StageSpec("takedowns", _drop, record, corpus.inputs(), corpus.places, version=1, **work_of_steps((given,)))
    made = context.build(spec)
    stages = (*corpus.stages, made)
    return AllowedCorpus(corpus.sources, corpus.documents, made, corpus.measured, stages, before=corpus)


def _drop(phases: PhaseRunner, record: Record, places: CorpusPlaces) -> dict:
    """Drop documents that were taken down."""
    given = {"takedowns": record.takedowns}
    phases.map("drop", keep_allowed, Each(places.shards(), places.shard), common=given)
    return {}
