"""`embedding`: documents embedded once, scored by heads over their vectors, and cut by these scores.

Its stages are `embedding_vectors`, `embedding` with the scores and `embedding_cut`; without heads the first alone. The
first knows nothing of heads, so that another head does not embed again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, work_of_steps
from gristmill.flows.stages.learned_filters import cut
from gristmill.storage import files, layout
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.models.embedding import heads as head_files
from gristmill.tasks.models.embedding.embedder import Embedder
from gristmill.tasks.models.embedding.embedding import Embedding, HeadScoring, column_of, score_shard
from gristmill.tasks.models.embedding.sentence_embedder import EmbedderFiles, embed_shard, embedder_files
from gristmill.tasks.models.filter import null_scores_shard


class Vectors(Settings):
    reference: tuple[str, ...]
    settings: Embedder


@dataclass(frozen=True)
class VectorPlaces:
    corpus: CorpusPlaces
    embedder: EmbedderFiles


def embed(phases: PhaseRunner, record: Vectors, places: VectorPlaces) -> dict:
    """Embed documents."""
    corpus = places.corpus
    given = {"embedder": places.embedder, "settings": record.settings}
    jobs = Each(corpus.shards(without=record.reference), corpus.shard)
    phases.map("embed", embed_shard, jobs, common=given)
    return {}


class Scoring(Settings):
    reference: tuple[str, ...]
    settings: HeadScoring


@dataclass(frozen=True)
class HeadPlaces:
    """`vectors`: the folder of the parts with vectors."""

    corpus: CorpusPlaces
    vectors: str
    heads: Mapping[str, RecordedFile]


def embedding(
    context: RunContext, recipe: Recipe, corpus: Corpus, step: Embedding, learns_from: Corpus | None = None
) -> Corpus:
    """The corpus of the documents that the heads keep, with a column for each head. `learns_from`: not read, since
    heads are trained elsewhere."""
    embedder = embedder_files(context.placed(step).model, step.kind)
    vectors = embedded(context, corpus, step, embedder)
    if not step.heads:
        return corpus.through(vectors)
    paths = {name: files.absolute(path) for name, path in sorted(context.placed(step).heads.items())}
    heads = {name: RecordedFile(path, files.checksum(path)) for name, path in paths.items()}
    record = Scoring(
        reference=tuple(sorted(step.reference)),
        settings=HeadScoring(
            heads=tuple(heads),
            embedder=step.part(Embedder),
            model=embedder.model.digest,
            tokenizer=embedder.tokenizer.digest,
        ),
    )
    where = HeadPlaces(corpus.places, vectors.folder, heads)
    inputs = corpus.inputs(vectors) | {f"head {name}": file.digest for name, file in heads.items()}
    work = work_of_steps((step,))
    work["libraries"] = ()  # of the embedder, whose vectors are an input
    scores = context.build(StageSpec("embedding", _score, record, inputs, where, version=1, **work))
    return corpus.then(cut(context, corpus, step, scores), vectors, scores).measuring(scores)


def embedded(context: RunContext, corpus: Corpus, step: Embedding, embedder: EmbedderFiles) -> StageResult:
    """The stage with the vectors of a corpus."""
    record = Vectors(reference=tuple(sorted(step.reference)), settings=step.part(Embedder))
    inputs = corpus.inputs() | {"model": embedder.model.digest, "tokenizer": embedder.tokenizer.digest}
    places = VectorPlaces(corpus.places, embedder)
    libraries, steps = step.libraries, (step.step,)
    spec = StageSpec("embedding_vectors", embed, record, inputs, places, version=1, libraries=libraries, steps=steps)
    return context.build(spec)


def _score(phases: PhaseRunner, record: Scoring, places: HeadPlaces) -> dict:
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
