"""Gradient-boosted trees as flat arrays: read from a safetensors file, applied without Python objects."""

from collections import namedtuple
from pathlib import Path

import numba as nb
import numpy as np
from safetensors.numpy import load_file

import tasks.kernels  # noqa: F401  (says where kernels are kept)

Forest = namedtuple("Forest", "feature threshold right value start bias")
Forest.__doc__ = """A sum of trees. A node's left child follows it.

feature: int16, -1 in a leaf. threshold: float32, left if the number is not above it. right: int32, the other child.
value: float32, of a leaf. start: int32, the root of each tree. bias: float32, shape (1,), added to the sum.
"""


def load(path: Path, name: str) -> Forest:
    """The forest `name` of a file; holds 16 bytes for each node.

    Raises FileNotFoundError, and ValueError for a file without it.
    """
    arrays = load_file(path)
    try:
        return Forest(*(arrays[f"{name}.{field}"] for field in Forest._fields))
    except KeyError as error:
        raise ValueError(f"{path} holds no array {error}; train it again with tools.train_blocks.train") from None


@nb.njit(nogil=True, cache=True)
def probability(forest: Forest, rows: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` (float32) with the probability that the forest gives to each row (float32, C order)."""
    for k in range(len(rows)):
        row = rows[k]
        total = np.float64(forest.bias[0])
        for tree in range(len(forest.start)):
            node = np.int64(forest.start[tree])
            while forest.feature[node] >= 0:
                if row[forest.feature[node]] <= forest.threshold[node]:
                    node += 1
                else:
                    node = np.int64(forest.right[node])
            total += forest.value[node]
        out[k] = 1 / (1 + np.exp(-total))
