"""What is kept or dropped as a whole: code and tables of data; and the headings that come with what is kept."""

from typing import NamedTuple

import numpy as np

from tasks.extraction.enclosing import Enclosing, enclosing
from tasks.extraction.rendering.code_lines import is_code_table
from tasks.extraction.rendering.data_tables import is_data
from tasks.extraction.rendering.source import Source
from tasks.extraction.scanned import HEADING, PREFORMATTED
from tasks.extraction.vocabulary import E

CODE, DATA, SIGNATURE = 1, 2, 3
# How much of a section is kept if its heading is.
_SECTION = 2 / 3
_DT, _H1 = E["dt"], E["h1"]


class Units(NamedTuple):
    """unit: int32, the node that each block is rendered with, 0 for a block by itself. kinds: CODE, DATA or
    SIGNATURE, by such nodes. around: of each node what it lies in."""

    unit: np.ndarray
    kinds: dict[int, int]
    around: Enclosing


def units(source: Source) -> Units:
    """The code and the tables of data of a page."""
    page = source.page
    around, tables = enclosing(page)
    node = page.blocks.node
    unit = np.where(page.blocks.kind == PREFORMATTED, around.code[node], -1)
    kinds = dict.fromkeys(np.unique(unit[unit > 0]).tolist(), CODE)
    table = around.table[node]
    for each in np.unique(table[table > 0]).tolist() if table.max(initial=-1) > 0 else ():
        first, last = int(page.nodes.first[each]), int(page.nodes.last[each])
        within = int(around.code[each])  # a `pre` around the table
        if not tables.inner[each] and is_code_table(source, first, last, within > 0):
            node_of = each if within < 0 else within
            kinds[node_of] = CODE
            unit[table == each] = node_of
            continue
        if is_data(source, each, tables):
            kinds[each] = DATA
            unit[table == each] = each
    if b"sig-object" in source.data:
        _signatures(source, around, unit, kinds)
    return Units(np.maximum(unit, 0), kinds, around)


def shared(likely: np.ndarray, words: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """The probabilities of blocks (float32), those of a unit replaced by their mean, a word counting as much as any.

    So the best choice of blocks takes all of a unit or nothing.
    """
    total = np.bincount(unit, words + 1.0)
    mean = np.bincount(unit, likely * (words + 1.0)) / np.maximum(total, 1)
    return np.where(unit > 0, mean[unit], likely).astype(np.float32)


def _signatures(source: Source, around: Enclosing, unit: np.ndarray, kinds: dict[int, int]) -> None:
    """What Sphinx documents: a `dt` is one line, also where its parameters stand in a list."""
    nodes = source.page.nodes
    item = around.item[source.page.blocks.node]
    for each in np.unique(item[item > 0]).tolist():
        outer = each
        while outer > 0 and "sig-object" not in source.classes(int(nodes.first[outer])):
            outer = int(around.item[nodes.parent[outer]])
        if outer > 0 and nodes.tag[outer] == _DT:
            kinds[outer] = SIGNATURE
            unit[item == each] = outer


def with_headings(source: Source, around: Enclosing, kept: np.ndarray) -> np.ndarray:
    """The kept blocks (bool) with the headings of what is kept: those of whose section two thirds are kept, up to the
    next heading or, if another one follows at once, up to the next of its level; and a page's only `h1` above anything
    that is kept."""
    page = source.page
    headings = np.flatnonzero(page.blocks.kind == HEADING)
    if kept[headings].all() or not kept.any():
        return kept
    kept = kept.copy()
    node = around.heading[page.blocks.node[headings]]
    size = (page.blocks.end - page.blocks.begin).astype(np.int64)
    text = np.where(page.blocks.kind == HEADING, 0, size)
    totals = np.concatenate(([0], np.cumsum(text)))
    keeps = np.concatenate(([0], np.cumsum(np.where(kept, text, 0))))
    level = page.nodes.tag[node].astype(np.int64) - _H1
    only = len(np.unique(node[level == 0])) == 1
    last = int(np.flatnonzero(kept)[-1])
    n = len(page.blocks.begin)
    for i, block in enumerate(headings.tolist()):
        if kept[block]:
            continue
        if only and level[i] == 0:
            kept[block] = block < last
            continue
        following = headings[i + 1 :]
        same = node[i + 1 :] == node[i]
        apart = following[~same]
        end = int(apart[0]) if len(apart) else n
        if totals[end] == totals[block]:
            higher = apart[level[i + 1 :][~same] <= level[i]]
            end = int(higher[0]) if len(higher) else n
        total = totals[end] - totals[block]
        kept[block] = total > 0 and keeps[end] - keeps[block] >= _SECTION * total
    return kept
