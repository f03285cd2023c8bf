"""Learned filters: models trained on reference documents, scores of all others, a cut by scores.

The stages of a filter are `<step>_model`, unless the step names its models, `<step>` and `<step>_cut`. What differs
between filters is in the module that the step names as its work: `train_model`, `score_shard`, `bounds`. `perplexity`
is a filter whose scores are also put into buckets, in a stage of their own.

`embedding` embeds documents once, scores the vectors with heads, and cuts by these scores. Its stages are
`embedding_vectors`, `embedding` with the scores, and `embedding_cut`; without heads only the first. The first does not
depend on heads, so a change of heads does not embed the documents again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import SerializeAsAny

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.steps import modules_of
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, held_out, work_of_steps
from gristmill.storage import files, layout
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.by_shard import Parts, Shards
from gristmill.tasks.documents.decisions import decide_shard, keep_shard
from gristmill.tasks.documents.selection import Heldout
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, Work
from gristmill.tasks.models import heads as head_files
from gristmill.tasks.models.distillation.held_out import described_cut
from gristmill.tasks.models.embedders import Embedder, EmbedderFiles, embed_shard, embedder_files
from gristmill.tasks.models.embedding import Embedding, HeadScoring, column_of, score_shard
from gristmill.tasks.models.filter import (
    LearnedFilter,
    bounds_of,
    find_bounds,
    null_scores_shard,
    scoring_work,
    training_work,
)
from gristmill.tasks.models.perplexity import Cuts, Perplexity, bucket_shard, find_ends


class FilterTraining(Settings):
    reference: tuple[str, ...]
    raw: tuple[str, ...]
    settings: SerializeAsAny[Settings]
    heldout: Heldout


class FilterScoring(Settings):
    scores: tuple[str, ...]
    groups: tuple[str, ...]
    reads: tuple[str, ...]
    reference: tuple[str, ...]
    settings: SerializeAsAny[Settings]


class FilterCutting(Settings):
    step: str
    reference: tuple[str, ...]
    settings: SerializeAsAny[Settings]


@dataclass(frozen=True)
class FilterPlaces:
    """`work`: the module with the filter's work; `models`: files of models, for scoring; `scores`: the folder of the
    parts with scores, for the cut."""

    corpus: CorpusPlaces
    work: str
    models: tuple[RecordedFile, ...] = ()
    scores: str = ""


def learned_filter(
    context: RunContext, recipe: Recipe, corpus: Corpus, step: LearnedFilter, learns_from: Corpus | None = None
) -> Corpus:
    """The corpus of the documents that the filter keeps. Documents of the reference are kept without a score, because
    the models are trained on them. `learns_from`: the part of the corpus that the models are trained on; default:
    all."""
    paths = map(files.absolute, context.placed(step).named_models)  # because a worker may run in another folder
    named = tuple(RecordedFile(path, context.outside({"file": path}, partial(files.checksum, path))) for path in paths)
    trained = None if named else filter_model(context, recipe, corpus, step, learns_from or corpus)
    scores = filter_scores(context, corpus, step, named, trained)
    kept = filter_cut(context, corpus, step, scores)
    return corpus.then(kept, *(() if trained is None else (trained,)), scores).measuring(scores)


def filter_model(
    context: RunContext, recipe: Recipe, corpus: Corpus, step: LearnedFilter, learns_from: Corpus
) -> StageResult:
    """The models of a filter, trained on documents of `learns_from`. `corpus`: decides what is held out."""
    spec = StageSpec(
        name=f"{step.step}_model",
        version=1,
        body=_train,
        record=FilterTraining(
            reference=tuple(sorted(step.reference)),
            raw=step.raw([source for source in corpus.sources if source not in corpus.exempt]),
            settings=step.training_settings(),
            heldout=held_out(recipe, corpus),
        ),
        inputs=learns_from.inputs(),
        places=FilterPlaces(learns_from.places, modules_of(step)[-1]),
        work=work_of_steps((step,)),
    )
    return context.build(spec)


def _train(phases: PhaseRunner, record: FilterTraining, places: FilterPlaces) -> dict:
    """Train models on reference documents."""
    arguments = {
        "reference": places.corpus.parts(record.reference),
        "raw": places.corpus.parts(record.raw),
        "settings": record.settings,
        "heldout": record.heldout,
    }
    return {"model": phases.once("train", training_work(places.work), arguments)}


def filter_scores(
    context: RunContext,
    corpus: Corpus,
    step: LearnedFilter,
    named: tuple[RecordedFile, ...],
    trained: StageResult | None,
) -> StageResult:
    """The scores of the documents. `named`: files of models that the step names; else `trained`: the stage that trained
    models."""

    def places() -> FilterPlaces:
        models = named if trained is None else tuple(map(trained.file, trained.result["model"]["files"]))
        return FilterPlaces(corpus.places, modules_of(step)[-1], models)

    inputs = corpus.inputs(signals=bool(step.reads))
    inputs |= {f"model {number}": file.digest for number, file in enumerate(named)}
    inputs |= {} if trained is None else {"model": trained}
    spec = StageSpec(
        name=step.step,
        version=1,
        body=_score,
        record=FilterScoring(
            scores=step.scores,
            groups=step.groups,
            reads=step.reads,
            reference=tuple(sorted(step.reference)),
            settings=step.scoring_settings(),
        ),
        inputs=inputs,
        places=places,
        work=work_of_steps((step,)),
    )
    return context.build(spec)


def _score(phases: PhaseRunner, record: FilterScoring, places: FilterPlaces) -> dict:
    """Score all other documents."""
    corpus = places.corpus
    common = {"models": places.models, "settings": record.settings}

    def arguments(i: int) -> dict[str, Any]:
        return {**corpus.shard(i), **({"signals": corpus.signals[i]} if record.reads else {})}

    judged, passed = corpus.judged(record.reference)
    phases.map("score", scoring_work(places.work, record.scores, record.groups), Each(judged, arguments), common=common)
    phases.map("null-scores", null_scores_shard, passed, common={"signals": record.scores, "groups": record.groups})
    return {}


def filter_cut(context: RunContext, corpus: Corpus, step: LearnedFilter, scores: StageResult) -> StageResult:
    """The stage that keeps documents by the scores of a filter, and those of the reference."""
    spec = StageSpec(
        name=f"{step.step}_cut",
        version=1,
        body=_cut,
        record=FilterCutting(
            reference=tuple(sorted(step.reference)), step=step.step, settings=step.decision_settings()
        ),
        inputs=corpus.inputs(scores),
        places=FilterPlaces(corpus.places, modules_of(step)[-1], scores=scores.folder),
        work=work_without_libraries(step),
    )
    return context.build(spec)


def _cut(phases: PhaseRunner, record: FilterCutting, places: FilterPlaces) -> dict:
    """Drop documents by their scores."""
    corpus = places.corpus
    scored, passed = corpus.judged(record.reference)
    scores = Parts(places.scores, scored)
    bounds = phases.once(
        "bounds", find_bounds, {"work": places.work, "settings": record.settings, "scores": scores}, grows="documents"
    )
    judged = Each(scored, lambda i: {"kept": corpus.kept[i], "signals": (layout.part(places.scores, i),)})
    phases.map("decide", decide_shard, judged, common={"decisions": ((record.step, bounds_of(bounds)),)})
    phases.map("keep", keep_shard, passed, common={"step": record.step})
    reasons = {"reasons": bounds["reasons"]} if "reasons" in bounds else {}
    if found := reasons.get("reasons"):
        phases.message(described_cut(found))
    return {"decisions": [[record.step, bounds["bounds"]]], **reasons}


def work_without_libraries(step: LearnedFilter) -> Work:
    """The work of a stage that reads scores, which are an input, so the models' libraries do not decide its output."""
    return replace(work_of_steps((step,)), libraries=())


