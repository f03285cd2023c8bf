"""What the classifier looks at: numbers that describe a block, its neighbours, its containers and its page."""

from collections import namedtuple

import numba as nb
import numpy as np

from tasks.extraction.blocks import FNV, HEADING, PRIME, SYMBOLS
from tasks.extraction.vocabulary import AROUND, BITS, CUES, EDGE, ELEMENTS, WORDS, automaton
from tasks.kernels.buffers import byte

_CUES, _CUE_BITS = automaton(CUES, True)
_N_CUES = len(CUES)
_H1 = ELEMENTS.index("h1")
_PARAGRAPH = ELEMENTS.index("p")
_COMMENT_BIT = np.uint64(1)

_ARTICLE = np.uint64(1) << np.uint64(32 + AROUND.index("article"))
_MAIN = np.uint64(1) << np.uint64(32 + AROUND.index("main"))

Text = namedtuple("Text", "chars words marks commas digits upper short foreign ending lower lines year signs title")
Text.__doc__ = """Counts in the text of each block, float32.

chars: code points that are no white space, an entity counting as one. words: runs of those. marks: ends of
sentences. upper: words that begin with a capital; short: words of at most three small letters. foreign: code points
beyond ASCII. ending: how it ends (3 like a sentence, 2 like a clause, 1 with a colon, 0 otherwise). lower: it begins
with a small letter. signs: separators such as `|`. title: words that the page's title has too.
"""

LEVELS = 4
STEPS = (-3, -2, -1, 1, 2, 3)
WINDOWS = (3, 10)

_TEXT_NAMES = (
    "chars words length link_share links marks commas digits upper short foreign ending lower lines year signs title "
    "title_share long kind heading bullet in_row"
).split()
_STEP_NAMES = "chars link_share marks kind same_path".split()
_LEVEL_NAMES = "chars link_share blocks long_share mean place own_share".split()
_PAGE_NAMES = "chars blocks link_share long_share mean articles mains paragraphs headings comments rows links".split()
FEATURES = (
    *_TEXT_NAMES,
    *(f"cue_{name}" for name, _ in CUES),
    *(f"word_{name}" for name, _ in WORDS),
    *(f"in_{name}" for name in AROUND),
    *(f"{name}_{step:+d}" for step in STEPS for name in _STEP_NAMES),
    *(f"window_{width}_{name}" for width in WINDOWS for name in ("chars", "link_share", "long")),
    *("place", "place_chars", "from_end", "from_heading", "heading_level", "chars_from_heading", "to_heading"),
    *("from_h1", "after_h1", "from_titled", "after_titled"),
    *("from_long", "to_long", "longs_before_share", "chars_after_long"),
    *(f"container_{level}_{name}" for level in range(LEVELS) for name in _LEVEL_NAMES),
    *("in_scored", "scored_apart", "scored_share", "in_heaviest", "heaviest_apart", "heaviest_share"),
    *(f"{which}_{name}" for which in ("path", "shape") for name in ("count", "mean", "link_share", "share")),
    "copies",
    *(f"page_{name}" for name in _PAGE_NAMES),
)

Described = namedtuple("Described", "text cues hashes long path shape copies first last sums scored heaviest totals")
Described.__doc__ = """What all blocks of a page have in common, made once per page; see `features`.

long: float32, the block's chars if it reads like running text, else 0. path, shape: of each block's element, the
number of a group of blocks; copies: how many blocks have its text. first, last: blocks below each node; sums: of
each node, (chars, linked chars, blocks, long chars). scored, heaviest: the two nodes that most look like the article.
"""


@nb.njit(nogil=True, cache=True)
def _title_words(data, begin, end):
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
def _measure(text, begin, end, titled, out, k):
    """Count what is in the text of block `k`; returns (bits of cues, hash)."""
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
        out.chars[k] += (b & 0xC0) != 0x80
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
            out.foreign[k] += b >= 0xC0
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


@nb.njit(nogil=True, cache=True)
def _groups(keys):
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
def describe(data, page):
    """`Described` of a page; holds some 200 bytes for each block."""
    blocks, nodes = page.blocks, page.nodes
    n, m = len(blocks.begin), len(nodes.parent)
    counts = np.zeros((14, n), np.float32)
    text = Text(
        counts[0],
        counts[1],
        counts[2],
        counts[3],
        counts[4],
        counts[5],
        counts[6],
        counts[7],
        counts[8],
        counts[9],
        counts[10],
        counts[11],
        counts[12],
        counts[13],
    )
    titled = _title_words(data, page.title[0], page.title[1])
    cues, hashes = np.empty(n, np.uint64), np.empty(n, np.uint64)
    long = np.zeros(n, np.float32)
    linked = np.zeros(n, np.float32)
    for k in range(n):
        cues[k], hashes[k] = _measure(page.text, blocks.begin[k], blocks.end[k], titled, text, k)
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
            if nodes.tag[up] == _PARAGRAPH:
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
    for node in range(m):
        score = scores[node] * (1 - sums[node, 1] / max(1, sums[node, 0]))
        if score > best:
            best = score
            scored = node
        if weights[node] >= weights[heaviest]:
            heaviest = node  # the innermost of those that weigh the same
    path, shape = _groups(paths), _groups(shapes)
    copies_of = _groups(hashes)
    copies = _totals(copies_of, text.chars, linked)
    times = np.empty(n, np.float32)
    for k in range(n):
        times[k] = copies[copies_of[k], 0]
    totals = (_totals(path, text.chars, linked), _totals(shape, text.chars, linked))
    return Described(text, cues, hashes, long, path, shape, times, first, last, sums, scored, heaviest, totals)


