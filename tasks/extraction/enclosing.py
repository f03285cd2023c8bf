"""Which code, table, heading and list item each element is in, and what the tables of a page are like."""

from typing import NamedTuple

import numpy as np

from gristmill.tasks.extraction.nesting import is_heading
from gristmill.tasks.extraction.scanned import Page
from gristmill.tasks.extraction.vocabulary import E
from gristmill.tasks.kernels.compiled import nb

_PRE, _LISTING, _XMP, _TABLE, _TR, _TD = E["pre"], E["listing"], E["xmp"], E["table"], E["tr"], E["td"]
_TH, _CAPTION, _THEAD, _LI, _DT, _DD = E["th"], E["caption"], E["thead"], E["li"], E["dt"], E["dd"]
_UL, _OL, _DL = E["ul"], E["ol"], E["dl"]


class Enclosing(NamedTuple):
    """Of each node the node (int32) of the element that it is or lies in, -1 for none: the outermost `pre`, the
    innermost table, the innermost heading, the innermost `li`, `dt` or `dd`, the outermost `ul`, `ol` or `dl`."""

    code: np.ndarray
    table: np.ndarray
    heading: np.ndarray
    item: np.ndarray
    list: np.ndarray


class Tables(NamedTuple):
    """What the table of each node is like, int32; 0 where a node is none.

    rows: that have cells; columns: the most cells of a row, spans aside; headers: `th`, `thead` and `caption`; inner:
    tables directly in it; filled: cells with a text; crowded: cells with several blocks; longest: bytes of the cell
    that has most.
    """

    rows: np.ndarray
    columns: np.ndarray
    headers: np.ndarray
    inner: np.ndarray
    filled: np.ndarray
    crowded: np.ndarray
    longest: np.ndarray


@nb.njit(nogil=True, cache=True)
def enclosing(page: Page) -> tuple[Enclosing, Tables]:
    """What is around each node, and the tables among them. Holds 48 bytes for each node."""
    blocks, nodes = page.blocks, page.nodes
    m = len(nodes.parent)
    code, table, heading, item, lists = (
        np.full(m, -1, np.int32),
        np.full(m, -1, np.int32),
        np.full(m, -1, np.int32),
        np.full(m, -1, np.int32),
        np.full(m, -1, np.int32),
    )
    rows, columns, headers, inner = (
        np.zeros(m, np.int32),
        np.zeros(m, np.int32),
        np.zeros(m, np.int32),
        np.zeros(m, np.int32),
    )
    filled, crowded, longest = np.zeros(m, np.int32), np.zeros(m, np.int32), np.zeros(m, np.int32)
    cells = np.zeros(m, np.int32)  # of the open row
    for k in range(1, m):
        up = nodes.parent[k]
        tag = nodes.tag[k]
        code[k], table[k], heading[k], item[k], lists[k] = code[up], table[up], heading[up], item[up], lists[up]
        within = table[up]
        if (tag == _PRE or tag == _LISTING or tag == _XMP) and code[up] < 0:
            code[k] = k
        elif is_heading(tag):
            heading[k] = k
        elif tag == _LI or tag == _DT or tag == _DD:
            item[k] = k
        elif tag == _UL or tag == _OL or tag == _DL:
            if lists[up] < 0:
                lists[k] = k
        elif tag == _TABLE:
            table[k] = k
            if within >= 0:
                inner[within] += 1
        elif within >= 0:
            if tag == _TR:
                cells[within] = 0
            elif tag == _TD or tag == _TH:
                rows[within] += cells[within] == 0
                cells[within] += 1
                columns[within] = max(columns[within], cells[within])
            headers[within] += tag == _TH or tag == _THEAD or tag == _CAPTION
    cell = open_table = -1
    size = several = 0
    for b in range(len(blocks.begin)):
        within = table[blocks.node[b]]
        if within < 0 or not blocks.cell[b]:
            cell = -1
            continue
        if blocks.cell[b] != cell or within != open_table:  # a caption is in the cell around its table
            cell, open_table = blocks.cell[b], within
            size = several = 0
            filled[within] += 1
        elif not several:
            several = 1
            crowded[within] += 1
        size += blocks.end[b] - blocks.begin[b]
        longest[within] = max(longest[within], size)
    return Enclosing(code, table, heading, item, lists), Tables(rows, columns, headers, inner, filled, crowded, longest)
