"""What stands beside the main text and is no part of it, whatever its blocks read like: navigation, the page's footer,
dialogs, and sidebars that are lists of links.

On the training pages of the classifier, each judged by one that has not seen its host, to leave them out was right on
62 pages and wrong on 10; forms, and boxes whose class says cookies, shares, newsletters or accounts, were not: what has
such a class is the main text as often, or is left out already.
"""

import numpy as np

from gristmill.tasks.extraction.scanned import Page
from gristmill.tasks.extraction.vocabulary import AROUND, WORDS
from gristmill.tasks.kernels.compiled import nb


def _bits(*names: str) -> np.uint64:
    known = [*(name for name, _ in WORDS), *(f"<{name}>" for name in AROUND)]
    return np.uint64(sum(1 << known.index(name) for name in names))


_PARTS, _SIDES, _QUOTE = _bits("<nav>", "<footer>", "<dialog>"), _bits("<aside>", "sidebar"), _bits("<blockquote>")
# the part of the kept words from which on a container holds the main text after all, and that of a sidebar's text from
# which on it is a list of links
MOST, LINKED = 1 / 3, 0.5


@nb.njit(nogil=True, cache=True)
def beside(page: Page, kept: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The kept blocks (bool) in containers beside the main text; `words`: float32, of each block.

    Containers are the outermost `nav`, `footer` or `dialog`, except in quotations, whose `footer` names a source, and
    the innermost `aside` or sidebar, by its class, of whose text LINKED is links. None counts that has MOST of the kept
    words. Holds 49 bytes for each node.
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
            out[k] = (p >= 0 and in_part[p] < MOST * total) or (
                s >= 0 and in_side[s] < MOST * total and linked[s] >= LINKED * size[s]
            )
    return out
