"""What the classifier reads first: numbers that describe a block, its neighbors, its containers and its page."""

import math

import numpy as np

from gristmill.tasks.extraction.description import PARAGRAPH, Described, elements_apart
from gristmill.tasks.extraction.vocabulary import AROUND, BITS, CUES, HEADING, WORDS, E, Page
from gristmill.tasks.kernels.compiled import nb

_N_CUES = len(CUES)
# The logarithms of most counts; 0 is that of 1.
_LOGARITHMS = np.array([math.log2(1 + count) for count in range(4096)], np.float32)
_H1 = E["h1"]
_COMMENT_BIT = np.uint64(1)
_ARTICLE = np.uint64(1) << np.uint64(32 + AROUND.index("article"))
_MAIN = np.uint64(1) << np.uint64(32 + AROUND.index("main"))

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


@nb.njit(nogil=True, cache=True, inline="always")
def log_count(x):
    """The binary logarithm of 1 + x, as float32."""
    i = np.int64(x)
    return _LOGARITHMS[i] if 0 <= i < len(_LOGARITHMS) and i == x else np.float32(np.log2(1 + x))


@nb.njit(nogil=True, cache=True, inline="always")
def heading_level(nodes, node):
    """The level, 1 to 6, of the heading that holds an element."""
    while node > 0 and not (_H1 <= nodes.tag[node] < _H1 + 6):
        node = np.int64(nodes.parent[node])
    return nodes.tag[node] - _H1 + 1


