"""Tables: lines one below the other whose pieces stand in the same columns."""

import re
from collections.abc import Sequence

from gristmill.tasks.pdf.columns import Line

_ROWS = 3  # fewer rows of aligned pieces may be chance
_CELL = 80  # characters of a cell, at most
_LEADERS = re.compile(r"[. ·…]{3,}|.*(?:\. ?){4,}")
# Of a line of a listing, of a section in a table of contents
_NUMBER = re.compile(r"[\d.]{1,8}[A-Za-z]?|[ivxIVX]{1,6}")

_BULLETS = re.compile(r"[•‣◦▪●○■□–—*·\-\uf0b7\u2043]|\(?[\divxIVXa-z.]{1,8}[.)\]]|\[\w{1,8}\]")
_SECTION = re.compile(r"(?:[\d.]{1,8}[A-Za-z]?|[ivxIVX]{1,6}|[A-Z](?:\.\d{1,3}){0,3}\.?)(?:\s|$)")


def leads(text: str) -> bool:
    """Whether a text is, or ends with, dots that lead from one text to another."""
    return bool(_LEADERS.match(text))


def is_listing(firsts: Sequence[str]) -> bool:
    """Whether what lines begin with are bullets, or numbers of items, of sections or of lines."""
    return sum(bool(_NUMBER.fullmatch(text) or _BULLETS.fullmatch(text)) for text in firsts) * 2 > len(firsts)


def is_row(line: Line) -> bool:
    """Whether a line may be a row: pieces apart, none of them long, and no dots that lead from one to the other."""
    if len(line.segments) < 2:
        return False
    return not any(len(segment.text) > _CELL or leads(segment.text) for segment in line.segments)


def table_end(lines: Sequence[Line], begin: int) -> int:
    """Behind the last row of the table that begins at a line; `begin` where none does.

    Rows have the same number of cells; each overlaps that above it, and none of the others.
    """
    if not is_row(lines[begin]) or lines[begin].mono:
        return begin
    end = begin + 1
    while end < len(lines) and _below(lines[end - 1], lines[end]):
        end += 1
    rows = lines[begin:end]
    firsts = [min(row.segments, key=lambda segment: segment.left).text for row in rows]
    lasts = [max(row.segments, key=lambda segment: segment.right).text for row in rows]
    listed = len(rows[0].segments) == 2 and is_listing(firsts)
    return end if len(rows) >= _ROWS and not listed and not is_contents(firsts, lasts) else begin


def is_contents(firsts: Sequence[str], lasts: Sequence[str]) -> bool:
    """Whether rows are those of a table of contents: they begin with a section's number, and end with pages that do not
    fall."""
    pages = [int(text[:9]) for text in lasts if text.isdecimal()]
    begin = sum(bool(_SECTION.match(text)) for text in firsts)
    return begin * 2 >= len(firsts) and len(pages) == len(firsts) and pages == sorted(pages)


def _below(row: Line, following: Line) -> bool:
    if not is_row(following) or len(row.segments) != len(following.segments) or row.page != following.page:
        return False
    if row.column != following.column or not 0 < row.middle - following.middle < 4 * row.size:
        return False
    for at, cell in enumerate(following.segments):
        over = [k for k, other in enumerate(row.segments) if cell.left < other.right and other.left < cell.right]
        if over not in ([at], []):
            return False
        if not over and abs(cell.left - row.segments[at].left) > 40:
            return False
    return True
