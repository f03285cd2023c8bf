"""Parquet pages: where they lie, and single values of them, so that one text does not cost a row group.

The layout is that of https://github.com/apache/parquet-format: a footer that says where each column's offset index is,
which says where its pages are; data pages of version 1, PLAIN, of a column without missing values. All but the values
is in Thrift's compact protocol: numbers are varints, seven bits a byte, the lowest first, and where they have a sign in
zigzag; a struct is a row of fields, each a byte with its type and by how much its number is above the last one's, and
ends with a zero; a list is a byte with its length and its elements' type, and the elements.

All that reads this takes any bytes: what is damaged ends in None or a negative number, as said with each.
"""

import numba as nb
import numpy as np

_TRUE, _FALSE, _BYTE, _NUMBERS, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, (4, 5, 6), 7, 8, 9, 12
_NESTED = (_LIST, 10, _STRUCT)  # 10 is a set, which is written as a list
_DEEPEST = 16
_LARGEST = (1 << 31) - 1


@nb.njit(nogil=True, cache=True)
def offset_indexes(footer, groups, columns):
    """Where the offset indexes are of so many row groups of so many columns: int64, (groups, columns, 2), where each
    begins and how long it is, both 0 where there is none. None where the footer (uint8) is damaged."""
    out = np.zeros((groups, columns, 2), np.int64)
    at, number = np.int64(0), np.int64(0)
    while True:
        kind, number, at = _field(footer, at, number)
        if at < 0:
            return None
        if kind == 0:
            return out
        if number != 4 or kind != _LIST:
            at = _skipped(footer, at, kind)
            continue
        count, element, at = _list(footer, at)
        if count != groups or element != _STRUCT:
            return None
        for group in range(groups):
            at = _row_group(footer, at, out[group])
            if at < 0:
                return None


@nb.njit(nogil=True, cache=True)
def page_places(index, rows, first, last):
    """The pages of a column of a row group of so many rows, that lies between two places, by its offset index (uint8):
    int64, (3, n), where each begins with its header, how many bytes it has with that, and its first row. None where the
    index is damaged."""
    at, number, found = np.int64(0), np.int64(0), False
    out = np.empty((0, 3), np.int64)
    while True:
        kind, number, at = _field(index, at, number)
        if at < 0:
            return None
        if kind == 0:
            break
        if number != 1 or kind != _LIST:
            at = _skipped(index, at, kind)
            continue
        count, element, at = _list(index, at)
        if found or at < 0 or element != _STRUCT or not 0 < count <= min(rows, index.shape[0] - at):
            return None
        out, found = np.full((count, 3), -1), True
        for page in range(count):
            at = _numbers(index, at, 1, out[page])
            if at < 0 or out[page, 0] < first or not 0 < out[page, 1] <= last - out[page, 0]:
                return None
            if out[page, 2] >= rows or out[page, 2] <= (out[page - 1, 2] if page else -1):
                return None
            first = out[page, 0] + out[page, 1]  # the next lies behind it
    return out.T if found and out[0, 2] == 0 else None


@nb.njit(nogil=True, cache=True)
def page_header(page):
    """Of a page (uint8) how long its header is, and how many bytes its values have when unpacked, and packed, and how
    many they are. The first is -1 where the header is damaged, or is of another kind of page."""
    header = np.full(5, -1)
    at, number = np.int64(0), np.int64(0)
    while True:
        kind, number, at = _field(page, at, number)
        if at < 0 or kind == 0:
            break
        if 1 <= number <= 3 and kind in _NUMBERS:
            value, at = _varint(page, at)
            header[number - 1] = _signed(value)
        elif number == 5 and kind == _STRUCT:
            at = _numbers(page, at, 1, header[3:])
        else:
            at = _skipped(page, at, kind)
    kind, size, packed, count, encoding = header
    right = kind == 0 and encoding == 0 and 0 <= size <= _LARGEST and 0 <= packed <= _LARGEST and count > 0
    return (at if right else np.int64(-1)), size, packed, count


@nb.njit(nogil=True, cache=True)
def gathered(data, starts, sizes):
    """Pieces of some bytes, uint8, one after the other: where each begins and how long it is, int64. None may lie
    outside."""
    out = np.empty(sizes.sum(), np.uint8)
    end = 0
    for i in range(starts.shape[0]):
        piece, place = data[starts[i] : starts[i] + sizes[i]], out[end : end + sizes[i]]
        for k in range(piece.shape[0]):  # twice as fast as an assignment of the piece
            place[k] = piece[k]
        end += sizes[i]
    return out


@nb.njit(nogil=True, cache=True)
def page_headers(data, starts, sizes, counts):
    """Of pages in some bytes (uint8), where each begins and how long it is, how long its header is, and how many bytes
    its values have when unpacked, and packed: int64, (3, n). The header's length is -1 where it is damaged, or says
    that there are other than `counts` values."""
    out = np.empty((3, starts.shape[0]), np.int64)
    for i in range(starts.shape[0]):
        length, size, packed, count = page_header(data[starts[i] : starts[i] + sizes[i]])
        out[:, i] = (length if count == counts[i] else np.int64(-1)), size, packed
    return out


