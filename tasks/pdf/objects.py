"""What the objects of a page say beside its characters: its ruling lines, and which text stands for drawn glyphs.

A program marks glyphs by `/Span <</ActualText ...>>` (ISO 32000-2, 14.9.4) where a glyph is no character: conjuncts and
vowel signs of Indic scripts, forms of Arabic letters. pdfium gives that text at the place of the first object of the
mark and passes over the others, whose places are missed by whoever looks for gaps between words.
"""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

import pypdfium2.raw as pdfium

from gristmill.tasks.pdf.ruling import MAX_PATHS, Matrix, Rulings, add_path

MAX_OBJECTS = 50_000  # objects of a page that are looked at
_DEPTH = 4  # of forms inside of forms
_ACTUAL_TEXT = b"ActualText"
# How a text begins, and how it is encoded (7.9.2.2). PDFDocEncoding, which has no mark, has the letters of Latin-1.
_ENCODINGS = ((b"\xfe\xff", "utf-16"), (b"\xff\xfe", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"), (b"", "latin-1"))
_UNSEEN = "\u00ad\u200c\u200d"  # a hyphen at a line's end; what parts and joins letters
_CHARACTERS = 10_000  # of such a text, at most

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
    """The marks of text objects, which share them, and what stands for the objects."""

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
            # what goes on in the next line stands at the place of the first
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
