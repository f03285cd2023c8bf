"""Sentence embedders: how a text becomes a vector, by a model in ONNX or a table of vectors of tokens.

An embedder is a folder with one of the two and `tokenizer.json`. Vectors are in Parquet: `id`, and `vector` as a list
of a fixed size of float16.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pyarrow as pa
import wrapt
from pydantic import Field, model_validator
from safetensors import numpy as safetensors

from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import RecordedFile, opening
from gristmill.tasks.documents.selection import select_groups
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine import extras
from gristmill.tasks.models.model_files import ModelFileError

if TYPE_CHECKING:
    import tokenizers
else:
    tokenizers = wrapt.lazy_import("tokenizers")


def vector_table(ids: Sequence[str] | pa.ChunkedArray, vectors: np.ndarray) -> pa.Table:
    """`vectors`: float16 (n, dimension)."""
    flat = pa.array(vectors.reshape(-1), pa.float16())
    return pa.table({"id": ids, "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])})


def vectors_of(table: pa.Table) -> np.ndarray:
    """The column `vector`: float16 (n, dimension)."""
    column = table["vector"].combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), column.type.list_size)


class Embedder(Settings):
    """What decides a vector, besides the text and the files of the embedder."""

    kind: Literal["onnx", "static"] = Field(
        "onnx",
        description="Type of the embedder. onnx: a model, in model.onnx. static: a table of token vectors, as "
        "model2vec saves it in model.safetensors, that are averaged; much faster, but ignores word order.",
    )
    pooling: Literal["mean", "cls", "none"] = Field(
        "mean",
        description="How the vectors of a text's tokens become one vector: their mean, the first (cls), or "
        "none if the model returns one vector itself.",
    )
    normalize: bool = Field(True, description="Divide each vector by its length.")
    prefix: str = Field(
        "", description="Text to add before every document, as the embedder's documentation says: `query: ` for E5."
    )
    max_tokens: int = Field(
        512, ge=4, description="Maximum number of tokens read from each document, including special tokens."
    )
    characters: int = Field(
        20_000, gt=0, description="Maximum number of characters read from each document before it is tokenized."
    )
    device: Literal["cpu", "cuda"] = Field(
        "cpu", description="Device that runs the model. cuda requires onnxruntime-gpu."
    )

    @model_validator(mode="after")
    def _of_static(self) -> Self:
        if self.kind == "static":
            for name, value in (("pooling", self.pooling), ("device", self.device)):
                if value != (only := type(self).model_fields[name].default):
                    raise ValueError(f"has {name}: {value}, but `kind: static` only supports {name}: {only}; remove it")
        return self

    @property
    def libraries(self) -> tuple[str, ...]:
        """The distributions whose release decides a vector."""
        if self.kind == "static":
            return ("tokenizers",)
        return ("onnxruntime-gpu" if self.device == "cuda" else "onnxruntime", "tokenizers")


# A sentence embedder in ONNX, as Hugging Face's tools export it: vectors of a text's tokens, pooled.
#
# One text is one call, without padding, on one thread: a vector depends only on the text, the files, the settings and
# the kind of processor. In a batch the sums of a matrix product may be taken in another order, which ONNX Runtime
# leaves open (microsoft/onnxruntime#7642, #9704); batches of equal length gain a fifth on a CPU at 128 tokens,
# and a tenth at 512.

# What the inputs of a model are called that Hugging Face's tools export.
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_DTYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_ERRORS_ONLY = 3  # ONNX Runtime's severities: verbose, info, warning, error, fatal


class OnnxModel:
    """A model that is loaded.

    Raises ModelFileError for a file that is not a complete embedder of the known form; ImportError, and RuntimeError
    for a device that is not there, with the remedy.
    """

    special_tokens = True  # are put around a text
    dimension = 0  # which its vectors tell

    def __init__(self, file: RecordedFile, settings: Embedder, tokenizer: "tokenizers.Tokenizer") -> None:
        self._settings, self._path = settings, file.path
        tokenizer.enable_truncation(settings.max_tokens)
        self._session = _session(file, settings)
        self._inputs = {each.name: each.type for each in self._session.get_inputs()}
        if "input_ids" not in self._inputs or (strange := sorted({*self._inputs} - {*_INPUTS})):
            wrong = f"the input {strange[0]}" if "input_ids" in self._inputs else "no input input_ids"
            raise ModelFileError(
                f"{self._path} has {wrong}; export it as a sentence embedder with inputs among {', '.join(_INPUTS)}"
            )
        self._output = self._session.get_outputs()[0].name

    def pooled(self, encoded: "tokenizers.Encoding") -> np.ndarray | None:
        """The vector, float64 (dimension,), of a text's tokens; None where it has none."""
        if not encoded.ids:
            return None
        encodings = dict(zip(_INPUTS, (encoded.ids, encoded.attention_mask, encoded.type_ids), strict=True))
        fed = {name: np.array([encodings[name]], _DTYPES[kind]) for name, kind in self._inputs.items()}
        try:
            [output] = self._session.run([self._output], fed)
        except _runtime_errors() as error:
            raise ModelFileError(
                f"{self._path} cannot read the tokens of its tokenizer.json: {' '.join(str(error).split())}; "
                "use both files of the same embedder, and lower `max_tokens` if the model reads fewer"
            ) from error
        n_dims = 2 if self._settings.pooling == "none" else 3
        if output.ndim != n_dims or len(output) != 1:
            kind = "one vector a text" if output.ndim == 2 else f"an array of shape {output.shape}"
            remedy = "`pooling: none`" if n_dims == 3 else "`pooling: mean` or `pooling: cls`"
            raise ModelFileError(
                f"{self._path} gives {kind} as {self._output}, which does not fit `pooling`; try {remedy}"
            )
        if self._settings.pooling == "mean":
            return output[0].mean(axis=0, dtype=np.float64)
        return output[0, 0].astype(np.float64) if self._settings.pooling == "cls" else output[0].astype(np.float64)


