"""The kept blocks of a page as readable text, plain or as Markdown: paragraphs, headings, lists, code and tables.

Blocks stand on lines of their own, with an empty line between them, but for the items of a list, which follow each
other. An item begins with `- ` or its number, and what is in it stands in as far. A definition follows its term behind
a colon. The rows of a table of data read like Markdown's: `| a | b |`; tables for layout are read as if they were not
there. Code keeps its lines.

Markdown differs by marks of headings (`#`), fences around code, a line below the header of a table, emphasis, inline
code, and a backslash before what would begin a line as a mark without being one. Links and images are left out.
"""

import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from gristmill.tasks.extraction.rendering import code_places, data_tables
from gristmill.tasks.extraction.rendering.inline import inline
from gristmill.tasks.extraction.rendering.markdown_signs import escaped
from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.rendering.whole import CODE, DATA, Units, Whole
from gristmill.tasks.extraction.vocabulary import ENDS, HEADING, E

_UL, _OL, _LIST_ITEM, _MENU, _DIR = E["ul"], E["ol"], E["li"], E["menu"], E["dir"]
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
        list_node = self._list(node)
        if list_node < 0:
            return 0
        if list_node not in self._indent:
            outer = self._list(int(self._parent[list_node]))
            self._indent[list_node] = self.indent_of(outer) if outer >= 0 else 0
        return self._indent[list_node]

    def indent_of(self, list_node: int) -> int:
        """How far what is inside of the items of a list stands in; a list of which no item is shown does not count."""
        return min(60, self.indent(list_node) + self._width.get(list_node, 0))

    def content(self, node: int) -> int:
        """How far the text of an item stands in."""
        list_node = self._list(node)
        return self.indent_of(list_node) if list_node >= 0 else 0

    def _list(self, node: int) -> int:
        """The innermost list that a node is or lies in; -1 for none."""
        way = []
        list_node = -1
        while node >= 0:
            if node in self._around:
                list_node = self._around[node]
                break
            way.append(node)
            if self._tag[node] in _LISTS:
                list_node = node
                break
            node = int(self._parent[node])
        for each in way:
            self._around[each] = list_node
        return list_node

    def _of(self, list_node: int) -> dict[int, str]:
        """The numbers of all items of a list."""
        if list_node in self._numbers:
            return self._numbers[list_node]
        if self._items is None:
            self._items = {}
            for node in (self._tag == _LIST_ITEM).nonzero()[0].tolist():
                self._items.setdefault(int(self._parent[node]), []).append(node)
        items = self._items.get(list_node, [])
        nodes, source = self._source.page.nodes, self._source
        first = int(nodes.first[list_node])
        tag = source.tag(first).lower()
        number = _number(source.attribute(first, "start")) if b"start" in tag else None
        step = -1 if b"reversed" in tag else 1
        if number is None:
            number = len(items) if step < 0 else 1
        kind = _kind(source, first, tag)
        numbers = {}
        for item in items:
            own = source.tag(int(nodes.first[item]))
            if b"value" in own and (value := _number(source.attribute(int(nodes.first[item]), "value"))) is not None:
                number = value
            numbers[item] = _written(number, kind) + "."
            number += step
        self._numbers[list_node] = numbers
        return numbers


def _kind(source: Source, first: int, tag: bytes) -> str:
    """How the numbers of a list are written, as the attribute `type` has it."""
    if kind := source.attribute(first, "type") if b"type" in tag else None:
        return kind
    match = None
    if b"list-style" in tag:
        match = _STYLE.search((source.attribute(first, "style") or "").lower())
    elif b"alpha" in tag or b"roman" in tag or b"latin" in tag:
        match = _CLASS.search(source.classes(first))
    if not match:
        return "1"
    letter = "i" if match[2] == "roman" else "a"
    return letter if match[1] == "lower" else letter.upper()


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


_CLOSE, _FAR = "\n", "\n\n"
_DT, _DD, _LI, _H1, _BUTTON = (E[name] for name in "dt dd li h1 button".split())
# what the UTF-8 of a str cannot hold, and what html.unescape may make of a number
_SURROGATES = re.compile("[\ud800-\udfff]")
_RUNS, _LINE_BEGINS = re.compile(r"[^\S\n]{2,}|[^\S\n ]"), re.compile(r"\n +")
_MARK = re.compile(
    r"^(\d*)(?=(?:(?<!\d)(?:#{1,6}|[-+*])|(?<=\d)[.)])(?:\s|$)|(?<!\d)(?:>|```|~~~|(?:-{2,}|={2,})$))", re.MULTILINE
)
PARAGRAPH, ITEM, DEFINITION, ROWS, TERM = range(5)
# What is longer is set large, and heads nothing. In characters.
_MAX_HEADING = 250


