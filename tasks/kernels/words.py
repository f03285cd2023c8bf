"""Documents reduced to their words: the form in which texts are compared that differ in case, marks and layout only.

Words are here the runs of `kernels.shingles`, also in scripts without spaces: letters, marks and digits, lower-cased
code point by code point, among which invisible characters leave no trace. One space stands between two of them, none at
either end.
"""

import numpy as np

from gristmill.tasks.kernels.buffers import byte
from gristmill.tasks.kernels.characters import NO_TRACE, decode, word_characters
from gristmill.tasks.kernels.compiled import nb

_SPACE = np.uint8(0x20)


def words_only(data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """UTF-8 bytes (uint8) of the words of all documents, and their n_documents+1 offsets (int64).

    `data` and `offsets` are UTF-8 bytes as `buffers.utf8` gives them. Held: 1.5 bytes a byte of the documents, since
    the lower case of a character of two bytes can have three (U+023A).
    """
    characters = word_characters()
    ascii = np.where(characters[:0x80] == 0, _SPACE, characters[:0x80]).astype(np.uint8)
    out = np.empty(int(offsets[-1] - offsets[0]) * 3 // 2 + 1, np.uint8)
    ends = np.zeros(len(offsets), np.int64)
    _write(data, offsets, characters, ascii, out, ends)
    return out[: ends[-1]], ends


@nb.njit(nogil=True, cache=True)
def _write(data, offsets, characters, ascii, out, ends):
    at = np.int64(0)
    for d in range(offsets.shape[0] - 1):
        begin = at
        in_word = np.int64(0)
        i, end = offsets[d], offsets[d + 1]
        while i < end:
            # A space is written wherever no word is, and written over unless a word stands before it: this needs no
            # branch on where words end, which a processor cannot foresee.
            b = byte(data, i)
            if b < 0x80:
                c = ascii[b]
                i += 1
                out[at] = c
                before, in_word = in_word, np.int64(c != _SPACE)
                at += before | in_word
                continue
            point, i = decode(data, i)
            if characters[point] == NO_TRACE:
                continue
            c = np.int64(characters[point])
            before, in_word = in_word, np.int64(c != 0)
            if c < 0x80:
                out[at] = c if c != 0 else _SPACE
                at += before | in_word
            elif c < 0x800:
                out[at] = 0xC0 | c >> 6
                out[at + 1] = 0x80 | c & 0x3F
                at += 2
            elif c < 0x10000:
                out[at] = 0xE0 | c >> 12
                out[at + 1] = 0x80 | c >> 6 & 0x3F
                out[at + 2] = 0x80 | c & 0x3F
                at += 3
            else:
                out[at] = 0xF0 | c >> 18
                out[at + 1] = 0x80 | c >> 12 & 0x3F
                out[at + 2] = 0x80 | c >> 6 & 0x3F
                out[at + 3] = 0x80 | c & 0x3F
                at += 4
        at -= np.int64(at > begin) & (1 - in_word)
        ends[d + 1] = at
