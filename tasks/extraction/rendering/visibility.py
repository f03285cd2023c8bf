"""Elements of a page that no reader sees: `hidden`, `display: none` and `visibility: hidden` in a style.

Much of what a page hides is content that a control opens: answers, tabs, the rest of a text. The script that opens it
is often in another file, so an element stays wherever the page names it, has a control beside it, or shows as many of
its kind. What is left out is what nothing on the page opens: texts for search engines, copies for other screens,
templates.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.rendering.whole import Units
from gristmill.tasks.extraction.vocabulary import HEADING, HIDDEN, INLINE, PRIME, PROPERTIES, E, Page

# Names of parts that a control opens, in class, id or role of an element or right around it.
_PART = re.compile(
    r"(?i)accordion|collaps|panel|toggle|expand|faq|spoiler|answer|slide|slick|carousel|swiper|drawer|reveal|more|"
    r"dropdown|disclosure|details|unfold|(?<![a-z])tabs?(?![a-z])|tab-?(?:pane|content|bed)"
)
# Attributes by which a script of the page or a library shows an element: Alpine, Vue, Angular, Knockout, Webflow,
# Bootstrap, and libraries that let text appear when a reader comes to it.
_SCRIPTED = re.compile(
    r"x-(?:show|cloak)|v-(?:show|cloak|if)|(?:data-)?ng-(?:show|hide|if|cloak|switch-when)|data-(?:bind|w-tab|show|tab|"
    r"toggle|parent|content|reveal|aos|sal|scroll|wow|animat)[\w-]*"
)
_APPEARS = re.compile(r"(?i)(?<![a-z])(?:wow|aos)(?![a-z])|animat|fade|appear|lazy|invisible|preload|loading")
_CONTROL = re.compile(
    rb"""(?i)<(?:button|summary|label)\b|<input\b[^>]{0,300}\btype\s*=\s*["']?(?:button|image|checkbox|radio)|"""
    rb"""\s(?:onclick|aria-expanded|aria-controls|data-(?:bs-)?(?:toggle|target))\s*=|role\s*=\s*["']?(?:button|tab)\b|"""
    rb"""href\s*=\s*["']?(?:#["'\s>]|javascript:)|"""
    rb"""class\s*=\s*["']?[^"'>]{0,200}(?:accordion|toggle|collaps|expand|faq|question|spoiler|more|button|btn)"""
)
_VISIBLE = re.compile(rb"(?i)visibility\s*:\s*visible")
_NAME_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_NAMES_BEGIN = frozenset((b"#", b'"', b"'", b"`", b"=", b"(", b","))
# Before a selector, a character of a string; in a style sheet there is none.
_SELECTOR = re.compile(rb"""["'`][^"'`{}<>\n]*\Z""")
# How far from a hidden element a control is looked for, in bytes; how many elements around it have a say; how many
# names are looked up in a page, so that a page of any number of names takes linear time; and how many classes of an
# element: one with more has those of a framework, which say how it looks.
_BEFORE, _AFTER, _AROUND, _LOOKUPS, _CLASSES = 1000, 500, 3, 64, 3
_SELECTOR_LENGTH = 80
_LINKS = 0.8  # from this part of its text on an element is a menu
_QUESTION_MARKS = ("?", "？", "؟", "\u037e")
_DT = E["dt"]
# Elements of running text: beside them others of the same name are no parts of the same kind.
_RUNNING = frozenset(E[name] for name in ("p", "div", "span"))


class _Element(NamedTuple):
    """A hidden element: its node, -1 for those that are none, and the node around it; its start tag and the tag that
    ends it; its blocks from `begin` to `end`, or the block `begin` that it is a part of; the kept words in it, and the
    unit that these are in."""

    node: int
    around: int
    first: int
    last: int
    begin: int
    end: int
    is_part: bool
    words: float
    unit: int


def hidden_elements(source: Source, together: Units, kept: np.ndarray, words: np.ndarray) -> dict[int, int]:
    """The elements with kept text that no reader sees, by the numbers of their start tags, each with the tag that ends
    it; none if they have most of the kept words, as on pages that are hidden until a script has run.

    kept: bool, words: float32, of each block. Code or a table of which more than half is hidden stays whole, by its
    blocks.
    """
    blocks = source.page.blocks
    if not (np.bitwise_or.reduce(blocks.bits[kept]) & HIDDEN or (kept & blocks.marked).any()):
        return {}
    elements = list(_elements(source, together, kept, words))
    covered = [each.first for each in elements]
    for each in _inline_elements(source, together, kept):
        outer = bisect_left(covered, each.first) - 1
        if outer < 0 or elements[outer].last < each.first:
            elements.append(each)
    if not elements:
        return {}
    openers = _Openers(source)
    elements = [each for each in elements if not openers.opens(each)]
    if 2 * sum(each.words for each in elements) > np.sum(words, where=kept):
        return {}
    sizes = np.bincount(together.unit, kept)
    hidden = np.zeros(len(sizes))
    for each in elements:
        hidden[each.unit] += 0 if each.is_part else np.count_nonzero(kept[each.begin : each.end])
    partly = (hidden < sizes) & (2 * hidden > sizes)
    return {each.first: each.last for each in elements if not (each.unit and partly[each.unit])}


