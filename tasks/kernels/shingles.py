"""Word and character n-grams of documents as sets of 64-bit hashes.

A run is a maximal sequence of characters of words (`word_characters`), lower-cased code point by code point. A word is
a run, or one character of a script without spaces, which ends the run before it. A shingle is `n` consecutive words, or
`n` consecutive code points of the document's runs joined by one space. A document of fewer, but one at least, has one
shingle of all it has.

All arithmetic is modulo 2^64:

    word       h = START; for each block b of eight bytes of its UTF-8: h = mix(h ^ b)
               (the first byte is the lowest; the last block is filled up with zeros, which no word holds)
    character  the word of this one code point
    shingle    mix(w_1 * BASE^(k-1) + ... + w_k), which rolls: two multiplications a word, whatever n is
    set        the sum of its shingles

Before the last `mix`, a bijection, two unlike shingles meet only where a polynomial in well-mixed word hashes
happens to vanish modulo 2^64, so a set of 64-bit hashes stands for the set of shingles.
"""

import numpy as np

from gristmill.tasks.kernels.buffers import block, byte, ones, put_block, trailing_zeros
from gristmill.tasks.kernels.characters import decode, written
from gristmill.tasks.kernels.compiled import nb

START = np.uint64(0x243F6A8885A308D3)  # the first 64 bits of the fraction of pi
STEP = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / the golden ratio, odd
BASE = np.uint64(0xD1342543DE82EF95)  # multiplier for 64 bits, Steele & Vigna 2021, arXiv:2001.05304, table 5
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)  # finaliser "variant 13" of D. Stafford, as in SplitMix64
MIX_2 = np.uint64(0x94D049BB133111EB)

# Eight bytes in one number.
_EACH = 0x0101010101010101
_LOW, _HIGH = np.uint64(0x7F * _EACH), np.uint64(0x80 * _EACH)
_CASE = np.uint64(0x20 * _EACH)  # the bit in which lower case differs, and which digits have set
# Added to a byte below 0x80, the highest bit is set from this character on, or from the one behind it.
_FROM_A, _BEHIND_Z = np.uint64((0x80 - ord("a")) * _EACH), np.uint64((0x7F - ord("z")) * _EACH)
_FROM_0, _BEHIND_9 = np.uint64((0x80 - ord("0")) * _EACH), np.uint64((0x7F - ord("9")) * _EACH)
_GATHER = np.uint64(0x0102040810204080)  # times the lowest bits of the bytes: these bits, in the highest byte
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