@dataclass(frozen=True)
class PerplexityBucketPlaces:
    """`scores`: the folder of the parts with scores; `shards`: all; `scored`: those of sources that are scored."""

    scores: str
    shards: Shards
    scored: Shards


def perplexity(
    context: RunContext, recipe: Recipe, corpus: Corpus, step: Perplexity, learns_from: Corpus | None = None
) -> Corpus:
    """The corpus of the documents that the filter keeps, with the column `perplexity_bucket`."""
    remaining = learned_filter(context, recipe, corpus, step, learns_from)
    *measured, scores = remaining.measured
    places = corpus.places
    scored, _ = places.judged(step.reference)
    spec = StageSpec(
        name="perplexity_bucket",
        version=1,
        body=_bucket,
        record=step.decision_settings().model_copy(update=_WITHOUT_POLICY),
        inputs={"scores": scores},
        places=PerplexityBucketPlaces(scores.folder, places.shards(), scored),
        work=work_without_libraries(step),
    )
    bucketed = context.build(spec)
    stages = (*remaining.stages[:-1], bucketed, remaining.kept)
    return replace(remaining, measured=(*measured, bucketed, scores), stages=stages)


# The buckets do not depend on which of them are kept, and on other cuts.
_WITHOUT_POLICY = {
    name: Cuts.model_fields[name].default for name in ("min_percentile", "max_percentile", "keep_buckets")
}