@nb.njit(nogil=True, cache=True)
def texts(pages, ends, page, rows):
    """Some texts of pages (uint8, unpacked) that end at `ends`, one after the other: uint8, and their n+1 ends, int64.

    Text `i` is the row `rows[i]` of the page `page[i]`; both ascend, int64. No page may end behind the bytes; of one
    that is too short for its texts the ends are -1.
    """
    starts, out = np.empty(rows.shape[0], np.int64), np.zeros(rows.shape[0] + 1, np.int64)
    at, row, last = np.int64(0), np.int64(0), np.int64(-1)
    for i in range(rows.shape[0]):
        if page[i] != last:
            last = page[i]
            at, row = (ends[last - 1] if last else np.int64(0)), np.int64(0)
        while row <= rows[i]:
            length = _length(pages, at, ends[last])
            starts[i] = at + 4
            at += 4 + length
            row += 1
        if at > ends[last]:
            return np.empty(0, np.uint8), np.full(rows.shape[0] + 1, -1)
        out[i + 1] = out[i] + length
    return gathered(pages, starts, np.diff(out)), out


@nb.njit(nogil=True, cache=True, inline="always")
def _length(pages, at, end):
    """The four bytes at a place as a number; more than there is where the page ends before."""
    if at + 4 > end:
        return end
    return np.int64(pages[at]) | pages[at + 1] << 8 | pages[at + 2] << 16 | np.int64(pages[at + 3]) << 24


@nb.njit(nogil=True, cache=True)
def _row_group(raw, at, out):
    """Write where the offset indexes of a row group are. Returns where the group ends, -1 where it is damaged."""
    number = np.int64(0)
    while True:
        kind, number, at = _field(raw, at, number)
        if at < 0 or kind == 0:
            return at
        if number != 1 or kind != _LIST:
            at = _skipped(raw, at, kind)
            continue
        count, element, at = _list(raw, at)
        if count != out.shape[0] or element != _STRUCT:
            return np.int64(-1)
        for column in range(count):
            at = _numbers(raw, at, 4, out[column])
            if at < 0:
                return at


@nb.njit(nogil=True, cache=True)
def _numbers(raw, at, first, out):
    """Write the numbers that a struct has in its fields `first` and on to `out` (int64). Returns where the struct ends,
    -1 where it is damaged."""
    number = np.int64(0)
    while True:
        kind, number, at = _field(raw, at, number)
        if at < 0 or kind == 0:
            return at
        if first <= number < first + out.shape[0] and kind in _NUMBERS:
            value, at = _varint(raw, at)
            out[number - first] = _signed(value)
        else:
            at = _skipped(raw, at, kind)


@nb.njit(nogil=True, cache=True)
def _field(raw, at, number):
    """Type and number of the next field of a struct, after one of the number `number`, and where its value begins. Type
    0 ends the struct; -1 for the place where the bytes end."""
    if at < 0 or at >= raw.shape[0]:
        return np.int64(0), number, np.int64(-1)
    step, kind = np.int64(raw[at]) >> 4, np.int64(raw[at]) & 15
    at += 1
    if kind and not step:
        value, at = _varint(raw, at)
        return kind, _signed(value), at
    return kind, number + step, at


@nb.njit(nogil=True, cache=True)
def _list(raw, at):
    """How many elements a list has, their type, and where they begin; -1 where the bytes end."""
    if at < 0 or at >= raw.shape[0]:
        return np.int64(-1), np.int64(0), np.int64(-1)
    count, element = np.int64(raw[at]) >> 4, np.int64(raw[at]) & 15
    at += 1
    if count == 15:
        count, at = _varint(raw, at)
    return count, element, at


@nb.njit(nogil=True, cache=True)
def _skipped(raw, at, kind):
    """Where the value that begins at a place ends; -1 where the bytes end before, or it is of no type or too deep."""
    # The lists and structs that are open: how many elements a list still has, and their type; of a struct -1. No
    # recursion: numba 0.68 crashes on a recursive function from its cache.
    left, elements = np.zeros(_DEEPEST, np.int64), np.zeros(_DEEPEST, np.int64)
    depth = 0
    while at >= 0:
        if kind == _TRUE or kind == _FALSE:
            at += depth > 0 and left[depth - 1] >= 0  # in a list a truth value has a byte of its own
        elif kind == _BYTE:
            at += 1
        elif kind in _NUMBERS:
            _, at = _varint(raw, at)
        elif kind == _DOUBLE:
            at += 8
        elif kind == _BINARY:
            length, at = _varint(raw, at)
            at = at + length if at >= 0 and length <= raw.shape[0] - at else np.int64(-1)
        elif kind in _NESTED and depth < _DEEPEST:
            left[depth] = -1
            if kind != _STRUCT:
                left[depth], elements[depth], at = _list(raw, at)
            depth += 1
        else:
            return np.int64(-1)
        while depth and at >= 0:
            if left[depth - 1] > 0:
                left[depth - 1] -= 1
                kind = elements[depth - 1]
                break
            if left[depth - 1] < 0:
                kind, _, at = _field(raw, at, np.int64(0))
                if kind:
                    break
            depth -= 1
        if depth == 0 or at >= raw.shape[0]:
            return at
    return np.int64(-1)


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
