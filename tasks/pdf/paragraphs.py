"""Lines in reading order as blocks: paragraphs, headings, items of lists, code, rows of tables.

Words that a line's end parts are joined, also where a column or a page ends inside of a paragraph.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from gristmill.tasks.pdf.columns import Line, lines_of
from gristmill.tasks.pdf.objects import MAX_LEVEL, Entry
from gristmill.tasks.pdf.tables import is_row, table_end

_SAME = 0.04  # how far the sizes of headings of one level may be apart
_PAGES = 1  # between a heading and the place where an entry leads


@dataclass
class Heading:
    """`size`: of the font, in points; `level` as tags give it, 0 where they do not."""

    text: str
    page: int
    size: float
    bold: bool
    level: int = 0


def with_levels(headings: Sequence[Heading], outline: Iterable[Entry]) -> list[int]:
    """The levels of all headings of a document, in their order, 1 for the outermost."""
    if any(heading.level for heading in headings):
        deepest = max(heading.level for heading in headings)
        return [heading.level or min(deepest + 1, MAX_LEVEL) for heading in headings]
    styles = _styles(headings)
    entries: dict[str, list[Entry]] = {}
    for entry in outline:
        entries.setdefault(_letters(entry.title), []).append(entry)
    outline_levels = [_entry(heading, entries) for heading in headings]
    if any(outline_levels):
        return _by_outline(headings, outline_levels, styles)
    ranks = _ranks(styles)
    return [ranks[style] for style in styles]


Style = tuple[float, bool]


def _styles(headings: Sequence[Heading]) -> list[Style]:
    """The size of each heading's letters, sizes that are nearly the same as one, and whether they are bold."""
    names: dict[float, float] = {}
    last = float("inf")
    for size in sorted({heading.size for heading in headings}, reverse=True):
        last = last if last * (1 - _SAME) <= size else size
        names[size] = last
    return [(names[heading.size], heading.bold) for heading in headings]


def _ranks(styles: Sequence[Style]) -> dict[Style, int]:
    """A level for each style: the largest has level 1. One that occurs once between others is a line set apart, and
    makes no level of its own, unless it is the first: the title."""
    counts = Counter(styles)
    ranks: dict[Style, int] = {}
    level = 0
    for style in sorted(counts, reverse=True):
        if counts[style] > 1 or not ranks or len(counts) <= 3:
            level += 1
        ranks[style] = min(level, MAX_LEVEL)
    return ranks


def _by_outline(headings: Sequence[Heading], outline_levels: Sequence[int], styles: Sequence[Style]) -> list[int]:
    """Levels as the outline has them. A heading that it does not have gets the level of those that look as it does;
    else it is below them all, and a larger one is above: the title of the document."""
    seen: dict[Style, Counter[int]] = {}
    for level, style in zip(outline_levels, styles, strict=True):
        if level:
            seen.setdefault(style, Counter())[level] += 1
    usual = {style: max(counts, key=lambda level: (counts[level], -level)) for style, counts in seen.items()}
    largest = max(style for style, level in usual.items() if level == min(usual.values()))
    above = [
        k for k, style in enumerate(styles) if not outline_levels[k] and style[0] > largest[0] and style not in usual
    ]
    shift = 1 if above else 0
    levels = []
    for k, style in enumerate(styles):
        if outline_levels[k]:
            level = outline_levels[k] + shift
        elif style in usual:
            level = usual[style] + shift
        elif k in above:
            level = 1
        else:
            level = shift + 1 + max((level for other, level in usual.items() if other > style), default=0)
        levels.append(min(level, MAX_LEVEL))
    return levels


def _entry(heading: Heading, entries: dict[str, list[Entry]]) -> int:
    """The level of the entry that leads to a heading, 0 for none."""
    for entry in entries.get(_letters(heading.text), ()):
        if abs(entry.page - heading.page) <= _PAGES:
            return entry.level
    return 0


def _letters(title: str) -> str:
    """A title without what outlines write in other ways: its number, spaces, punctuation, case."""
    bare = re.sub(r"^\s*(?:(?:chapter|section|appendix)\s+)?(?:[A-Z]|\d+)?(?:\.\d+)*[.:)]?\s+", "", title, flags=re.I)
    return re.sub(r"\W+", "", bare).lower() or re.sub(r"\W+", "", title).lower()


