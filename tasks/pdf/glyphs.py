"""The characters of a page as segments: pieces of one line that are close together, in logical order."""

import ctypes
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pypdfium2.raw as pdfium

from gristmill.tasks.pdf.characters import (
    ANGLE,
    DRAWN_GAP,
    RTL,
    Character,
    Characters,
    characters,
    font_size,
    origin,
)
from gristmill.tasks.pdf.objects import Objects, Ruling, Rulings, heading_marks, parted
from gristmill.tasks.pdf.right_to_left import logical, side_by_side, sloping

# A gap wider than this, in heights of the font, ends a segment: word spaces of justified text are narrower, the gutter
# of two columns and the space between cells of a table are wider.
GAP = 0.85
# A gap wider than this is a space between words, though the file has none.
_WORD_GAP = 0.14
# A gap wider than this, at a place where pdfium reports a gap, counts also after a mark of a letter.
_SEEN = 0.1
_MONO = re.compile(r"mono|courier|consol|typewriter|cmtt|lmtt|code", re.IGNORECASE)
_BOLD = re.compile(r"bold|black|heavy|semibold|cmbx", re.IGNORECASE)


@dataclass(slots=True)
class Segment:
    """Text at one place of a page. `size`: height of the font's letters, as far as it is known; `font`: its size, in
    points; `heading`: the level that its tag says; `rows`: of a table, the segments of its cells."""

    left: float
    bottom: float
    right: float
    top: float
    text: str
    size: float
    font: float
    bold: bool = False
    mono: bool = False
    heading: int = 0
    rows: "list[list[list[Segment]]] | None" = None

    @property
    def middle(self) -> float:
        return (self.bottom + self.top) / 2

    @property
    def rtl(self) -> bool:
        """Whether it is written from right to left."""
        return 2 * len(RTL.findall(self.text)) > sum(map(str.isalpha, self.text))


@dataclass
class Glyphs:
    """The segments of a page in the order of its content; its characters, and how many of them have no meaning; its
    ruling lines, and its height. The positions of rotated text are those after the page is turned upright."""

    segments: list[Segment]
    characters: int
    odd: int
    rulings: Rulings
    height: float


def glyphs(page: pdfium.FPDF_PAGE, drawn: Objects) -> Glyphs:
    """The segments of a page that is loaded; no vertical line splits one. Text that runs in another
    direction than most is left out, as is text outside the page.

    Holds about 300 bytes for each character. Of a page over 400,000 characters the first are read.
    """
    textpage = pdfium.FPDFText_LoadPage(page)
    if not textpage:
        return Glyphs([], 0, 0, drawn.rulings, pdfium.FPDF_GetPageHeightF(page))
    try:
        width, height = pdfium.FPDF_GetPageWidthF(page), pdfium.FPDF_GetPageHeightF(page)
        # places are as on a page that is not rotated
        sides = (height, width) if pdfium.FPDFPage_GetRotation(page) % 2 else (width, height)
        page_characters = characters(textpage, sides, drawn.replacements)
        rulings = drawn.rulings.turned(page_characters.angle, sides) if page_characters.angle else drawn.rulings
        pieces = _pieces(textpage, page_characters, rulings.down)
        if RTL.search("".join(c.text for c in page_characters.listed if c is not None)):
            # the height of Arabic fonts is twice the size of their letters
            pieces = side_by_side(pieces, [GAP * font_size(textpage, piece[0].index) for piece in pieces], rulings.down)
            texts = logical(pieces)
            if not page_characters.angle:
                page_characters.odd += sloping(pieces, lambda index: origin(textpage, index)[1])
        else:
            texts = list(map(_text, pieces))
        marks = heading_marks(page)
        segments = [_segment(textpage, *both, marks) for both in zip(pieces, texts, strict=True) if both[1].strip()]
        return Glyphs(
            segments,
            page_characters.count,
            page_characters.odd,
            rulings,
            sides[0] if page_characters.angle else sides[1],
        )
    finally:
        pdfium.FPDFText_ClosePage(textpage)


