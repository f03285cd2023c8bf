"""How like each of many documents is to one of a few sets of shingles."""

import numba as nb
import numpy as np

from tasks.kernels.shingles import document_shingles, scratch, word_bytes


def likeness(
    data: np.ndarray, offsets: np.ndarray, n: int, unit: str, which: np.ndarray, values: np.ndarray, bounds: np.ndarray
) -> np.ndarray:
    """Jaccard similarity, float64, of the n-grams of each document to the set that `which` (int64) numbers.

    `data`, `offsets`: UTF-8 as `buffers.utf8` gives it; set `k`, which is not empty, is `values[bounds[k]:bounds[k +
    1]]`, uint64, as `shingles.SHINGLES[unit]` gives it. A document's set is not held, nor sorted: its shingles are
    looked up. Held: 16 to 32 bytes a value of the sets, and what `shingles.scratch` says.
    """
    by_character = {"words": False, "characters": True}[unit]
    return _likeness(data, offsets, n, by_character, word_bytes(), which, values, bounds)


@nb.njit(nogil=True, cache=True)
def _likeness(data, offsets, n, by_character, characters, which, values, bounds):
    starts = np.zeros(bounds.shape[0], np.int64)
    for k in range(bounds.shape[0] - 1):
        size = 2
        while size < 2 * (bounds[k + 1] - bounds[k]):
            size *= 2
        starts[k + 1] = starts[k] + size
    # Open addressing by the lowest bits, which are as good as any: shingles are mixed. A free place has a zero; that a
    # shingle is zero is as rare as that two are equal by chance.
    table = np.zeros(starts[-1], np.uint64)
    for k in range(bounds.shape[0] - 1):
        part = table[starts[k] : starts[k + 1]]
        for i in range(bounds[k], bounds[k + 1]):
            part[_place(part, values[i])] = values[i]
    room = scratch(offsets, by_character)
    hashes = np.empty(room[2].shape[0], np.uint64)
    out = np.empty(offsets.shape[0] - 1)
    for d in range(out.shape[0]):
        k = which[d]
        part = table[starts[k] : starts[k + 1]]
        count = document_shingles(data, offsets[d], offsets[d + 1], n, by_character, characters, room, hashes)
        same = 0
        for i in range(count):
            same += part[_place(part, hashes[i])] == hashes[i]
        out[d] = same / (count + bounds[k + 1] - bounds[k] - same)
    return out


@nb.njit(nogil=True, cache=True, inline="always")
def _place(table, value):
    """Where a value is in a table, or the free place where it would be."""
    last = np.uint64(table.shape[0] - 1)
    at = value & last
    while table[at] != 0 and table[at] != value:
        at = (at + np.uint64(1)) & last
    return at