def _bucket(phases: PhaseRunner, record: Cuts, places: PerplexityBucketPlaces) -> dict:
    """Put documents into buckets by their perplexity."""
    ends = phases.once(
        "ends", find_ends, {"settings": record, "scores": Parts(places.scores, places.scored)}, grows="documents"
    )
    jobs = Each(places.shards, lambda i: {"scores": layout.part(places.scores, i)})
    phases.map("bucket", bucket_shard, jobs, common={"by_language": record.by_language, "ends": ends["ends"]})
    return {"ends": ends["ends"]}


def embedding(
    context: RunContext, recipe: Recipe, corpus: Corpus, step: Embedding, learns_from: Corpus | None = None
) -> Corpus:
    """The corpus of the documents that the heads keep, with a column for each head. `learns_from`: not read, since
    heads are trained elsewhere."""
    embedder = embedder_files(context.placed(step).model, step.kind)
    vectors = embedding_vectors(context, corpus, step, embedder)
    if not step.heads:
        return corpus.through(vectors)
    scores = head_scores(context, corpus, step, embedder, vectors)
    return corpus.then(filter_cut(context, corpus, step, scores), vectors, scores).measuring(scores)


class DocumentEmbedding(Settings):
    reference: tuple[str, ...]
    settings: Embedder


@dataclass(frozen=True)
class EmbeddingVectorsPlaces:
    corpus: CorpusPlaces
    embedder: EmbedderFiles


def embedding_vectors(context: RunContext, corpus: Corpus, step: Embedding, embedder: EmbedderFiles) -> StageResult:
    """The vectors of a corpus."""
    spec = StageSpec(
        name="embedding_vectors",
        version=1,
        body=_embed,
        record=DocumentEmbedding(reference=tuple(sorted(step.reference)), settings=step.part(Embedder)),
        inputs=corpus.inputs() | {"model": embedder.model.digest, "tokenizer": embedder.tokenizer.digest},
        places=EmbeddingVectorsPlaces(corpus.places, embedder),
        work=Work(libraries=step.libraries, steps=(step.step,)),
    )
    return context.build(spec)


def _embed(phases: PhaseRunner, record: DocumentEmbedding, places: EmbeddingVectorsPlaces) -> dict:
    """Embed documents."""
    corpus = places.corpus
    common = {"embedder": places.embedder, "settings": record.settings}
    judged, _ = corpus.judged(record.reference)
    phases.map("embed", embed_shard, Each(judged, corpus.shard), common=common)
    return {}


class HeadScores(Settings):
    reference: tuple[str, ...]
    settings: HeadScoring


@dataclass(frozen=True)
class EmbeddingPlaces:
    """`vectors`: the folder of the parts with vectors."""

    corpus: CorpusPlaces
    vectors: str
    heads: Mapping[str, RecordedFile]


def head_scores(
    context: RunContext, corpus: Corpus, step: Embedding, embedder: EmbedderFiles, vectors: StageResult
) -> StageResult:
    """The scores that the step's heads give the vectors of a corpus, as the stage `embedding`."""
    paths = {name: files.absolute(path) for name, path in sorted(context.placed(step).heads.items())}
    heads = {name: RecordedFile(path, files.checksum(path)) for name, path in paths.items()}
    settings = HeadScoring(
        heads=tuple(heads),
        embedder=step.part(Embedder),
        model=embedder.model.digest,
        tokenizer=embedder.tokenizer.digest,
    )
    spec = StageSpec(
        name="embedding",
        version=1,
        body=_score_heads,
        record=HeadScores(reference=tuple(sorted(step.reference)), settings=settings),
        inputs=corpus.inputs(vectors) | {f"head {name}": file.digest for name, file in heads.items()},
        places=EmbeddingPlaces(corpus.places, vectors.folder, heads),
        work=work_without_libraries(step),
    )
    return context.build(spec)


def _score_heads(phases: PhaseRunner, record: HeadScores, places: EmbeddingPlaces) -> dict:
    """Score documents with heads."""
    corpus = places.corpus
    common = {"heads": dict(places.heads), "settings": record.settings}
    judged, passed = corpus.judged(record.reference)
    scored = Each(judged, lambda i: {"vectors": layout.part(places.vectors, i)})
    columns = tuple(column_of(name) for name in record.settings.heads)
    phases.map("score", score_shard, scored, common=common)
    phases.map("null-scores", null_scores_shard, passed, common={"signals": columns})
    heads = {name: head_files.load(file) for name, file in places.heads.items()}
    return {"heads": {name: {"kind": head.kind, **head.found} for name, head in heads.items()}}
