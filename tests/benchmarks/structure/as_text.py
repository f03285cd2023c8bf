"""Articles as sources of reStructuredText and of Markdown."""

from dataclasses import dataclass

from tests.benchmarks.structure.article import (
    Article,
    Code,
    Definitions,
    Formula,
    Heading,
    List,
    Paragraph,
    Part,
    Signature,
    Table,
)
from tests.benchmarks.structure.numerals import labelled


def grid_table(table: Table) -> str:
    """The grid table of reStructuredText and pandoc; a character is taken to be one column wide."""
    grid = table.grid()
    height, width = len(grid), len(grid[0])
    longest = max(len(cell.text) for row in table.rows for cell in row)
    step = longest + 3
    lines = [[" "] * (width * step + 1) for _ in range(height * 2 + 1)]
    for r, row in enumerate(grid):
        for c, cell in enumerate(row):
            if cell is None:
                continue
            top, left = 2 * r, c * step
            bottom, right = 2 * (r + cell.rows), (c + cell.columns) * step
            rules = {top: "=" if r == table.headers and r else "-"}
            rules[bottom] = "=" if r + cell.rows == table.headers else "-"
            for y, sign in rules.items():
                for x in range(left, right + 1):
                    lines[y][x] = "+" if lines[y][x] in "+|" else sign
            for x in (left, right):
                for y in range(top, bottom + 1):
                    lines[y][x] = "+" if y in rules or lines[y][x] in "+-=" else "|"
            lines[top + 1][left + 2 : left + 2 + len(cell.text)] = cell.text
    return "\n".join("".join(line) for line in lines)


def _indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line if line.strip() else line for line in text.split("\n"))


def _list(items: List, fancy: bool, blank: bool) -> str:
    """fancy: a gap of two columns behind capital letters, which pandoc asks for; blank: a line around children."""
    written = []
    for number, item in labelled(items):
        sign = f"{number}." if number else "-"
        gap = "  " if fancy and number and number.isupper() else " "
        text = f"{sign}{gap}{item.text}"
        if item.children is not None:
            under = _list(item.children, fancy, blank)
            text += ("\n\n" if blank else "\n") + _indented(under, len(sign + gap)) + ("\n" if blank else "")
        written.append(text)
    return "\n".join(written)


@dataclass(frozen=True)
class Rst:
    """lineno: whether code has line numbers; sphinx: domains and code-block's own options."""

    sphinx: bool
    lineno: bool

    def write(self, article: Article) -> str:
        parts = [f"{article.title}\n{'=' * 3 * len(article.title)}"]
        return "\n\n".join(parts + [self._part(part) for part in article.parts]) + "\n"

    def _part(self, part: Part) -> str:
        match part:
            case Heading(level, text):
                return f"{text}\n{('-' if level == 2 else '~') * 3 * len(text)}"
            case Paragraph(pieces):
                return " ".join(p if isinstance(p, str) else f":math:`{p.latex}`" for p in pieces)
            case Formula(latex, _):
                return f".. math::\n\n   {latex}"
            case Code(lines, language):
                option = ("   :linenos:" if self.sphinx else "   :number-lines:") if self.lineno else None
                head = [f".. code-block:: {language}"] + ([option] if option else [])
                return "\n".join(head) + "\n\n" + _indented("\n".join(lines), 3)
            case Table() if part.spans():
                return grid_table(part)
            case Table(rows, headers):
                written = [
                    "\n".join(f"   {'*' if c == 0 else ' '} - {cell.text}".rstrip() for c, cell in enumerate(row))
                    for row in rows
                ]
                return f".. list-table::\n   :header-rows: {headers}\n\n" + "\n".join(written)
            case List():
                return _list(part, False, True)
            case Definitions(pairs):
                return "\n\n".join(f"{term}\n   {text}" for term, text in pairs)
            case Signature(text):
                return f".. py:function:: {text}\n\n   {text.split('(')[0]}"


@dataclass(frozen=True)
class Markdown:
    """pandoc: lists of letters and Roman numerals, grid tables, definition lists, numbered lines."""

    pandoc: bool
    lineno: bool = False

    def write(self, article: Article) -> str:
        parts = [f"# {article.title}", *(self._part(part) for part in article.parts)]
        return "\n\n".join(parts) + "\n"

    def _part(self, part: Part) -> str:
        match part:
            case Heading(level, text):
                return f"{'#' * level} {text}"
            case Paragraph(pieces):
                return " ".join(p if isinstance(p, str) else f"${p.latex}$" for p in pieces)
            case Formula(latex, _):
                return f"$${latex}$$"
            case Code(lines, language):
                attributes = f"{{.{language}{' .numberLines' if self.lineno else ''}}}" if self.pandoc else language
                return "\n".join([f"```` {attributes}", *lines, "````"])
            case Table() if part.spans():
                return grid_table(part)
            case Table(rows, headers):
                written = ["| " + " | ".join(cell.text for cell in row) + " |" for row in rows]
                head = written[:headers] or ["|" + "  |" * len(rows[0])]
                return "\n".join([*head, "|" + "---|" * len(rows[0]), *written[headers:]])
            case List():
                # in CommonMark only a list that starts with 1 can follow a line of text
                return _list(part, self.pandoc, not self.pandoc)
            case Definitions(pairs):
                return "\n\n".join(f"{term}\n:   {text}" for term, text in pairs)
            case Signature():
                raise ValueError(f"Markdown has no signature such as {part.text}: leave it out of Wants.parts")
