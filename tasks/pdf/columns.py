"""The reading order of a page: columns are found by their gutters, and inside of each the segments become lines.

A gutter is a vertical strip that no segment crosses. Segments that do cross it (titles, captions of wide figures) part
the page into strips one above the other; a strip with text on both sides is read left side first, or right side first
where the text runs so. It is the idea of the recursive XY cut (Nagy and Seth 1984), with the best gutter first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gristmill.tasks.pdf.glyphs import Segment

# A side of prose has at least this many lines; with fewer characters in its median line it is a column of a table.
_LINES = 4
_CHARACTERS = 17
_WIDE_CHARACTERS = 8  # of Chinese, Japanese and Korean
_FILLED = 0.5  # of the width of a side of prose; cells of tables are mostly empty
_DEPTH = 4


@dataclass
class Line:
    """Segments side by side; `column`: left and right of all lines in its column; `page` counts from 0."""

    segments: list[Segment]
    column: tuple[float, float]
    page: int = 0

    @property
    def text(self) -> str:
        return " ".join(segment.text for segment in self.segments)

    @property
    def left(self) -> float:
        return min(segment.left for segment in self.segments)

    @property
    def right(self) -> float:
        return max(segment.right for segment in self.segments)

    @property
    def top(self) -> float:
        return max(segment.top for segment in self.segments)

    @property
    def bottom(self) -> float:
        return min(segment.bottom for segment in self.segments)

    @property
    def middle(self) -> float:
        return (self.bottom + self.top) / 2

    @property
    def size(self) -> float:
        return max(self.segments, key=lambda segment: len(segment.text)).size

    @property
    def font(self) -> float:
        return max(self.segments, key=lambda segment: len(segment.text)).font

    @property
    def bold(self) -> bool:
        return all(segment.bold for segment in self.segments)

    @property
    def heading(self) -> int:
        return self.segments[0].heading

    @property
    def mono(self) -> bool:
        return all(segment.mono for segment in self.segments)


def ordered(segments: Sequence[Segment], depth: int = 0) -> list[Line]:
    """The lines of a part of a page in the order in which they are read."""
    if not segments:
        return []
    best = gutter(segments) if depth < _DEPTH and len(segments) >= 2 * _LINES else None
    if best is None:
        return lines_of(segments)
    ordered_lines: list[Line] = []
    for strip in _strips(segments, best):
        sides = [s for s in strip if s.right <= best], [s for s in strip if s.left >= best]
        if _prose(sides[0]) and _prose(sides[1]):
            first, second = sides[::-1] if _right_to_left(strip) else sides
            ordered_lines += ordered(first, depth + 1) + ordered(second, depth + 1)
        else:
            ordered_lines += lines_of(strip)
    return ordered_lines


def _right_to_left(segments: Sequence[Segment]) -> bool:
    return 2 * sum(s.rtl for s in segments) > len(segments)


def gutter(segments: Sequence[Segment]) -> float | None:
    """Where to cut, None for nowhere: of all gaps beside segments the one with the most lines of prose on both
    sides."""
    edges = sorted({round(s.left) for s in segments})
    begin, end = min(s.left for s in segments), max(s.right for s in segments)
    counts = {x: 0 for x in edges}
    for s in segments:
        counts[round(s.left)] += 1
    best, most = None, 0
    for x in sorted(edges, key=lambda x: -counts[x])[:12]:
        cut = x - 1.5
        if not begin + 20 < cut < end - 20:
            continue
        lines = 0
        for strip in _strips(segments, cut):
            one, other = [s for s in strip if s.right <= cut], [s for s in strip if s.left >= cut]
            if _prose(one) and _prose(other):
                lines += min(len(one), len(other))
        if lines > most:
            best, most = cut, lines
    return best


def _strips(segments: Sequence[Segment], gutter_x: float) -> list[list[Segment]]:
    """The segments from top to bottom: runs of those that cross a gutter, and of those beside it."""
    strips: list[list[Segment]] = []
    crosses = [s for s in segments if s.left < gutter_x < s.right]
    crosses.sort(key=lambda s: -s.middle)
    rest = sorted((s for s in segments if not s.left < gutter_x < s.right), key=lambda s: -s.middle)
    k = 0
    run: list[Segment] = []
    for cross in crosses:
        beside = []
        while k < len(rest) and rest[k].middle > cross.middle:
            beside.append(rest[k])
            k += 1
        if beside:
            if run:
                strips.append(run)
                run = []
            strips.append(beside)
        run.append(cross)
    if run:
        strips.append(run)
    if k < len(rest):
        strips.append(rest[k:])
    return strips


def _prose(side: Sequence[Segment]) -> bool:
    """Whether a side of a gutter is text that is read down, and no columns of a table: its lines are long, and words
    fill them."""
    if len(side) < _LINES:
        return False
    lines = lines_of(side)
    width = lines[0].column[1] - lines[0].column[0]
    if len(lines) < _LINES or median(sum(s.right - s.left for s in line.segments) for line in lines) < _FILLED * width:
        return False
    return median(sum(map(_length, line.segments)) for line in lines) >= _CHARACTERS


def _length(segment: Segment) -> float:
    wide = max(map(ord, segment.text)) >= 0x2E80
    return len(segment.text) * (_CHARACTERS / _WIDE_CHARACTERS if wide else 1)


def lines_of(segments: Sequence[Segment]) -> list[Line]:
    """Segments as lines, from top to bottom; those whose middle is in another's height are one line."""
    column = min(s.left for s in segments), max(s.right for s in segments)
    rows: list[list[Segment]] = []
    for segment in sorted(segments, key=lambda s: -s.middle):
        row = rows[-1] if rows else None
        if row and any(s.bottom < segment.middle < s.top and segment.bottom < s.middle < segment.top for s in row):
            row.append(segment)
        else:
            rows.append([segment])
    for row in rows:
        row.sort(key=lambda s: s.left, reverse=_right_to_left(row))
    return [Line(row, column) for row in rows]