@nb.njit(nogil=True, cache=True)
def _apart(nodes, described, node, k, target):
    """How many elements above a block's own the first one lies that holds `target` too; at most 20."""
    up = np.int64(node)
    steps = 0
    while steps < 20 and nodes.parent[up] >= 0:
        if described.first[up] <= described.first[target] and described.last[up] >= described.last[target]:
            break
        up = nodes.parent[up]
        steps += 1
    return steps


@nb.njit(nogil=True, cache=True, inline="always")
def _log(x):
    return np.log2(1 + x)


@nb.njit(nogil=True, cache=True)
def features(page, described, begin, end, out):
    """Fill the rows of `out` (float32, shape (end - begin, FEATURES)) for the blocks from `begin` to `end`."""
    blocks, nodes, text = page.blocks, page.nodes, described.text
    n = len(blocks.begin)
    chars = text.chars
    page_chars = max(1.0, described.sums[0, 0])
    page_long = described.sums[0, 3]
    articles = mains = 0
    for node in range(len(nodes.tag)):
        articles += (nodes.bits[node] & _ARTICLE) != 0
        mains += (nodes.bits[node] & _MAIN) != 0
    paragraphs = headings = comments = rows = 0
    links = 0
    h1 = titled = -1
    best_title = 0.0
    for k in range(n):
        tag = nodes.tag[blocks.node[k]]
        paragraphs += tag == _PARAGRAPH
        headings += blocks.kind[k] == HEADING
        comments += (blocks.bits[k] & _COMMENT_BIT) != 0
        rows += blocks.row[k] > 0
        links += blocks.links[k]
        if h1 < 0 and blocks.kind[k] == HEADING and _level(nodes, np.int64(blocks.node[k])) == 1:
            h1 = k
        if blocks.kind[k] == HEADING or text.words[k] < 30:
            share = text.title[k] / max(3.0, text.words[k]) * (2.0 if blocks.kind[k] == HEADING else 1.0)
            if share > best_title and text.title[k] >= 2:
                best_title = share
                titled = k
    # What lies before `begin` and is looked back at.
    before_chars = 0.0
    before_long = 0.0
    last_heading = -1
    last_level = 0
    heading_chars = 0.0
    last_long = -1
    since_long = 0.0
    for k in range(begin):
        before_chars += chars[k]
        before_long += described.long[k]
        heading_chars += chars[k]
        since_long += chars[k]
        if blocks.kind[k] == HEADING:
            last_heading, last_level, heading_chars = k, _level(nodes, np.int64(blocks.node[k])), 0.0
        if described.long[k]:
            last_long, since_long = k, 0.0
    next_heading = next_long = begin
    for k in range(begin, end):
        row = out[k - begin]
        f = 0
        c = chars[k]
        share = min(np.float32(blocks.linked[k]), c) / max(np.float32(1), c)
        words = max(np.float32(1), text.words[k])
        node = np.int64(blocks.node[k])
        level = _level(nodes, node) if blocks.kind[k] == HEADING else 0
        row[0] = _log(c)
        row[1] = _log(text.words[k])
        row[2] = c / words
        row[3] = share
        row[4] = blocks.links[k]
        row[5] = text.marks[k]
        row[6] = text.commas[k] / words
        row[7] = text.digits[k] / max(np.float32(1), c)
        row[8] = text.upper[k] / words
        row[9] = text.short[k] / words
        row[10] = text.foreign[k] / max(np.float32(1), c)
        row[11] = text.ending[k]
        row[12] = text.lower[k]
        row[13] = text.lines[k]
        row[14] = text.year[k]
        row[15] = text.signs[k]
        row[16] = text.title[k]
        row[17] = text.title[k] / words
        row[18] = described.long[k] > 0
        row[19] = blocks.kind[k]
        row[20] = level
        row[21] = blocks.bullet[k]
        row[22] = blocks.row[k] > 0
        f = 23
        for bit in range(_N_CUES):
            row[f + bit] = (described.cues[k] >> np.uint64(bit)) & np.uint64(1)
        f += _N_CUES
        for bit in range(BITS):
            row[f + bit] = min(blocks.above[k, bit], np.int8(20))
        f += BITS
        for step in STEPS:
            j = k + step
            if 0 <= j < n:
                row[f] = _log(chars[j])
                row[f + 1] = min(np.float32(blocks.linked[j]), chars[j]) / max(np.float32(1), chars[j])
                row[f + 2] = text.marks[j]
                row[f + 3] = blocks.kind[j]
                row[f + 4] = described.path[j] == described.path[k]
            else:
                row[f : f + 5] = -1
            f += 5
        for width in WINDOWS:
            total = linked = longs = 0.0
            for j in range(max(0, k - width), min(n, k + width + 1)):
                total += chars[j]
                linked += min(np.float32(blocks.linked[j]), chars[j])
                longs += described.long[j] > 0
            row[f] = _log(total)
            row[f + 1] = linked / max(1.0, total)
            row[f + 2] = longs
            f += 3
        while next_heading < n and (next_heading <= k or blocks.kind[next_heading] != HEADING):
            next_heading += 1
        while next_long < n and (next_long <= k or not described.long[next_long]):
            next_long += 1
        row[f] = k / n
        row[f + 1] = before_chars / page_chars
        row[f + 2] = _log(n - k)
        row[f + 3] = _log(k - last_heading) if last_heading >= 0 else -1
        row[f + 4] = last_level
        row[f + 5] = _log(heading_chars) if last_heading >= 0 else -1
        row[f + 6] = _log(next_heading - k)
        row[f + 7] = _log(abs(k - h1)) if h1 >= 0 else -1
        row[f + 8] = k >= h1 if h1 >= 0 else -1
        row[f + 9] = _log(abs(k - titled)) if titled >= 0 else -1
        row[f + 10] = k >= titled if titled >= 0 else -1
        row[f + 11] = _log(k - last_long) if last_long >= 0 else -1
        row[f + 12] = _log(next_long - k) if next_long < n else -1
        row[f + 13] = before_long / max(1.0, page_long)
        row[f + 14] = _log(since_long)
        f += 15
        up = node
        for _ in range(LEVELS):
            sums = described.sums[up]
            row[f] = _log(sums[0])
            row[f + 1] = sums[1] / max(1.0, sums[0])
            row[f + 2] = _log(sums[2])
            row[f + 3] = sums[3] / max(1.0, page_long)
            row[f + 4] = _log(sums[0] / max(1.0, sums[2]))
            row[f + 5] = (k - described.first[up]) / max(1.0, sums[2])
            row[f + 6] = c / max(1.0, sums[0])
            f += 7
            size = sums[2]
            while nodes.parent[up] >= 0 and described.sums[up, 2] == size:
                up = np.int64(nodes.parent[up])
        for target in (described.scored, described.heaviest):
            row[f] = described.first[target] <= k <= described.last[target]
            row[f + 1] = _apart(nodes, described, node, k, target)
            row[f + 2] = described.sums[target, 0] / page_chars
            f += 3
        for which in range(2):
            if which == 0:
                group = described.totals[0][described.path[k]]
            else:
                group = described.totals[1][described.shape[k]]
            row[f] = _log(group[0])
            row[f + 1] = _log(group[1] / group[0])
            row[f + 2] = group[2] / max(1.0, group[1])
            row[f + 3] = group[1] / page_chars
            f += 4
        row[f] = described.copies[k]
        row[f + 1] = _log(page_chars)
        row[f + 2] = _log(n)
        row[f + 3] = described.sums[0, 1] / page_chars
        row[f + 4] = page_long / page_chars
        row[f + 5] = _log(page_chars / n)
        row[f + 6] = articles
        row[f + 7] = mains
        row[f + 8] = _log(paragraphs)
        row[f + 9] = _log(headings)
        row[f + 10] = comments / n
        row[f + 11] = rows / n
        row[f + 12] = _log(links)
        before_chars += c
        before_long += described.long[k]
        heading_chars += c
        since_long += c
        if blocks.kind[k] == HEADING:
            last_heading, last_level, heading_chars = k, level, 0.0
        if described.long[k]:
            last_long, since_long = k, 0.0