def word_shingle_sets(data: np.ndarray, offsets: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorted sets of the hashes (uint64) of all documents' word n-grams, and their n_documents+1 offsets (int64).

    `data` and `offsets` are UTF-8 bytes as `buffers.utf8` gives them. Held: 8 bytes a distinct shingle, up to
    twice that while the array grows, and `scratch` for the longest document.
    """
    return _shingle_sets(data, offsets, n, False, written(unspaced=True))


def character_shingle_sets(data: np.ndarray, offsets: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorted sets of the hashes (uint64) of all documents' character n-grams; else as `word_shingle_sets`."""
    return _shingle_sets(data, offsets, n, True, written(unspaced=False))


SHINGLES = {"words": word_shingle_sets, "characters": character_shingle_sets}


@nb.njit(nogil=True, cache=True)
def set_hashes(hashes, offsets):
    """A 64-bit hash, uint64, of each set `hashes[offsets[i]:offsets[i + 1]]`, whatever its order.

    Unlike sets share one with a probability of 2^-64, as unlike shingles do.
    """
    out = np.empty(offsets.shape[0] - 1, np.uint64)
    for d in range(out.shape[0]):
        out[d] = set_hash(hashes, offsets[d], offsets[d + 1])
    return out


@nb.njit(nogil=True, cache=True)
def set_hash(hashes, start, end):
    """The hash of one set, `hashes[start:end]`: see `set_hashes`."""
    h = np.uint64(0)
    for i in range(start, end):
        h += hashes[i]
    return h


@nb.njit(nogil=True, cache=True, inline="always")
def mix(x):
    """Bijection on 64 bits under which every bit of the input flips about half of the output."""
    x = (x ^ (x >> np.uint64(30))) * MIX_1
    x = (x ^ (x >> np.uint64(27))) * MIX_2
    return x ^ (x >> np.uint64(31))


@nb.njit(nogil=True, cache=True)
def scratch(offsets, by_character):
    """Arrays that `document_shingles` writes to.

    Held: for a byte of the longest document 13 bytes of words of English, 25 of words of one letter, less of words of
    one character of three bytes, measured on 10 MB; of characters 54 at most. What is not written to takes no memory.
    """
    longest = 0
    for d in range(offsets.shape[0] - 1):
        longest = max(longest, offsets[d + 1] - offsets[d])
    # five bytes of three at most: a character that is a word, with a zero on either side
    text = np.empty(longest + longest * 2 // 3 + 144, np.uint8)
    most = longest + 1 if by_character else longest // 2 + 2
    size = 2
    while size < 2 * most:
        size *= 2
    return text, np.empty(longest + 10, np.int64), np.empty(most, np.uint64), np.empty(size, np.uint64)


@nb.njit(nogil=True, cache=True)
def document_shingles(data, start, end, n, by_character, characters, room, out):
    """Hashes of the unlike shingles of `data[start:end]` in the order of the text. Returns how many there are.

    `characters` are `word_characters.written`, `room` is `scratch` for these documents, `out` is as long as its third.
    """
    text, bounds, elements, table = room
    length = _lowercase(data, start, end, characters, text)
    if by_character:
        count = _character_hashes(text, length, elements)
    else:
        count = _word_hashes(text, length, bounds, elements)
    return _unlike(out, _combine(elements, count, n, out), table)


@nb.njit(nogil=True, cache=True)
def words_of_document(data, start, end, characters, room):
    """Hashes of all words of `data[start:end]` in the order of the text, in the third array of `room`. Returns how many
    there are.

    `characters` are `word_characters.written(unspaced=True)`, `room` is `scratch` for these documents.
    """
    text, bounds, elements, _ = room
    return _word_hashes(text, _lowercase(data, start, end, characters, text), bounds, elements)


@nb.njit(nogil=True, cache=True)
def _lowercase(data, start, end, characters, text):
    """Write a document's words in lower case, and zeros for what separates them. Returns the number of bytes.

    Behind them 72 zeros are written. The lower case of a character of two bytes can have three (U+023A). What is
    written beyond the size of a character is written over by what follows.
    """
    i, o = start, 0
    while i < end:
        if i + 8 <= end:
            b = block(data, i)
            lower = b | _CASE
            word = (lower + _FROM_A) & ~(lower + _BEHIND_Z) | (b + _FROM_0) & ~(b + _BEHIND_9)
            word &= _HIGH
            put_block(text, o, lower & (word | word - (word >> np.uint64(7))))
            other = b & _HIGH
            if other == 0:
                i += 8
                o += 8
                continue
            # What was written is right up to the first byte that is not ASCII.
            first = trailing_zeros(other) >> 3
            i += first
            o += first
        # Characters up to the next of ASCII, or the last few bytes.
        while True:
            point, i = decode(data, i)
            c = characters[point]
            put_block(text, o, c)
            o += np.int64(c >> np.uint64(56))
            if i == end or (i + 8 <= end and byte(data, i) < 0x80):
                break
    for k in range(9):
        put_block(text, o + 8 * k, np.uint64(0))
    return o


@nb.njit(nogil=True, cache=True)
def _word_hashes(text, length, bounds, out):
    """Hashes of the words of a text that `_lowercase` wrote. Returns how many there are."""
    found, before = np.uint64(0), np.uint64(0)
    for g in range(0, length + 1, 64):
        words = np.uint64(0)
        for k in range(8):
            b = block(text, g + 8 * k)
            filled = (((b & _LOW) + _LOW | b) & _HIGH) >> np.uint64(7)
            words |= (filled * _GATHER >> np.uint64(56)) << np.uint64(8 * k)
        edges = words ^ (words << np.uint64(1) | before)
        before = words >> np.uint64(63)
        at = found
        found += ones(edges)
        # Eight at a time, though there may be fewer: a processor foresees when a loop of few turns ends.
        while at < found:
            for k in range(8):
                bounds[at + np.uint64(k)] = g + trailing_zeros(edges)
                edges &= edges - np.uint64(1)
            at += np.uint64(8)
    count = np.int64(found) // 2
    for w in range(count):
        i, end = bounds[2 * w], bounds[2 * w + 1]
        h = START
        while i + 8 < end:
            h = mix(h ^ block(text, i))
            i += 8
        out[w] = mix(h ^ (block(text, i) & _ALL >> np.uint64(64 - 8 * (end - i))))
    return count


@nb.njit(nogil=True, cache=True)
def _character_hashes(text, length, out):
    """Hashes of the code points of a text that `_lowercase` wrote, its words joined by one space each."""
    count = 0
    i = 0
    apart = False
    while i < length:
        b = byte(text, i)
        if b == 0:
            apart = count > 0
            i += 1
            continue
        if apart:
            out[count] = mix(START ^ np.uint64(0x20))
            count += 1
            apart = False
        size = 1 + (b >= 0xC0) + (b >= 0xE0) + (b >= 0xF0)
        out[count] = mix(START ^ (block(text, i) & _ALL >> np.uint64(64 - 8 * size)))
        count += 1
        i += size
    return count


@nb.njit(nogil=True, cache=True)
def _combine(elements, count, n, out):
    """Shingle hashes of a document's word or character hashes; `out` may not overlap `elements`."""
    drop = np.uint64(1)
    for _ in range(n):
        drop *= BASE
    s = np.uint64(0)
    for i in range(min(n, count)):
        s = s * BASE + elements[i]
    if count == 0:
        return 0
    out[0] = mix(s)
    for i in range(n, count):
        s = s * BASE + (elements[i] - drop * elements[i - n])
        out[i - n + 1] = mix(s)
    return max(count - n + 1, 1)


@nb.njit(nogil=True, cache=True)
def _unlike(values, count, table):
    """Drop the repeats among `values[:count]`, evenly spread, and return how many are left.

    The table of at least 2 * count places, of which it takes 4 * count if there are as many, is looked into by the
    highest bits, and then onwards.
    """
    if count == 0:
        return 0
    size, shift = 2, np.uint64(63)
    while size < min(4 * count, table.shape[0]):
        size *= 2
        shift -= np.uint64(1)
    # The first value says that a place is free: so no value is left out.
    free = values[0]
    table[:size] = free
    last = np.uint64(size - 1)
    kept = 1
    for i in range(1, count):
        x = values[i]
        place = x >> shift
        while table[place] != x and table[place] != free:
            place = (place + np.uint64(1)) & last
        values[kept] = x
        kept += table[place] != x
        table[place] = x
    return kept


@nb.njit(nogil=True, cache=True)
def _sort(values, count, starts, out):
    """Sort `values[:count]`, unlike and evenly spread, into `out`.

    The place of each is nearly known from its value: they are divided into as many buckets as there are values,
    and neighbours are then put in order by insertion.
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
    for i in range(1, count):
        x = out[i]
        j = i
        while j > 0 and out[j - 1] > x:
            out[j] = out[j - 1]
            j -= 1
        out[j] = x


@nb.njit(nogil=True, cache=True)
def _shingle_sets(data, offsets, n, by_character, characters):
    documents = offsets.shape[0] - 1
    room = scratch(offsets, by_character)
    hashes = np.empty(room[2].shape[0], np.uint64)
    starts = np.empty(hashes.shape[0] + 1, np.int64)
    values = np.empty((offsets[documents] - offsets[0]) // 8 + documents, np.uint64)
    ends = np.zeros(documents + 1, np.int64)
    used = 0
    for d in range(documents):
        count = document_shingles(data, offsets[d], offsets[d + 1], n, by_character, characters, room, hashes)
        if used + count > values.shape[0]:
            grown = np.empty(2 * (used + count), np.uint64)
            grown[:used] = values[:used]
            values = grown
        _sort(hashes, count, starts, values[used:])
        used += count
        ends[d + 1] = used
    return values[:used], ends