def _session(file: RecordedFile, settings: Embedder) -> Any:
    onnxruntime = runtime(settings.device)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = _ERRORS_ONLY
    # else files of the current folder that the model names are read, which no key would hold
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
    provider, content = _PROVIDERS[settings.device], file.read()
    with opening(file.path, "ONNX model with its weights in the same file", "copy or export it again", ModelFileError):
        session = onnxruntime.InferenceSession(content, options, providers=[provider])
    if provider not in session.get_providers():
        raise RuntimeError("`device: cuda` finds no GPU that ONNX Runtime can use; write `device: cpu`")
    session.disable_fallback()
    return session


def runtime(device: str) -> Any:
    """The package onnxruntime. Raises MissingExtraError if it is missing, and ImportError, with the fix, if it is not
    made for the device."""
    extras.require_all("step embedding", ["onnxruntime"])
    # From release 1.29 on it sends what models it loads to its makers, unless this is set before it is imported.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    if _PROVIDERS[device] not in onnxruntime.get_available_providers():
        raise ImportError(
            f"`device: {device}` needs another build of ONNX Runtime: pip uninstall onnxruntime, then pip install "
            "onnxruntime-gpu"
        )
    return onnxruntime


def _runtime_errors() -> tuple[type[Exception], ...]:
    """All errors of ONNX Runtime, which have no common class but Exception, and of its Python part."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    own = [each for each in vars(state).values() if isinstance(each, type) and issubclass(each, Exception)]
    return (*own, ValueError)


# As model2vec calls the table, and as sentence-transformers does.
_TABLES = ("embeddings", "embedding.weight")


class StaticModel:
    """A table that is loaded, in memory as it is in the file. Raises ModelFileError for another file."""

    special_tokens = False

    def __init__(self, file: RecordedFile, settings: Embedder, tokenizer: "tokenizers.Tokenizer") -> None:
        self._path, self._most = file.path, settings.max_tokens
        tokenizer.no_truncation()
        self._unknown = _unknown(tokenizer)
        content = file.read()
        with opening(file.path, "safetensors file", "copy it again", ModelFileError):
            tensors = safetensors.load(content)
        table = next((tensors[name] for name in _TABLES if name in tensors), None)
        if table is None or table.ndim != 2:
            raise ModelFileError(
                f"{file.path} has no table {' or '.join(_TABLES)}, but {', '.join(sorted(tensors)) or 'nothing'}; give "
                "a static embedder as model2vec saves it"
            )
        self.dimension = table.shape[1]
        self._table, self._rows, self._weights = table, tensors.get("mapping"), tensors.get("weights")

    def pooled(self, encoded: "tokenizers.Encoding") -> np.ndarray | None:
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
                f"{self._path} has no vector for some tokens of its tokenizer.json ({error}); use both files "
                "of the same embedder"
            ) from error
        return vectors.mean(axis=0)


def _unknown(tokenizer: "tokenizers.Tokenizer") -> int | None:
    """The tokenizer's token for unknown text; None if it has none."""
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
        remedy = f"write `kind: {other}` for the existing model" if other else _REMEDIES[kind]
        raise ModelFileError(f"{folder} has {lacks}; {remedy}")
    if not files.exists(tokenizer):
        raise ModelFileError(f"{tokenizer} is missing; copy the tokenizer of the embedder to it")
    return EmbedderFiles(*(RecordedFile(path, files.checksum(path)) for path in (model, tokenizer)))


class SentenceEmbedder:
    """An embedder that is loaded. `dimension`: of its vectors.

    Raises ModelFileError for files that are not a complete embedder of the known form, and what its model raises.
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
            raise ModelFileError(f"{self._tokens} makes no token for a letter; copy the embedder's file again")

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
                f"{self._path} gives a vector with numbers that are not finite, or over 65504, the limit of "
                "16 bits; write `normalize: true`, or use another export of the model"
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


def _tokenizer(file: RecordedFile) -> "tokenizers.Tokenizer":
    content = file.read()
    with opening(file.path, "tokenizer.json", "copy it again", ModelFileError):
        tokenizer = tokenizers.Tokenizer.from_str(content.decode())
    tokenizer.no_padding()
    return tokenizer
