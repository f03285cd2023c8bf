"""An article as its author meant it: the truth that every page is made of and every text is compared with."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.benchmarks.structure import formulas
from tests.benchmarks.structure.code import LANGUAGES, program
from tests.benchmarks.structure.words import Words


@dataclass(frozen=True)
class Heading:
    level: int
    text: str


@dataclass(frozen=True)
class Formula:
    latex: str
    display: bool


@dataclass(frozen=True)
class Paragraph:
    """Texts and formulas in turn; a text ends and begins without a space beside a formula."""

    pieces: tuple[str | Formula, ...]


@dataclass(frozen=True)
class Code:
    lines: tuple[str, ...]
    language: str


@dataclass(frozen=True)
class Cell:
    text: str
    rows: int = 1
    columns: int = 1


@dataclass(frozen=True)
class Table:
    """Rows of cells as HTML has them: a cell stands in the first column that no cell from above covers."""

    rows: tuple[tuple[Cell, ...], ...]
    headers: int

    def grid(self) -> list[list[Cell | None]]:
        """The cell that begins at each row and column, or None where a span covers it."""
        covered: set[tuple[int, int]] = set()
        width = sum(cell.columns for cell in self.rows[0])
        grid: list[list[Cell | None]] = [[None] * width for _ in self.rows]
        for r, row in enumerate(self.rows):
            c = 0
            for cell in row:
                while (r, c) in covered:
                    c += 1
                grid[r][c] = cell
                covered |= {(r + y, c + x) for y in range(cell.rows) for x in range(cell.columns)}
        return grid

    def spans(self) -> bool:
        return any(cell.rows > 1 or cell.columns > 1 for row in self.rows for cell in row)


@dataclass(frozen=True)
class Item:
    text: str
    value: int | None = None
    children: "List | None" = None


@dataclass(frozen=True)
class List:
    """kind: "ul", or "1", "a", "A", "i", "I" as in HTML's attribute `type`."""

    kind: str
    items: tuple[Item, ...]
    start: int = 1


@dataclass(frozen=True)
class Definitions:
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Signature:
    """A Python signature as it is written in the source."""

    text: str


Part = Heading | Paragraph | Formula | Code | Table | List | Definitions | Signature


@dataclass(frozen=True)
class Article:
    script: str
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Wants:
    """What a renderer can take: `parts` by name; the formulas; types and jumps of list numbers; tables with spans.

    starts: whether lists of letters and Roman numerals can start anywhere; a text "i." may be either.
    """

    parts: tuple[str, ...] = ("code", "table", "list", "definitions", "formula")
    formula: Callable[[random.Random], str] = formulas.any_formula
    inline_formulas: bool = True
    kinds: tuple[str, ...] = ("ul", "1", "a", "A", "i", "I")
    jumps: bool = True
    starts: bool = True
    spans: bool = True
    headerless: bool = True
    languages: tuple[str, ...] = LANGUAGES
    sections: int = 5


def article(seed: int, script: str, wants: Wants) -> Article:
    draw = random.Random(f"{seed} {script}")
    words = Words(script, draw)
    parts: list[Part] = [_paragraph(words, wants, False)]
    kinds = list(wants.parts) * 3
    draw.shuffle(kinds)
    for number in range(wants.sections):
        level = 3 if number and draw.random() < 0.35 else 2
        parts.append(Heading(level, words.phrase(2, 6)))
        if level == 2 and draw.random() < 0.15:
            parts.append(Heading(3, words.phrase(2, 6)))
        if not kinds or draw.random() > 0.25:  # else the heading is right above something else
            parts.append(_paragraph(words, wants, draw.random() < 0.5))
        for _ in range(2):
            if kinds:
                parts.append(_part(kinds.pop(), words, wants))
                parts.append(_paragraph(words, wants, draw.random() < 0.5))
    return Article(script, words.phrase(4, 8), tuple(parts))


def _paragraph(words: Words, wants: Wants, formula: bool) -> Paragraph:
    if not (formula and wants.inline_formulas and "formula" in wants.parts):
        return Paragraph((words.paragraph(),))
    before, after = words.paragraph(2, 3), words.paragraph(2, 3)
    return Paragraph((before + " " + words.phrase(3, 6), Formula(wants.formula(words.draw), False), after))


