"""Tables that are visible by ruling lines (cells between horizontal and vertical lines, or rows between horizontal
lines only); then tables that are visible by strips without text."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from gristmill.tasks.pdf.columns import lines_of
from gristmill.tasks.pdf.glyphs import Segment
from gristmill.tasks.pdf.objects import Ruling, Rulings
from gristmill.tasks.pdf.tables import aligned

_TOUCH = 4.0  # points between lines that meet
_MAX_LINES = 120  # lines of a table to each side; more are a drawing
_COVERED = 0.5  # of a cell's side, where a line is
_FILLED = 1 / 3  # of the cells of a table; a diagram with a grid has fewer
_CELL, _MAX_CELL = 250, 3000  # characters of half of the cells at most, and of any
_ABOVE, _LEADING = 2.5, 0.5  # heights of letters between a line and the row above it, and between lines of a row
_NARROW = 60  # points: shorter lines are above notes, or below words
_PARAGRAPH = 0.55  # of the width of a table, which none of its cells has

Cells = list[list[list[Segment]]]  # rows of cells of segments


@dataclass
class _Area:
    left: float
    bottom: float
    right: float
    top: float


def with_tables(segments: Sequence[Segment], rulings: Rulings) -> list[Segment]:
    """The segments of a page; a table with lines is one segment, whose `rows` are the cells."""
    rest = list(segments)
    if max(len(rulings.across), len(rulings.down)) > 8 * _MAX_LINES:
        return rest
    for area, xs, ys, across, down in _grids(rulings):
        inside = [s for s in rest if _within(s, area)]
        rest = _put(rest, inside, _cells(inside, xs, ys, across, down))
    for area, bands in _bands(rulings, rest):
        inside = [s for s in rest if _within(s, area)]
        rest = _put(rest, inside, _rows(inside, bands))
    for inside, cells in aligned(rest):
        rest = _put(rest, inside, cells)
    return rest


def _put(segments: list[Segment], inside: list[Segment], rows: Cells) -> list[Segment]:
    """The segments with a table in the place of the first that is in it, if it is one."""
    leftwards = 2 * sum(s.rtl for s in inside) > len(inside)
    rows = [row[::-1] if leftwards else row for row in rows if any(row)]
    if not _is_table(rows):
        return segments
    segment_ids = {id(s) for row in rows for cell in row for s in cell}
    if len(segment_ids) < len(inside):
        return segments
    first = next(k for k, s in enumerate(segments) if id(s) in segment_ids)
    table = Segment(
        left=min(s.left for s in inside),
        bottom=min(s.bottom for s in inside),
        right=max(s.right for s in inside),
        top=max(s.top for s in inside),
        text=" ".join(s.text for row in rows for cell in row for s in cell),
        size=median(s.size for s in inside),
        font=median(s.font for s in inside),
        rows=rows,
    )
    return [table if k == first else s for k, s in enumerate(segments) if k == first or id(s) not in segment_ids]


def _is_table(rows: Cells) -> bool:
    if len(rows) < 2 or len(rows[0]) < 2:
        return False
    lengths = [sum(len(s.text) for s in cell) for row in rows for cell in row]
    filled = [n for n in lengths if n]
    if len(filled) < max(3, _FILLED * len(lengths)) or median(filled) > _CELL or max(filled) > _MAX_CELL:
        return False
    return sum(any(row[k] for row in rows) for k in range(len(rows[0]))) >= 2


def _within(s: Segment, area: _Area) -> bool:
    return area.bottom < s.middle < area.top and area.left < (s.left + s.right) / 2 < area.right


def _grids(rulings: Rulings) -> list[tuple[_Area, list[float], list[float], list[Ruling], list[Ruling]]]:
    """Lines that meet each other: the area, the places of lines down and across, and the lines."""
    across, down = rulings.across, rulings.down
    owner = list(range(len(across) + len(down)))

    def root(k: int) -> int:
        while owner[k] != k:
            owner[k] = owner[owner[k]]
            k = owner[k]
        return k

    for i, one in enumerate(across):
        for j, other in enumerate(down):
            meets = one.begin - _TOUCH <= other.position <= one.end + _TOUCH
            if meets and other.begin - _TOUCH <= one.position <= other.end + _TOUCH:
                owner[root(i)] = root(len(across) + j)
    parts: dict[int, tuple[list[Ruling], list[Ruling]]] = {}
    for k in range(len(owner)):
        part = parts.setdefault(root(k), ([], []))
        if k < len(across):
            part[0].append(across[k])
        else:
            part[1].append(down[k - len(across)])
    grids = []
    for rows, columns in parts.values():
        xs, ys = _places(columns), _places(rows)
        if 2 < len(xs) <= _MAX_LINES and 2 < len(ys) <= _MAX_LINES:
            grids.append((_Area(xs[0], ys[0], xs[-1], ys[-1]), xs, ys, rows, columns))
    return sorted(grids, key=lambda each: (-each[0].top, each[0].left))


def _places(rulings: Sequence[Ruling]) -> list[float]:
    places: list[float] = []
    for place in sorted(r.position for r in rulings):
        if not places or place - places[-1] > _TOUCH:
            places.append(place)
    return places


def _cells(
    inside: Sequence[Segment], xs: list[float], ys: list[float], across: Sequence[Ruling], down: Sequence[Ruling]
) -> Cells:
    """Rows from the top. Two cells without a line between them are one cell, in the place of the first."""
    columns, count = len(xs) - 1, len(ys) - 1
    first = {(r, c): (r, c) for r in range(count) for c in range(columns)}
    for r in range(count):
        bottom, top = ys[count - r - 1], ys[count - r]
        for c in range(columns):
            if c and not _covered(down, xs[c], bottom, top):
                first[r, c] = first[r, c - 1]
            elif r and not _covered(across, top, xs[c], xs[c + 1]):
                first[r, c] = first[r - 1, c]
    rows: Cells = [[[] for _ in range(columns)] for _ in range(count)]
    for s in inside:
        c = max(k for k in range(columns) if k == 0 or xs[k] < (s.left + s.right) / 2)
        r = count - 1 - max(k for k in range(count) if k == 0 or ys[k] < s.middle)
        r, c = first[r, c]
        rows[r][c].append(s)
    return rows


def _covered(rulings: Sequence[Ruling], place: float, begin: float, end: float) -> bool:
    length = sum(max(0.0, min(r.end, end) - max(r.begin, begin)) for r in rulings if abs(r.position - place) <= _TOUCH)
    return length > _COVERED * (end - begin)


def _bands(rulings: Rulings, segments: Sequence[Segment]) -> list[tuple[_Area, list[float]]]:
    """Lines across of one width, one below the other, with no lines down: the area, and the heights of the lines from
    the top. A row above the first line, of several segments, belongs to them."""
    alike: list[list[Ruling]] = []
    for each in sorted(rulings.across, key=lambda r: -r.position):
        for group in alike:
            last = group[-1]
            if abs(last.begin - each.begin) <= _TOUCH and abs(last.end - each.end) <= _TOUCH:
                group.append(each)
                break
        else:
            alike.append([each])
    bands = []
    for group in alike:
        if len(group) < 2 or group[0].end - group[0].begin < _NARROW:
            continue
        left, right = group[0].begin - _TOUCH, group[0].end + _TOUCH
        beside = [s for s in segments if left < (s.left + s.right) / 2 < right]
        for heights in _runs([each.position for each in group], beside, right - left):
            heights = _above(heights, beside, left, right) + heights
            if 2 < len(heights) <= _MAX_LINES:
                bands.append((_Area(left, heights[-1], right, heights[0]), heights))
    return bands


def _runs(heights: Sequence[float], segments: Sequence[Segment], width: float) -> list[list[float]]:
    """Heights of lines, parted where a paragraph is between two of them."""
    runs = [[heights[0]]]
    for top, bottom in pairwise(heights):
        between = [s for s in segments if bottom < s.middle < top]
        if any(s.rows or s.right - s.left > _PARAGRAPH * width for s in between):
            runs.append([])
        runs[-1].append(bottom)
    return runs


def _above(heights: Sequence[float], segments: Sequence[Segment], left: float, right: float) -> list[float]:
    """The top of a row of several segments close above the first line; none where there is none."""
    above = [s for s in segments if s.middle > heights[0]]
    if not above:
        return []
    size = median(s.size for s in above)
    begin, top, several = heights[0], None, False
    for row in reversed(lines_of(above)):
        if row.bottom - begin > (_ABOVE if top is None else _LEADING) * size or row.left < left or row.right > right:
            break
        if any(s.rows or s.right - s.left > _PARAGRAPH * (right - left) for s in row.segments):
            break
        begin, top, several = row.top, row.top + 1, several or len(row.segments) > 1
    return [top] if top is not None and several else []


def _rows(inside: Sequence[Segment], heights: Sequence[float]) -> Cells:
    """Columns are parted by strips that no segment crosses; a row is what is between two lines, or each line of text
    there, where all of them have the first column and another one."""
    if not inside or any(s.rows for s in inside):
        return []
    edges: list[list[float]] = []
    for s in sorted(inside, key=lambda s: s.left):
        if edges and s.left < edges[-1][1]:
            edges[-1][1] = max(edges[-1][1], s.right)
        else:
            edges.append([s.left, s.right])
    if len(edges) < 2:
        return []
    rows: Cells = []
    for top, bottom in pairwise(heights):
        band = [s for s in inside if bottom < s.middle < top]
        if not band:
            continue
        lines = [_in_columns(line.segments, edges) for line in lines_of(band)]
        whole = len(heights) == 3 or len(lines) > 6
        if whole and all(row[0] and sum(map(bool, row)) > 1 for row in lines):
            rows += lines
        else:
            rows.append(_in_columns(band, edges))
    return rows


def _in_columns(segments: Sequence[Segment], edges: Sequence[Sequence[float]]) -> list[list[Segment]]:
    row: list[list[Segment]] = [[] for _ in edges]
    for s in segments:
        row[next(k for k, (_, right) in enumerate(edges) if s.left < right)].append(s)
    return row
