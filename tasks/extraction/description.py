"""What all blocks of a page have in common: counts by block, by element, and by groups of blocks that are alike."""

from typing import NamedTuple

import numpy as np

from gristmill.tasks.extraction.vocabulary import CUES, EDGE, FNV, PRIME, SYMBOLS, E, Page, automaton
from gristmill.tasks.kernels.buffers import byte
from gristmill.tasks.kernels.compiled import nb

_CUES, _CUE_BITS = automaton(CUES, True)


class TextCounts(NamedTuple):
    """Counts in the text of each block, float32.

    chars: code points that are no white space, an entity counting as one. words: what white space separates. marks:
    ends of sentences. upper: words that begin with a capital; short: words of at most three small letters. foreign:
    code points beyond ASCII. ending: how it ends (3 like a sentence, 2 like a clause, 1 with a colon, 0 otherwise).
    lower: it begins with a small letter. year: words of four digits. signs: separators such as `|`. title: words that
    the page's title has too.
    """

    chars: np.ndarray
    words: np.ndarray
    marks: np.ndarray
    commas: np.ndarray
    digits: np.ndarray
    upper: np.ndarray
    short: np.ndarray
    foreign: np.ndarray
    ending: np.ndarray
    lower: np.ndarray
    lines: np.ndarray
    year: np.ndarray
    signs: np.ndarray
    title: np.ndarray


@nb.njit(nogil=True, cache=True)
def title_words(data, begin, end):
    """A hash table (uint64, 64 slots, 0 for none) of the words of more than three characters in a page's title."""
    words = np.zeros(64, np.uint64)
    h = FNV
    size = 0
    for i in range(begin, end + 1):
        b = byte(data, i) if i < end else np.uint8(32)
        if b >= 128 or SYMBOLS[b] != EDGE or 48 <= b <= 57:
            h = (h ^ np.uint64(b | 32 if 65 <= b <= 90 else b)) * PRIME
            size += 1
        elif size:
            if size > 3:
                slot = np.int64(h & np.uint64(63))
                for _ in range(8):
                    if words[slot] == 0 or words[slot] == h:
                        words[slot] = h
                        break
                    slot = (slot + 1) & 63
            h = FNV
            size = 0
    return words


