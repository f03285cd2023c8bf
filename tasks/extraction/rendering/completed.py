"""What belongs to kept blocks and is kept with them: code and formulas between them, items of lists, headings."""

import re

import numpy as np

from gristmill.tasks.extraction.nesting import Enclosing
from gristmill.tasks.extraction.rendering.inline import inline
from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.rendering.whole import Units, indexes
from gristmill.tasks.extraction.vocabulary import ENDS, HEADING, E, Page

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
    _between(source, together, kept)
    _items(source, together.around, kept)
    _listed(source, together, kept)
    _sections(source, together.around, kept)
    _entries(source, together, kept)
    _headings(source, together.around, kept)
    _headed(source, together, kept)
    return kept


def _between(source: Source, together: Units, kept: np.ndarray) -> None:
    """Keep code, tables of data and formulas, with their headings, right between two kept blocks; not what links."""
    blocks = source.page.blocks
    size, linked = (np.bincount(together.unit, each) for each in (blocks.end - blocks.begin, blocks.linked))
    belongs = (together.unit > 0) & (linked < _LINKS * size)[together.unit] | (blocks.kind == HEADING)
    dropped = np.flatnonzero(~kept)
    runs = np.split(dropped, np.flatnonzero(np.diff(dropped) > 1) + 1)
    for run in runs:
        first, last = int(run[0]), int(run[-1])
        if first == 0 or last + 1 == len(kept):
            continue
        others = run[~belongs[run]].tolist()
        if (others or together.unit[run].any()) and all(_is_formula(source, block) for block in others):
            kept[first : last + 1] = True


def _listed(source: Source, together: Units, kept: np.ndarray) -> None:
    """Keep a short list that is all of a section between two kept headings, as are the ingredients of a recipe; not
    what links, and not where a page has many, as one of products has."""
    blocks = source.page.blocks
    is_heading = blocks.kind == HEADING
    listed = (together.around.item[blocks.node] > 0) & (blocks.linked == 0) & ~is_heading
    dropped = np.flatnonzero(~kept)
    runs: list[np.ndarray] = []
    if not len(dropped):
        return
    for run in np.split(dropped, np.flatnonzero(np.diff(dropped) > 1) + 1):
        first, last = int(run[0]), int(run[-1])
        if not 0 < first <= last < len(kept) - 1 or len(run) > _MAX_LISTED:
            continue
        if is_heading[first - 1] and is_heading[last + 1] and listed[run].all():
            runs.append(run)
    for run in runs if len(runs) <= _ROW else ():
        kept[run] = True


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


def _items(source: Source, around: Enclosing, kept: np.ndarray) -> None:
    """Keep all items that are a block each, terms and definitions too, of lists of which two thirds are kept; not what
    links."""
    page = source.page
    item = around.item[page.blocks.node]
    alone = (item > 0) & (np.bincount(np.maximum(item, 0))[np.maximum(item, 0)] == 1)
    if kept[alone].all():
        return
    blocks = np.flatnonzero(alone)
    lists = np.maximum(around.list[item[blocks]], 0)
    size = (page.blocks.end - page.blocks.begin)[blocks].astype(np.float64)
    total = np.bincount(lists, size)
    keeps = np.bincount(lists, size * kept[blocks])
    linked = page.blocks.linked[blocks] >= _LINKS * size
    kept[blocks] |= (lists > 0) & ~linked & (keeps >= _MIN_KEPT_SHARE * total)[lists]


def _sections(source: Source, around: Enclosing, kept: np.ndarray) -> None:
    """Keep dropped sections between two of which two thirds are kept, as of all sections whose headings stand in
    elements of the same names and class words; not what links. A section of which a third is kept is not dropped."""
    page = source.page
    headings, node = _begins(source, around)
    if len(headings) < 3:
        return
    path = page.nodes.path[node]
    size = (page.blocks.end - page.blocks.begin).astype(np.int64)
    total, keeps, linked = (np.add.reduceat(each, headings) for each in (size, size * kept, page.blocks.linked))
    whole, dropped = (
        keeps >= _MIN_KEPT_SHARE * total,
        (keeps < (1 - _MIN_KEPT_SHARE) * total) & (linked < _LINKS * total),
    )
    if not dropped.any() or not whole.any():
        return
    ends = np.append(headings[1:], len(kept))
    for each in np.unique(path[dropped]):
        same = np.flatnonzero(path == each)
        sure = np.flatnonzero(whole[same])
        if keeps[same].sum() >= _MIN_KEPT_SHARE * total[same].sum() and len(sure):
            for i in same[sure[0] : sure[-1]]:
                if dropped[i]:
                    kept[headings[i] : ends[i]] = True


