"""The sections of a page, and how probable each is to be main text.

A section is a heading, or several in a row, and what follows up to the next; it ends with the part of the page
(`article`, `aside`, ...) that its heading is in. Sections beside each other have headings of one level, with no higher
one between them.
"""

from typing import NamedTuple

import numba as nb
import numpy as np

from gristmill.tasks.extraction.features import heading_level
from gristmill.tasks.extraction.scanned import HEADING, Page
from gristmill.tasks.extraction.vocabulary import E

_PARTS = np.array([E[name] for name in "article nav aside footer main form dialog".split()], np.uint8)
# What is below no heading is deeper than what is below any.
_NO_HEADING = 7


class Sections(NamedTuple):
    """section: int32, the number of each block's section. own, beside, above: float64, shape (sections, 2): words, and
    words times probability, of each section, of all that are beside it, with it, and of the one that it is part of,
    without it. headed: bool, whether it has a heading.
    """

    section: np.ndarray
    own: np.ndarray
    beside: np.ndarray
    above: np.ndarray
    headed: np.ndarray


@nb.njit(nogil=True, cache=True)
def sections(page: Page, words: np.ndarray, likely: np.ndarray) -> Sections:
    """The sections of a page; `words` and `likely` (float32): of each block its words and its probability.

    A block counts as a word more than it has. Holds some 70 bytes for each block and 4 for each node.
    """
    blocks, nodes = page.blocks, page.nodes
    n, m = len(blocks.begin), len(nodes.parent)
    part = np.zeros(m, np.int32)
    for node in range(1, m):
        part[node] = part[nodes.parent[node]]
        for tag in _PARTS:
            if nodes.tag[node] == tag:
                part[node] = node
    section, level = np.empty(n, np.int32), np.empty(n, np.int64)
    own = np.zeros((n, 2), np.float64)
    count = -1
    in_heading = False
    open_part = -1
    for k in range(n):
        within = np.int64(blocks.node[k])
        is_heading = blocks.kind[k] == HEADING
        if count < 0 or (is_heading and not in_heading) or part[within] != open_part:
            count += 1
            open_part = part[within]
            level[count] = heading_level(nodes, within) if is_heading else _NO_HEADING
        in_heading = is_heading
        section[k] = count
        own[count, 0] += words[k] + 1.0
        own[count, 1] += (words[k] + 1.0) * likely[k]
    count += 1
    own, level = own[:count], level[:count]
    beside, above = _around(own, level)
    return Sections(section, own, beside, above, level < _NO_HEADING)


@nb.njit(nogil=True, cache=True)
def _around(own, level):
    """Of each section the sums of all that are beside it, and those of the one that it is part of."""
    count = len(own)
    first = np.empty(count, np.int64)  # the first section beside each
    sums = np.zeros((count, 2), np.float64)
    above = np.zeros((count, 2), np.float64)
    stack = np.empty(count + 1, np.int64)
    top = 0
    for s in range(count):
        first[s] = s
        while top and level[stack[top - 1]] >= level[s]:
            top -= 1
            if level[stack[top]] == level[s]:
                first[s] = first[stack[top]]
        if top:
            above[s] = own[stack[top - 1]]
        stack[top] = s
        top += 1
        sums[first[s]] += own[s]
    for s in range(count):
        sums[s] = sums[first[s]]
    return sums, above
