"""Gradient-boosted trees as flat arrays: read from a safetensors file, applied without Python objects."""

from collections import namedtuple
from pathlib import Path
from typing import NamedTuple

import numba as nb
import numpy as np
from safetensors.numpy import load_file

from gristmill.tasks.kernels.buffers import trailing_zeros

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


class Masks(NamedTuple):
    """A forest as lists of tests, in the order of its trees, by which blocks of rows are answered at once.

    feature: int32, threshold: float32, of each test. mask: uint32, has the bits of the leaves that a row may still end
    in if it fails the test: all but those of the test's left child. tests: int64, the first test of each tree and the
    number of all. value: float32, of each leaf; leaves: int64, the first leaf of each tree. bias: float32, shape (1,).
    """

    feature: np.ndarray
    threshold: np.ndarray
    mask: np.ndarray
    tests: np.ndarray
    value: np.ndarray
    leaves: np.ndarray
    bias: np.ndarray


def masks(forest: Forest) -> Masks:
    """The tests of a forest. Raises ValueError for a tree of more than 32 leaves."""
    leaf = forest.feature < 0
    before = np.cumsum(leaf) - leaf  # leaves before each node
    leaves = before[forest.start]
    most = int(np.diff(leaves, append=leaf.sum()).max())
    if most > 32:
        raise ValueError(f"a tree of the block model has {most} leaves, more than 32; train it with fewer num_leaves")
    inner = np.flatnonzero(~leaf)
    base = leaves[np.searchsorted(forest.start, inner, "right") - 1]
    first, last = before[inner] - base, before[forest.right[inner]] - base
    return Masks(
        forest.feature[inner].astype(np.int32),
        forest.threshold[inner],
        ~((1 << last) - (1 << first)).astype(np.uint32),
        np.append(forest.start - leaves, len(inner)),
        forest.value[leaf],
        leaves,
        forest.bias,
    )


@nb.njit(nogil=True, cache=True)
def probability(masks: Masks, columns: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` (float32) with the probability that a forest gives to each row; `columns`: float32, shape (features,
    rows), C order.

    Every test of a tree is made for all rows: no branch is guessed wrong, and a processor does several rows at once.
    The leaf of a row is the first one that no failed test excludes (QuickScorer, Lucchese et al. 2015).
    """
    every = np.uint32(0xFFFFFFFF)
    total = np.full(len(out), np.float64(masks.bias[0]))
    left = np.empty(len(out), np.uint32)
    for tree in range(len(masks.leaves)):
        left[:] = every
        for test in range(masks.tests[tree], masks.tests[tree + 1]):
            column = columns[masks.feature[test]]
            threshold, mask = masks.threshold[test], masks.mask[test]
            for k in range(len(out)):
                left[k] &= every if column[k] <= threshold else mask
        for k in range(len(out)):
            total[k] += masks.value[masks.leaves[tree] + trailing_zeros(np.uint64(left[k]))]
    for k in range(len(out)):
        out[k] = 1 / (1 + np.exp(-total[k]))
