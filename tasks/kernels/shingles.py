"""Word n-grams of documents as sorted sets of 64-bit hashes.

A word is a maximal run of letters, marks and digits (`codepoints.classes`), lower-cased code point by code
point; everything else separates. A shingle is `n` consecutive words; a document of fewer words, but one at
least, has one shingle of all its words.

All arithmetic is modulo 2^64:

    word     h = START; for each code point c: h = (h ^ c) * STEP; then mix(h)
    shingle  mix(w_1 * BASE^(k-1) + ... + w_k), which rolls: two multiplications a word, whatever n is

Before the last `mix`, a bijection, two unlike shingles meet only where a polynomial in well-mixed word hashes
happens to vanish modulo 2^64, so a set of 64-bit hashes stands for the set of shingles.
"""

from functools import cache

import numba as nb
import numpy as np

from tasks.kernels.codepoints import DIGIT, LETTER, MARK, classes, decode, lowercase

START = np.uint64(0x243F6A8885A308D3)  # the first 64 bits of the fraction of pi
STEP = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / the golden ratio, odd
BASE = np.uint64(0xD1342543DE82EF95)  # multiplier for 64 bits, Steele & Vigna 2021, arXiv:2001.05304, table 5
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)  # finaliser "variant 13" of D. Stafford, as in SplitMix64
MIX_2 = np.uint64(0x94D049BB133111EB)


@cache
def word_characters() -> np.ndarray:
    """Lower case of every code point that is part of words, 0 for all others: uint32, (0x110000,), 4.5 MB."""
    return np.where(np.isin(classes(), (LETTER, MARK, DIGIT)), lowercase(), np.uint32(0)).astype(np.uint32)


def shingle_sets(data: np.ndarray, offsets: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorted sets of shingle hashes (uint64) of all documents, and their n_documents+1 offsets (int64).

    `data` and `offsets` are UTF-8 bytes as `buffers.utf8` gives them; `n` is the number of words of a
    shingle. Held: 8 bytes a distinct shingle, up to twice that while the array grows, and 20 bytes a byte of
    the longest document.
    """
    return _shingle_sets(data, offsets, n, word_characters())


@nb.njit(nogil=True, cache=True)
def set_hashes(hashes, offsets):
    """A 64-bit hash, uint64, of each set `hashes[offsets[i]:offsets[i + 1]]` of sorted 64-bit hashes.

    Unlike sets share one with a probability of 2^-64, as unlike shingles do.
    """
    out = np.empty(offsets.shape[0] - 1, np.uint64)
    for d in range(out.shape[0]):
        h = START
        for i in range(offsets[d], offsets[d + 1]):
            h = (h ^ hashes[i]) * STEP
            h ^= h >> np.uint64(32)
        out[d] = mix(h)
    return out


@nb.njit(nogil=True, cache=True, inline="always")
def mix(x):
    """Bijection on 64 bits under which every bit of the input flips about half of the output."""
    x = (x ^ (x >> np.uint64(30))) * MIX_1
    x = (x ^ (x >> np.uint64(27))) * MIX_2
    return x ^ (x >> np.uint64(31))


@nb.njit(nogil=True, cache=True)
def _word_hashes(data, start, end, characters, out):
    """Hashes of the words of one document; `out` has room for one more. Returns how many there are."""
    count = 0
    h = START
    previous = np.uint32(0)
    i = start
    while i < end:
        if data[i] < 0x80:
            c = characters[data[i]]
            i += 1
        else:
            point, i = decode(data, i)
            c = characters[point]
        # No branch on where words end, which a processor cannot foresee: a third of the time went there.
        out[count] = h
        count += (c == 0) & (previous != 0)
        h = (h ^ np.uint64(c)) * STEP if c != 0 else START
        previous = c
    out[count] = h
    count += previous != 0
    for w in range(count):
        out[w] = mix(out[w])
    return count


@nb.njit(nogil=True, cache=True)
def _combine(words, count, n, out):
    """Shingle hashes of a document's word hashes; `out` may not overlap `words`."""
    drop = np.uint64(1)
    for _ in range(n):
        drop *= BASE
    s = np.uint64(0)
    for i in range(min(n, count)):
        s = s * BASE + words[i]
    if count == 0:
        return 0
    out[0] = mix(s)
    for i in range(n, count):
        s = s * BASE + words[i] - drop * words[i - n]
        out[i - n + 1] = mix(s)
    return max(count - n + 1, 1)


@nb.njit(nogil=True, cache=True)
def _sorted_unique(values, count, starts, out):
    """Sort `values[:count]` into `out`, drop repeats, return how many are left.

    Hashes are spread evenly, so the place of each is nearly known from its value: they are dealt into as many
    buckets as there are values, and neighbours are then put in order by insertion.
    """
    for b in range(count + 1):
        starts[b] = 0
    for i in range(count):
        starts[((values[i] >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32)] += 1
    total = 0
    for b in range(count):
        held = starts[b]
        starts[b] = total
        total += held
    for i in range(count):
        b = ((values[i] >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32)
        out[starts[b]] = values[i]
        starts[b] += 1
    low = 0
    for b in range(count):
        # Few values fill a bucket unless a document repeats itself; insertion would then be quadratic.
        if starts[b] - low > 32:
            out[low : starts[b]].sort()
        low = starts[b]
    for i in range(1, count):
        x = out[i]
        j = i
        while j > 0 and out[j - 1] > x:
            out[j] = out[j - 1]
            j -= 1
        out[j] = x
    kept = min(count, 1)
    for i in range(1, count):
        if out[i] != out[kept - 1]:
            out[kept] = out[i]
            kept += 1
    return kept


@nb.njit(nogil=True, cache=True)
def _shingle_sets(data, offsets, n, characters):
    documents = offsets.shape[0] - 1
    longest = 0
    for d in range(documents):
        longest = max(longest, offsets[d + 1] - offsets[d])
    most = longest // 2 + 1
    words = np.empty(most + 1, np.uint64)
    raw = np.empty(most, np.uint64)
    starts = np.empty(most + 1, np.int64)
    values = np.empty((offsets[documents] - offsets[0]) // 8 + documents, np.uint64)
    ends = np.zeros(documents + 1, np.int64)
    used = 0
    for d in range(documents):
        count = _word_hashes(data, offsets[d], offsets[d + 1], characters, words)
        count = _combine(words, count, n, raw)
        if used + count > values.shape[0]:
            grown = np.empty(2 * (used + count), np.uint64)
            grown[:used] = values[:used]
            values = grown
        used += _sorted_unique(raw, count, starts, values[used:])
        ends[d + 1] = used
    return values[:used], ends
