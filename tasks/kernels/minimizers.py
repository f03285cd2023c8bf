"""Windows of n units (words or bytes) grouped by their minimizers, as counters of k-mers deal them out.

The minimizer of a window is the smallest hash among its sequences of k < n units (Roberts et al. 2004; winnowing of
Schleimer, Wilkerson, Aiken 2003). It depends on the window's content alone, so equal windows have equal minimizers, and
neighbouring windows mostly share one: a run of windows with one minimizer is handled as a whole.
"""

from dataclasses import dataclass

import numpy as np

from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.kernels.shingles import BASE, mix


@dataclass(frozen=True)
class Runs:
    """Runs of neighbouring windows of a document that have one minimizer, in the order of the text.

    document: int64; first: int64, the unit of the document with which the first window begins; windows: int64, how many
    there are; key: uint64, a hash of the minimizer; repeats: bool, whether the minimizer is met twice: if it is not, no
    two windows of the run are equal.
    """

    document: np.ndarray
    first: np.ndarray
    windows: np.ndarray
    key: np.ndarray
    repeats: np.ndarray


def runs(units: np.ndarray, offsets: np.ndarray, n: int) -> Runs:
    """The runs of windows of `n` units of all documents; those of document d are units[offsets[d]:offsets[d + 1]].

    Units are uint8 or uint64. A sequence has half as many as a window: shorter ones are shared by chance, longer ones
    make shorter runs, of which there are two in n/2 + 1 units. Held: 66 bytes a run.
    """
    return Runs(*_runs(units, offsets, n, max(n // 2, 1)))


@nb.njit(nogil=True, cache=True)
def _runs(units, offsets, n, k):
    w = n - k + 1
    # for a run a window; what is not written takes no memory
    room = np.int64(0)
    for d in range(len(offsets) - 1):
        room += max(offsets[d + 1] - offsets[d] - n + 1, 0)
    places = np.empty((3, room), np.int64)
    keys = np.empty(room, np.uint64)
    repeats = np.empty(room, np.bool_)
    hashes = np.empty(w, np.uint64)  # of the last w sequences, in a ring
    drop = np.uint64(1)
    for _ in range(k):
        drop *= BASE
    count = 0
    for d in range(len(offsets) - 1):
        begin = offsets[d]
        h = np.uint64(0)
        low = np.uint64(0)
        place = np.int64(-1)  # of the last sequence that has the smallest hash
        at = np.int64(-1)
        for i in range(begin, offsets[d + 1]):
            h = h * BASE + np.uint64(units[i])
            if i - begin >= k:
                h -= drop * np.uint64(units[i - k])
            last = i - begin - k + 1
            if last < 0:
                continue
            x = mix(h)
            at += 1
            if at == w:
                at = 0
            hashes[at] = x
            first = last - w + 1
            if first < 0:
                continue
            if place >= first and x == low:
                place = last
                repeats[count - 1] = True
            elif place < first or x < low:
                tie = False
                if place >= first:
                    low = x
                    place = last
                else:
                    slot = at
                    low = ~np.uint64(0)
                    for sequence in range(first, last + 1):
                        slot += 1
                        if slot == w:
                            slot = 0
                        y = hashes[slot]
                        if y < low:
                            tie = False
                        elif y == low:
                            tie = True
                        if y <= low:
                            low = y
                            place = sequence
                places[0, count] = d
                places[1, count] = first
                places[2, count] = 0
                keys[count] = mix(low)  # the smallest hashes are small: divided by them, most blocks would be empty
                repeats[count] = tie
                count += 1
            places[2, count - 1] += 1
    places = places[:, :count].copy()
    return places[0], places[1], places[2], keys[:count].copy(), repeats[:count].copy()


@nb.njit(nogil=True, cache=True)
def repeated(order, common, size, keeps_first):
    """Which windows of a text occur in it before (uint8, one entry a byte of the text), or anywhere else in it.

    order, common: the suffix array, and how many bytes each suffix shares with the next; size: int32, bytes of the
    window that begins at a byte of the text, 0 where none does. Windows of one content have one size.
    """
    found = np.zeros(len(order), np.uint8)
    begin = np.int64(0)
    count = np.int64(0)
    lowest = np.int64(0)
    shared = np.int64(0)
    for i in range(len(order) + 1):
        at = np.int64(order[i]) if i < len(order) else np.int64(-1)
        if at >= 0 and size[at] == 0:
            shared = min(shared, np.int64(common[i]))
            continue
        if at >= 0 and count > 0 and shared >= size[order[begin]]:
            count += 1
            lowest = min(lowest, at)
        else:
            if count > 1:
                for j in range(begin, i):
                    found[order[j]] = size[order[j]] > 0 and not (keeps_first and order[j] == lowest)
            begin, count, lowest = i, 1, at
        if at >= 0:
            shared = np.int64(common[i])
    return found
