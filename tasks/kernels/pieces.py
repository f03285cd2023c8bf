"""Pieces of text put together, and places in bytes as code points."""

import numpy as np
import pyarrow as pa

from gristmill.tasks.kernels.buffers import block, byte
from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.kernels.scan import continuations


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