@nb.njit(nogil=True, cache=True)
def _level(nodes, node):
    """1 to 6 of the heading that an element lies in."""
    while node > 0 and not (_H1 <= nodes.tag[node] < _H1 + 6):
        node = np.int64(nodes.parent[node])
    return nodes.tag[node] - _H1 + 1


_SECOND_STEPS = (-4, -3, -2, -1, 1, 2, 3, 4)
_SECOND_WINDOWS = (2, 5, 15)
SECOND = (
    *FEATURES,
    "first",
    *(f"first_{step:+d}" for step in _SECOND_STEPS),
    *(f"first_window_{width}" for width in _SECOND_WINDOWS),
    *(f"first_container_{level}" for level in range(LEVELS)),
    *("first_path", "first_shape", "first_page", "first_best", "first_before", "first_after"),
    *("since_sure", "to_sure", "in_segment", "from_segment", "segment_share", "in_subtree", "subtree_apart"),
    "subtree_share",
)


@nb.njit(nogil=True, cache=True)
def context(page, described, likely):
    """What the first classifier's verdicts say together; `likely`: float32, the probability of each block.

    Returns float64 (sums over nodes, sums over paths, sums over shapes, each (n, 2): words, and words times
    probability), and (begin, end) of the run of blocks and the node that gather the most probable words.
    """
    blocks, nodes, text = page.blocks, page.nodes, described.text
    n, m = len(blocks.begin), len(nodes.parent)
    by_node = np.zeros((m, 2), np.float64)
    by_path = np.zeros((len(described.totals[0]), 2), np.float64)
    by_shape = np.zeros((len(described.totals[1]), 2), np.float64)
    best = running = 0.0
    begin = end = since = 0
    for k in range(n):
        w = text.words[k] + 1.0
        p = w * likely[k]
        for table, at in (
            (by_node, blocks.node[k]),
            (by_path, described.path[k]),
            (by_shape, described.shape[k]),
        ):
            table[at, 0] += w
            table[at, 1] += p
        running += p - 0.5 * w
        if running <= 0:
            running = 0.0
            since = k + 1
        elif running > best:
            best = running
            begin, end = since, k + 1
    for node in range(m - 1, 0, -1):
        by_node[nodes.parent[node]] += by_node[node]
    heaviest = 0
    for node in range(m):
        if by_node[node, 1] - 0.5 * by_node[node, 0] >= by_node[heaviest, 1] - 0.5 * by_node[heaviest, 0]:
            heaviest = node
    return by_node, by_path, by_shape, begin, end, heaviest


