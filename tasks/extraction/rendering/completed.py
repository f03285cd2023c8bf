"""What belongs to kept blocks and is kept with them: code and formulas between them, items of lists, headings."""

import re
from itertools import groupby
from typing import NamedTuple

import numpy as np

from gristmill.tasks.extraction.description import groups
from gristmill.tasks.extraction.rendering.inline import inline
from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.rendering.whole import Units, indexes, unit_sums
from gristmill.tasks.extraction.vocabulary import ENDS, HEADING, E
from gristmill.tasks.kernels.compiled import nb

# How much of a section or a list is kept if all of it is.
_MIN_KEPT_SHARE = 2 / 3
# From this part of its text on a block is a link: of menus and breadcrumbs, not of what is kept around it.
_LINKS = 0.8
# How many headings in a row head the same: more are a list.
_ROW = 3
_MAX_LISTED = 40
_H1, _SPAN = E["h1"], E["span"]
_MATH = re.compile(r"(?:^|\s)math display(?:\s|$)")
_FORMULA = re.compile(r"(?:\$\$|\\\[|\\begin\{).*(?:\$\$|\\\]|\\end\{\w+\*?\})[.,;]?|\$[^$]+\$[.,;]?", re.DOTALL)


def completed(source: Source, together: Units, kept: np.ndarray) -> np.ndarray:
    """The kept blocks (bool) with what belongs to them."""
    if kept.all() or not kept.any():
        return kept
    kept = kept.copy()
    doubts = _between(source.page, together.unit, kept).tolist()
    for (first, stop), blocks in groupby(doubts, key=lambda doubt: (doubt[0], doubt[1])):
        if all(_is_formula(source, block) for *_, block in blocks):
            kept[first:stop] = True
    _complete(source.page, together.around, together.unit, kept)
    return kept


@nb.njit(nogil=True, cache=True)
def _between(page, unit, kept):
    """Keep code, tables of data and formulas, with their headings, right between two kept blocks; not what links.

    Returns the blocks that may be formulas in runs that belong there if they are: (first block of the run, end of the
    run, block), int64, for each.
    """
    blocks = page.blocks
    size, linked = unit_sums(page, unit)
    doubts = np.empty((len(kept), 3), np.int64)
    count = k = 0
    while k < len(kept):
        if kept[k]:
            k += 1
            continue
        first, begin = k, count
        shown, may_be = False, True
        while k < len(kept) and not kept[k]:
            u = unit[k]
            shown |= u > 0
            if not (blocks.kind[k] == HEADING or (u > 0 and linked[u] < _LINKS * size[u])):
                sign = page.text[blocks.begin[k]]
                may_be &= blocks.marked[k] or blocks.before[k] > blocks.after[k] + 2 or sign == 36 or sign == 92  # $ \
                doubts[count, 2] = k
                count += 1
            k += 1
        if first == 0 or k == len(kept) or not may_be:
            count = begin
        elif shown and count == begin:
            kept[first:k] = True
        for i in range(begin, count):
            doubts[i, 0], doubts[i, 1] = first, k
    return doubts[:count]


def _is_formula(source: Source, block: int) -> bool:
    """Whether a block is nothing but a formula."""
    blocks = source.page.blocks
    if blocks.marked[block]:
        text = inline(source, int(blocks.after[block]), int(blocks.before[block]))
    else:
        after, before = int(blocks.after[block]), int(blocks.before[block])
        if before > after + 2 and _MATH.search(source.classes(after + 1)):  # pandoc's, for KaTeX to read
            text_before = source.text(source.end[after], source.begin[after + 1])
            text_after = source.text(source.end[before - 1], source.begin[before])
            return not (text_before.strip() or text_after.strip()) and source.element[before - 1] == ENDS - _SPAN
        begin, end = int(blocks.begin[block]), int(blocks.end[block])
        if source.page.text[begin] not in (36, 92):  # $ and \
            return False
        text = source.text_of(source.page.text[begin:end].tobytes())
    return _FORMULA.fullmatch(text) is not None


class _Outline(NamedTuple):
    """The sections of a page, from one heading to the next: the first block of each and the number of blocks at the
    end, the node of its heading and its level, that of `h1` is 0; `higher`: of each heading the next that is not below
    it, their number where there is none. size, linked: sums up to each block. int64."""

    begin: np.ndarray
    node: np.ndarray
    level: np.ndarray
    higher: np.ndarray
    size: np.ndarray
    linked: np.ndarray