@nb.njit(nogil=True, cache=True)
def features(page: Page, described: Described, begin: int, end: int, out: np.ndarray) -> None:
    """Fill rows of `out` (float32, shape (end - begin, at least FEATURES)) for the blocks from `begin` to `end`."""
    blocks, nodes, text = page.blocks, page.nodes, described.text
    n = len(blocks.begin)
    chars = text.chars
    page_chars = max(1.0, described.sums[0, 0])
    page_long = described.sums[0, 3]
    articles = mains = 0
    for bits in nodes.bits:
        articles += (bits & _ARTICLE) != 0
        mains += (bits & _MAIN) != 0
    paragraphs = headings = comments = rows = 0
    links = 0
    h1 = titled = -1
    best_title = 0.0
    for k in range(n):
        tag = nodes.tag[blocks.node[k]]
        paragraphs += tag == PARAGRAPH
        headings += blocks.kind[k] == HEADING
        comments += (blocks.bits[k] & _COMMENT_BIT) != 0
        rows += blocks.row[k] > 0
        links += blocks.links[k]
        if h1 < 0 and blocks.kind[k] == HEADING and heading_level(nodes, np.int64(blocks.node[k])) == 1:
            h1 = k
        if blocks.kind[k] == HEADING or text.words[k] < 30:
            share = text.title[k] / max(3.0, text.words[k]) * (2.0 if blocks.kind[k] == HEADING else 1.0)
            if share > best_title and text.title[k] >= 2:
                best_title = share
                titled = k
    # Sums up to each block, of chars, chars in links, long blocks and chars of these: whole numbers, so their
    # differences are exact.
    sums = np.zeros((n + 1, 4), np.float64)
    for k in range(n):
        sums[k + 1, 0] = sums[k, 0] + chars[k]
        sums[k + 1, 1] = sums[k, 1] + min(np.float32(blocks.linked[k]), chars[k])
        sums[k + 1, 2] = sums[k, 2] + (described.long[k] > 0)
        sums[k + 1, 3] = sums[k, 3] + described.long[k]
    scored_apart = elements_apart(nodes.parent, described.first, described.last, described.scored)
    heaviest_apart = elements_apart(nodes.parent, described.first, described.last, described.heaviest)
    # What comes before `begin` and features look back at.
    last_heading = last_long = -1
    last_level = 0
    for k in range(begin):
        if blocks.kind[k] == HEADING:
            last_heading, last_level = k, heading_level(nodes, np.int64(blocks.node[k]))
        if described.long[k]:
            last_long = k
    next_heading = next_long = begin
    for k in range(begin, end):
        row = out[k - begin]
        f = 0
        c = chars[k]
        share = min(np.float32(blocks.linked[k]), c) / max(np.float32(1), c)
        words = max(np.float32(1), text.words[k])
        node = np.int64(blocks.node[k])
        level = heading_level(nodes, node) if blocks.kind[k] == HEADING else 0
        row[0] = log_count(c)
        row[1] = log_count(text.words[k])
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
                row[f] = log_count(chars[j])
                row[f + 1] = min(np.float32(blocks.linked[j]), chars[j]) / max(np.float32(1), chars[j])
                row[f + 2] = text.marks[j]
                row[f + 3] = blocks.kind[j]
                row[f + 4] = described.path[j] == described.path[k]
            else:
                row[f : f + 5] = -1
            f += 5
        for width in WINDOWS:
            first, stop = max(0, k - width), min(n, k + width + 1)
            total = sums[stop, 0] - sums[first, 0]
            row[f] = log_count(total)
            row[f + 1] = (sums[stop, 1] - sums[first, 1]) / max(1.0, total)
            row[f + 2] = sums[stop, 2] - sums[first, 2]
            f += 3
        while next_heading < n and (next_heading <= k or blocks.kind[next_heading] != HEADING):
            next_heading += 1
        while next_long < n and (next_long <= k or not described.long[next_long]):
            next_long += 1
        row[f] = k / n
        row[f + 1] = sums[k, 0] / page_chars
        row[f + 2] = log_count(n - k)
        row[f + 3] = log_count(k - last_heading) if last_heading >= 0 else -1
        row[f + 4] = last_level
        row[f + 5] = log_count(sums[k, 0] - sums[last_heading + 1, 0]) if last_heading >= 0 else -1
        row[f + 6] = log_count(next_heading - k)
        row[f + 7] = log_count(abs(k - h1)) if h1 >= 0 else -1
        row[f + 8] = k >= h1 if h1 >= 0 else -1
        row[f + 9] = log_count(abs(k - titled)) if titled >= 0 else -1
        row[f + 10] = k >= titled if titled >= 0 else -1
        row[f + 11] = log_count(k - last_long) if last_long >= 0 else -1
        row[f + 12] = log_count(next_long - k) if next_long < n else -1
        row[f + 13] = sums[k, 3] / max(1.0, page_long)
        row[f + 14] = log_count(sums[k, 0] - sums[last_long + 1, 0])
        f += 15
        up = node
        for _ in range(LEVELS):
            held = described.sums[up]
            row[f] = log_count(held[0])
            row[f + 1] = held[1] / max(1.0, held[0])
            row[f + 2] = log_count(held[2])
            row[f + 3] = held[3] / max(1.0, page_long)
            row[f + 4] = log_count(held[0] / max(1.0, held[2]))
            row[f + 5] = (k - described.first[up]) / max(1.0, held[2])
            row[f + 6] = c / max(1.0, held[0])
            f += 7
            up = described.container[up]
        for target, apart in ((described.scored, scored_apart), (described.heaviest, heaviest_apart)):
            row[f] = described.first[target] <= k <= described.last[target]
            row[f + 1] = apart[node]
            row[f + 2] = described.sums[target, 0] / page_chars
            f += 3
        for which in range(2):
            if which == 0:
                group = described.totals[0][described.path[k]]
            else:
                group = described.totals[1][described.shape[k]]
            row[f] = log_count(group[0])
            row[f + 1] = log_count(group[1] / group[0])
            row[f + 2] = group[2] / max(1.0, group[1])
            row[f + 3] = group[1] / page_chars
            f += 4
        row[f] = described.copies[k]
        row[f + 1] = log_count(page_chars)
        row[f + 2] = log_count(n)
        row[f + 3] = described.sums[0, 1] / page_chars
        row[f + 4] = page_long / page_chars
        row[f + 5] = log_count(page_chars / n)
        row[f + 6] = articles
        row[f + 7] = mains
        row[f + 8] = log_count(paragraphs)
        row[f + 9] = log_count(headings)
        row[f + 10] = comments / n
        row[f + 11] = rows / n
        row[f + 12] = log_count(links)
        if blocks.kind[k] == HEADING:
            last_heading, last_level = k, level
        if described.long[k]:
            last_long = k
