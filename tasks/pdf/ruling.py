"""The ruling lines of a page: what is drawn straight across or straight down, as borders of tables are."""

import ctypes
import math
from collections.abc import Iterable
from dataclasses import dataclass

import pypdfium2.raw as pdfium

_THIN = 3.0  # points: a rectangle that is not wider is a line
_SHORT = 4.0  # points: what is not longer is no line
_NEAR = 3.0  # points between what is one line: borders of cells beside each other, dashes
_POINTS = 400  # of a path, at most: others are drawings
MAX_PATHS = 4000  # paths of a page that are looked at

Matrix = tuple[float, float, float, float, float, float]


@dataclass(slots=True)
class Ruling:
    """A line at one place of an axis (y if it runs across, x if it runs down), from `begin` to `end` of the other."""

    position: float
    begin: float
    end: float


@dataclass
class Rulings:
    across: list[Ruling]
    down: list[Ruling]

    def turned(self, angle: float, sides: tuple[float, float]) -> "Rulings":
        """The lines of the page that is turned by a right angle, as `gristmill.tasks.pdf.characters.turned` has it."""
        width, height = sides
        if angle < math.pi:
            across = [Ruling(r.position, height - r.end, height - r.begin) for r in self.down]
            return Rulings(across, [Ruling(height - r.position, r.begin, r.end) for r in self.across])
        down = [Ruling(r.position, width - r.end, width - r.begin) for r in self.across]
        return Rulings([Ruling(width - r.position, r.begin, r.end) for r in self.down], down)

    def joined(self) -> "Rulings":
        return Rulings(_joined(self.across), _joined(self.down))


def parted(down: Iterable[Ruling], begin: float, end: float, height: float) -> bool:
    """Whether one of the lines that run down is between two places at a height of the page."""
    return any(begin - 1 < r.position < end + 1 and r.begin < height < r.end for r in down)


def add_path(path: pdfium.FPDF_PAGEOBJECT, matrix: Matrix, rulings: Rulings) -> None:
    """Add the lines of a path; `matrix` leads from the coordinates of its form to the page's."""
    count = pdfium.FPDFPath_CountSegments(path)
    fill, stroke = ctypes.c_int(), ctypes.c_int()
    if not 2 <= count <= _POINTS or not pdfium.FPDFPath_GetDrawMode(path, fill, stroke):
        return
    own = pdfium.FS_MATRIX()
    if not pdfium.FPDFPageObj_GetMatrix(path, own):
        return
    a, b, c, d, e, f = matrix
    x, y = ctypes.c_float(), ctypes.c_float()
    points: list[tuple[float, float]] = []
    for k in range(count):
        segment = pdfium.FPDFPath_GetPathSegment(path, k)
        kind = pdfium.FPDFPathSegment_GetType(segment)
        if kind == pdfium.FPDF_SEGMENT_MOVETO:
            _add(points, stroke.value, fill.value, rulings)
            points = []
        pdfium.FPDFPathSegment_GetPoint(segment, x, y)
        u = own.a * x.value + own.c * y.value + own.e
        v = own.b * x.value + own.d * y.value + own.f
        points.append((a * u + c * v + e, b * u + d * v + f))
        if pdfium.FPDFPathSegment_GetClose(segment):
            points.append(points[0])
    _add(points, stroke.value, fill.value, rulings)


def _add(points: list[tuple[float, float]], stroke: int, fill: int, rulings: Rulings) -> None:
    if len(points) < 2:
        return
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    bottom, top = min(y for _, y in points), max(y for _, y in points)
    if right - left > _SHORT and top - bottom <= _THIN and (fill or stroke):
        rulings.across.append(Ruling((bottom + top) / 2, left, right))
    elif top - bottom > _SHORT and right - left <= _THIN and (fill or stroke):
        rulings.down.append(Ruling((left + right) / 2, bottom, top))
    elif stroke:
        for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
            if abs(y1 - y0) < 0.5 and abs(x1 - x0) > _SHORT:
                rulings.across.append(Ruling((y0 + y1) / 2, min(x0, x1), max(x0, x1)))
            elif abs(x1 - x0) < 0.5 and abs(y1 - y0) > _SHORT:
                rulings.down.append(Ruling((x0 + x1) / 2, min(y0, y1), max(y0, y1)))


def _joined(rulings: Iterable[Ruling]) -> list[Ruling]:
    """Lines at nearly one place that touch each other as one."""
    places: list[list[Ruling]] = []
    for each in sorted(rulings, key=lambda r: r.position):
        if (
            places
            and each.position - places[-1][-1].position <= _NEAR
            and each.position - places[-1][0].position <= 2 * _NEAR
        ):
            places[-1].append(each)
        else:
            places.append([each])
    joined_rulings = []
    for place in places:
        position = sum(each.position for each in place) / len(place)
        last: Ruling | None = None
        for each in sorted(place, key=lambda r: r.begin):
            if last and each.begin - last.end <= _NEAR:
                last.end = max(last.end, each.end)
            else:
                last = Ruling(position, each.begin, each.end)
                joined_rulings.append(last)
    return joined_rulings
