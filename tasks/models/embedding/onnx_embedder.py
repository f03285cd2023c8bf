"""Sentence embedders in ONNX: a folder as Hugging Face has it, with `model.onnx` or `onnx/model.onnx`, and
`tokenizer.json`.

One text is one call, without padding, on one thread: a vector depends on the text, the files, the settings and the
kind of processor alone. In a batch the sums of a matrix product may be taken in another order, which ONNX Runtime
leaves open (microsoft/onnxruntime#7642, #9704); batches of equal length gain a fifth on a CPU at 128 tokens,
and a tenth at 512.
"""

import os
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.selection import select_groups
from gristmill.tasks.models.embedding.embedder import Embedder
from gristmill.tasks.models.embedding.vectors import vector_table
from gristmill.tasks.models.model_files import ModelFileError

_MODELS = ("model.onnx", "onnx/model.onnx")
_TOKENIZER = "tokenizer.json"
# What the inputs of a model are called that Hugging Face's tools export.
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_ERRORS_ONLY = 3  # ONNX Runtime's severities: verbose, info, warning, error, fatal


@dataclass(frozen=True)
class EmbedderFiles:
    """The two files of an embedder, with their digests."""

    model: RecordedFile
    tokenizer: RecordedFile


def embedder_files(folder: str) -> EmbedderFiles:
    """The files of an embedder in a folder, as they are now. Raises ModelFileError, which names what is
    missing."""
    folder = files.absolute(folder)  # a worker may run in another folder
    model = next((path for name in _MODELS if files.exists(path := files.join(folder, name))), None)
    tokenizer = files.join(folder, _TOKENIZER)
    if model is None:
        raise ModelFileError(
            f"{folder} has neither {' nor '.join(_MODELS)}; export the embedder to ONNX, or correct the path"
        )
    if not files.exists(tokenizer):
        raise ModelFileError(f"{tokenizer} is missing; copy the tokenizer of the embedder to it")
    return EmbedderFiles(*(RecordedFile(path, files.checksum(path)) for path in (model, tokenizer)))


class SentenceEmbedder:
    """An embedder that is loaded. `dimension`: of its vectors.

    Raises ModelFileError for files that are no whole embedder of the known form; ImportError, and RuntimeError for a
    device that is not there, with the remedy.
    """

    def __init__(self, given: EmbedderFiles, settings: Embedder) -> None:
        self._settings = settings
        self._path, self._tokens = given.model.path, given.tokenizer.path
        self._tokenizer = _tokenizer(given.tokenizer, settings.max_tokens)
        self._session = _session(given.model, settings)
        self._inputs = {each.name: each.type for each in self._session.get_inputs()}
        if "input_ids" not in self._inputs or (strange := sorted({*self._inputs} - {*_INPUTS})):
            wrong = f"the input {strange[0]}" if "input_ids" in self._inputs else "no input input_ids"
            raise ModelFileError(
                f"{self._path} has {wrong}; export it as a sentence embedder, whose inputs are of {', '.join(_INPUTS)}"
            )
        self._output = self._session.get_outputs()[0].name
        self.dimension = 0
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
            encoded = self._tokenizer.encode(settings.prefix + text[: settings.characters])
        except Exception as error:  # the package raises nothing more special
            raise ModelFileError(f"{self._tokens} cannot read a text: {error}; copy it again") from error
        if not encoded.ids:
            return np.zeros(self.dimension, np.float16)
        given = dict(zip(_INPUTS, (encoded.ids, encoded.attention_mask, encoded.type_ids), strict=True))
        fed = {name: np.array([given[name]], _DTYPES[kind]) for name, kind in self._inputs.items()}
        try:
            [found] = self._session.run([self._output], fed)
        except _runtime_errors() as error:
            raise ModelFileError(
                f"{self._path} cannot read the tokens of the tokenizer.json with it: {' '.join(str(error).split())}; "
                "take both files from one embedder, and lower `max_tokens` where the model reads fewer"
            ) from error
        vector = self._pooled(found)
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

    def _pooled(self, found: np.ndarray) -> np.ndarray:
        """One vector, float64, of what the model gives for one text."""
        wanted = 2 if self._settings.pooling == "none" else 3
        if found.ndim != wanted or len(found) != 1:
            kind = "one vector a text" if found.ndim == 2 else f"an array of shape {found.shape}"
            remedy = "`pooling: none`" if wanted == 3 else "`pooling: mean` or `pooling: cls`"
            raise ModelFileError(f"{self._path} gives {kind} as {self._output}, not what is to be pooled; try {remedy}")
        if self._settings.pooling == "mean":
            return found[0].mean(axis=0, dtype=np.float64)
        return found[0, 0].astype(np.float64) if self._settings.pooling == "cls" else found[0].astype(np.float64)


_DTYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}

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


def _tokenizer(file: RecordedFile, max_tokens: int) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(file.read().decode())
    except Exception as error:  # the package raises nothing more special
        raise ModelFileError(f"{file.path} is no tokenizer.json: {error}; copy it again") from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    return tokenizer


def _session(file: RecordedFile, settings: Embedder) -> Any:
    onnxruntime = runtime(settings.device)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = _ERRORS_ONLY
    # else files of the current folder that the model names are read, which no key would hold
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
    provider = _PROVIDERS[settings.device]
    try:
        session = onnxruntime.InferenceSession(file.read(), options, providers=[provider])
    except _runtime_errors() as error:
        raise ModelFileError(
            f"{file.path} is no whole ONNX model with its weights in the same file: {' '.join(str(error).split())}; "
            "copy or export it again"
        ) from error
    if provider not in session.get_providers():
        raise RuntimeError("`device: cuda` finds no GPU that ONNX Runtime can use; write `device: cpu`")
    session.disable_fallback()
    return session


def runtime(device: str) -> Any:
    """The package onnxruntime. Raises ImportError, with the remedy, if it is missing or not made for the device."""
    if find_spec("onnxruntime") is None:
        raise ImportError("the step `embedding` needs onnxruntime: pip install 'gristmill[embedding]'")
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