@nb.njit(nogil=True, cache=True)
def count_text(text, begin, end, titled, out, k):
    """Fill entry `k` of `out`, a `TextCounts`, from `text[begin:end]`; returns (bits of CUES, hash of the text).

    titled: of `title_words`.
    """
    cues = np.uint64(0)
    whole = FNV
    state = np.int64(_CUES[0, EDGE])
    word = FNV
    letters = 0
    smalls = 0
    digits = 0
    inside = False
    first = True
    last = np.uint8(0)
    chars = foreign = np.float32(0)  # counted for each byte, so not in memory
    i = begin
    while i <= end:
        b = byte(text, i) if i < end else np.uint8(32)
        space = b <= 32
        symbol = SYMBOLS[b]
        if i < end or symbol == EDGE:
            following = np.int64(_CUES[state, symbol])
            if not (symbol == EDGE and space and last <= 32):
                state = following
                cues |= _CUE_BITS[state]
        if space:
            if inside:
                out.words[k] += 1
                if smalls == letters and 0 < letters <= 3:
                    out.short[k] += 1
                if last == 46 or last == 33 or last == 63:
                    out.marks[k] += 1
                if digits == 4 and letters == 0:
                    out.year[k] += 1
                inside = False
            if letters + digits > 3:
                slot = np.int64(word & np.uint64(63))
                for _ in range(8):
                    if titled[slot] == word:
                        out.title[k] += 1
                        break
                    if titled[slot] == 0:
                        break
                    slot = (slot + 1) & 63
            word = FNV
            letters = smalls = digits = 0
            if b == 10 and i < end:
                out.lines[k] += 1
            last = b
            i += 1
            continue
        whole = (whole ^ np.uint64(b)) * PRIME
        if b == 38:  # an entity is one character
            j = i + 1
            while (
                j < end
                and j < i + 10
                and (SYMBOLS[byte(text, j)] != EDGE or 48 <= byte(text, j) <= 57 or byte(text, j) == 35)
            ):
                j += 1
            if j < end and byte(text, j) == 59 and j > i + 1:
                i = j
        chars += np.float32((b & 0xC0) != 0x80)
        if not inside:
            inside = True
            if 65 <= b <= 90:
                out.upper[k] += 1
            if first:
                out.lower[k] = 97 <= b <= 122
                first = False
        if symbol != EDGE or b >= 128:
            letters += (b & 0xC0) != 0x80
            smalls += 97 <= b <= 122
            word = (word ^ np.uint64(b | 32 if 65 <= b <= 90 else b)) * PRIME
            foreign += np.float32(b >= 0xC0)
            if b == 0xE3 and i + 2 < end and byte(text, i + 1) == 0x80:
                out.marks[k] += byte(text, i + 2) == 0x82
                out.commas[k] += byte(text, i + 2) == 0x81
            elif b == 0xEF and i + 2 < end and byte(text, i + 1) == 0xBC:
                out.marks[k] += byte(text, i + 2) == 0x81 or byte(text, i + 2) == 0x9F
                out.commas[k] += byte(text, i + 2) == 0x8C
        elif 48 <= b <= 57:
            digits += 1
            out.digits[k] += 1
            word = (word ^ np.uint64(b)) * PRIME
        elif b == 44 or b == 59:
            out.commas[k] += 1
        elif b == 124 or b == 62 or b == 47 or b == 42:
            out.signs[k] += 1
        last = b
        i += 1
    out.chars[k], out.foreign[k] = chars, foreign
    i = end - 1
    while i > begin and (byte(text, i) == 34 or byte(text, i) == 41 or byte(text, i) == 39 or byte(text, i) <= 32):
        i -= 1
    b = byte(text, i) if i >= begin else np.uint8(0)
    if b == 46 or b == 33 or b == 63 or b == 0x82:
        out.ending[k] = 3
    elif b == 44 or b == 59:
        out.ending[k] = 2
    elif b == 58:
        out.ending[k] = 1
    return cues, whole


PARAGRAPH = E["p"]


class Described(NamedTuple):
    """What all blocks of a page have in common, made once per page; see `features`.

    cues: uint64, bits of CUES by block. long: float32, the block's chars if it reads like
    running text, else 0. path, shape: of each block's element, the number of a group of blocks; copies: how many
    blocks have its text. first, last: blocks below each node; sums: float64, of each node, (chars, linked chars,
    blocks, long chars). container: int64, of each node the innermost element around it that holds more blocks, the
    page's root for itself. scored, heaviest: the two nodes that most look like the article. totals: float64, of each
    path and of each shape, (blocks, chars, linked chars).
    """

    text: TextCounts
    cues: np.ndarray
    long: np.ndarray
    path: np.ndarray
    shape: np.ndarray
    copies: np.ndarray
    first: np.ndarray
    last: np.ndarray
    sums: np.ndarray
    container: np.ndarray
    scored: int
    heaviest: int
    totals: tuple[np.ndarray, np.ndarray]


@nb.njit(nogil=True, cache=True)
def groups(keys):
    """The number of each key's group, in order of first appearance."""
    size = 16
    while size < 2 * len(keys):
        size *= 2
    table = np.full(size, -1, np.int64)
    group = np.empty(len(keys), np.int32)
    first = np.empty(len(keys), np.int64)
    n = 0
    mask = np.uint64(size - 1)
    for k in range(len(keys)):
        slot = np.int64((keys[k] ^ (keys[k] >> np.uint64(32))) & mask)
        while table[slot] >= 0 and keys[first[table[slot]]] != keys[k]:
            slot = (slot + 1) & (size - 1)
        if table[slot] < 0:
            table[slot] = n
            first[n] = k
            n += 1
        group[k] = table[slot]
    return group


@nb.njit(nogil=True, cache=True)
def _totals(group, chars, linked):
    """(blocks, chars, linked chars) of each group."""
    n = group.max() + 1 if len(group) else 0
    out = np.zeros((n, 3), np.float64)
    for k in range(len(group)):
        out[group[k], 0] += 1
        out[group[k], 1] += chars[k]
        out[group[k], 2] += linked[k]
    return out


