"""Tokens, nearly as spaCy's tokenizer cuts English, counted from the words of Unicode word segmentation."""

import numba as nb
import numpy as np

from gristmill.tasks.kernels.buffers import byte
from gristmill.tasks.kernels.scan import FIELD, LETTER, REAL

_LEADING = np.zeros(256, np.bool_)
_LEADING[list(b"-./@~|\\^")] = True


@nb.njit(nogil=True, cache=True)
def lettered_tokens(data, documents, words, start, bits, size, apostrophes):
    """(tokens, tokens with a letter) of each document: int64.

    `documents` to `bits`: columns of the scan; size: bytes of each word; apostrophes: where one stands, ascending.

    - The core of a field, from its first word with a letter, mark or number to its last, is one token. A hyphen between
      two such words is a token and cuts it in three, an apostrophe within a word cuts it in two; other symbols do not.
    - A symbol before or behind the core is a token, but for one of `-./@~|\\^` before it, as in `--option`, `/usr/bin`
      and `@handle`, and the full stop of an initial behind it, as in `J.` and `U.S.`.
    - In a field without a core each symbol is a token.
    """
    tokens, lettered = np.zeros((2, len(words) - 1), np.int64)
    at = 0
    for d in range(len(words) - 1):
        begin = documents[d]
        n, m = 0, 0
        core, letter, hyphen = False, False, False
        before, free, behind, pending = 0, 0, 0, 0
        for w in range(words[d], words[d + 1]):
            i = start[w]
            if bits[w] & FIELD:
                n += behind if core else before
                core = False
                before, free, behind, pending = 0, 0, 0, 0
            if bits[w] & REAL:
                if not core:
                    n += 1 + before - free
                    core, letter = True, False
                elif hyphen and pending == 1:
                    n += 2
                    letter = False
                behind, pending = 0, 0
                if bits[w] & LETTER:
                    m += not letter
                    letter = True
                    while at < len(apostrophes) and apostrophes[at] < i:
                        at += 1
                    while at < len(apostrophes) and apostrophes[at] < i + size[w]:
                        n += 1
                        m += 1
                        at += 1
            elif not core:
                before += 1
                free += _LEADING[byte(data, i)]
            else:
                pending += 1
                hyphen = size[w] == 1 and byte(data, i) == 0x2D
                behind += 1
                if size[w] == 1 and byte(data, i) == 0x2E:
                    initial = 0x41 <= byte(data, i - 1) <= 0x5A
                    behind -= initial and not (i - 2 >= begin and 0x41 <= byte(data, i - 2) <= 0x5A)
        n += behind if core else before
        tokens[d], lettered[d] = n, m
    return tokens, lettered