def hidden_blocks(page: Page, elements: dict[int, int]) -> np.ndarray:
    """The blocks (bool) in hidden elements; not those that are so in part."""
    hidden = np.zeros(len(page.blocks.begin), bool)
    for first, last in elements.items():
        hidden[_within(page, first, last)] = True
    return hidden


def _within(page: Page, first: int, last: int) -> slice:
    """The blocks that are wholly between two tags."""
    blocks = page.blocks
    return slice(int(np.searchsorted(blocks.after, first)), int(np.searchsorted(blocks.before, last, "right")))


def _elements(source: Source, together: Units, kept: np.ndarray, words: np.ndarray) -> Iterator[_Element]:
    """The hidden elements with kept text, without those in others.

    A part of a cell, such as a key to sort by, counts for no words: they may be as many as those that are shown.
    """
    page = source.page
    blocks, nodes = page.blocks, np.flatnonzero(page.nodes.bits & HIDDEN)
    if not len(nodes) or not kept.any():
        return
    first, last = page.nodes.first[nodes], page.nodes.last[nodes]
    totals = np.append(0, np.cumsum(np.where(kept, words, 0), dtype=np.float64))
    begin, end = np.searchsorted(blocks.after, first), np.searchsorted(blocks.before, last, "right")
    around = np.minimum(np.searchsorted(blocks.before, first, "right"), len(kept) - 1)
    is_part = (begin >= end) & kept[around] & (blocks.after[around] < first) & (first < blocks.before[around])
    size = np.where(begin < end, totals[np.maximum(begin, end)] - totals[begin], 0)
    covered = -1
    for i in np.flatnonzero(is_part | (size > 0)).tolist():
        tag, end_tag = int(first[i]), int(last[i])
        if tag <= covered or not source.is_hidden(tag):
            continue
        in_style = b"visibility" in source.tag(tag).lower()
        if in_style and _VISIBLE.search(source.data, source.end[tag], source.begin[end_tag]):
            continue  # what is in an element of `visibility: hidden` may be shown
        covered = end_tag
        place = int(around[i] if is_part[i] else begin[i])
        unit, count = int(together.unit[place]), float(size[i])
        if is_part[i] and not unit:
            count = float(min(len(source.between(tag, end_tag).split()), words[place]))
        node = int(nodes[i])
        around_node = int(page.nodes.parent[node])
        yield _Element(node, around_node, tag, end_tag, place, int(end[i]), bool(is_part[i]), count, unit)


def _inline_elements(source: Source, together: Units, kept: np.ndarray) -> Iterator[_Element]:
    """The same of those that change how text looks, which are no nodes."""
    blocks = source.page.blocks
    for block in np.flatnonzero(kept & blocks.marked).tolist():
        first, last = int(blocks.after[block]), int(blocks.before[block])
        if not source.hides(first, last):
            continue
        ends = source.ends(first, last)
        covered = first
        for tag in range(first + 1, last):
            element = source.element[tag]
            if tag <= covered or not (0 <= element < len(PROPERTIES) and PROPERTIES[element] & INLINE):
                continue
            if tag in ends and source.is_hidden(tag):
                covered = ends[tag]
                unit = int(together.unit[block])
                count = 0.0 if unit else float(len(source.between(tag, covered).split()))
                yield _Element(-1, int(blocks.node[block]), tag, covered, block, block, True, count, unit)


