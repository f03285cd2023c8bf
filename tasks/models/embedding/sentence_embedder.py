"""Sentence embedders: a folder with the model, in ONNX or as a table of vectors of tokens, and `tokenizer.json`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.selection import select_groups
from gristmill.tasks.models.embedding.embedder import Embedder
from gristmill.tasks.models.embedding.onnx_model import OnnxModel
from gristmill.tasks.models.embedding.static_model import StaticModel
from gristmill.tasks.models.embedding.vectors import vector_table
from gristmill.tasks.models.model_files import ModelFileError

_MODELS = {"onnx": ("model.onnx", "onnx/model.onnx"), "static": ("model.safetensors",)}
_KINDS: Mapping[str, type[OnnxModel] | type[StaticModel]] = {"onnx": OnnxModel, "static": StaticModel}
_REMEDIES = {
    "onnx": "export the embedder to ONNX, or correct the path",
    "static": "save the embedder with model2vec, or correct the path",
}
_TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class EmbedderFiles:
    """The two files of an embedder, with their digests."""

    model: RecordedFile
    tokenizer: RecordedFile


def embedder_files(folder: str, kind: str) -> EmbedderFiles:
    """The files of an embedder of a kind in a folder, as they are now. Raises ModelFileError, which names what is
    missing."""
    folder = files.absolute(folder)  # a worker may run in another folder
    names = _MODELS[kind]
    model = next((path for name in names if files.exists(path := files.join(folder, name))), None)
    tokenizer = files.join(folder, _TOKENIZER)
    if model is None:
        lacks = f"neither {' nor '.join(names)}" if len(names) > 1 else f"no {names[0]}"
        other = next(
            (k for k, ms in _MODELS.items() if any(files.exists(files.join(folder, name)) for name in ms)), None
        )
        remedy = f"write `kind: {other}` for the model that is there" if other else _REMEDIES[kind]
        raise ModelFileError(f"{folder} has {lacks}; {remedy}")
    if not files.exists(tokenizer):
        raise ModelFileError(f"{tokenizer} is missing; copy the tokenizer of the embedder to it")
    return EmbedderFiles(*(RecordedFile(path, files.checksum(path)) for path in (model, tokenizer)))


class SentenceEmbedder:
    """An embedder that is loaded. `dimension`: of its vectors.

    Raises ModelFileError for files that are no whole embedder of the known form, and what its model raises.
    """

    def __init__(self, given: EmbedderFiles, settings: Embedder) -> None:
        self._settings = settings
        self._path, self._tokens = given.model.path, given.tokenizer.path
        self._tokenizer = _tokenizer(given.tokenizer)
        self._model = _KINDS[settings.kind](given.model, settings, self._tokenizer)
        self.dimension = self._model.dimension
        # as many tokens as it will be given, which the model may have no positions for
        self.dimension = len(self.vector("a " * settings.max_tokens))
        if not self.dimension:
            raise ModelFileError(f"{self._tokens} makes no token of a letter; copy that of the embedder again")

    def vector(self, text: str) -> np.ndarray:
        """The vector of a text: float16 (dimension,). Of a text without a token it is zero.

        Raises ValueError for a vector that is not finite in 16 bits.
        """
        settings = self._settings
        try:
            read = settings.prefix + text[: settings.characters]
            encoded = self._tokenizer.encode(read, add_special_tokens=self._model.special_tokens)
        except Exception as error:  # the package raises nothing more special
            raise ModelFileError(f"{self._tokens} cannot read a text: {error}; copy it again") from error
        vector = self._model.pooled(encoded)
        if vector is None:
            return np.zeros(self.dimension, np.float16)
        if settings.normalize and (length := np.sqrt(np.sum(vector * vector))):
            vector = vector / length
        with np.errstate(over="ignore"):
            rounded = vector.astype(np.float16)
        if not np.isfinite(rounded).all():
            raise ValueError(
                f"{self._path} gives a vector with numbers that are not finite, or over 65504, which 16 bits do not "
                "hold; write `normalize: true`, or take another export of the model"
            )
        return rounded


load = lru_cache(1)(SentenceEmbedder)


def embed_shard(
    folder: str, shard: int, documents: str, kept: str, embedder: EmbedderFiles, settings: Embedder
) -> dict:
    """Write `id` and `vector`, float16 of a fixed size, of a selection's documents. Holds the vectors of one shard."""
    model = load(embedder, settings)
    ids: list[pa.ChunkedArray] = []
    vectors = [np.empty((0, model.dimension), np.float16)]
    for table in select_groups(documents, kept, ["text"]):
        ids.append(table["id"])
        vectors += [model.vector(text.as_py())[None] for chunk in table["text"].chunks for text in chunk]
    names = pa.chunked_array([chunk for each in ids for chunk in each.chunks], pa.string())
    parquet.write_table(layout.part(folder, shard), vector_table(names, np.concatenate(vectors)))
    return {"rows": len(names)}


def _tokenizer(file: RecordedFile) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(file.read().decode())
    except Exception as error:  # the package raises nothing more special
        raise ModelFileError(f"{file.path} is no tokenizer.json: {error}; copy it again") from error
    tokenizer.no_padding()
    return tokenizer
