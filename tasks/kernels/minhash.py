"""MinHash signatures of sets of 64-bit hashes, bit-identical to datasketch's scheme `affine32`."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from gristmill.tasks.kernels.characters import written
from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.kernels.shingles import STEP, document_shingles, mix, scratch, set_hash


@cache
def permutations(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Multipliers a, increments b of datasketch's permutations a * h + b mod 2^32, uint32, (count,) each."""
    # imported here: it takes a second, and most who import the steps sign nothing
    from datasketch import MinHash as Reference

    a, b = Reference(num_perm=count, seed=seed, scheme="affine32").permutations
    return np.ascontiguousarray(a), np.ascontiguousarray(b)


def fold(hashes: np.ndarray) -> np.ndarray:
    """The 32 bits of each 64-bit hash that feed MinHash: its upper half, uint32."""
    return (hashes >> np.uint64(32)).astype(np.uint32)


def signatures(hashes: np.ndarray, offsets: np.ndarray, count: int, seed: int) -> np.ndarray:
    """MinHash signatures, uint32, (n_sets, count), of the sets `hashes[offsets[i]:offsets[i + 1]]` (uint64).

    Row `i` equals the `hashvalues` of a datasketch `MinHash(count, seed)` that was updated with `fold` of the
    set's hashes. A set that is empty has the largest value everywhere, as there.
    """
    return _signatures(hashes, offsets, *permutations(count, seed))


@dataclass(frozen=True)
class Signed:
    """What is kept of each document's set of shingles: `size`, int64, how many; `content`, uint64, its `set_hash`;
    `holdout`, uint64; `signature`, uint32, (n_documents, count): see the functions of these names."""

    size: np.ndarray
    content: np.ndarray
    holdout: np.ndarray
    signature: np.ndarray


def signed(data: np.ndarray, offsets: np.ndarray, n: int, unit: str, count: int, seed: int) -> Signed:
    """Sizes, hashes, hold-outs and signatures of the sets that `SHINGLES[unit](data, offsets, n)` gives.

    The sets are not held: besides the result only what `shingles.scratch` says, for the longest document.
    """
    multipliers, increments = permutations(count, seed)
    by_character = {"words": False, "characters": True}[unit]
    characters = written(unspaced=not by_character)
    found = _signed(data, offsets, n, by_character, characters, multipliers, increments, np.uint64(seed))
    return Signed(*found)


def holdout(hashes: np.ndarray, offsets: np.ndarray, seed: int) -> np.ndarray:
    """The least value of each set under one permutation of 64 bits that no signature has: uint64, (n_sets,).

    Two sets share it with the probability of their Jaccard similarity, whether they share a band or not. That of a
    set that is empty is the largest value.
    """
    return _holdouts(hashes, offsets, np.uint64(seed))


def band_hashes(signatures: np.ndarray, bands: int, rows: int) -> np.ndarray:
    """64-bit hash of each band of `rows` signature values: uint64, (n_sets, bands)."""
    return _band_hashes(signatures, bands, rows)


@nb.njit(nogil=True, cache=True, inline="always")
def _finalised(h):
    """Upper half of a hash through MurmurHash3's 32-bit finaliser, as datasketch 2 does before permuting."""
    x = np.uint32(h >> np.uint64(32))
    x = np.uint32(x ^ (x >> np.uint32(16)))
    x = np.uint32(x * np.uint32(0x85EBCA6B))
    x = np.uint32(x ^ (x >> np.uint32(13)))
    x = np.uint32(x * np.uint32(0xC2B2AE35))
    return np.uint32(x ^ (x >> np.uint32(16)))


@nb.njit(nogil=True, cache=True)
def _sign(hashes, start, end, folded, a, b, row):
    """The signature of the set `hashes[start:end]`; `folded` has room for seven values more than it."""
    row[:] = 0xFFFFFFFF
    count = end - start
    for i in range(count):
        folded[i] = _finalised(hashes[start + i])
    # Eight hashes at a time: the permutations and minima are loaded once for eight multiply-adds. A minimum does not
    # mind that the last hash is repeated until there are eight.
    for i in range(count, (count + 7) // 8 * 8):
        folded[i] = folded[count - 1]
    for i in range(0, count, 8):
        x0, x1, x2, x3 = folded[i], folded[i + 1], folded[i + 2], folded[i + 3]
        x4, x5, x6, x7 = folded[i + 4], folded[i + 5], folded[i + 6], folded[i + 7]
        for k in range(row.shape[0]):
            ak, bk = a[k], b[k]
            m0 = min(np.uint32(x0 * ak + bk), np.uint32(x1 * ak + bk))
            m1 = min(np.uint32(x2 * ak + bk), np.uint32(x3 * ak + bk))
            m2 = min(np.uint32(x4 * ak + bk), np.uint32(x5 * ak + bk))
            m3 = min(np.uint32(x6 * ak + bk), np.uint32(x7 * ak + bk))
            row[k] = min(row[k], min(min(m0, m1), min(m2, m3)))


@nb.njit(nogil=True, cache=True)
def _signatures(hashes, offsets, a, b):
    out = np.empty((offsets.shape[0] - 1, a.shape[0]), np.uint32)
    largest = 0
    for d in range(out.shape[0]):
        largest = max(largest, offsets[d + 1] - offsets[d])
    folded = np.empty(largest + 7, np.uint32)
    for d in range(out.shape[0]):
        _sign(hashes, offsets[d], offsets[d + 1], folded, a, b, out[d])
    return out


@nb.njit(nogil=True, cache=True)
def _signed(data, offsets, n, by_character, characters, a, b, seed):
    documents = offsets.shape[0] - 1
    room = scratch(offsets, by_character)
    hashes = np.empty(room[2].shape[0], np.uint64)
    folded = np.empty(hashes.shape[0] + 7, np.uint32)
    size, content = np.empty(documents, np.int64), np.empty(documents, np.uint64)
    holdouts, signature = np.empty(documents, np.uint64), np.empty((documents, a.shape[0]), np.uint32)
    for d in range(documents):
        count = document_shingles(data, offsets[d], offsets[d + 1], n, by_character, characters, room, hashes)
        size[d] = count
        content[d] = set_hash(hashes, 0, count)
        holdouts[d] = _holdout(hashes, 0, count, seed)
        _sign(hashes, 0, count, folded, a, b, signature[d])
    return size, content, holdouts, signature


@nb.njit(nogil=True, cache=True)
def _holdouts(hashes, offsets, seed):
    out = np.empty(offsets.shape[0] - 1, np.uint64)
    for d in range(out.shape[0]):
        out[d] = _holdout(hashes, offsets[d], offsets[d + 1], seed)
    return out


@nb.njit(nogil=True, cache=True)
def _holdout(hashes, start, end, seed):
    permutation = mix(STEP + seed)
    least = np.uint64(0xFFFFFFFFFFFFFFFF)
    for i in range(start, end):
        least = min(least, mix(hashes[i] ^ permutation))
    return least


@nb.njit(nogil=True, cache=True)
def _band_hashes(signatures, bands, rows):
    out = np.empty((signatures.shape[0], bands), np.uint64)
    for d in range(signatures.shape[0]):
        for band in range(bands):
            h = mix(np.uint64(band) + STEP)
            for r in range(rows):
                h = mix(h ^ np.uint64(signatures[d, band * rows + r]))
            out[d, band] = h
    return out