@nb.njit(nogil=True, cache=True)
def second(page, described, likely, gathered, begin, end, out):
    """Fill the columns of `out` that follow FEATURES (see SECOND) for the blocks from `begin` to `end`."""
    blocks, nodes, text = page.blocks, page.nodes, described.text
    by_node, by_path, by_shape, run_begin, run_end, heaviest = gathered
    n = len(blocks.begin)
    total = max(1.0, by_node[0, 0])
    sure = max(1e-6, by_node[0, 1])
    top = 0.0
    last = -1
    before = 0.0
    for k in range(n):
        top = max(top, likely[k])
        if k < begin:
            before += (text.words[k] + 1.0) * likely[k]
            if likely[k] > 0.5:
                last = k
    following = begin
    for k in range(begin, end):
        row = out[k - begin]
        f = len(FEATURES)
        row[f] = likely[k]
        f += 1
        for step in _SECOND_STEPS:
            row[f] = likely[k + step] if 0 <= k + step < n else -1
            f += 1
        for width in _SECOND_WINDOWS:
            w = p = 0.0
            for j in range(max(0, k - width), min(n, k + width + 1)):
                if j != k:
                    w += text.words[j] + 1.0
                    p += (text.words[j] + 1.0) * likely[j]
            row[f] = p / w if w else -1
            f += 1
        up = np.int64(blocks.node[k])
        for _ in range(LEVELS):
            row[f] = by_node[up, 1] / max(1.0, by_node[up, 0])
            f += 1
            size = described.sums[up, 2]
            while nodes.parent[up] >= 0 and described.sums[up, 2] == size:
                up = np.int64(nodes.parent[up])
        group, shape = by_path[described.path[k]], by_shape[described.shape[k]]
        row[f] = group[1] / group[0]
        row[f + 1] = shape[1] / shape[0]
        row[f + 2] = sure / total
        row[f + 3] = top
        row[f + 4] = before / sure
        own = (text.words[k] + 1.0) * likely[k]
        row[f + 5] = (sure - before - own) / sure
        f += 6
        while following < n and (following <= k or likely[following] <= 0.5):
            following += 1
        row[f] = _log(k - last) if last >= 0 else -1
        row[f + 1] = _log(following - k) if following < n else -1
        row[f + 2] = run_begin <= k < run_end
        row[f + 3] = 0 if run_begin <= k < run_end else (k - run_begin if k < run_begin else k - run_end + 1)
        row[f + 4] = (run_end - run_begin) / n
        row[f + 5] = described.first[heaviest] <= k <= described.last[heaviest]
        row[f + 6] = _apart(nodes, described, np.int64(blocks.node[k]), k, heaviest)
        row[f + 7] = by_node[heaviest, 1] / sure
        before += own
        if likely[k] > 0.5:
            last = k
