"""The characters of a page and their positions, in the order in which pdfium returns them."""

import ctypes
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import pypdfium2.raw as pdfium

from gristmill.tasks.pdf.objects import Box, Replacement, address

# Characters of a page that are read; a page of a book has 3,000, of a newspaper 30,000.
MAX_CHARACTERS = 400_000
# Of the size of the font: a gap beside drawn glyphs that is a space between words. They end where their ink ends.
DRAWN_GAP = 0.14
ANGLE = 0.3  # radians between what has one direction
_SAMPLE = 60
_HYPHEN = 2  # what pdfium gives for a hyphen at the end of a line
RTL = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")


@dataclass(slots=True)
class Character:
    """A character, or the text of several glyphs; none for a glyph of which no meaning is known, which takes room.
    `index`: in pdfium's list. `space`: pdfium sees a gap before it. `drawn`: the right side is the ink's, not the
    font's advance."""

    text: str
    left: float
    bottom: float
    right: float
    top: float
    index: int
    space: bool = False
    drawn: float = 0.0


@dataclass
class Characters:
    """`listed`: with None where pdfium ends a line; spaces that are in the file are characters. `count`: of those that
    are not spaces; `odd`: how many of these have no meaning. `angle`: of most of them on the page, in radians, 0 if
    they are upright; positions are those on the page after it is rotated by this angle."""

    listed: list[Character | None]
    count: int
    odd: int
    angle: float = 0.0


def characters(
    textpage: pdfium.FPDF_TEXTPAGE, sides: tuple[float, float], replacements: dict[int, Replacement]
) -> Characters:
    """The characters inside of a page of some width and height, in points."""
    characters_of_page: list[Character | None] = []
    count = odd = 0
    width, height = sides
    box, space, high = pdfium.FS_RECTF(), False, 0  # `high`: the first half of a surrogate pair
    holder = ctypes.byref(box)
    heights = _Heights(textpage)
    for index in range(min(pdfium.FPDFText_CountChars(textpage), MAX_CHARACTERS)):
        code = pdfium.FPDFText_GetUnicode(textpage, index)
        if code in (10, 13):
            characters_of_page.append(None)
            continue
        if replacements:
            owner = pdfium.FPDFText_GetTextObject(textpage, index)
            if one := replacements.get(address(owner)):
                if not one.is_read:
                    one.is_read = True
                    count += len(one.text)
                    odd += sum(_means_nothing(ord(c)) for c in one.text)
                    each = Character(
                        one.text,
                        one.left,
                        one.bottom,
                        one.right,
                        one.top,
                        index,
                        drawn=font_size(textpage, index) or 1.0,
                    )
                    heights.wants(each, owner)
                    characters_of_page.append(each)
                space = False
                continue
        if code in (9, 32, 0xA0):
            if pdfium.FPDFText_IsGenerated(textpage, index):
                space = True
                continue
            code = 32
        elif code == _HYPHEN:
            code = 45
        elif 0xD800 <= code < 0xDC00:
            high = code
            continue
        elif 0xDC00 <= code < 0xE000:
            code = 0x10000 + ((high - 0xD800) << 10) + code - 0xDC00 if high else 0xFFFD
            high = 0
        if code != 32:
            count += 1
            if _means_nothing(code):
                odd += 1
        if not pdfium.FPDFText_GetLooseCharBox(textpage, index, holder):
            continue
        x0, y0, x1, y1 = box.left, box.bottom, box.right, box.top
        if y1 <= y0 or x1 < x0 or x1 < 0 or x0 > width or y1 < 0 or y0 > height:
            space = space or code == 32
            continue
        if replacements:
            heights.learns(index, owner, y0, y1)
            if _is_hebrew(code):
                heights.learns_advance(chr(code), index, owner, x1 - x0)
        unknown = code < 32 or 0xFFFD <= code <= 0xFFFF
        characters_of_page.append(Character("" if unknown else chr(code), x0, y0, x1, y1, index, space))
        space = False
    angle = _angle(textpage, characters_of_page)
    if angle:
        for each in filter(None, characters_of_page):
            each.left, each.bottom, each.right, each.top = turned(
                (each.left, each.bottom, each.right, each.top), angle, sides
            )
    else:
        heights.give()
    return Characters(characters_of_page, count, odd, angle)


