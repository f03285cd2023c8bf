"""The vectors of documents: a stage that knows nothing of heads, so that another head does not embed again."""

from dataclasses import dataclass

from flows.stages.corpus import CorpusPlaces
from tasks.documents.step import Settings
from tasks.engine.phases import PhaseRunner
from tasks.models.embedder import Embedder
from tasks.models.onnx_embedder import EmbedderFiles, embed_shard


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
    phases.map("embed", embed_shard, {i: corpus.shard(i) | given for i in corpus.shards(without=record.reference)})
    return {}
