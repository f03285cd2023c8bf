"""A sentence embedder in ONNX, as Hugging Face's tools export it: vectors of a text's tokens, pooled.

One text is one call, without padding, on one thread: a vector depends on the text, the files, the settings and the
kind of processor alone. In a batch the sums of a matrix product may be taken in another order, which ONNX Runtime
leaves open (microsoft/onnxruntime#7642, #9704); batches of equal length gain a fifth on a CPU at 128 tokens,
and a tenth at 512.
"""

import os
from importlib.util import find_spec
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer

from gristmill.storage.damage import RecordedFile
from gristmill.tasks.models.embedding.embedder import Embedder
from gristmill.tasks.models.model_files import ModelFileError

# What the inputs of a model are called that Hugging Face's tools export.
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_DTYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_ERRORS_ONLY = 3  # ONNX Runtime's severities: verbose, info, warning, error, fatal


class OnnxModel:
    """A model that is loaded.

    Raises ModelFileError for a file that is no whole embedder of the known form; ImportError, and RuntimeError for a
    device that is not there, with the remedy.
    """

    special_tokens = True  # are put around a text
    dimension = 0  # which its vectors tell

    def __init__(self, file: RecordedFile, settings: Embedder, tokenizer: Tokenizer) -> None:
        self._settings, self._path = settings, file.path
        tokenizer.enable_truncation(settings.max_tokens)
        self._session = _session(file, settings)
        self._inputs = {each.name: each.type for each in self._session.get_inputs()}
        if "input_ids" not in self._inputs or (strange := sorted({*self._inputs} - {*_INPUTS})):
            wrong = f"the input {strange[0]}" if "input_ids" in self._inputs else "no input input_ids"
            raise ModelFileError(
                f"{self._path} has {wrong}; export it as a sentence embedder, whose inputs are of {', '.join(_INPUTS)}"
            )
        self._output = self._session.get_outputs()[0].name

    def pooled(self, encoded: Encoding) -> np.ndarray | None:
        """One vector, float64 (dimension,), of the tokens of a text; None where it has none."""
        if not encoded.ids:
            return None
        encodings = dict(zip(_INPUTS, (encoded.ids, encoded.attention_mask, encoded.type_ids), strict=True))
        fed = {name: np.array([encodings[name]], _DTYPES[kind]) for name, kind in self._inputs.items()}
        try:
            [output] = self._session.run([self._output], fed)
        except _runtime_errors() as error:
            raise ModelFileError(
                f"{self._path} cannot read the tokens of the tokenizer.json with it: {' '.join(str(error).split())}; "
                "take both files from one embedder, and lower `max_tokens` where the model reads fewer"
            ) from error
        n_dims = 2 if self._settings.pooling == "none" else 3
        if output.ndim != n_dims or len(output) != 1:
            kind = "one vector a text" if output.ndim == 2 else f"an array of shape {output.shape}"
            remedy = "`pooling: none`" if n_dims == 3 else "`pooling: mean` or `pooling: cls`"
            raise ModelFileError(f"{self._path} gives {kind} as {self._output}, not what is to be pooled; try {remedy}")
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
