"""`distill`: a model learned from annotations of some documents, the scores that it gives to all, a cut by scores.

The stages are `distill_model`, `distill` and `distill_cut`; a head's vectors are the stage `embedding_vectors`, which a
step `embedding` with the same settings shares. The cut is chosen before documents are scored, to see that the
annotations identify it, and again by the stage that makes the cut, from the scores that it reads.
"""

from dataclasses import dataclass
from typing import Any

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, held_out, work_of_steps
from gristmill.flows.stages.learned_filters import embedding_vectors, filter_cut, work_without_libraries
from gristmill.storage import files, layout
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.by_shard import Parts
from gristmill.tasks.documents.selection import Heldout
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.models.distillation.held_out import described_measures
from gristmill.tasks.models.distillation.learn import (
    check_cut,
    count_shard,
    gather_shard,
    gathered_folder,
    one_kind,
    score_shard,
    train_model,
)
from gristmill.tasks.models.distillation.step import HOST, Distill, Learning, columns_of
from gristmill.tasks.models.embedders import EmbedderFiles, embedder_files
from gristmill.tasks.models.embedding import described
from gristmill.tasks.models.filter import null_scores_shard


class DistillTraining(Settings):
    """`embedder`: as heads name it; empty for another model."""

    reference: tuple[str, ...]
    settings: Learning
    embedder: dict[str, Any]
    heldout: Heldout


class DistillScoring(Settings):
    reference: tuple[str, ...]
    settings: Learning


@dataclass(frozen=True)
class DistillPlaces:
    """`vectors`: the folder of the parts with vectors, "" without a head; `models`: the files of the model."""

    corpus: CorpusPlaces
    vectors: str
    models: tuple[RecordedFile, ...] = ()


def distillation(
    context: RunContext, recipe: Recipe, corpus: Corpus, step: Distill, learns_from: Corpus | None = None
) -> Corpus:
    """The corpus of the documents that the step keeps, with their scores. `learns_from`: a part of the corpus that the
    model is trained on and measured with, not all of it. Raises CutError where the annotations identify no cut."""
    embedder, vectors = None, None
    if step.kind == "head":
        own = context.placed(step).embedding
        embedder = embedder_files(own.model, own.kind)
        vectors = embedding_vectors(context, corpus, own, embedder)
    model = distill_model(context, recipe, learns_from or corpus, step, embedder, vectors)
    check_cut(step.decision_settings(), model.file(model.result["model"]["files"][1]))
    scores = distill_scores(context, corpus, step, model, vectors)
    through = (model, scores) if vectors is None else (vectors, model, scores)
    return corpus.then(filter_cut(context, corpus, step, scores), *through).measuring(scores)


def distill_model(
    context: RunContext,
    recipe: Recipe,
    learns_from: Corpus,
    step: Distill,
    embedder: EmbedderFiles | None,
    vectors: StageResult | None,
) -> StageResult:
    """The model of the step, and what the held-out annotations say of it."""
    own: dict[str, Any] = {}
    if embedder is not None:
        own = described(embedder.model.digest, embedder.tokenizer.digest, step.embedder)
    spec = StageSpec(
        name="distill_model",
        version=1,
        body=_learn,
        record=DistillTraining(
            reference=tuple(sorted(step.reference)),
            settings=step.training_settings(),
            embedder=own,
            heldout=held_out(recipe, learns_from),
        ),
        inputs=learns_from.inputs(*([] if vectors is None else [vectors]), signals=True),
        places=DistillPlaces(learns_from.places, "" if vectors is None else vectors.folder),
        work=work_of_steps((step,)),
    )
    return context.build(spec)


def _learn(phases: PhaseRunner, record: DistillTraining, places: DistillPlaces) -> dict:
    """Learn from annotations."""
    corpus, settings = places.corpus, record.settings
    shards, _ = corpus.judged(record.reference)
    read = Each(shards, lambda i: {**corpus.shard(i), "signals": corpus.signals[i]})
    common: dict[str, Any] = {"of": settings.of, "weight": settings.weight, "heldout": record.heldout}
    total, kind = one_kind(phases.map("count", count_shard, read, temporary=True, common=common).values(), settings)
    common = {"settings": settings, "heldout": record.heldout, "share": min(1.0, settings.annotations / total)}
    drawn = Each(shards, lambda i: {**read[i], **_vectors(places, i)})
    phases.map("gather", gather_shard, drawn, temporary=True, common=common)
    gathered = Parts(gathered_folder(phases.folder), shards)
    arguments = {"gathered": gathered, "settings": settings, "kind": kind, "embedder": record.embedder}
    model = phases.once("train", train_model, arguments)
    files.remove(gathered_folder(phases.folder))
    phases.message(described_measures(model))
    return {"model": {"found": total, **model}}


def _vectors(places: DistillPlaces, shard: int) -> dict[str, str]:
    return {"vectors": layout.part(places.vectors, shard)} if places.vectors else {}


def distill_scores(
    context: RunContext, corpus: Corpus, step: Distill, model: StageResult, vectors: StageResult | None
) -> StageResult:
    """The scores of the documents, as the stage `distill`."""
    spec = StageSpec(
        name="distill",
        version=1,
        body=_score,
        record=DistillScoring(reference=tuple(sorted(step.reference)), settings=step.training_settings()),
        inputs=corpus.inputs(model, *([] if vectors is None else [vectors])),
        places=DistillPlaces(
            corpus.places,
            "" if vectors is None else vectors.folder,
            tuple(map(model.file, model.result["model"]["files"])),
        ),
        work=work_of_steps((step,)) if vectors is None else work_without_libraries(step),
    )
    return context.build(spec)


def _score(phases: PhaseRunner, record: DistillScoring, places: DistillPlaces) -> dict:
    """Score documents with the learned model."""
    corpus = places.corpus
    judged, passed = corpus.judged(record.reference)
    scored = Each(judged, lambda i: {**corpus.shard(i), **_vectors(places, i)})
    phases.map("score", score_shard, scored, common={"models": places.models, "settings": record.settings})
    columns = {"signals": columns_of(record.settings), "groups": (HOST,)}
    phases.map("null-scores", null_scores_shard, passed, common=columns)
    return {}
