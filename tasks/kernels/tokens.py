"""Tokens, nearly as spaCy's tokenizer cuts English, counted from the words of Unicode word segmentation."""

import numpy as np

from gristmill.tasks.kernels.buffers import byte
from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.kernels.scan import FIELD, LETTER, MIX, REAL


@nb.njit(nogil=True, cache=True)
def different_members(bounds, hashes, which, list_bounds, lists):
    """(how many different ones: int64, one entry a document; which words are in its list: bool, one entry a word).

    bounds, hashes: the words of document d are those from bounds[d] to bounds[d + 1], their hashes (uint64); which: the
    list of each document, int64; list_bounds, lists: the hashes of the words of list k, all different, are
    lists[list_bounds[k]:list_bounds[k + 1]].
    """
    longest = 0
    for k in range(len(list_bounds) - 1):
        longest = max(longest, list_bounds[k + 1] - list_bounds[k])
    bits = 4
    while (1 << bits) < 8 * longest:
        bits += 1
    shift = np.uint64(64 - bits)
    last = np.uint64((1 << bits) - 1)
    # open addressing: the place of a word in `lists`, counted from 1; 0 is free
    tables = np.zeros((len(list_bounds) - 1, 1 << bits), np.uint32)
    for k in range(len(list_bounds) - 1):
        for i in range(list_bounds[k], list_bounds[k + 1]):
            slot = (lists[i] * MIX) >> shift
            while tables[k, slot] != 0:
                slot = (slot + np.uint64(1)) & last
            tables[k, slot] = i + 1
    seen = np.full(len(lists), -1, np.int64)
    count = np.zeros(len(bounds) - 1, np.int64)
    member = np.zeros(len(hashes), np.bool_)
    for d in range(len(count)):
        table = tables[which[d]]
        for w in range(bounds[d], bounds[d + 1]):
            slot = (hashes[w] * MIX) >> shift
            while table[slot] != 0:
                i = table[slot] - np.uint32(1)
                if lists[i] == hashes[w]:
                    member[w] = True
                    count[d] += seen[i] != d
                    seen[i] = d
                    break
                slot = (slot + np.uint64(1)) & last
    return count, member


_LEADING = np.zeros(256, np.bool_)
_LEADING[list(b"-./@~|\\^")] = True


@nb.njit(nogil=True, cache=True)
def _is_plain(data, start, bits):
    """Whether a word has a letter or begins with a digit of ASCII."""
    return (bits & LETTER) != 0 or 0x30 <= byte(data, start) <= 0x39


@nb.njit(nogil=True, cache=True)
def lettered_tokens(data, documents, words, start, bits, size, apostrophes):
    """(tokens, tokens with a letter) of each document: int64.

    `documents` to `bits`: columns of the scan; size: bytes of each word; apostrophes: where one stands, ascending.

    - The core of a field, from its first word with a letter, mark or number to its last, is one token. A hyphen between
      two such words is a token and cuts it in three, an apostrophe within a word cuts it in two; other symbols do not.
    - Where a script has no spaces, words of letters or digits that touch are tokens of their own, and so are East Asian
      signs between words. Signs such as those of `CO₂` and `m²` stay with the word that they touch.
    - A symbol before or behind the core is a token, but for one of `-./@~|\\^` before it, as in `--option`, `/usr/bin`
      and `@handle`, and the full stop of an initial behind it, as in `J.` and `U.S.`.
    - In a field without a core each symbol is a token.
    """
    tokens, lettered = np.zeros((2, len(words) - 1), np.int64)
    at = 0
    for d in range(len(words) - 1):
        begin = documents[d]
        n, m = 0, 0
        core, letter, hyphen, plain = False, False, False, False
        before, free, behind, pending, wide = 0, 0, 0, 0, 0
        for w in range(words[d], words[d + 1]):
            i = start[w]
            if bits[w] & FIELD:
                n += behind if core else before
                core = False
                before, free, behind, pending, wide = 0, 0, 0, 0, 0
            if bits[w] & REAL:
                if not core:
                    n += 1 + before - free
                    core, letter = True, False
                elif (hyphen and pending == 1) or (pending == 0 and plain and _is_plain(data, i, bits[w])) or wide:
                    n += 1 + (hyphen and pending == 1) + wide
                    letter = False
                plain = _is_plain(data, i, bits[w])
                behind, pending, wide = 0, 0, 0
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
                wide += byte(data, i) == 0xE3 or byte(data, i) == 0xEF
                hyphen = size[w] == 1 and byte(data, i) == 0x2D
                behind += 1
                if size[w] == 1 and byte(data, i) == 0x2E:
                    initial = 0x41 <= byte(data, i - 1) <= 0x5A
                    behind -= initial and not (i - 2 >= begin and 0x41 <= byte(data, i - 2) <= 0x5A)
        n += behind if core else before
        tokens[d], lettered[d] = n, m
    return tokens, lettered