def _begins(source: Source, around: Enclosing) -> tuple[np.ndarray, np.ndarray]:
    """The first block of each heading, which may be several, and the heading's node."""
    blocks = source.page.blocks
    headings = np.flatnonzero(blocks.kind == HEADING)
    node = around.heading[blocks.node[headings]]
    first = np.append(True, np.diff(node) != 0)[: len(node)]
    return headings[first], node[first]


def _levels(page: Page, headings: np.ndarray) -> list[int]:
    """The levels of headings, by their nodes; that of `h1` is 0."""
    return (page.nodes.tag[headings].astype(np.int64) - _H1).tolist()


def _higher(level: list[int]) -> list[int]:
    """Of each heading the next that is not below it; their number where there is none."""
    higher = [len(level)] * len(level)
    for i in range(len(level) - 1, -1, -1):
        next_heading = i + 1
        while next_heading < len(level) and level[next_heading] > level[i]:
            next_heading = higher[next_heading]
        higher[i] = next_heading
    return higher


def _entries(source: Source, together: Units, kept: np.ndarray) -> None:
    """Keep the entries of a reference of which another is kept by two thirds; not what links. An entry is a heading
    right above code or a table of data that is no index, with all that is below it; those of one reference have
    headings that stand in elements of the same names and class words."""
    page = source.page
    headings, node = _begins(source, together.around)
    if len(headings) < 2 or kept[together.unit > 0].all():
        return
    shown = (together.unit > 0) & ~indexes(page, together.unit)[together.unit]
    ends = np.append(headings[1:], len(kept))
    has = np.add.reduceat(shown, headings, dtype=np.int64) > 0
    following = ends[np.array(_higher(_levels(page, node))) - 1][has]
    headings, node = headings[has], node[has]
    size = page.blocks.end - page.blocks.begin
    totals, keeps, links = (
        np.concatenate(([0], np.cumsum(each, dtype=np.int64))) for each in (size, size * kept, page.blocks.linked)
    )
    total = totals[following] - totals[headings]
    whole = keeps[following] - keeps[headings] >= _MIN_KEPT_SHARE * total
    linked = links[following] - links[headings] >= _LINKS * total
    reference = np.unique(page.nodes.path[node], return_inverse=True)[1]
    others = np.bincount(reference, whole)[reference] - whole
    for i in np.flatnonzero(~linked & (others > 0)).tolist():
        kept[headings[i] : following[i]] = True


def _headings(source: Source, around: Enclosing, kept: np.ndarray) -> None:
    """Keep the headings of sections of which two thirds are kept, up to the next heading or, if another one follows at
    once, up to the next of its level; of up to three in a row all but links, by what is below the last; and a page's
    only `h1` above anything that is kept."""
    page = source.page
    headings = np.flatnonzero(page.blocks.kind == HEADING)
    if kept[headings].all() or not kept.any():
        return
    node = around.heading[page.blocks.node[headings]]
    size = (page.blocks.end - page.blocks.begin).astype(np.int64)
    text = np.where(page.blocks.kind == HEADING, 0, size)
    totals = np.concatenate(([0], np.cumsum(text)))
    keeps = np.concatenate(([0], np.cumsum(np.where(kept, text, 0))))
    begins = np.flatnonzero(np.append(True, np.diff(node) != 0))  # a heading may be several blocks
    level = _levels(page, node[begins])
    only = level.count(0) == 1
    last = int(np.flatnonzero(kept)[-1])
    ends = [*headings[begins].tolist(), len(page.blocks.begin)]
    higher = _higher(level)
    for i, pieces in enumerate(np.split(headings, begins[1:])):
        for block in pieces[~kept[pieces]].tolist():
            if only and level[i] == 0:
                kept[block] = block < last
                continue
            end = ends[i + 1]
            if totals[end] == totals[block]:
                following = ends[i + 2 : i + _ROW + 1]  # of the row, and behind it
                below = next((other for other in following if totals[other] > totals[block]), end)
                is_link = page.blocks.linked[block] >= _LINKS * size[block]
                if not is_link and keeps[below] - keeps[block] >= _MIN_KEPT_SHARE * (totals[below] - totals[block]) > 0:
                    kept[block] = True
                    continue
                end = ends[higher[i]]
            total = totals[end] - totals[block]
            kept[block] = total > 0 and keeps[end] - keeps[block] >= _MIN_KEPT_SHARE * total


def _headed(source: Source, together: Units, kept: np.ndarray) -> None:
    """Keep code and tables of data right in a section, up to the next heading, whose heading is kept; not what
    indexes."""
    if kept[together.unit > 0].all():
        return
    is_heading = source.page.blocks.kind == HEADING
    section = np.cumsum(is_heading)
    headed = np.append(False, kept[is_heading])
    unit, first = np.unique(together.unit, return_index=True)
    follows = ~indexes(source.page, together.unit)
    follows[unit] &= headed[section[first]]
    kept |= (together.unit > 0) & follows[together.unit]
