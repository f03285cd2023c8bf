"""What is kept or dropped as a whole, and rendered so: code and tables of data."""

from typing import NamedTuple

import numpy as np

from gristmill.tasks.extraction.features import heading_level
from gristmill.tasks.extraction.nesting import Enclosing, enclosing
from gristmill.tasks.extraction.rendering.code_places import broken, containers, is_code_table
from gristmill.tasks.extraction.rendering.data_tables import is_data
from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.vocabulary import HEADING, E, Page
from gristmill.tasks.kernels.compiled import nb

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
    # a comparison of whole arrays would have an address in its name, and no two builds the same bytes
    headed = np.empty(count, np.bool_)
    for s in range(count):
        headed[s] = level[s] < _NO_HEADING
    return Sections(section, own, beside, above, headed)


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


CODE, DATA, SIGNATURE = 1, 2, 3
_DT = E["dt"]
# From this part of its text that is links on a table is an index, which its section does not keep.
_INDEX = 0.5
# Words of a section that its tables and listings follow, and how few are none.
NEAR, _FEW = 100, 10


class Whole(NamedTuple):
    """kind: CODE, DATA or SIGNATURE. first, last: the tags that it is between. parent: the node that it is in."""

    kind: int
    first: int
    last: int
    parent: int


class Units(NamedTuple):
    """unit: int32, the key in `wholes` of what each block is rendered with, 0 for a block by itself. around: of each
    node what it lies in."""

    unit: np.ndarray
    wholes: dict[int, Whole]
    around: Enclosing


def units(source: Source) -> Units:
    """The code and the tables of data of a page."""
    page = source.page
    around, tables, unit, code, filled = enclosing(page)
    node = page.blocks.node
    wholes = {each: _of_node(source, each, CODE) for each in code.tolist()}
    table = around.table[node]
    for each in filled.tolist():
        first, last = int(page.nodes.first[each]), int(page.nodes.last[each])
        within = int(around.code[each])  # a `pre` around the table
        if not tables.inner[each] and is_code_table(source, first, last, within > 0):
            node_of = each if within < 0 else within
            wholes[node_of] = _of_node(source, node_of, CODE)
            unit[table == each] = node_of
            continue
        if is_data(source, each, tables):
            wholes[each] = _of_node(source, each, DATA)
            unit[table == each] = each
    for each in containers(source):
        wholes[each] = _of_node(source, each, CODE)
        unit[_between(source, wholes[each].first, wholes[each].last)] = each
    for first, last in broken(source):
        inside = _between(source, first, last)
        if _fills(source, first, last, inside) and (unit[inside] <= 0).all():
            key = len(page.nodes.first) + first
            wholes[key] = Whole(CODE, first, last, int(node[inside.start]))
            unit[inside] = key
    if source.has(b"sig-object"):
        _signatures(source, around, unit, wholes)
    return Units(unit, wholes, around)


def _of_node(source: Source, node: int, kind: int) -> Whole:
    nodes = source.page.nodes
    return Whole(kind, int(nodes.first[node]), int(nodes.last[node]), int(nodes.parent[node]))


def _between(source: Source, first: int, last: int) -> slice:
    """The blocks that are, or partly are, between two tags."""
    blocks = source.page.blocks
    return slice(int(np.searchsorted(blocks.before, first, "right")), int(np.searchsorted(blocks.after, last)))


def _fills(source: Source, first: int, last: int, inside: slice) -> bool:
    """Whether blocks have no text but what is between two tags."""
    blocks = source.page.blocks
    if inside.start >= inside.stop:
        return False
    after, before = int(blocks.after[inside.start]), int(blocks.before[inside.stop - 1])
    return bool((blocks.kind[inside] != HEADING).all()) and not (
        source.between(min(after, first), first).strip() or source.between(last, max(before, last)).strip()
    )


def shared(page: Page, likely: np.ndarray, words: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """The probabilities of blocks (float32), those of a unit replaced by their mean, a word counting as much as any.

    So the best choice of blocks takes all of a unit or nothing. A unit that is no index follows its section: up to NEAR
    words of what else the section has count, too, if they make the unit more probable; where that is a heading alone,
    of the sections beside it, and where there are none, of the section that it is part of.
    """
    weight = words + 1.0
    total, sure = np.bincount(unit, weight), np.bincount(unit, likely * weight)
    mean = sure / np.maximum(total, 1)
    page_sections = sections(page, words, likely)
    unit_numbers, first = np.unique(unit, return_index=True)  # what is in no unit is one here, and is not looked at
    section = page_sections.section[first]
    whole = np.stack((total[unit_numbers], sure[unit_numbers]), axis=1)
    around = page_sections.own[section] - whole
    for wider in (page_sections.beside[section] - whole, page_sections.above[section]):
        around = np.where(around[:, :1] < _FEW, wider, around)
    rest, rest_sure = around.T
    near = np.clip(rest, 0, NEAR)
    followed = (sure[unit_numbers] + near * np.clip(rest_sure / np.maximum(rest, 1), 0, 1)) / np.maximum(
        total[unit_numbers] + near, 1
    )
    follows = page_sections.headed[section] & ~indexes(page, unit)[unit_numbers]
    mean[unit_numbers] = np.where(follows, np.maximum(mean[unit_numbers], followed), mean[unit_numbers])
    return np.where(unit > 0, mean[unit], likely).astype(np.float32)


@nb.njit(nogil=True, cache=True)
def unit_sums(page: Page, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(bytes of text, code points of it inside of links) of each unit: int64."""
    count = 1
    for u in unit:
        count = max(count, u + 1)
    size, linked = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for k in range(len(unit)):
        size[unit[k]] += page.blocks.end[k] - page.blocks.begin[k]
        linked[unit[k]] += page.blocks.linked[k]
    return size, linked


@nb.njit(nogil=True, cache=True)
def indexes(page: Page, unit: np.ndarray) -> np.ndarray:
    """Whether half of each unit's text is links."""
    size, linked = unit_sums(page, unit)
    is_index = np.empty(len(size), np.bool_)
    for u in range(len(size)):
        is_index[u] = linked[u] >= _INDEX * size[u]
    return is_index


def _signatures(source: Source, around: Enclosing, unit: np.ndarray, wholes: dict[int, Whole]) -> None:
    """What Sphinx documents: a `dt` is one line, also where its parameters stand in a list."""
    nodes = source.page.nodes
    item = around.item[source.page.blocks.node]
    for each in np.unique(item[item > 0]).tolist():
        outer = each
        while outer > 0 and "sig-object" not in source.classes(int(nodes.first[outer])):
            outer = int(around.item[nodes.parent[outer]])
        if outer > 0 and nodes.tag[outer] == _DT:
            wholes[outer] = _of_node(source, outer, SIGNATURE)
            unit[item == each] = outer
