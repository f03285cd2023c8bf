"""Marks of list items: bullets, numbers as `start`, `value`, `type`, `reversed` and the style of the list say."""

import re

from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.vocabulary import E

_UL, _OL, _LI, _MENU, _DIR = E["ul"], E["ol"], E["li"], E["menu"], E["dir"]
_LISTS = (_UL, _OL, _MENU, _DIR)
# In a style, or as a class (docutils, Asciidoctor).
_STYLE = re.compile(r"list-style(?:-type)?\s*:\s*(lower|upper)-(alpha|latin|roman)")
_CLASS = re.compile(r"(?:^|\s)(lower|upper)(alpha|latin|roman)(?:\s|$)")
_ROMAN = tuple(
    zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        "m cm d cd c xc l xl x ix v iv i".split(),
        strict=True,
    )
)


class Lists:
    """The lists of a page, by their nodes; each is looked at when an item of it is met."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._parent, self._tag = source.page.nodes.parent, source.page.nodes.tag
        self._numbers: dict[int, dict[int, str]] = {}
        self._around: dict[int, int] = {}
        self._indent: dict[int, int] = {}
        self._width: dict[int, int] = {}
        self._items: dict[int, list[int]] | None = None

    def mark(self, item: int) -> str:
        """What an item, by its node, begins with: `- `, or its number."""
        above = int(self._parent[item])
        mark = "- "
        if above >= 0 and self._tag[above] == _OL:
            mark = self._of(above).get(item, "-") + " "
        self._width[self._list(item)] = len(mark)
        return mark

    def indent(self, node: int) -> int:
        """How far the items of the list around a node stand in, by the marks of the lists around it."""
        at = self._list(node)
        if at < 0:
            return 0
        if at not in self._indent:
            outer = self._list(int(self._parent[at]))
            self._indent[at] = self.indent_of(outer) if outer >= 0 else 0
        return self._indent[at]

    def indent_of(self, at: int) -> int:
        """How far what is inside of the items of a list stands in; a list of which no item is shown does not count."""
        return min(60, self.indent(at) + self._width.get(at, 0))

    def content(self, node: int) -> int:
        """How far the text of an item stands in."""
        at = self._list(node)
        return self.indent_of(at) if at >= 0 else 0

    def _list(self, node: int) -> int:
        """The innermost list that a node is or lies in; -1 for none."""
        way = []
        found = -1
        while node >= 0:
            if node in self._around:
                found = self._around[node]
                break
            way.append(node)
            if self._tag[node] in _LISTS:
                found = node
                break
            node = int(self._parent[node])
        for each in way:
            self._around[each] = found
        return found

    def _of(self, at: int) -> dict[int, str]:
        """The numbers of all items of a list."""
        if at in self._numbers:
            return self._numbers[at]
        if self._items is None:
            self._items = {}
            for node in (self._tag == _LI).nonzero()[0].tolist():
                self._items.setdefault(int(self._parent[node]), []).append(node)
        items = self._items.get(at, [])
        nodes, source = self._source.page.nodes, self._source
        first = int(nodes.first[at])
        tag = source.tag(first).lower()
        number = _number(source.attribute(first, "start")) if b"start" in tag else None
        step = -1 if b"reversed" in tag else 1
        if number is None:
            number = len(items) if step < 0 else 1
        kind = _kind(source, first, tag)
        found = {}
        for item in items:
            own = source.tag(int(nodes.first[item]))
            if b"value" in own and (given := _number(source.attribute(int(nodes.first[item]), "value"))) is not None:
                number = given
            found[item] = _written(number, kind) + "."
            number += step
        self._numbers[at] = found
        return found


def _kind(source: Source, first: int, tag: bytes) -> str:
    """How the numbers of a list are written, as the attribute `type` has it."""
    if kind := source.attribute(first, "type") if b"type" in tag else None:
        return kind
    found = None
    if b"list-style" in tag:
        found = _STYLE.search((source.attribute(first, "style") or "").lower())
    elif b"alpha" in tag or b"roman" in tag or b"latin" in tag:
        found = _CLASS.search(source.classes(first))
    if not found:
        return "1"
    letter = "i" if found[2] == "roman" else "a"
    return letter if found[1] == "lower" else letter.upper()


def _number(value: str | None) -> int | None:
    try:
        return max(-(10**9), min(int(value or ""), 10**9))
    except ValueError:
        return None


def _written(number: int, kind: str) -> str:
    """A number as a list of a `type` shows it: 1, a, A, i, I."""
    if kind in ("a", "A") and number > 0:
        letters = ""
        while number:
            number, rest = divmod(number - 1, 26)
            letters = chr(ord(kind) + rest) + letters
        return letters
    if kind in ("i", "I") and 0 < number < 4000:
        text = ""
        for value, sign in _ROMAN:
            count, number = divmod(number, value)
            text += sign * count
        return text if kind == "i" else text.upper()
    return str(number)
