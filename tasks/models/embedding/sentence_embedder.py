"""Sentence embedders: a folder with the model, in ONNX or as a table of vectors of tokens, and `tokenizer.json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from safetensors import SafetensorError
from safetensors import numpy as safetensors
from tokenizers import Encoding, Tokenizer

from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.selection import select_groups
from gristmill.tasks.models.embedding.embedder import Embedder, vector_table
from gristmill.tasks.models.embedding.onnx_model import OnnxModel
from gristmill.tasks.models.model_files import ModelFileError

# As model2vec calls the table, and as sentence-transformers does.
_TABLES = ("embeddings", "embedding.weight")


class StaticModel:
    """A table that is loaded, in memory as it is in the file. Raises ModelFileError for another file."""

    special_tokens = False

    def __init__(self, file: RecordedFile, settings: Embedder, tokenizer: Tokenizer) -> None:
        self._path, self._most = file.path, settings.max_tokens
        tokenizer.no_truncation()
        self._unknown = _unknown(tokenizer)
        try:
            tensors = safetensors.load(file.read())
        except (SafetensorError, ValueError, KeyError) as error:
            raise ModelFileError(f"{file.path} is no safetensors file: {error}; copy it again") from error
        table = next((tensors[name] for name in _TABLES if name in tensors), None)
        if table is None or table.ndim != 2:
            raise ModelFileError(
                f"{file.path} has no table {' or '.join(_TABLES)}, but {', '.join(sorted(tensors)) or 'nothing'}; give "
                "a static embedder as model2vec saves it"
            )
        self.dimension = table.shape[1]
        self._table, self._rows, self._weights = table, tensors.get("mapping"), tensors.get("weights")

    def pooled(self, encoded: Encoding) -> np.ndarray | None:
        """The mean, float64 (dimension,), of the vectors of a text's known tokens; None where it has none."""
        ids = np.array([token for token in encoded.ids if token != self._unknown][: self._most], np.int64)
        if not len(ids):
            return None
        try:
            vectors = self._table[ids if self._rows is None else self._rows[ids]].astype(np.float64)
            if self._weights is not None:
                vectors *= self._weights[ids][:, None]
        except IndexError as error:
            raise ModelFileError(
                f"{self._path} has no vector for some tokens of the tokenizer.json with it ({error}); take both files "
                "from one embedder"
            ) from error
        return vectors.mean(axis=0)


def _unknown(tokenizer: Tokenizer) -> int | None:
    """The token that stands for what the tokenizer does not know; None where it has none."""
    model = json.loads(tokenizer.to_str())["model"]
    if model.get("unk_id") is not None:
        return model["unk_id"]
    return None if model.get("unk_token") is None else tokenizer.token_to_id(model["unk_token"])


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

    def __init__(self, recorded_files: EmbedderFiles, settings: Embedder) -> None:
        self._settings = settings
        self._path, self._tokens = recorded_files.model.path, recorded_files.tokenizer.path
        self._tokenizer = _tokenizer(recorded_files.tokenizer)
        self._model = _KINDS[settings.kind](recorded_files.model, settings, self._tokenizer)
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
            prefix_text = settings.prefix + text[: settings.characters]
            encoded = self._tokenizer.encode(prefix_text, add_special_tokens=self._model.special_tokens)
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