@nb.njit(nogil=True, cache=True)
def _complete(page, around, unit, kept):
    """Keep all else that belongs to kept blocks."""
    sections = _outline(page, around)
    _items(page, around, kept)
    _listed(page, around, kept)
    _sections(page, sections, kept)
    _entries(page, sections, unit, kept)
    _headings(page, sections, kept)
    _headed(page, unit, kept)


@nb.njit(nogil=True, cache=True)
def _outline(page, around):
    blocks = page.blocks
    n = len(blocks.begin)
    begin, node, level = np.empty(n + 1, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    size, linked = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    count = 0
    for k in range(n):
        size[k + 1] = size[k] + blocks.end[k] - blocks.begin[k]
        linked[k + 1] = linked[k] + blocks.linked[k]
        heading = around.heading[blocks.node[k]]
        if blocks.kind[k] == HEADING and (not count or node[count - 1] != heading):  # a heading may be several blocks
            begin[count], node[count], level[count] = k, heading, np.int64(page.nodes.tag[heading]) - _H1
            count += 1
    begin[count] = n
    higher = np.full(count, count, np.int64)
    for i in range(count - 1, -1, -1):
        following = i + 1
        while following < count and level[following] > level[i]:
            following = higher[following]
        higher[i] = following
    return _Outline(begin[: count + 1], node[:count], level[:count], higher, size, linked)


@nb.njit(nogil=True, cache=True)
def _sums(sizes, kept):
    """Sums up to each block of the sizes of those that are kept; `sizes`: sums of all."""
    sums = np.zeros(len(sizes), np.int64)
    for k in range(len(kept)):
        sums[k + 1] = sums[k] + (sizes[k + 1] - sizes[k] if kept[k] else 0)
    return sums


@nb.njit(nogil=True, cache=True)
def _items(page, around, kept):
    """Keep all items that are a block each, terms and definitions too, of lists of which two thirds are kept; not what
    links."""
    blocks, m = page.blocks, len(page.nodes.parent)
    count, total, keeps = np.zeros(m, np.int64), np.zeros(m, np.int64), np.zeros(m, np.int64)
    for node in blocks.node:
        count[max(around.item[node], 0)] += 1
    for adds in (True, False):
        for k in range(len(kept)):
            item = around.item[blocks.node[k]]
            if item <= 0 or count[item] != 1 or around.list[item] <= 0:
                continue
            of, size = around.list[item], blocks.end[k] - blocks.begin[k]
            if adds:
                total[of] += size
                keeps[of] += size if kept[k] else 0
            elif blocks.linked[k] < _LINKS * size and keeps[of] >= _MIN_KEPT_SHARE * total[of]:
                kept[k] = True


@nb.njit(nogil=True, cache=True)
def _listed(page, around, kept):
    """Keep a short list that is all of a section between two kept headings, as are the ingredients of a recipe; not
    what links, and not where a page has many, as one of products has."""
    blocks = page.blocks
    runs = np.empty((_ROW, 2), np.int64)
    count = k = 0
    while k < len(kept):
        first, listed = k, True
        while k < len(kept) and not kept[k]:
            listed &= around.item[blocks.node[k]] > 0 and blocks.linked[k] == 0 and blocks.kind[k] != HEADING
            k += 1
        if 0 < first < k < len(kept) and k - first <= _MAX_LISTED and listed:
            if blocks.kind[first - 1] == HEADING and blocks.kind[k] == HEADING:
                if count == _ROW:
                    return
                runs[count] = first, k
                count += 1
        k += 1
    for i in range(count):
        kept[runs[i, 0] : runs[i, 1]] = True


@nb.njit(nogil=True, cache=True)
def _sections(page, sections, kept):
    """Keep dropped sections between two of which two thirds are kept, as of all sections whose headings stand in
    elements of the same names and class words; not what links. A section of which a third is kept is not dropped."""
    begin, keeps = sections.begin, _sums(sections.size, kept)
    n = len(sections.node)
    if n < 3:
        return
    alike = groups(page.nodes.path[sections.node])
    total, keep = np.zeros(n, np.int64), np.zeros(n, np.int64)
    first, last = np.full(n, n, np.int64), np.full(n, -1, np.int64)  # of each group the sections that are kept
    dropped = np.zeros(n, np.bool_)
    for i in range(n):
        group, b, e = alike[i], begin[i], begin[i + 1]
        size, own = sections.size[e] - sections.size[b], keeps[e] - keeps[b]
        total[group] += size
        keep[group] += own
        dropped[i] = own < (1 - _MIN_KEPT_SHARE) * size and sections.linked[e] - sections.linked[b] < _LINKS * size
        if own >= _MIN_KEPT_SHARE * size:
            first[group], last[group] = min(first[group], i), i
    for i in range(n):
        group = alike[i]
        if dropped[i] and first[group] < i < last[group] and keep[group] >= _MIN_KEPT_SHARE * total[group]:
            kept[begin[i] : begin[i + 1]] = True


@nb.njit(nogil=True, cache=True)
def _entries(page, sections, unit, kept):
    """Keep the entries of a reference of which another is kept by two thirds; not what links. An entry is a heading
    right above code or a table of data that is no index, with all that is below it; those of one reference have
    headings that stand in elements of the same names and class words."""
    missing = 0
    for k in range(len(kept)):
        missing += unit[k] > 0 and not kept[k]
    if not missing:
        return
    begin, keeps = sections.begin, _sums(sections.size, kept)
    n = len(sections.node)
    is_index = indexes(page, unit)
    alike = groups(page.nodes.path[sections.node])
    whole, has = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    others = np.zeros(n, np.int64)
    for i in range(n):
        for k in range(begin[i], begin[i + 1]):
            has[i] |= unit[k] > 0 and not is_index[unit[k]]
        end = begin[sections.higher[i]]
        size = sections.size[end] - sections.size[begin[i]]
        whole[i] = keeps[end] - keeps[begin[i]] >= _MIN_KEPT_SHARE * size
        others[alike[i]] += has[i] and whole[i]
    for i in range(n):
        end = begin[sections.higher[i]]
        linked, size = sections.linked[end] - sections.linked[begin[i]], sections.size[end] - sections.size[begin[i]]
        if has[i] and linked < _LINKS * size and others[alike[i]] > whole[i]:
            kept[begin[i] : end] = True


@nb.njit(nogil=True, cache=True)
def _headings(page, sections, kept):
    """Keep the headings of sections of which two thirds are kept, up to the next heading or, if another one follows at
    once, up to the next of its level; of up to three in a row all but links, by what is below the last; and a page's
    only `h1` above anything that is kept."""
    blocks, begin, n = page.blocks, sections.begin, len(kept)
    totals, keeps = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    last = 0
    for k in range(n):
        size = 0 if blocks.kind[k] == HEADING else blocks.end[k] - blocks.begin[k]
        totals[k + 1] = totals[k] + size
        keeps[k + 1] = keeps[k] + (size if kept[k] else 0)
        last = k if kept[k] else last
    only = 0
    for level in sections.level:
        only += level == 0
    i = -1
    for k in range(n):
        if i + 1 < len(sections.node) and k == begin[i + 1]:
            i += 1
        if kept[k] or blocks.kind[k] != HEADING:
            continue
        if only == 1 and sections.level[i] == 0:
            kept[k] = k < last
            continue
        end = begin[i + 1]
        if totals[end] == totals[k]:
            below = end
            for following in begin[i + 2 : i + _ROW + 1]:  # of the row, and behind it
                if totals[following] > totals[k]:
                    below = following
                    break
            needed = _MIN_KEPT_SHARE * (totals[below] - totals[k])
            is_link = blocks.linked[k] >= _LINKS * (blocks.end[k] - blocks.begin[k])
            if not is_link and keeps[below] - keeps[k] >= needed > 0:
                kept[k] = True
                continue
            end = begin[sections.higher[i]]
        total = totals[end] - totals[k]
        kept[k] = total > 0 and keeps[end] - keeps[k] >= _MIN_KEPT_SHARE * total


@nb.njit(nogil=True, cache=True)
def _headed(page, unit, kept):
    """Keep code and tables of data right in a section, up to the next heading, whose heading is kept; not what
    indexes."""
    follows = indexes(page, unit)
    seen = np.zeros(len(follows), np.bool_)
    headed = False
    for k in range(len(kept)):
        headed = kept[k] if page.blocks.kind[k] == HEADING else headed
        if not seen[unit[k]]:
            seen[unit[k]] = True
            follows[unit[k]] = headed and not follows[unit[k]]
    for k in range(len(kept)):
        kept[k] |= unit[k] > 0 and follows[unit[k]]
