"""Text that a page repeats: an article written once for screens and once for phones, a reply that quotes another.

What is kept twice counts twice, for a model and for the measure of an extraction. The constants were chosen on the
pages that the classifier has learned from. Prose alone is looked at: what a song, a form, a plan of meals or a
reference says again, line by line, stays.
"""

import numpy as np

from gristmill.tasks.extraction.vocabulary import AROUND, FNV, PRIME, WORDS, Page
from gristmill.tasks.kernels.buffers import byte
from gristmill.tasks.kernels.compiled import nb


def _bits(*names: str) -> np.uint64:
    word_names = [*(name for name, _ in WORDS), *(f"<{name}>" for name in AROUND)]
    return np.uint64(sum(1 << word_names.index(name) for name in names))


_PARTS, _SIDES, _QUOTE = _bits("<nav>", "<footer>", "<dialog>"), _bits("<aside>", "sidebar"), _bits("<blockquote>")
# the part of the kept words from which on a container holds the main text after all, and that of a sidebar's text from
# which on it is a list of links
MIN_CONTAINER_SHARE, LINKED = 1 / 3, 0.5


@nb.njit(nogil=True, cache=True)
def beside(page: Page, kept: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The kept blocks (bool) in containers beside the main text; `words`: float32, of each block.

    Containers are the outermost `nav`, `footer` or `dialog`, except in quotations, whose `footer` names a source, and
    the innermost `aside` or sidebar, by its class, of whose text LINKED is links. None counts that has
    MIN_CONTAINER_SHARE of the kept words. Holds 49 bytes for each node.
    """
    blocks, nodes = page.blocks, page.nodes
    n, m = len(blocks.begin), len(nodes.parent)
    part, side = np.full(m, -1, np.int32), np.full(m, -1, np.int32)
    quoted = np.zeros(m, np.bool_)
    for node in range(1, m):
        up, bits = nodes.parent[node], nodes.bits[node]
        quoted[node] = quoted[up] or (bits & _QUOTE) != 0
        part[node], side[node] = part[up], side[up]
        if part[up] < 0 and bits & _PARTS and not quoted[node]:
            part[node] = node
        if bits & _SIDES:
            side[node] = node
    in_part, in_side = np.zeros(m, np.float64), np.zeros(m, np.float64)
    size, linked = np.zeros(m, np.int64), np.zeros(m, np.int64)
    total = 0.0
    for k in range(n):
        p, s = part[blocks.node[k]], side[blocks.node[k]]
        count = float(words[k]) if kept[k] else 0.0
        total += count
        if p >= 0:
            in_part[p] += count
        if s >= 0:
            in_side[s] += count
            size[s] += blocks.end[k] - blocks.begin[k]
            linked[s] += blocks.linked[k]
    out = np.zeros(n, np.bool_)
    for k in range(n):
        if kept[k]:
            p, s = part[blocks.node[k]], side[blocks.node[k]]
            out[k] = (p >= 0 and in_part[p] < MIN_CONTAINER_SHARE * total) or (
                s >= 0 and in_side[s] < MIN_CONTAINER_SHARE * total and linked[s] >= LINKED * size[s]
            )
    return out


WINDOW = 8
# the part of a block's windows that stand above it; the words of such blocks in a row, and of each of them on average
SHARE, MIN_REPEAT_WORDS, EACH = 0.9, 60, 15
# odd, so that it has an inverse: the word that leaves a window is taken out of its sum
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_LEAVES = np.uint64(pow(int(_FACTOR), WINDOW, 2**64))


@nb.njit(nogil=True, cache=True)
def repeats(page: Page, kept: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """The kept blocks (bool) that say again what kept blocks above them say.

    kept, whole: bool, of each block; what is in a whole, code or a table of data, repeats nothing. A block repeats if
    SHARE of its windows of WINDOW words stand above it, where kept blocks are read on from one to the next; a shorter
    block, if there is one of the same words. Such blocks in a row are a repeat if they have MIN_REPEAT_WORDS words
    together and EACH on average. A word is letters, digits and all that is not ASCII, in any case of ASCII's letters.
    Holds 40 to 72 bytes for each.
    """
    text, blocks = page.text, page.blocks
    n = len(kept)
    out = np.zeros(n, np.bool_)
    count = _count(text, blocks, kept)
    if count < MIN_REPEAT_WORDS:
        return out
    words = np.empty(count, np.uint64)
    size = 16
    while size < 4 * len(words):  # a short block has two keys
        size *= 2
    table = np.zeros(size, np.uint64)
    row = np.empty(n, np.int64)  # repeating blocks in a row
    blocks_in_row = words_in_row = 0
    begin = end = 0  # of the block's words
    for k in range(n + 1):
        if k < n and not kept[k]:
            continue
        repeated = False
        if k < n and not whole[k]:
            begin = end
            end += _words(text, blocks.begin[k], blocks.end[k], words[begin:])
            first = min(begin + WINDOW, end) - 1  # the word that the block's first window ends in
            matches = 0
            window = np.uint64(0)
            for i in range(begin, end):
                window = _moved(window, words, begin, i)
                if i >= first:
                    matches += table[_slot(table, window)] == window
            repeated = end > begin and matches >= SHARE * (end - first)
            if end - begin < WINDOW:
                table[_slot(table, window)] = window
            before = max(0, begin - WINDOW + 1)
            window = np.uint64(0)
            for i in range(before, end):
                window = _moved(window, words, before, i)
                if i >= before + WINDOW - 1:
                    table[_slot(table, window)] = window
        if repeated:
            row[blocks_in_row] = k
            blocks_in_row += 1
            words_in_row += end - begin
            continue
        if words_in_row >= max(MIN_REPEAT_WORDS, EACH * blocks_in_row):
            for i in range(blocks_in_row):
                out[row[i]] = True
        blocks_in_row = words_in_row = 0
    return out


@nb.njit(nogil=True, cache=True, inline="always")
def _moved(window, words, begin, i):
    """A window, the sum of its words by powers of a factor, one word on, to `i`; there is none before `begin`."""
    window = window * _FACTOR + words[i]
    if i >= begin + WINDOW:
        window -= words[i - WINDOW] * _LEAVES
    return window


@nb.njit(nogil=True, cache=True, inline="always")
def _in_word(b):
    return b >= 128 or 97 <= (b | 32) <= 122 or 48 <= b <= 57


@nb.njit(nogil=True, cache=True)
def _words(text, begin, end, out):
    """Fill `out` with the hashes of the words of `text[begin:end]`; how many there are."""
    count = 0
    word = FNV
    inside = False
    for i in range(begin, end + 1):
        b = byte(text, i) if i < end else np.uint8(32)
        if _in_word(b):
            word = (word ^ np.uint64(b | 32 if 65 <= b <= 90 else b)) * PRIME
            inside = True
        elif inside:
            out[count] = word
            count += 1
            word = FNV
            inside = False
    return count


@nb.njit(nogil=True, cache=True)
def _count(text, blocks, kept):
    """At least the number of words in kept blocks."""
    count = 0
    for k in range(len(kept)):
        if kept[k]:
            inside = False
            for i in range(blocks.begin[k], blocks.end[k]):
                now = _in_word(byte(text, i))
                count += now and not inside
                inside = now
    return count


@nb.njit(nogil=True, cache=True)
def _slot(table, key):
    """Where a key is in the table, or where it would be: keys by their upper half, then one after the other."""
    mask = np.uint64(len(table) - 1)
    slot = np.int64((key ^ (key >> np.uint64(32))) & mask)
    while table[slot] and table[slot] != key:
        slot = (slot + 1) & (len(table) - 1)
    return slot
