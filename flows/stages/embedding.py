"""`embedding`: documents embedded once, scored by heads over their vectors, and cut by these scores.

Its stages are `embedding_vectors`, `embedding` with the scores and `embedding_cut`; without heads only the first. The
first does not depend on heads, so a change of heads does not embed the documents again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces
from gristmill.flows.stages.learned_filters import filter_cut, work_without_libraries
from gristmill.storage import files, layout
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, Work
from gristmill.tasks.models import heads as head_files
from gristmill.tasks.models.embedders import Embedder, EmbedderFiles, embed_shard, embedder_files
from gristmill.tasks.models.embedding import Embedding, HeadScoring, column_of, score_shard
from gristmill.tasks.models.filter import null_scores_shard


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
    given = {"embedder": places.embedder, "settings": record.settings}
    jobs = Each(corpus.shards(without=record.reference), corpus.shard)
    phases.map("embed", embed_shard, jobs, common=given)
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
        body=_score,
        record=HeadScores(reference=tuple(sorted(step.reference)), settings=settings),
        inputs=corpus.inputs(vectors) | {f"head {name}": file.digest for name, file in heads.items()},
        places=EmbeddingPlaces(corpus.places, vectors.folder, heads),
        work=work_without_libraries(step),
    )
    return context.build(spec)


def _score(phases: PhaseRunner, record: HeadScores, places: EmbeddingPlaces) -> dict:
    """Score documents by heads."""
    corpus = places.corpus
    given = {"heads": dict(places.heads), "settings": record.settings}
    scored = Each(corpus.shards(without=record.reference), lambda i: {"vectors": layout.part(places.vectors, i)})
    columns = tuple(column_of(name) for name in record.settings.heads)
    unscored = Each(corpus.sources.shards(record.reference), lambda i: {"kept": corpus.kept[i]})
    phases.map("score", score_shard, scored, common=given)
    phases.map("null-scores", null_scores_shard, unscored, common={"signals": columns})
    heads = {name: head_files.load(file) for name, file in places.heads.items()}
    return {"heads": {name: {"kind": head.kind, **head.found} for name, head in heads.items()}}
