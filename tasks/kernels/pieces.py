"""Pieces of text put together, and places in bytes as code points."""

import numpy as np
import pyarrow as pa

from gristmill.tasks.kernels.buffers import block, byte, utf8
from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.kernels.scan import Scan, assembled, break_chars, continuations, empty, scan


def without_lines(text: Scan, removed: np.ndarray, changed: np.ndarray, left: pa.Array | pa.ChunkedArray) -> Scan:
    """`scan(left)`, without a look at the words that were there before.

    left: the texts without the lines `removed` (bool, one entry a line); each took the break behind it with it, those
    behind the last line that stays the break before them. changed: bool, the documents that differ in more. Only these
    are scanned, and those with a carriage return, which could now meet a line feed.
    """
    data, offsets = utf8(left)
    returns = (text.line_stop < text.documents[-1]) & (text.data.take(text.line_stop, mode="clip") == ord("\r"))
    anew = changed | (text.sum(text.lines, returns) > 0)
    again = scan(left.filter(pa.array(anew)))
    at = np.where(anew, np.cumsum(anew) - 1, np.arange(len(anew)))
    words, lines = (len(getattr(text, name)) + len(getattr(again, name)) for name in ("word_bits", "line_hash"))
    columns = empty(words, lines, len(anew))
    _without_lines(data, offsets, (_columns(text), _columns(again)), anew, at, removed, *columns[:7], *columns[10:])
    return assembled(data, offsets, columns)


def _columns(text: Scan) -> tuple[np.ndarray, ...]:
    return (
        *(text.documents, text.lines, text.line_start, text.line_stop, text.line_words, text.line_hash),
        *(text.line_chars, text.line_letters, text.line_upper, text.line_numbers, text.line_special),
        *(text.word_start, text.word_stop, text.word_chars, text.word_hash, text.word_bits),
    )


@nb.njit(nogil=True, cache=True)
def _without_lines(
    data,
    offsets,
    scans,
    anew,
    at,
    removed,
    word_at,
    word_chars,
    word_hash,
    word_bits,
    line_at,
    line_counts,
    line_hash,
    ends,
    chars,
):
    """Fill the columns: document d is document at[d] of the first scan, or if it is `anew` of the second."""
    n, m = 0, 0
    ends[:, 0] = 0
    for d in range(len(anew)):
        source = scans[np.int64(anew[d])]
        documents, lines, line_start, line_stop, line_words, hashes = source[:6]
        counts, (start, stop, points, word, bits) = source[6:11], source[11:]
        i, end = offsets[d], offsets[d + 1]
        total = 0
        for k in range(lines[at[d]], lines[at[d] + 1]):
            if i == end:
                break
            if removed[k] and not anew[d]:
                continue
            shift = i - line_start[k]
            line_at[0, m] = i
            line_at[1, m] = line_stop[k] + shift
            line_at[2, m] = n
            line_hash[m] = hashes[k]
            for c in range(5):
                line_counts[c, m] = counts[c][k]
            first, more = np.uint64(line_words[k]), np.uint64(line_words[k + 1] - line_words[k])
            to = np.uint64(n)
            for w in range(more):  # without a sign, so that no index is tested for being negative
                word_at[0, to + w] = start[first + w] + shift
                word_at[1, to + w] = stop[first + w] + shift
                word_chars[to + w] = points[first + w]
                word_hash[to + w] = word[first + w]
                word_bits[to + w] = bits[first + w]
            n += np.int64(more)
            # the last line may have lost its break
            following = line_start[k + 1] if k + 1 < lines[at[d] + 1] else documents[at[d] + 1]
            i = min(following + shift, end)
            total += line_counts[0, m] + break_chars(data, line_at[1, m], i)
            m += 1
        chars[d] = total
        ends[0, d + 1], ends[1, d + 1] = n, m
    line_at[2, m] = n


def strings(data: np.ndarray, offsets: np.ndarray) -> pa.LargeStringArray:
    """The strings `data[offsets[i]:offsets[i + 1]]`, which must be UTF-8; nothing is copied."""
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def pieces(data: np.ndarray, start: np.ndarray, stop: np.ndarray) -> pa.LargeStringArray:
    """The strings `data[start[i]:stop[i]]`, copied."""
    return strings(joined(data, start, stop), np.append(0, np.cumsum(stop - start)))


@nb.njit(nogil=True, cache=True)
def joined(data, start, stop):
    """The bytes (uint8) of the pieces `data[start[i]:stop[i]]` written together."""
    size = 0
    for i in range(len(start)):
        size += stop[i] - start[i]
    out = np.empty(size, np.uint8)
    at = 0
    for i in range(len(start)):
        size = stop[i] - start[i]
        out[at : at + size] = data[start[i] : stop[i]]
        at += size
    return out


@nb.njit(nogil=True, cache=True)
def characters(data, offsets, document, place):
    """Code points (int64) of document `document[i]` before the byte `place[i]` of `data`.

    Documents and places are sorted, so that every document is walked through once.
    """
    out = np.empty(len(place), np.int64)
    last = np.int64(-1)
    at = np.int64(0)
    count = np.int64(0)
    for i in range(len(place)):
        if document[i] != last:
            last = document[i]
            at = offsets[last]
            count = 0
        while at + 8 <= place[i]:
            count += 8 - continuations(block(data, at))
            at += 8
        while at < place[i]:
            count += (byte(data, at) & 0xC0) != 0x80
            at += 1
        out[i] = count
    return out
