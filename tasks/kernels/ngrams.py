"""Word n-grams of documents in the order of their texts, and which of them are in a set.

Words are those of `kernels.shingles`: runs of letters, marks and digits in lower case, so that case, punctuation and
layout make no difference. A word n-gram has the hash that the shingle of the same words has there.
"""

import numpy as np

from gristmill.tasks.kernels.characters import written
from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.kernels.shingles import BASE, mix, scratch, words_of_document


def word_hashes(data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hashes (uint64) of all documents' words in their order, and their n_documents+1 offsets (int64).

    `data` and `offsets` are UTF-8 bytes as `buffers.utf8` gives them. Holds 4 bytes a byte of the documents, and
    `shingles.scratch` for the longest.
    """
    return _word_hashes(data, offsets, written(unspaced=True))


@nb.njit(nogil=True, cache=True)
def _word_hashes(data, offsets, characters):
    documents = offsets.shape[0] - 1
    room = scratch(offsets, False)
    out = np.empty((offsets[documents] - offsets[0]) // 2 + documents + 1, np.uint64)
    ends = np.zeros(documents + 1, np.int64)
    for d in range(documents):
        begin = ends[d]
        count = words_of_document(data, offsets[d], offsets[d + 1], characters, room)
        out[begin : begin + count] = room[2][:count]
        ends[d + 1] = begin + count
    return out[: ends[documents]], ends


@nb.njit(nogil=True, cache=True)
def ngram_hashes(words, ends, n):
    """The hash of the n-gram that begins at each word: uint64, as long as `words`; 0 where the document, of which the
    words are words[ends[d]:ends[d + 1]], ends before it."""
    out = np.zeros(words.shape[0], np.uint64)
    drop = np.uint64(1)
    for _ in range(n):
        drop *= BASE
    for d in range(ends.shape[0] - 1):
        s = np.uint64(0)
        for i in range(ends[d], ends[d + 1]):
            s = s * BASE + words[i]
            if i - ends[d] >= n:
                s -= drop * words[i - n]
            if i - ends[d] >= n - 1:
                out[i - n + 1] = mix(s)
    return out


def bit_table(hashes: np.ndarray) -> np.ndarray:
    """A Bloom filter with one hash function (Bloom 1970) for `possible_members`: uint64, at least 16 bits for each of
    the hashes, a power of two in all."""
    bits = max(6, (16 * len(hashes)).bit_length())
    table = np.zeros(1 << (bits - 6), np.uint64)
    _set_bits(hashes, table, bits)
    return table


@nb.njit(nogil=True, cache=True)
def _set_bits(hashes, table, bits):
    shift = np.uint64(64 - bits)
    for h in hashes:
        bit = h >> shift
        table[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))


def possible_members(hashes: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The places of all hashes that `bit_table` was made for, and of about one in 16 of the others: int64, sorted."""
    found = np.empty(len(hashes), np.int64)
    return found[: _possible_members(hashes, table, found)]


@nb.njit(nogil=True, cache=True)
def _possible_members(hashes, table, found):
    bits = np.uint64(6)
    while (np.uint64(1) << (bits - np.uint64(6))) < table.shape[0]:
        bits += np.uint64(1)
    shift = np.uint64(64) - bits
    count = 0
    for i in range(hashes.shape[0]):
        bit = hashes[i] >> shift
        # no branch on what is found, which a processor cannot foresee
        found[count] = i
        count += np.int64((table[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1))
    return count


@nb.njit(nogil=True, cache=True)
def covered_shares(words, start, stop, texts, begin, end, weights, n):
    """(share, first, last) of pieces of documents and texts: how much of text i, texts[begin[i]:end[i]], stands in
    words[start[i]:stop[i]], and from which to behind which of these: float64, int64, int64.

    A text's word counts by its weight if one of the text's n-grams with it stands in the piece; a text of fewer words
    has one n-gram of all. An n-gram that the text repeats counts as often as it stands in the piece: one "4 5" is no
    "4 5 4 5". Time is the product of both lengths.
    """
    shares = np.zeros(len(start), np.float64)
    first, last = stop.copy(), start.copy()
    for i in range(len(start)):
        size = min(n, end[i] - begin[i])
        until = begin[i]  # the words before it are counted
        all_weight, weight = 0.0, 0.0
        for t in range(begin[i], end[i]):
            all_weight += weights[t]
        for t in range(begin[i], end[i] - size + 1):
            times = 0
            for w in range(start[i], stop[i] - size + 1):
                k = 0
                while k < size and words[w + k] == texts[t + k]:
                    k += 1
                if k == size:
                    times += 1
                    first[i] = min(first[i], w)
                    last[i] = max(last[i], w + size)
            if not times or not size:
                continue
            before = 0  # how often the text had it already
            for u in range(begin[i], t):
                k = 0
                while k < size and texts[u + k] == texts[t + k]:
                    k += 1
                before += k == size
            if before < times:
                for k in range(max(t, until), t + size):
                    weight += weights[k]
                until = t + size
        if all_weight > 0.0:
            shares[i] = weight / all_weight
    return shares, first, last