def _part(kind: str, words: Words, wants: Wants) -> Part:
    draw = words.draw
    if kind == "code":
        language = draw.choice(wants.languages)
        return Code(program(draw, language, words.phrase(2, 5)), language)
    if kind == "formula":
        return Formula(wants.formula(draw), True)
    if kind == "table":
        return _table(words, wants)
    if kind == "list":
        return _list(words, wants, 0)
    if kind == "definitions":
        return Definitions(tuple((words.phrase(1, 3), words.paragraph(1, 2)) for _ in range(draw.randint(2, 4))))
    name, one, two = (f"{draw.choice(('make', 'find', 'read'))}_{draw.choice(LANGUAGES)}" for _ in range(3))
    return Signature(f"{name}({one}: int = {draw.randint(1, 99)}, *, {two}_: str = 'x') -> list[str]")


def _table(words: Words, wants: Wants) -> Table:
    """Of eight kinds, five only where spans are wanted; a row has a text by which it is recognised."""
    draw = words.draw
    kind = draw.choice(("simple", "simple", "spanned", "grouped", "levels", "banded", "facts", "long"))
    if not wants.spans and kind not in ("simple", "long"):
        kind = "simple"
    height = draw.randint(15, 40) if kind == "long" else draw.randint(4, 7)
    width = 2 if kind == "facts" else draw.randint(3, 6) if wants.spans else draw.randint(2, 6)
    headers = 0 if kind == "facts" or (wants.headerless and kind == "simple" and draw.random() < 0.15) else 1
    rows = [[_cell(words, r, c, headers) for c in range(width)] for r in range(height)]
    if kind == "spanned":
        _span(rows, headers, draw)
    elif kind == "grouped":  # one label for several rows
        for r in range(height - 2, headers - 1, -2):
            rows[r][0] = Cell(words.phrase(1, 2), rows=2)
            del rows[r + 1][0]
    elif kind == "levels":  # two rows of headers
        rows[0] = [Cell(words.phrase(1, 2), rows=2), Cell(words.phrase(1, 3), columns=width - 1)]
        rows[1] = [Cell(words.phrase(1, 2)) for _ in range(width - 1)]
        headers = 2
    elif kind == "banded":  # a row of one cell now and then
        for r in range(headers, height, 3):
            rows[r] = [Cell(words.phrase(2, 4), columns=width)]
    _recognisable(rows, words)
    return Table(tuple(tuple(row) for row in rows), headers)


def _cell(words: Words, r: int, c: int, headers: int) -> Cell:
    draw = words.draw
    if r < headers or c == 0:
        return Cell("" if r < headers and c == 0 and draw.random() < 0.3 else words.phrase(1, 3))
    if draw.random() < 0.2:
        return Cell("")
    number = f"{draw.randint(0, 9999) / 10:.1f}"
    return Cell(draw.choice([number, number, words.phrase(1, 4), f"{draw.randint(1, 99)}%", "–"]))


def _recognisable(rows: list[list[Cell]], words: Words) -> None:
    seen: set[str] = set()
    for r, row in enumerate(rows):
        if not any(len(each.text) > 2 and each.text not in seen for each in row):
            row[-1] = replace(row[-1], text=f"{words.phrase(1, 2)} {r}{words.draw.randint(100, 999)}")
        seen |= {each.text for each in row}


def _span(rows: list[list[Cell]], headers: int, draw: random.Random) -> None:
    """Let one cell of the body cover the one below, and one of another row the one to its right."""
    rows[headers][0] = Cell(rows[headers][0].text or "0.0", rows=2)
    del rows[headers + 1][0]
    wide = draw.choice([headers - 1, len(rows) - 1]) if headers else len(rows) - 1
    rows[wide][1] = Cell(rows[wide][1].text or "1.0", columns=2)
    del rows[wide][2]


def _list(words: Words, wants: Wants, depth: int) -> List:
    draw = words.draw
    kind = draw.choice(wants.kinds)
    anywhere = kind == "1" or (kind != "ul" and wants.starts)
    start = draw.randint(2, 12) if anywhere and draw.random() < 0.3 else 1
    items = []
    for number in range(draw.randint(2, 5)):
        jump = number and kind != "ul" and wants.jumps and draw.random() < 0.1
        children = _list(words, wants, depth + 1) if depth < 2 and draw.random() < 0.25 else None
        items.append(Item(words.phrase(4, 14), start + 5 + number if jump else None, children))
    return List(kind, tuple(items), start)
