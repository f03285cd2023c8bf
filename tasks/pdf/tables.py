"""Tables: lines one below the other whose pieces stand in the same columns."""

from collections.abc import Sequence

from gristmill.tasks.pdf.columns import Line

_ROWS = 3  # fewer rows of aligned pieces may be chance
_CELL = 80  # characters of a cell, at most


def is_row(line: Line) -> bool:
    return len(line.segments) >= 2 and all(len(segment.text) <= _CELL for segment in line.segments)


def table_end(lines: Sequence[Line], begin: int) -> int:
    """Behind the last row of the table that begins at a line; `begin` where none does.

    Rows have the same number of cells; each overlaps that above it, and none of the others.
    """
    if not is_row(lines[begin]) or lines[begin].mono:
        return begin
    end = begin + 1
    while end < len(lines) and _below(lines[end - 1], lines[end]):
        end += 1
    return end if end - begin >= _ROWS else begin


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
