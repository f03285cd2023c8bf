"""Which open elements a tag closes: the HTML standard's rules for end tags and for end tags that may be left out.

The open elements are a stack: `tags` and `names` (int64, uint64) hold each one's element and the hash of its name, the
innermost at `top`; entry 0 is the page. `open_tags`: how many of each element are open. A height is an index into the
stack; all elements from it upwards are closed, none if it is above `top`.
"""

from typing import NamedTuple

import numpy as np

from gristmill.tasks.extraction.vocabulary import (
    BLOCK,
    BREAKS_OUT,
    CLOSES_P,
    CUSTOM,
    PREFORMATTED,
    PROPERTIES,
    SCOPE,
    E,
    Page,
)
from gristmill.tasks.kernels.compiled import nb

# How far up an end tag looks for its start tag. With a limit, `</x>` after many open elements stays linear.
REACH = 128

_P, _LI, _DT, _DD, _UL, _OL, _DL = E["p"], E["li"], E["dt"], E["dd"], E["ul"], E["ol"], E["dl"]
_MENU, _DIR, _TR, _TD, _TH, _TABLE = E["menu"], E["dir"], E["tr"], E["td"], E["th"], E["table"]
_TBODY, _TFOOT, _CAPTION, _H1, _H6 = E["tbody"], E["tfoot"], E["caption"], E["h1"], E["h6"]
_OPTION, _BUTTON, _SPAN, _SVG, _SELECT = E["option"], E["button"], E["span"], E["svg"], E["select"]


@nb.njit(nogil=True, cache=True, inline="always")
def is_heading(tag):
    return _H1 <= tag <= _H6


@nb.njit(nogil=True, cache=True, inline="always")
def breaks_out(tag):
    """Whether the start tag of an element ends an open `svg` (13.2.6.5)."""
    return PROPERTIES[tag] & BREAKS_OUT != 0


@nb.njit(nogil=True, cache=True)
def ended_height(tag, name, tags, names, top):
    """The height from which the end tag of an element closes (13.2.6.4.7); `top + 1` if it closes nothing."""
    height = top
    while height > max(0, top - REACH):
        if tags[height] == tag and (tag != CUSTOM or names[height] == name):
            return height
        if is_heading(tag) and is_heading(tags[height]):
            return height
        scope = PROPERTIES[tags[height]]
        if scope & SCOPE and tag != _TABLE and tag != _TR and not (_TBODY <= tag <= _TFOOT):
            break
        if tags[height] == _TABLE and tag != _TABLE:
            break
        if tag == _SPAN and scope & BLOCK:
            break
        height -= 1
    return top + 1


@nb.njit(nogil=True, cache=True)
def implied_height(tag, tags, open_tags, top):
    """The height from which the start tag of an element closes others before it opens its own."""
    height = top + 1
    if PROPERTIES[tag] & CLOSES_P and open_tags[_P]:
        k = top
        while k > max(0, top - REACH):
            if tags[k] == _P:
                height = k
                break
            if PROPERTIES[tags[k]] & SCOPE or tags[k] == _BUTTON:
                break
            k -= 1
    k = min(height, top + 1) - 1
    if tag == _LI or tag == _DT or tag == _DD or tag == _OPTION:
        lowest = max(0, k - REACH)
        while k > lowest:
            t = tags[k]
            if t == tag or (tag == _DD and t == _DT) or (tag == _DT and t == _DD):
                height = k
                break
            if t == _UL or t == _OL or t == _DL or t == _MENU or t == _DIR or PROPERTIES[t] & SCOPE:
                break
            k -= 1
    elif is_heading(tag) and is_heading(tags[k]):
        height = k
    elif tag == _TD or tag == _TH or tag == _TR or _TBODY <= tag <= _TFOOT or tag == _CAPTION:
        lowest = max(0, k - REACH)
        while k > lowest:
            t = tags[k]
            if t == _TABLE or t == _SELECT or t == _SVG:
                break
            if t == _TD or t == _TH or t == _CAPTION:
                height = k
            elif tag != _TD and tag != _TH:
                if t == _TR or (tag != _TR and _TBODY <= t <= _TFOOT):
                    height = k
            elif t == _TR:
                break
            k -= 1
    return height


@nb.njit(nogil=True, cache=True)
def close(height, tags, open_tags, top, nodes, last, by):
    """Close the open elements from a height upwards; the new top of the stack.

    nodes: the stack's nodes; last: of each node the number of the tag that ended it, here `by`.
    """
    while top >= height:
        open_tags[tags[top]] -= 1
        last[nodes[top]] = by
        top -= 1
    return top


# Which code, table, heading and list item each element is in, and what the tables of a page are like.


_THEAD = E["thead"]
_CODE = tuple(E[name] for name in ("pre", "listing", "xmp", "plaintext"))


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
def enclosing(page: Page) -> tuple[Enclosing, Tables, np.ndarray, np.ndarray, np.ndarray]:
    """(what is around each node, the tables among them, of each block the node of the code that it is a part of, 0 for
    none, int32; the nodes of code and the tables with text in them, int64). Holds 50 bytes for each node."""
    blocks, nodes = page.blocks, page.nodes
    m = len(nodes.parent)
    enclosed = np.full((5, m), -1, np.int32)
    code, table, heading, item, lists = enclosed[0], enclosed[1], enclosed[2], enclosed[3], enclosed[4]
    counts = np.zeros((8, m), np.int32)
    rows, columns, headers, inner = counts[0], counts[1], counts[2], counts[3]
    filled, crowded, longest, cells = counts[4], counts[5], counts[6], counts[7]  # cells: of the open row
    for k in range(1, m):
        up = nodes.parent[k]
        tag = nodes.tag[k]
        code[k], table[k], heading[k], item[k], lists[k] = code[up], table[up], heading[up], item[up], lists[up]
        within = table[up]
        if tag in _CODE and code[up] < 0:
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
    unit = np.zeros(len(blocks.begin), np.int32)
    shows_code, shows_table = np.zeros(m, np.bool_), np.zeros(m, np.bool_)
    for b in range(len(unit)):
        node = blocks.node[b]
        if blocks.kind[b] == PREFORMATTED and code[node] > 0:
            unit[b] = code[node]
            shows_code[code[node]] = True
        if table[node] > 0:
            shows_table[table[node]] = True
    tables = Tables(rows, columns, headers, inner, filled, crowded, longest)
    around = Enclosing(code, table, heading, item, lists)
    return around, tables, unit, np.flatnonzero(shows_code), np.flatnonzero(shows_table)
