"""The objects of a page besides its characters: ruling lines, the texts of drawn glyphs, and headings.

A program marks glyphs by `/Span <</ActualText ...>>` (ISO 32000-2, 14.9.4) where a glyph is not a character: conjuncts
and vowel signs of Indic scripts, forms of Arabic letters. pdfium gives that text at the place of the first object of
the mark and skips the others, whose positions are then missing when gaps between words are searched.
"""

import ctypes
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pypdfium2.raw as pdfium

_THIN = 3.0  # points: a rectangle that is not wider is a line
_SHORT = 4.0  # points: anything shorter is not a line
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


MAX_OBJECTS = 50_000  # objects of a page that are looked at
_DEPTH = 4  # of forms inside of forms
_ACTUAL_TEXT = b"ActualText"
# How a text begins, and how it is encoded (7.9.2.2). PDFDocEncoding, which has no mark, has the letters of Latin-1.
_ENCODINGS = ((b"\xfe\xff", "utf-16"), (b"\xff\xfe", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"), (b"", "latin-1"))
_UNSEEN = "\u00ad\u200c\u200d"  # a hyphen at a line's end; what parts and joins letters
_CHARACTERS = 10_000  # of a text, at most

Box = tuple[float, float, float, float]  # left, bottom, right, top
_SAME: Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


@dataclass(slots=True)
class Replacement:
    """The text of a mark, in logical order, and the box of what is drawn in its place. `is_read`: it was read."""

    text: str
    left: float
    bottom: float
    right: float
    top: float
    is_read: bool = False


@dataclass
class Objects:
    """`replacements`: by the addresses of text objects. `image`: whether there is an image, or a form, which is where
    scanners put it."""

    replacements: dict[int, Replacement]
    rulings: Rulings
    image: bool


def objects(page: pdfium.FPDF_PAGE) -> Objects:
    """The objects of a page that is loaded; of a page over 50,000 the first are looked at."""
    marks = _Marks()
    image = False
    rulings, paths = Rulings([], []), 0
    for each, kind, matrix in _walked(page):
        if kind == pdfium.FPDF_PAGEOBJ_TEXT:
            marks.look(each, matrix)
        elif kind == pdfium.FPDF_PAGEOBJ_PATH and paths < MAX_PATHS:
            paths += 1
            add_path(each, matrix, rulings)
        elif kind in (pdfium.FPDF_PAGEOBJ_IMAGE, pdfium.FPDF_PAGEOBJ_FORM):
            image = True
    return Objects(marks.replacements, rulings.joined(), image)


def address(pointer: ctypes._Pointer) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def _walked(page: pdfium.FPDF_PAGE) -> Iterator[tuple[pdfium.FPDF_PAGEOBJECT, int, Matrix]]:
    """Each object, its kind, and the matrix that leads from its coordinates to the page's."""
    remaining_objects = MAX_OBJECTS
    count = min(pdfium.FPDFPage_CountObjects(page), MAX_OBJECTS)
    # from the last to the first, as they are taken from the end
    waiting = [(pdfium.FPDFPage_GetObject, page, k, _SAME, 0) for k in reversed(range(count))]
    while waiting and remaining_objects:
        get, holder, number, matrix, depth = waiting.pop()
        remaining_objects -= 1
        each = get(holder, number)
        kind = pdfium.FPDFPageObj_GetType(each)
        yield each, kind, matrix
        own = pdfium.FS_MATRIX()
        if kind == pdfium.FPDF_PAGEOBJ_FORM and depth < _DEPTH and pdfium.FPDFPageObj_GetMatrix(each, own):
            inner = _times((own.a, own.b, own.c, own.d, own.e, own.f), matrix)
            count = min(max(pdfium.FPDFFormObj_CountObjects(each), 0), remaining_objects)
            waiting += [(pdfium.FPDFFormObj_GetObject, each, k, inner, depth + 1) for k in reversed(range(count))]


class _Marks:
    """The marks of text objects, which may be shared, and the texts that replace the objects."""

    def __init__(self) -> None:
        self.replacements: dict[int, Replacement] = {}
        self.by_mark: dict[int, Replacement | None] = {}
        self.last: Replacement | None = None

    def look(self, each: pdfium.FPDF_PAGEOBJECT, matrix: Matrix) -> None:
        for k in reversed(range(pdfium.FPDFPageObj_CountMarks(each))):
            mark = pdfium.FPDFPageObj_GetMark(each, k)
            key = address(mark)
            if key in self.by_mark and self.by_mark[key] is None:
                continue
            text = _actual_text(mark) if key not in self.by_mark else ""
            box = _box(each, matrix)
            one = self.by_mark.get(key) or (self._new(text, box) if text and box else None)
            self.by_mark[key] = one
            if one is None:
                continue
            # text that continues in the next line has the position of its first part
            if box and min(box[3], one.top) - max(box[1], one.bottom) > one.bottom - one.top:
                one.left, one.right = min(one.left, box[0]), max(one.right, box[2])
            self.replacements[address(each)] = self.last = one
            return

    def _new(self, text: str, box: Box) -> Replacement:
        """A replacement; the last one, where typst has marked the glyphs of one syllable one by one."""
        last = self.last
        if last and text == last.text and len(text) > 1:
            shared = min(last.right, box[2]) - max(last.left, box[0])
            if 3 * shared >= min(last.right - last.left, box[2] - box[0]):
                return last
        return Replacement(text, *box)


def _actual_text(mark: pdfium.FPDF_PAGEOBJECTMARK) -> str:
    if pdfium.FPDFPageObjMark_GetParamValueType(mark, _ACTUAL_TEXT) != pdfium.FPDF_OBJECT_STRING:
        return ""
    # not as a string: pdfium takes each byte for a letter
    size = ctypes.c_ulong()
    pdfium.FPDFPageObjMark_GetParamBlobValue(mark, _ACTUAL_TEXT, None, 0, size)
    if not 0 < size.value <= 2 * _CHARACTERS:
        return ""
    buffer = (ctypes.c_ubyte * size.value)()
    pdfium.FPDFPageObjMark_GetParamBlobValue(mark, _ACTUAL_TEXT, buffer, size, size)
    data = bytes(buffer)
    text = next((data.decode(name, "replace") for start, name in _ENCODINGS if data.startswith(start)), "")
    kept = (" " if c.isspace() else c for c in text if c.isprintable() or c.isspace() or c in _UNSEEN)
    return "".join(kept)


def _box(each: pdfium.FPDF_PAGEOBJECT, matrix: Matrix) -> Box | None:
    """Left, bottom, right and top of an object on the page."""
    sides = [ctypes.c_float() for _ in range(4)]
    if not pdfium.FPDFPageObj_GetBounds(each, *sides):
        return None
    left, bottom, right, top = (side.value for side in sides)
    if matrix is _SAME:
        return left, bottom, right, top
    a, b, c, d, e, f = matrix
    xs = [a * x + c * y + e for x in (left, right) for y in (bottom, top)]
    ys = [b * x + d * y + f for x in (left, right) for y in (bottom, top)]
    return min(xs), min(ys), max(xs), max(ys)


def _times(one: Matrix, other: Matrix) -> Matrix:
    """First `one`, then `other` (ISO 32000-2, 8.3.4)."""
    a, b, c, d, e, f = one
    p, q, r, s, t, u = other
    return a * p + b * r, a * q + b * s, c * p + d * r, c * q + d * s, e * p + f * r + t, e * q + f * s + u


# What a document says of its own headings: its outline (bookmarks), and the tags of its text.


_MAX_ENTRIES = 10_000  # entries of an outline, elements of a page's structure
_LETTERS = 300  # of a heading
# Structure types of headings (ISO 32000-2, 14.8.4.3.2): H1 to any depth, Title since PDF 2.0.
_HEADING = re.compile(r"H([1-9])|Title")
MAX_LEVEL = 6  # of Markdown and HTML


@dataclass(frozen=True)
class Entry:
    """An entry of an outline. `level`: 1 for the outermost; `page` counts from 0."""

    title: str
    level: int
    page: int


def outline(document: pdfium.FPDF_DOCUMENT) -> list[Entry]:
    """The entries of a document's outline, in their order, up to level 6."""
    entries: list[Entry] = []
    seen: set[int] = set()
    waiting = [(pdfium.FPDFBookmark_GetFirstChild(document, None), 1)]
    while waiting and len(seen) < _MAX_ENTRIES:
        mark, level = waiting.pop()
        # a damaged outline may lead back to itself
        if not mark or address(mark) in seen:
            continue
        seen.add(address(mark))
        waiting.append((pdfium.FPDFBookmark_GetNextSibling(document, mark), level))
        if level < MAX_LEVEL:
            waiting.append((pdfium.FPDFBookmark_GetFirstChild(document, mark), level + 1))
        place = pdfium.FPDFBookmark_GetDest(document, mark)
        if not place and (action := pdfium.FPDFBookmark_GetAction(mark)):
            place = pdfium.FPDFAction_GetDest(document, action)
        page = pdfium.FPDFDest_GetDestPageIndex(document, place) if place else -1
        size = min(pdfium.FPDFBookmark_GetTitle(mark, None, 0), 4 * _LETTERS)
        buffer = ctypes.create_string_buffer(size)
        pdfium.FPDFBookmark_GetTitle(mark, buffer, size)
        title = buffer.raw.decode("utf-16-le", "replace").rstrip("\x00")
        if title.strip() and page >= 0:
            entries.append(Entry(title, level, page))
    return entries


def heading_marks(page: pdfium.FPDF_PAGE) -> dict[int, int]:
    """The levels of the marked content of a page that is tagged as a heading, by its number."""
    tree = pdfium.FPDF_StructTree_GetForPage(page)
    if not tree:
        return {}
    try:
        return _levels(tree)
    finally:
        pdfium.FPDF_StructTree_Close(tree)


def _levels(tree: pdfium.FPDF_STRUCTTREE) -> dict[int, int]:
    levels: dict[int, int] = {}
    count = min(max(pdfium.FPDF_StructTree_CountChildren(tree), 0), _MAX_ENTRIES)
    waiting = [(pdfium.FPDF_StructTree_GetChildAtIndex(tree, k), 0) for k in range(count)]
    remaining_elements = _MAX_ENTRIES
    while waiting and remaining_elements:
        remaining_elements -= 1
        element, level = waiting.pop()
        if not element:
            continue
        kind = ctypes.create_string_buffer(32)
        if not level and 0 < pdfium.FPDF_StructElement_GetType(element, kind, 32) <= 32:
            match = _HEADING.fullmatch(kind.raw.decode("utf-16-le", "replace").split("\x00")[0])
            level = min(int(match[1] or 1), MAX_LEVEL) if match else 0
        for k in range(min(max(pdfium.FPDF_StructElement_CountChildren(element), 0), _MAX_ENTRIES)):
            content = pdfium.FPDF_StructElement_GetChildMarkedContentID(element, k)
            if content >= 0 and level:
                levels[content] = level
            elif content < 0 and len(waiting) < _MAX_ENTRIES:
                waiting.append((pdfium.FPDF_StructElement_GetChildAtIndex(element, k), level))
    return levels