_ITEM = re.compile(r"(?:[•‣◦▪●○■□–—*·\-\uf0b7\u2043]|\(?(?:\d{1,3}|[a-z]|[ivx]{1,4})[.)])\s+\S", re.IGNORECASE)
_BULLET = re.compile(r"[•‣◦▪●○■□–—*·\-\uf0b7\u2043]")
_ENDS = re.compile(r"[.!?:;。！？：；।؟۔][\"'”’)\]»]*$")
_LEADERS = re.compile(r"(?:\. ?){5}")
_HYPHENS = "-\u2010\u00ad"
_WORD = re.compile(r"[\w\u2010-]+")
# Scripts that are written without spaces: a line's end is none either.
_WIDE = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")

Kind = Literal["text", "heading", "item", "code", "table", "note"]


@dataclass
class Block:
    """Lines that belong together. `level`: of a heading, 1 for the largest."""

    kind: Kind
    lines: list[Line]
    level: int = 0


def blocks(lines: Sequence[Line], outline: Sequence[Entry] = ()) -> list[Block]:
    """The lines of a document, in reading order, as blocks in the same order; notes come after the paragraph that
    they interrupt."""
    if not lines:
        return []
    body = _body_size(lines)
    document_blocks: list[Block] = []
    k = 0
    while k < len(lines):
        if lines[k].segments[0].rows:
            document_blocks.append(Block("table", [lines[k]]))
            k += 1
            continue
        if (end := table_end(lines, k)) > k:
            document_blocks.append(Block("table", list(lines[k:end])))
            k = end
            continue
        line = lines[k]
        kind = _kind(line, body)
        last = document_blocks[-1] if document_blocks else None
        if last and last.kind != "table" and _continues(last, line, kind):
            last.lines.append(line)
        else:
            document_blocks.append(Block(kind, [line]))
        k += 1
    tagged = any(line.heading for line in lines)
    document_blocks = [_as_text(block, tagged) for block in document_blocks]
    heads = [block for block in document_blocks if block.kind == "heading"]
    for block, level in zip(heads, with_levels([_heading(block) for block in heads], outline), strict=True):
        block.level = level
    return _over_ends(document_blocks)


def _body_size(lines: Sequence[Line]) -> float:
    counts: Counter[float] = Counter()
    for line in lines:
        counts[round(line.font * 2) / 2] += len(line.text)
    return max(counts, key=lambda size: (counts[size], -size))


def _kind(line: Line, body: float) -> Kind:
    if line.heading:
        return "heading"
    if line.mono:
        return "code"
    if line.font > 1.13 * body and re.search(r"\w", line.text):
        return "heading"
    if _ITEM.match(line.text):
        return "item"
    return "note" if line.font < 0.88 * body else "text"


def _continues(block: Block, line: Line, kind: Kind) -> bool:
    """Whether a line belongs to the block before it, in the same column of the same page."""
    last = block.lines[-1]
    if last.page != line.page or line.top > last.top or last.column != line.column:
        return False
    if _LEADERS.search(last.text):
        return False  # an entry of a table of contents
    gap, size = last.bottom - line.top, max(last.size, line.size)
    if gap > 0.75 * size or (kind != "code" and abs(last.font - line.font) > 0.1 * line.font):
        return False
    if kind == "item" or (block.kind == "heading") != (kind == "heading") or (block.kind == "code") != (kind == "code"):
        return False
    if kind == "code":
        return True
    if last.bold != line.bold and len(block.lines) == 1 and kind == "text" and block.kind == "text":
        return False  # a heading in bold letters of the text's size
    if kind == "heading":
        return True
    if len(block.lines) > 1:
        step = block.lines[-2].middle - last.middle
        if last.middle - line.middle > 1.3 * step + 0.5:
            return False
    if line.segments[0].rtl:
        indent, room = last.right - line.right, last.left - last.column[0]
    else:
        indent, room = line.left - last.left, last.column[1] - last.right
    width = last.column[1] - last.column[0]
    if block.kind == "item":
        return indent > -0.3 * size
    if indent > 0.8 * size and len(block.lines) > 1 and abs(indent) < 0.3 * width:
        return False  # the first line of a paragraph is indented
    return not (room > 0.3 * width and _ENDS.search(last.text))


