"""Heads: small models on the vectors of an embedder, as safetensors with a description of what made them.

A file has `weight`, float64 (dimension,), and `bias`, float64 (1,). Its metadata has one entry, `gristmill_head`: JSON
with the `kind`, the `embedder` whose vectors it reads, what it was trained on and how good it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gristmill.storage import files
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.models.model_files import ModelFileError

_ENTRY = "gristmill_head"
_KINDS = ("ridge", "logistic")
_ROWS = 1 << 12  # whose scores are computed at once


@dataclass(frozen=True)
class Head:
    """`kind`: ridge, whose score is `vector · weight + bias`, or logistic, whose score is the logistic function of it.
    `embedder`: the digests `model` and `tokenizer` of its files, and the settings that decide its vectors."""

    kind: str
    weight: np.ndarray
    bias: float
    embedder: Mapping[str, Any]
    found: Mapping[str, Any]


def write(path: str, head: Head) -> None:
    """Write a head. The same head gives the same bytes."""
    described = {"kind": head.kind, "embedder": dict(head.embedder), **head.found}
    metadata = {_ENTRY: orjson.dumps(described, option=orjson.OPT_SORT_KEYS).decode()}
    files.write_bytes(path, save({"bias": np.array([head.bias]), "weight": head.weight}, metadata))


@lru_cache(16)
def load(file: RecordedFile) -> Head:
    """Raises ModelFileError for a file that is no whole head; FileNotFoundError, and DamagedFileError."""
    try:
        with safe_open(file.local(), "numpy") as read:
            described = orjson.loads((read.metadata() or {})[_ENTRY])
            kind, embedder = described.pop("kind"), described.pop("embedder")
            weight, bias = read.get_tensor("weight"), read.get_tensor("bias")
        shapes = weight.ndim, bias.shape
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelFileError(
            f"{file.path} is no whole head ({error}); copy it again, or make it by `gristmill train head`"
        ) from error
    sound = shapes == (1, (1,)) and weight.dtype == bias.dtype == np.float64 and isinstance(embedder, dict)
    if not sound or kind not in _KINDS or not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise ModelFileError(f"{file.path} is no head of a known form; make it by `gristmill train head`")
    return Head(kind, weight, float(bias[0]), embedder, described)


def check_fits(path: str, head: Head, embedder: Mapping[str, Any], dimension: int) -> None:
    """Raise ModelFileError for a head that was trained on the vectors of another embedder, by other settings, or on
    longer or shorter ones."""
    for name, wanted in head.embedder.items():
        if (given := embedder.get(name)) == wanted:
            continue
        if name in ("model", "tokenizer"):
            raise ModelFileError(
                f"{path} was trained on the vectors of another {name}; name the folder of that embedder in `model`, or "
                "train the head anew by `gristmill train head`"
            )
        raise ModelFileError(
            f"{path} was trained with {name} {wanted!r}, and the step has {given!r}; write "
            f"`{name}: {orjson.dumps(wanted).decode()}`"
        )
    if len(head.weight) != dimension:
        raise ModelFileError(
            f"{path} has {len(head.weight)} weights for vectors of {dimension} numbers; train the head anew"
        )


def scores(head: Head, vectors: np.ndarray) -> np.ndarray:
    """The score of each vector: float64 (n,), of float16 (n, dimension). Other rows change no bit of it.

    A matrix product by BLAS sums otherwise for other numbers of rows; numpy's sum along a row does not.
    """
    found = np.empty(len(vectors))
    for start in range(0, len(vectors), _ROWS):
        some = vectors[start : start + _ROWS].astype(np.float64)
        found[start : start + _ROWS] = np.sum(np.multiply(some, head.weight, order="C"), axis=1)
    found += head.bias
    if head.kind == "ridge":
        return found
    # of the negative magnitude, so that nothing overflows
    small = np.exp(-np.abs(found))
    return np.where(found >= 0, 1 / (1 + small), small / (1 + small))