@nb.njit(nogil=True, cache=True)
def describe(data: np.ndarray, page: Page) -> Described:
    """What all blocks of a page have in common; `data`: its bytes (uint8). Holds some 200 bytes for each block."""
    blocks, nodes = page.blocks, page.nodes
    n, m = len(blocks.begin), len(nodes.parent)
    t = np.zeros((14, n), np.float32)
    text = TextCounts(*(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10], t[11], t[12], t[13]))
    titled = title_words(data, page.title[0], page.title[1])
    cues, hashes = np.empty(n, np.uint64), np.empty(n, np.uint64)
    long = np.zeros(n, np.float32)
    linked = np.zeros(n, np.float32)
    for k in range(n):
        cues[k], hashes[k] = count_text(page.text, blocks.begin[k], blocks.end[k], titled, text, k)
        linked[k] = min(np.float32(blocks.linked[k]), text.chars[k])
        if text.chars[k] >= 80 and linked[k] < 0.4 * text.chars[k] and text.marks[k] + text.commas[k] > 0:
            long[k] = text.chars[k]
    paths, shapes = np.empty(n, np.uint64), np.empty(n, np.uint64)
    first, last = np.full(m, n, np.int32), np.full(m, -1, np.int32)
    sums = np.zeros((m, 4), np.float64)
    scores, weights = np.zeros(m, np.float64), np.zeros(m, np.float64)
    for k in range(n):
        node = blocks.node[k]
        paths[k] = nodes.path[node]
        shape = FNV
        up = np.int64(node)
        for _ in range(4):
            shape = (shape ^ np.uint64(nodes.tag[up])) * PRIME
            if nodes.parent[up] < 0:
                break
            up = nodes.parent[up]
        shapes[k] = shape
        first[node] = min(first[node], k)
        last[node] = max(last[node], k)
        sums[node, 0] += text.chars[k]
        sums[node, 1] += linked[k]
        sums[node, 2] += 1
        sums[node, 3] += long[k]
        weights[node] += long[k] if long[k] else -(0.3 * text.chars[k] + linked[k] + 10)
        if long[k]:
            # as Readability scores paragraphs: half for the second, a third for the third container
            score = 1 + text.commas[k] + min(text.chars[k] / 100, 3)
            up = np.int64(node)
            if nodes.tag[up] == PARAGRAPH:
                up = nodes.parent[up]
            for share in range(1, 5):
                scores[up] += score / share
                if nodes.parent[up] < 0:
                    break
                up = nodes.parent[up]
    for node in range(m - 1, 0, -1):
        up = nodes.parent[node]
        first[up] = min(first[up], first[node])
        last[up] = max(last[up], last[node])
        for c in range(4):
            sums[up, c] += sums[node, c]
        weights[up] += weights[node]
    scored = heaviest = 0
    best = -1.0
    container = np.zeros(m, np.int64)
    for node in range(m):
        if node:
            up = nodes.parent[node]
            container[node] = up if sums[up, 2] != sums[node, 2] else container[up]
        score = scores[node] * (1 - sums[node, 1] / max(1, sums[node, 0]))
        if score > best:
            best = score
            scored = node
        if weights[node] >= weights[heaviest]:
            heaviest = node  # the innermost of those that weigh the same
    path, shape = groups(paths), groups(shapes)
    copies_of = groups(hashes)
    copies = _totals(copies_of, text.chars, linked)
    times = np.empty(n, np.float32)
    for k in range(n):
        times[k] = copies[copies_of[k], 0]
    totals = (_totals(path, text.chars, linked), _totals(shape, text.chars, linked))
    return Described(text, cues, long, path, shape, times, first, last, sums, container, scored, heaviest, totals)


@nb.njit(nogil=True, cache=True)
def elements_apart(parent, first, last, target):
    """Of each node how many elements above it the first one is that holds the node `target` too; at most 20.

    parent, first, last: of each node, see `Nodes` and `Described`.
    """
    apart = np.zeros(len(parent), np.int64)
    for node in range(1, len(parent)):
        if first[node] > first[target] or last[node] < last[target]:
            apart[node] = min(20, apart[parent[node]] + 1)
    return apart
