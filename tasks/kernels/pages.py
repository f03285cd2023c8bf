"""Parquet pages: where they lie, and single values of them, so that one text does not cost a row group.

The layout is that of https://github.com/apache/parquet-format: data pages of version 1, PLAIN, of a column without
missing values. Page headers are in Thrift's compact protocol: numbers are varints, seven bits a byte, the lowest first,
and where they have a sign in zigzag; a struct is a row of fields, each a byte with its type and by how much its number
is above the last one's, and ends with a zero.
"""

import numba as nb
import numpy as np

_BINARY, _STRUCT = 8, 12  # types of Thrift; 1 and 2 are truth values, 4, 5 and 6 integers
_DEEPEST = 8


@nb.njit(nogil=True, cache=True)
def pages(raw, values):
    """The pages of a column of a row group of so many values, whose bytes are `raw` (uint8): int64, (4, n), where each
    page's bytes begin, how many they are, and are when unpacked, and its values. None where they are not as said above.
    """
    out = np.empty((4, 64), np.int64)
    header = np.empty(5, np.int64)
    n, at, seen = 0, np.int64(0), np.int64(0)
    while seen < values:
        at = _read_header(raw, at, header)
        kind, size, packed, count, encoding = header
        if at < 0 or kind != 0 or encoding != 0 or size < 0 or count <= 0 or packed < 0 or at + packed > raw.shape[0]:
            return None
        if n == out.shape[1]:
            grown = np.empty((4, 2 * n), np.int64)
            grown[:, :n] = out
            out = grown
        out[0, n], out[1, n], out[2, n], out[3, n] = at, packed, size, count
        n += 1
        seen += count
        at += packed
    return out[:, :n] if seen == values else None


@nb.njit(nogil=True, cache=True)
def take(page, rows, data, offsets):
    """Copy the texts of `rows`, int64, which ascend, of a page to `data` (uint8) from `offsets[0]` on, and write behind
    that where each ends. Returns False where the page is too short."""
    at, row = np.int64(0), np.int64(0)
    for i in range(rows.shape[0]):
        while row < rows[i]:
            at += 4 + _length(page, at)
            row += 1
        length = _length(page, at)
        at += 4
        end = offsets[i] + length
        if at + length > page.shape[0] or end > data.shape[0]:
            return False
        data[offsets[i] : end] = page[at : at + length]
        offsets[i + 1] = end
        at += length
        row += 1
    return True


@nb.njit(nogil=True, cache=True, inline="always")
def _length(page, at):
    """The four bytes at a place as a number; more than there is where the page ends before."""
    if at + 4 > page.shape[0]:
        return np.int64(page.shape[0])
    return np.int64(page[at]) | page[at + 1] << 8 | page[at + 2] << 16 | np.int64(page[at + 3]) << 24


@nb.njit(nogil=True, cache=True)
def _read_header(raw, at, header):
    """Write type, size, packed size, values and encoding of a page; -1 for what is not said. Returns where its header
    ends, -1 where it does not."""
    header[:] = -1
    number = np.zeros(_DEEPEST, np.int64)
    depth = 0
    while depth >= 0:
        if at < 0 or at >= raw.shape[0]:
            return np.int64(-1)
        step, kind = np.int64(raw[at]) >> 4, raw[at] & 15
        at += 1
        if kind == 0:
            depth -= 1
            continue
        if step:
            number[depth] += step
        else:
            value, at = _varint(raw, at)
            number[depth] = _signed(value)
        if 4 <= kind <= 6:
            value, at = _varint(raw, at)
            if depth == 0 and 1 <= number[0] <= 3:
                header[number[0] - 1] = _signed(value)
            elif depth == 1 and number[0] == 5 and 1 <= number[1] <= 2:  # in DataPageHeader
                header[number[1] + 2] = _signed(value)
        elif kind == _BINARY:
            value, at = _varint(raw, at)
            at = at + value if at >= 0 and value < raw.shape[0] else np.int64(-1)
        elif kind == _STRUCT:
            depth += 1
            if depth == _DEEPEST:
                return np.int64(-1)
            number[depth] = 0
        elif kind > 2:
            return np.int64(-1)
    return at


@nb.njit(nogil=True, cache=True, inline="always")
def _signed(value):
    return (value >> 1) ^ -(value & 1)


@nb.njit(nogil=True, cache=True)
def _varint(raw, at):
    """A number and where it ends; -1 where it does not."""
    value = np.int64(0)
    for shift in range(0, 63, 7):
        if at < 0 or at >= raw.shape[0]:
            return value, np.int64(-1)
        value |= np.int64(raw[at] & 0x7F) << shift
        at += 1
        if raw[at - 1] < 0x80:
            return value, at
    return value, np.int64(-1)