def _as_text(block: Block, tagged: bool) -> Block:
    """A paragraph of one short line in bold letters is a heading, where the document does not tag its own; many lines
    in large letters are none, but a text of its own size."""
    text = " ".join(line.text for line in block.lines)
    if block.kind == "heading" and len(text) > 300:
        return Block("text", block.lines)
    if block.kind == "text" and len(block.lines) <= 2 and all(line.bold for line in block.lines) and not tagged:
        contents = len(block.lines[-1].segments) > 1 and block.lines[-1].segments[-1].text.isdecimal()
        if len(text) < 120 and not contents and not text.endswith((".", ",", ";")) and re.search(r"\w{2}", text):
            return Block("heading", block.lines)
    return block


def _heading(block: Block) -> Heading:
    line = block.lines[0]
    text = " ".join(line.text for line in block.lines)
    return Heading(text, line.page, line.font, line.bold, line.heading)


def _over_ends(blocks_in_order: Sequence[Block]) -> list[Block]:
    """Join paragraphs that continue in the next column or on the next page; notes between them come after them."""
    merged_blocks: list[Block] = []
    notes: list[Block] = []
    last: Block | None = None
    for block in blocks_in_order:
        if block.kind == "note" and last is not None:
            notes.append(block)
            continue
        goes_on = (
            last is not None
            and block.kind == "text"
            and last.kind in ("text", "item")
            and _place(last.lines[-1]) != _place(block.lines[0])
            and not _ENDS.search(last.lines[-1].text)
            and not block.lines[0].text[:1].isupper()
            and abs(last.lines[-1].font - block.lines[0].font) < 0.1 * block.lines[0].font
        )
        if goes_on and last is not None:
            last.lines += block.lines
            continue
        merged_blocks += notes
        notes = []
        merged_blocks.append(block)
        last = block
    return merged_blocks + notes


def _place(line: Line) -> tuple[int, tuple[float, float]]:
    return line.page, line.column


class Words:
    """How the words of a document are written inside of its lines: whether a hyphen at a line's end is the word's."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.counts: Counter[str] = Counter()
        for line in lines:
            self.counts.update(word.lower() for word in _WORD.findall(line.text)[:-1])

    def joined(self, lines: Sequence[Line]) -> str:
        """The text of lines as one."""
        text = ""
        for line in lines:
            following = line.text.strip()
            if not text:
                text = following
            elif text[-1] in _HYPHENS and text[-2:-1].isalpha() and following[:1].isalpha():
                one, other = _WORD.findall(text)[-1], _WORD.findall(following)[0]
                whole, parted = (one[:-1] + other).lower(), (one + other).lower()
                keeps = following[0].isupper() or self.counts[parted] > self.counts[whole]
                text = (text if keeps and text[-1] != "\u00ad" else text[:-1]) + following
            elif _WIDE.match(text[-1]) and _WIDE.match(following):
                text += following
            else:
                text += " " + following
        return text


def rendered(block: Block, words: Words, markdown: bool) -> str:
    """A block as text, or as Markdown. Cells and rows are written as in HTML."""
    if block.kind == "table":
        if cells := block.lines[0].segments[0].rows:
            rows = [[words.joined(lines_of(cell)) if cell else "" for cell in row] for row in cells]
        else:
            rows = [[" ".join(cell.text.split()) for cell in line.segments] for line in block.lines if is_row(line)]
        table_lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
        if markdown:
            table_lines.insert(1, "|" + " --- |" * len(rows[0]))
        return "\n".join(table_lines)
    if block.kind == "code":
        return _code(block, markdown)
    text = words.joined(block.lines)
    if block.kind == "heading" and markdown:
        return f"{'#' * block.level} {text}"
    if block.kind == "item" and _BULLET.match(text):
        return "- " + text[1:].lstrip()
    return text


def _code(block: Block, markdown: bool) -> str:
    """Lines as they are, with their indentation."""
    left = min(line.left for line in block.lines)
    widths = [s.right - s.left for line in block.lines for s in line.segments]
    counts = [len(s.text) for line in block.lines for s in line.segments]
    advance = max(sum(widths) / max(1, sum(counts)), 1.0)
    text = "\n".join(" " * min(round((line.left - left) / advance), 80) + line.text for line in block.lines)
    inline = len(block.lines) == 1 and median(counts) < 20
    return f"```\n{text}\n```" if markdown and not inline else text