class _Openers:
    """What may open the hidden elements of a page."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._nodes, self._blocks = source.page.nodes, source.page.blocks
        self._named: dict[bytes, bool] = {}
        self._lookups = 0

    def opens(self, element: _Element) -> bool:
        """Whether a reader may come to see an element after all."""
        if element.is_part and (element.unit or self._blocks.kind[element.begin] == HEADING):
            return False
        if self._links(element):
            return False
        attributes = self._source.attributes(element.first)
        names = " ".join(attributes.get(name, "") for name in ("class", "id", "role"))
        return bool(
            _PART.search(names)
            or _APPEARS.search(names)
            or any(map(_SCRIPTED.match, attributes))
            or self._is_part_around(element)
            or self._is_one_of_several(element, bool(attributes.get("class")))
            or self._is_controlled(element)
            or self._is_named(element, attributes)  # last, since it reads the whole page
        )

    def _links(self, element: _Element) -> bool:
        """Whether an element is a menu: several links, and next to nothing else."""
        inside = slice(element.begin, element.end)
        size = int((self._blocks.end[inside] - self._blocks.begin[inside]).sum())
        return self._blocks.links[inside].sum() > 1 and self._blocks.linked[inside].sum() >= _LINKS * size

    def _is_part_around(self, element: _Element) -> bool:
        node = element.around
        for _ in range(_AROUND):
            if node <= 0:
                break
            attributes = self._source.attributes(int(self._nodes.first[node]))
            if _PART.search(" ".join(attributes.get(name, "") for name in ("class", "id", "role"))):
                return True
            node = int(self._nodes.parent[node])
        return False

    def _is_named(self, element: _Element, attributes: dict[str, str]) -> bool:
        """Whether a link, an attribute or a script has the id of an element, or a selector of one of its classes."""
        data, begin, end = self._source.data, self._source.begin[element.first], self._source.end[element.first]
        identity = attributes.get("id", "").strip().encode()
        if identity:
            if self._lookups == _LOOKUPS:
                return True
            self._lookups += 1
            if _is_word(data, identity, 0, begin) or _is_word(data, identity, end, len(data)):
                return True
        return any(self._is_selected(name.encode()) for name in attributes.get("class", "").split()[:_CLASSES])

    def _is_selected(self, name: bytes) -> bool:
        """Whether a string has a selector of a class, or is its name, in a script."""
        if name not in self._named:
            if self._lookups == _LOOKUPS:
                return True
            self._lookups += 1
            data = self._source.data
            self._named[name] = any(
                not _continues(data, position + 1 + len(name))
                and _SELECTOR.search(data, max(0, position - _SELECTOR_LENGTH), position)
                for position in _positions(data, b"." + name)
            ) or any(
                data[max(0, position - 1) : position] in (b"(", b" ", b",")
                for quote in (b"'", b'"')
                for position in _positions(data, quote + name + quote)
            )
        return self._named[name]

    def _is_one_of_several(self, element: _Element, has_class: bool) -> bool:
        """Whether as many elements of its kind beside it are hidden as are shown, as are tabs, slides and the end of a
        list; or it follows a heading, as others of its kind do, as are answers."""
        if element.node < 0:
            return False
        count, hidden = self._kinds[0][self._kinds[1][element.node]]
        running = int(self._nodes.tag[element.node]) in _RUNNING and not has_class
        if not running and 2 * hidden >= count > hidden:
            return True
        above = element.begin - 1
        headed = above >= 0 and (
            self._blocks.kind[above] == HEADING
            or self._nodes.tag[self._blocks.node[above]] == _DT
            or self._is_question(above)
        )
        return headed and self._paths[int(self._nodes.path[element.node])] > 1

    def _is_question(self, block: int) -> bool:
        end = int(self._blocks.end[block])
        return self._source.page.text[max(0, end - 3) : end].tobytes().decode("utf-8", "ignore")[-1:] in _QUESTION_MARKS

    @cached_property
    def _kinds(self) -> tuple[np.ndarray, np.ndarray]:
        """(of each kind how many elements there are and how many are hidden, shape (kinds, 2); the kind of each node):
        those in one element whose names and words of classes are the same."""
        nodes = self._nodes
        keys = nodes.path ^ (nodes.parent.astype(np.uint64) * PRIME)
        kind, counts = np.unique(keys, return_inverse=True, return_counts=True)[1:]
        return np.stack((counts, np.bincount(kind, nodes.bits & HIDDEN != 0, len(counts))), axis=1), kind

    @cached_property
    def _paths(self) -> Counter[int]:
        """How many hidden elements have each path."""
        return Counter(self._nodes.path[self._nodes.bits & HIDDEN != 0].tolist())

    def _is_controlled(self, element: _Element) -> bool:
        """Whether there is a control between the text before an element and it, in that text, or behind the element, up
        to the end of what is around it or of the next text."""
        source, blocks, nodes = self._source, self._blocks, self._nodes
        before = element.begin - (not element.is_part)
        if element.is_part and not source.between(int(blocks.after[before]), element.first).strip():
            before -= 1
        begin = source.begin[blocks.before[before - 1]] if before > 0 else 0
        stop = source.begin[element.first]
        if _CONTROL.search(source.data, max(begin, stop - _BEFORE), stop):
            return True
        parent = max(0, int(nodes.parent[element.around]))
        after = element.begin if element.is_part else element.end
        end = source.begin[blocks.before[after]] if after < len(blocks.before) else len(source.data)
        begin = source.begin[element.last]
        end = min(end, source.begin[nodes.last[parent]], begin + _AFTER)
        return bool(_CONTROL.search(source.data, begin, end))


def _positions(data: bytes, word: bytes) -> Iterator[int]:
    position = data.find(word)
    while position >= 0:
        yield position
        position = data.find(word, position + 1)


def _continues(data: bytes, position: int) -> bool:
    """Whether a name goes on at a place."""
    return position < len(data) and data[position] in _NAME_BYTES


def _is_word(data: bytes, word: bytes, begin: int, end: int) -> bool:
    """Whether a name is named in a part of a page: behind `#`, a quotation mark, `=` or a bracket."""
    position = data.find(word, begin, end)
    while position >= 0:
        if data[max(0, position - 1) : position] in _NAMES_BEGIN and not _continues(data, position + len(word)):
            return True
        position = data.find(word, position + 1, end)
    return False