def _angle(textpage: pdfium.FPDF_TEXTPAGE, characters_of_page: Sequence[Character | None]) -> float:
    """The right angle of most characters, estimated from a sample; 0 for none: tables and slides may be rotated."""
    shown = [each for each in characters_of_page if each is not None and each.text.strip()]
    sample = shown[:: max(1, len(shown) // _SAMPLE)]
    angles = [pdfium.FPDFText_GetCharAngle(textpage, each.index) for each in sample]
    for right in (math.pi / 2, 3 * math.pi / 2):
        if 2 * sum(abs(angle - right) < ANGLE for angle in angles) > len(angles):
            return right
    return 0.0


def turned(box: Box, angle: float, sides: tuple[float, float]) -> Box:
    """A box on the page that is turned by a right angle; `sides`: its width and height as it is. Text at an angle of a
    quarter of a turn runs down the page."""
    left, bottom, right, top = box
    if angle < math.pi:
        return sides[1] - top, left, sides[1] - bottom, right
    return bottom, sides[0] - right, top, sides[0] - left


def _is_hebrew(code: int) -> bool:
    """Whether a character is a Hebrew letter, or two as one as Yiddish has them."""
    return 0x5D0 <= code <= 0x5F2


def _means_nothing(code: int) -> bool:
    return code in (0, 0xFFFD, 0xFFFE, 0xFFFF) or 0xE000 <= code < 0xF900 or code < 32 or 0x80 <= code < 0xA0


def font_size(textpage: pdfium.FPDF_TEXTPAGE, index: int) -> float:
    """The size of a character's font on the page, in points."""
    matrix = pdfium.FS_MATRIX()
    pdfium.FPDFText_GetMatrix(textpage, index, matrix)
    return pdfium.FPDFText_GetFontSize(textpage, index) * math.hypot(matrix.b, matrix.d)


def origin(textpage: pdfium.FPDF_TEXTPAGE, index: int) -> tuple[float, float]:
    """Where a character's advance begins, and the height of its line, in points."""
    x, y = ctypes.c_double(), ctypes.c_double()
    pdfium.FPDFText_GetCharOrigin(textpage, index, x, y)
    return x.value, y.value


class _Heights:
    """Bottom and top of drawn glyphs as their font has them: where other characters of it are, these say it. And the
    right side of Hebrew letters with points, which are as wide as the letters without."""

    def __init__(self, textpage: pdfium.FPDF_TEXTPAGE) -> None:
        self.textpage = textpage
        self.wanting: list[tuple[Character, int, float, float]] = []
        self.fonts: dict[int, tuple[float, float]] = {}  # below and above the line, in sizes of the font
        self.owners: dict[int, int] = {}
        self.advances: dict[tuple[int, str], float] = {}  # of a font's letters, in sizes of the font

    def _font(self, owner: pdfium.FPDF_PAGEOBJECT) -> int:
        key = address(owner)
        if key not in self.owners:
            self.owners[key] = address(pdfium.FPDFTextObj_GetFont(owner)) if key else 0
        return self.owners[key]

    def wants(self, each: Character, owner: pdfium.FPDF_PAGEOBJECT) -> None:
        (begin, line), size = origin(self.textpage, each.index), each.drawn
        if abs(begin - each.left) < size:
            each.left = begin
        self.wanting.append((each, self._font(owner), line, size))

    def learns(self, index: int, owner: pdfium.FPDF_PAGEOBJECT, bottom: float, top: float) -> None:
        font = self._font(owner)
        if font and font not in self.fonts:
            (_, line), size = origin(self.textpage, index), font_size(self.textpage, index)
            if size > 0:
                self.fonts[font] = (bottom - line) / size, (top - line) / size

    def learns_advance(self, letter: str, index: int, owner: pdfium.FPDF_PAGEOBJECT, width: float) -> None:
        key = self._font(owner), letter
        if key not in self.advances and (size := font_size(self.textpage, index)) > 0:
            self.advances[key] = width / size

    def give(self) -> None:
        for each, font, line, size in self.wanting:
            letters = [c for c in each.text if not unicodedata.combining(c)]
            if len(letters) == 1 and (advance := self.advances.get((font, letters[0]))):
                each.right = max(each.right, each.left + advance * size)
            below, above = self.fonts.get(font, (-0.25, 0.9))
            each.bottom, each.top = min(each.bottom, line + below * size), max(each.top, line + above * size)
            if font in self.fonts and size > 0:
                each.bottom, each.top = line + below * size, line + above * size
