"""What all blocks of a page have in common: counts by block, by element, and by groups of blocks that are alike."""

from typing import NamedTuple

import numba as nb
import numpy as np

from gristmill.tasks.extraction.scanned import Page
from gristmill.tasks.extraction.text_counts import TextCounts, count_text, title_words
from gristmill.tasks.extraction.vocabulary import FNV, PRIME, E

PARAGRAPH = E["p"]


class Described(NamedTuple):
    """What all blocks of a page have in common, made once per page; see `features`.

    cues: uint64, bits of CUES by block; hashes: uint64, of its text. long: float32, the block's chars if it reads like
    running text, else 0. path, shape: of each block's element, the number of a group of blocks; copies: how many
    blocks have its text. first, last: blocks below each node; sums: float64, of each node, (chars, linked chars,
    blocks, long chars). scored, heaviest: the two nodes that most look like the article. totals: float64, of each path
    and of each shape, (blocks, chars, linked chars).
    """

    text: TextCounts
    cues: np.ndarray
    hashes: np.ndarray
    long: np.ndarray
    path: np.ndarray
    shape: np.ndarray
    copies: np.ndarray
    first: np.ndarray
    last: np.ndarray
    sums: np.ndarray
    scored: int
    heaviest: int
    totals: tuple[np.ndarray, np.ndarray]


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
def describe(data: np.ndarray, page: Page) -> Described:
    """What all blocks of a page have in common; `data`: its bytes (uint8). Holds some 200 bytes for each block."""
    blocks, nodes = page.blocks, page.nodes
    n, m = len(blocks.begin), len(nodes.parent)
    counts = np.zeros((14, n), np.float32)
    text = TextCounts(
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
def elements_apart(nodes, described, node, target):
    """How many elements above `node` the first one is that holds `target` too; at most 20."""
    up = np.int64(node)
    steps = 0
    while steps < 20 and nodes.parent[up] >= 0:
        if described.first[up] <= described.first[target] and described.last[up] >= described.last[target]:
            break
        up = nodes.parent[up]
        steps += 1
    return steps


@nb.njit(nogil=True, cache=True)
def next_container(nodes, described, node):
    """The innermost element around `node` that holds more blocks than it; the page's root for itself."""
    size = described.sums[node, 2]
    while nodes.parent[node] >= 0 and described.sums[node, 2] == size:
        node = np.int64(nodes.parent[node])
    return node