class _Block(NamedTuple):
    """A kept block: where its text begins and ends, the tags that it is between and whether these matter; its kind and
    unit; whether it begins an item, and which `li`, `dt` or `dd` and which heading (nodes, -1 for none) it is in."""

    begin: int
    end: int
    after: int
    before: int
    is_marked: bool
    kind: int
    unit: int
    begins: bool
    item: int
    heading: int


class _Piece(NamedTuple):
    """What a block becomes, and how it is set: PARAGRAPH, ITEM, DEFINITION, ROWS or TERM; code keeps its lines."""

    text: str
    role: int
    is_code: bool


def render(source: Source, chosen: Units, kept: np.ndarray, markdown: bool = False) -> str:
    """The text of the kept blocks (bool) of a page."""
    writer = _Writer(source, chosen, markdown)
    done: set[int] = set()
    kept_blocks = list(_kept(source, chosen, kept, markdown))
    for block, following in zip_longest(kept_blocks, kept_blocks[1:]):
        if block.unit:
            if block.unit in done:
                continue
            done.add(block.unit)
            piece = _whole(source, chosen.wholes[block.unit], markdown)
        else:
            piece = _Piece(writer.paragraph(block), PARAGRAPH, False)
        writer.add(block, piece, bool(following and following.item == block.item))
    text = "".join(writer.parts)
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def _kept(source: Source, chosen: Units, kept: np.ndarray, markdown: bool) -> Iterator[_Block]:
    numbers = np.flatnonzero(kept)
    blocks, around = source.page.blocks, chosen.around
    node, after, before, kind = (each[numbers] for each in (blocks.node, blocks.after, blocks.before, blocks.kind))
    has_tags = before > after + 1
    shows_formulas = source.formulas if blocks.marked.any() else source.has(b"katex-html")
    if not (markdown or shows_formulas or source.icons):
        has_tags &= kind == HEADING
    columns = (
        blocks.begin[numbers],
        blocks.end[numbers],
        after,
        before,
        has_tags | blocks.marked[numbers],
        kind,
        chosen.unit[numbers],
        blocks.bullet[numbers] > 0,
        around.item[node],
        around.heading[node],
    )
    return map(_Block._make, zip(*(column.tolist() for column in columns), strict=True))


