"""Tables: consecutive lines whose pieces are in the same columns."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from gristmill.tasks.pdf.columns import Line, gutter, lines_of
from gristmill.tasks.pdf.glyphs import Segment

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
    is_list = len(rows[0].segments) == 2 and is_listing(firsts)
    return end if len(rows) >= _ROWS and not is_list and not is_contents(firsts, lasts) else begin


def is_contents(firsts: Sequence[str], lasts: Sequence[str]) -> bool:
    """Whether rows are a table of contents: they begin with a section's number, and end with pages that do not
    fall."""
    pages = [int(text[:9]) for text in lasts if text.isdecimal()]
    begin = sum(bool(_SECTION.match(text)) for text in firsts)
    return begin * 2 >= len(firsts) and len(pages) == len(firsts) and pages == sorted(pages)


def _below(row: Line, following: Line) -> bool:
    if not is_row(following) or len(row.segments) != len(following.segments) or row.page != following.page:
        return False
    if row.column != following.column or not 0 < row.middle - following.middle < 4 * row.size:
        return False
    for index, cell in enumerate(following.segments):
        over = [k for k, other in enumerate(row.segments) if cell.left < other.right and other.left < cell.right]
        if over not in ([index], []):
            return False
        if not over and abs(cell.left - row.segments[index].left) > 40:
            return False
    return True


# Tables that no line is drawn for, with cells over several lines or in two rows: by strips without text.
#
# Columns are parted by strips down that nothing crosses, rows by the larger gaps between lines. Prose in columns has
# neither rows whose gaps go through all columns nor short cells. `tables` finds those whose rows are lines.


Cells = list[list[list[Segment]]]  # rows of cells of segments

_PARAGRAPH = 0.55  # of the width of a page's text, which no cell has
_MIN_CELLS = 6  # cells
_FILLED = 0.75  # of the cells
_MAX_ROWS, _MAX_COLUMNS, _MAX_LINES = 60, 12, 8
_MAX_CELL, _ALIGNED_CELL = 120, 240  # characters of half of the cells at most, and of any
_PROSE = 17  # characters of half of the lines of a column of prose, at least
_FULL = 0.7  # of the width of a column, which half of the lines of prose have
_APART = 0.1  # heights of letters, by which the gap between rows is larger than that between lines
_LEADING = 0.6  # heights of letters, which the gap between lines of a cell is smaller than
_PAGE_OF_PROSE = 30  # lines on each side of a gutter, which no table has
_EQUATION = re.compile(r"\(\d{1,4}(?:\.\d{1,3})?[a-z]?\)")
_FAR = 4  # heights of letters, from a row to the next at most
_EDGE = 2.0  # points by which the edges of a column's cells differ


def aligned(segments: Sequence[Segment]) -> Iterator[tuple[list[Segment], Cells]]:
    """The segments of each such table of a page, and its cells row by row."""
    free = [s for s in segments if not s.rows]
    if not free or _in_columns_of_prose(free):
        return
    width = max(s.right for s in free) - min(s.left for s in free)
    runs: list[list[Line]] = [[]]
    beside: list[Segment] = []  # what is in one line with prose
    for line in lines_of(free):
        if any(_is_apart(s, width) for s in line.segments):
            runs.append([])
            beside += line.segments if len(line.segments) > 1 else []
            continue
        if runs[-1] and runs[-1][-1].middle - line.middle > _FAR * line.size:
            runs.append([])
        runs[-1].append(line)
    for inside, rows in filter(None, map(_of_run, runs)):
        # a column of prose goes on beside other prose
        last = min((s.left for row in rows for s in row[-1]), default=0.0)
        if not any(abs(s.left - last) <= _EDGE for s in beside):
            yield inside, rows


def _in_columns_of_prose(segments: Sequence[Segment]) -> bool:
    """Whether a page has a gutter with many lines of one piece on both sides."""
    gutter_x = gutter(segments)
    if gutter_x is None:
        return False
    sides = [s for s in segments if s.right <= gutter_x], [s for s in segments if s.left >= gutter_x]
    return all(sum(len(line.segments) == 1 for line in lines_of(side)) >= _PAGE_OF_PROSE for side in sides)


def _is_apart(segment: Segment, width: float) -> bool:
    """Whether a segment is not a cell, but a line of a paragraph, of code, or of a table of contents."""
    return segment.right - segment.left > _PARAGRAPH * width or segment.mono or leads(segment.text)


def _of_run(lines: Sequence[Line]) -> tuple[list[Segment], Cells] | None:
    """The table in lines between paragraphs; up to two lines above it and below it may be none of it."""
    for first, last in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)):
        kept = lines[first : len(lines) - last]
        left_out = [*lines[:first], *lines[len(lines) - last :]]
        if any(len(line.segments) > 1 for line in left_out):
            continue
        inside = [s for line in kept for s in line.segments]
        if rows := _rows(inside, kept):
            return inside, rows
    return None


def _rows(inside: Sequence[Segment], lines: Sequence[Line]) -> Cells:
    """The cells of a table of these segments; none if they are none."""
    columns = _columns(inside, lines)
    if not 2 <= len(columns) <= _MAX_COLUMNS:
        return []
    rows = [_in_columns(line.segments, columns) for line in lines]
    gap = _gap_of_rows(inside)
    if gap is None or _are_rows(rows):
        if _is_prose(rows, columns):
            return []
    else:
        bands = _parted(sorted((-s.top, -s.bottom) for s in inside), gap)
        rows = [_in_columns([s for s in inside if top <= -s.middle <= bottom], columns) for top, bottom in bands]
        if any(_inner_gap(cell) > gap for row in rows for cell in row):
            return []
    return rows if _is_table(rows, len(columns)) else []


def _are_rows(lines: Cells) -> bool:
    """Whether lines are rows, whatever the gaps between them are: most have all cells, and the others have none that
    goes on."""
    whole = sum(all(line) for line in lines)
    return whole == len(lines) or (len(lines) > 3 and whole >= 0.8 * len(lines) and all(line[0] for line in lines))


def _columns(inside: Sequence[Segment], lines: Sequence[Line]) -> list[tuple[float, float]]:
    """Left and right of each column: of three or more, a merged cell in some rows may cross the strip between two."""
    columns = _parted(sorted((s.left, s.right) for s in inside), 0.0)
    most = max((len(line.segments) for line in lines), default=0)
    whole = [line for line in lines if len(line.segments) == most]
    if len(columns) < most > 2 and 2 * len(whole) >= len(lines):
        return _parted(sorted((s.left, s.right) for line in whole for s in line.segments), 0.0)
    return columns


def _parted(spans: Sequence[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    """Spans that are sorted, those no further apart than a gap as one."""
    merged_spans: list[tuple[float, float]] = []
    for begin, end in spans:
        if merged_spans and begin - merged_spans[-1][1] <= gap:
            merged_spans[-1] = merged_spans[-1][0], max(merged_spans[-1][1], end)
        else:
            merged_spans.append((begin, end))
    return merged_spans


def _gap_of_rows(inside: Sequence[Segment]) -> float | None:
    """What gaps between rows are larger than, and gaps between the lines of a cell are not; None where all are
    alike."""
    bands = _parted(sorted((-s.top, -s.bottom) for s in inside), 0.0)
    gaps = sorted(below - above for (_, above), (below, _) in pairwise(bands))
    if not gaps:
        return None
    size = median(s.top - s.bottom for s in inside)
    lines = [0.0, *gaps] if len(bands) < len(lines_of(inside)) else gaps
    jump, gap = max(((b - a, (a + b) / 2) for a, b in pairwise(lines) if a < _LEADING * size), default=(0.0, 0.0))
    return gap if jump > _APART * size else None


def _inner_gap(cell: Sequence[Segment]) -> float:
    return max((one.bottom - other.top for one, other in pairwise(sorted(cell, key=lambda s: -s.top))), default=0.0)


def _in_columns(segments: Sequence[Segment], columns: Sequence[tuple[float, float]]) -> list[list[Segment]]:
    """The segments by column; segments of a merged cell are in the first of its columns."""
    cells: list[list[Segment]] = [[] for _ in columns]
    for s in segments:
        cells[next((k for k, (_, right) in enumerate(columns) if s.left < right), -1)].append(s)
    return cells


def _is_prose(rows: Cells, columns: Sequence[tuple[float, float]]) -> bool:
    """Whether two columns are filled with words, line by line."""
    full = 0
    for k, (left, right) in enumerate(columns):
        texts = [sum(len(s.text) for s in row[k]) for row in rows if row[k]]
        widths = [max(s.right for s in row[k]) - min(s.left for s in row[k]) for row in rows if row[k]]
        full += bool(texts) and median(texts) >= _PROSE and median(widths) >= _FULL * (right - left)
    return full >= 2


def _is_table(rows: Cells, columns: int) -> bool:
    if not 2 <= len(rows) <= _MAX_ROWS or len(rows) * columns < _MIN_CELLS:
        return False
    cells = [cell for row in rows for cell in row]
    filled = [cell for cell in cells if cell]
    if len(filled) < (1 if len(rows) == 2 else _FILLED) * len(cells) or any(
        not row[0] or sum(map(bool, row)) < 2 for row in rows
    ):
        return False
    lengths = [sum(len(s.text) for s in cell) for cell in filled]
    if max(map(len, filled)) > _MAX_LINES or median(lengths) > _MAX_CELL or max(lengths) > _ALIGNED_CELL:
        return False
    firsts, lasts = ([" ".join(s.text for s in row[k]) for row in rows] for k in (0, -1))
    if (columns == 2 and is_listing(firsts)) or is_contents(firsts, lasts) or all(map(_EQUATION.fullmatch, lasts)):
        return False
    return all(_is_even([row[k] for row in rows]) for k in range(columns))


def _is_even(column: Sequence[Sequence[Segment]]) -> bool:
    """Whether the cells of a column begin, end or have their middle at one place."""
    spans = [(min(s.left for s in cell), max(s.right for s in cell)) for cell in column if cell]
    places = zip(*((left, right, (left + right) / 2) for left, right in spans), strict=True)
    return any(max(each) - min(each) <= _EDGE for each in places)
