"""MinHash signatures of sets of 64-bit hashes, bit-identical to datasketch's scheme `affine32`."""

from functools import cache

import numba as nb
import numpy as np

from tasks.kernels.shingles import STEP, mix


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
def _signatures(hashes, offsets, a, b):
    count = a.shape[0]
    out = np.full((offsets.shape[0] - 1, count), 0xFFFFFFFF, np.uint32)
    for d in range(out.shape[0]):
        row = out[d]
        i, end = offsets[d], offsets[d + 1]
        # Eight hashes at a time: the permutations and minima are loaded once for eight multiply-adds.
        while i + 8 <= end:
            x0, x1 = _finalised(hashes[i]), _finalised(hashes[i + 1])
            x2, x3 = _finalised(hashes[i + 2]), _finalised(hashes[i + 3])
            x4, x5 = _finalised(hashes[i + 4]), _finalised(hashes[i + 5])
            x6, x7 = _finalised(hashes[i + 6]), _finalised(hashes[i + 7])
            for k in range(count):
                ak, bk = a[k], b[k]
                m0 = min(np.uint32(x0 * ak + bk), np.uint32(x1 * ak + bk))
                m1 = min(np.uint32(x2 * ak + bk), np.uint32(x3 * ak + bk))
                m2 = min(np.uint32(x4 * ak + bk), np.uint32(x5 * ak + bk))
                m3 = min(np.uint32(x6 * ak + bk), np.uint32(x7 * ak + bk))
                row[k] = min(row[k], min(min(m0, m1), min(m2, m3)))
            i += 8
        while i < end:
            x = _finalised(hashes[i])
            for k in range(count):
                row[k] = min(row[k], np.uint32(x * a[k] + b[k]))
            i += 1
    return out


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