class _Writer:
    """The text of a page that is being written: each piece by what stands before it."""

    def __init__(self, source: Source, chosen: Units, markdown: bool) -> None:
        self.parts: list[str] = []
        self._source, self._chosen, self._markdown = source, chosen, markdown
        self._text = source.page.text.tobytes()
        self._lists = Lists(source)
        self._role = PARAGRAPH
        self._item = self._heading = -1
        self._waiting = -1  # an item that has begun, of whose text nothing is written

    def paragraph(self, block: _Block) -> str:
        """The text of a block by itself."""
        if block.is_marked:
            text = inline(self._source, block.after, block.before, self._markdown)
        else:
            text = self._source.text_of(self._text[block.begin : block.end])
            text = escaped(text) if self._markdown else text
        text = text.strip() if text.isascii() else _LINE_BEGINS.sub("\n", _RUNS.sub(" ", text)).strip()
        if text.endswith("¶"):
            text = text[:-1].rstrip()
        return _MARK.sub(r"\1\\", text) if self._markdown else text

    def add(self, block: _Block, piece: _Piece, more: bool) -> None:
        """Write a piece behind what is written. The mark of an item waits for a piece with text; `more`: whether one
        of the same item follows."""
        if piece.text and block.kind == HEADING and not block.unit:
            if block.heading == self._heading and self.parts:
                if self._of_button(block):
                    return
                self.parts += (" ", piece.text.replace("\n", " ")) if self._markdown else (_CLOSE, piece.text)
                return
            if self._markdown:
                piece = piece._replace(text=self._marked_heading(block.heading, piece.text))
        item = block.item if block.item > 0 else -1
        begins = block.begins or item == self._waiting > 0
        if block.unit:  # the item that it lies in, not one that lies in it
            item = int(self._chosen.around.item[self._chosen.wholes[block.unit].parent])
            begins &= item == block.item
        if begins and more and not piece.is_code and self._is_number(item, piece.text):
            piece = piece._replace(text="")
        if not piece.text:
            self._waiting = item if begins else self._waiting
            return
        self._waiting, self._heading = -1, block.heading
        piece = self._set(piece, item, begins)
        if self.parts:
            close = (piece.role == ITEM and self._role == ITEM) or (
                piece.role == DEFINITION and self._role in (TERM, DEFINITION)
            )
            self.parts.append(_CLOSE if close else _FAR)
        self.parts.append(piece.text)
        self._role, self._item = piece.role, item

    def _is_number(self, item: int, text: str) -> bool:
        """Whether a text is the number of its item, and nothing else."""
        number = text.strip("*").rstrip(".)\\")
        return number.isdigit() and self._source.page.nodes.tag[item] == _LI and self._lists.mark(item) == f"{number}. "

    def _of_button(self, block: _Block) -> bool:
        """Whether a piece of a heading is the label of a button in it."""
        first = int(self._source.page.nodes.first[block.heading])
        before = self._source.element[first + 1 : block.after + 1]
        return before.count(_BUTTON) > before.count(ENDS - _BUTTON)

    def _marked_heading(self, heading: int, text: str) -> str:
        level = int(self._source.page.nodes.tag[heading]) - _H1 + 1 if heading > 0 else 1
        if len(text) > _MAX_HEADING:
            return text
        if text.startswith("**") and text.endswith("**") and "*" not in text[2:-2]:
            text = text[2:-2]
        return "#" * level + " " + text.replace("\n", " ")

    def _set(self, piece: _Piece, item: int, begins: bool) -> _Piece:
        """A piece with the mark of the item that it begins, standing in as far as its list does; what lies in no `li`
        as a term or a definition."""
        tag = self._source.page.nodes.tag[item] if item > 0 else -1
        if tag != _LI:
            if tag < 0 or piece.role != PARAGRAPH or piece.is_code:
                return piece
            if tag == _DT:
                return piece._replace(role=TERM)
            if self._role in (TERM, DEFINITION) and item != self._item and tag == _DD:
                return _Piece(": " + piece.text, DEFINITION, False)
            return piece
        text, role = piece.text, piece.role
        indent = 0
        if begins:
            indent = self._lists.indent(item)
            mark, role = self._lists.mark(item), ITEM
            if not piece.is_code:
                text = _without_number(text, mark)
            text = mark + (text if piece.is_code else text.replace("\n", "\n" + " " * len(mark)))
        elif item == self._item or self._role == ITEM:
            indent = self._lists.content(item)
        if indent and (self._markdown or not piece.is_code):
            text = " " * indent + text.replace("\n", "\n" + " " * indent)
        return _Piece(text, role, piece.is_code)


def _without_number(text: str, mark: str) -> str:
    """The text of an item without its number, where the page has that once more, as a word of its own."""
    number = mark.rstrip(" .")
    if not number.isdigit() or not text.lstrip("*").startswith(number):
        return text
    return re.sub(rf"\A(\**){number}(?:\\?[.)]\1\s+|\1\n)(?=\S)", "", text)


def _whole(source: Source, whole: Whole, markdown: bool) -> _Piece:
    """The text of what is rendered as a whole."""
    kind, first, last, _ = whole
    if kind == DATA:
        outside, grid = data_tables.rows(source, first, last, markdown)
        equations = "ltx_eqn" in source.classes(first)
        if data_tables.is_column(grid) and not equations:
            return _Piece(_FAR.join([*outside, *filter(None, map("".join, grid))]).strip(), PARAGRAPH, False)
        table_lines = [" ".join(filter(None, row)) for row in grid] if equations else data_tables.lines(grid, markdown)
        return _Piece(_FAR.join([*outside, _CLOSE.join(table_lines)]).strip(), ROWS, False)
    if kind == CODE:
        text = code_places.code(source, first, last)
        if markdown and text:
            fence = "```"
            while fence in text:
                fence += "`"
            text = f"{fence}{code_places.language(source, first, last)}\n{text}\n{fence}"
        return _Piece(text, PARAGRAPH, True)
    return _Piece(inline(source, first, last), TERM, False)