def _pieces(textpage: pdfium.FPDF_TEXTPAGE, characters: Characters, down: Sequence[Ruling]) -> list[list[Character]]:
    """Characters that follow each other on one line without a large gap, or a line drawn down, between them."""
    pieces: list[list[Character]] = []
    piece: list[Character] = []
    left = bottom = right = top = 0.0
    for each in characters.listed:
        if each is None:
            piece = []
            continue
        if each.text == " ":
            if piece:
                piece.append(each)
            continue
        # written out: these lines are run for each character
        x0, y0, x1, y1 = each.left, each.bottom, each.right, each.top
        if piece:
            low, high = (y1 - y0, top - bottom) if y1 - y0 < top - bottom else (top - bottom, y1 - y0)
            shared = (y1 if y1 < top else top) - (y0 if y0 > bottom else bottom)
            gap = x0 - right if x0 >= left else left - x1
            if shared < 0.35 * low or gap > GAP * high or (x1 < left and gap > 0.4 * high):
                piece = []
            elif gap > 0 and down and parted(down, min(right, x1), max(left, x0), (y0 + y1) / 2):
                piece = []
        if not piece:
            angle = (pdfium.FPDFText_GetCharAngle(textpage, each.index) - characters.angle) % math.pi
            if min(angle, math.pi - angle) > ANGLE:
                continue
            left, bottom, right, top = x0, y0, x1, y1
            pieces.append(piece)
        piece.append(each)
        if x0 < left:
            left = x0
        if x1 > right:
            right = x1
        if y1 - y0 > top - bottom:  # the line's own font, not that of its exponents
            bottom, top = y0, y1
    return pieces


def _text(piece: Sequence[Character]) -> str:
    """The text of characters that run to the right."""
    if any(each.drawn for each in piece) and any(one.left >= other.right for one, other in pairwise(piece)):
        # pdfium turns around what it takes for a script that runs to the left
        piece = sorted(piece, key=lambda each: each.left)
    parts: list[str] = []
    space, drawn = False, 0.0
    right = height = 0.0
    for each in piece:
        if each.text == " ":
            space = True
            continue
        if each.top - each.bottom > height:
            height = each.top - each.bottom
        if parts:
            gap = each.left - right
            if drawn or each.drawn:
                space = space or gap > DRAWN_GAP * max(drawn, each.drawn)
            else:
                space = (
                    space
                    or gap > _WORD_GAP * height
                    or (each.space and (gap > _SEEN * height or not _is_marked(parts[-1])))
                )
            if space:
                parts.append(" ")
        parts.append(each.text)
        space, drawn = False, each.drawn
        if each.right > right:
            right = each.right
    return "".join(parts)


def _is_marked(text: str) -> bool:
    """Whether a text ends with a mark of a letter. LibreOffice goes back to place it, and forth again, which pdfium
    takes for a gap."""
    return unicodedata.category(text[-1])[0] == "M" if text else False


def _segment(textpage: pdfium.FPDF_TEXTPAGE, piece: list[Character], text: str, marks: dict[int, int]) -> Segment:
    piece = [each for each in piece if each.text != " "]
    tallest = max(piece, key=lambda each: each.top - each.bottom)
    # a word in bold letters at its beginning makes no heading of a line
    first, last = _style(textpage, piece[0].index), _style(textpage, piece[-1].index)
    size, font = tallest.top - tallest.bottom, font_size(textpage, tallest.index)
    owner = pdfium.FPDFText_GetTextObject(textpage, piece[0].index) if marks else None
    return Segment(
        left=min(each.left for each in piece),
        bottom=tallest.bottom,
        right=max(each.right for each in piece),
        top=tallest.top,
        text=unicodedata.normalize("NFKC", text) if _presents(text) else text,
        size=size,
        # fonts of bitmaps (Type 3) have a scale of their own
        font=font if 0.6 * font < size < 2.6 * font else size,
        bold=first[0] and last[0],
        mono=first[1] and last[1],
        heading=marks.get(pdfium.FPDFPageObj_GetMarkedContentID(owner), 0) if owner else 0,
    )


def _presents(text: str) -> bool:
    """Whether there are ligatures, or Arabic letters in the forms that they have in a word (Unicode FB00 to FEFC)."""
    return any("\ufb00" <= c <= "\ufdff" or "\ufe70" <= c <= "\ufefc" for c in text)


def _style(textpage: pdfium.FPDF_TEXTPAGE, index: int) -> tuple[bool, bool]:
    """Whether a character is bold, and whether its font has one width for all."""
    flags, name = ctypes.c_int(), ctypes.create_string_buffer(128)
    if not 0 < pdfium.FPDFText_GetFontInfo(textpage, index, name, 128, ctypes.byref(flags)) <= 128:
        return False, False
    font = name.value.decode("latin-1")
    bold = bool(_BOLD.search(font)) or pdfium.FPDFText_GetFontWeight(textpage, index) >= 600
    return bold, bool(flags.value & 1 or _MONO.search(font))
