"""The characters of a page as segments: pieces of one line that stand close together, in logical order."""

import ctypes
import re
import unicodedata
from dataclasses import dataclass

import pypdfium2.raw as pdfium

# A gap wider than this, in heights of the font, ends a segment: word spaces of justified text are narrower, the gutter
# of two columns and the space between cells of a table are wider.
GAP = 0.85
# A gap wider than this is a space between words, though the file has none.
_WORD_GAP = 0.14
# Characters of a page that are read; a page of a book has 3,000, of a newspaper 30,000.
MOST = 400_000
_HYPHEN = 2  # what pdfium gives for a hyphen at the end of a line
_MONO = re.compile(r"mono|courier|consol|typewriter|cmtt|lmtt|code", re.IGNORECASE)
_BOLD = re.compile(r"bold|black|heavy|semibold|cmbx", re.IGNORECASE)
_RTL = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")


@dataclass(slots=True)
class Segment:
    """Text at one place of a page. `size`: height of the font, in points."""

    left: float
    bottom: float
    right: float
    top: float
    text: str
    size: float
    bold: bool = False
    mono: bool = False

    @property
    def middle(self) -> float:
        return (self.bottom + self.top) / 2

    @property
    def rtl(self) -> bool:
        """Whether it is written from right to left."""
        return 2 * len(_RTL.findall(self.text)) > sum(map(str.isalpha, self.text))


@dataclass
class Glyphs:
    """The segments of a page in the order of its content; its characters, and how many of them have no meaning."""

    segments: list[Segment]
    characters: int
    odd: int


def glyphs(page: pdfium.FPDF_PAGE) -> Glyphs:
    """The segments of a page that is loaded. Text that runs up or down is left out, as is what stands outside the page.

    Holds about 1 kB for each line. Of a page over 400,000 characters the first are read.
    """
    textpage = pdfium.FPDFText_LoadPage(page)
    if not textpage:
        return Glyphs([], 0, 0)
    try:
        return _read(textpage, pdfium.FPDF_GetPageWidthF(page), pdfium.FPDF_GetPageHeightF(page))
    finally:
        pdfium.FPDFText_ClosePage(textpage)


def _read(textpage: pdfium.FPDF_TEXTPAGE, width: float, height: float) -> Glyphs:
    found: list[Segment] = []
    characters = odd = 0
    box, rect = pdfium.FS_RECTF(), ctypes.byref
    holder = rect(box)
    text: list[str] = []
    places: list[float] = []  # of the characters of `text`, their left sides
    left = bottom = right = top = 0.0
    last = 0
    last_left = last_right = 0.0
    space = False
    high = 0  # the first half of a surrogate pair
    style = (False, False)

    def end() -> None:
        nonlocal space
        if text:
            _turn(text, places)
            joined = "".join(text)
            if joined.strip():
                # a word in bold letters at its beginning makes no heading of a line
                bold, mono = (one and other for one, other in zip(style, _style(textpage, last), strict=True))
                found.append(Segment(left, bottom, right, top, joined, top - bottom, bold, mono))
            text.clear()
            places.clear()
        space = False

    for at in range(min(pdfium.FPDFText_CountChars(textpage), MOST)):
        code = pdfium.FPDFText_GetUnicode(textpage, at)
        if code in (10, 13):
            end()
            continue
        if code == 32 or code == 0xA0 or code == 9:
            space = True
            continue
        if code == _HYPHEN:
            code = 45
        if 0xD800 <= code < 0xDC00:
            high = code
            continue
        if 0xDC00 <= code < 0xE000:
            code = 0x10000 + ((high - 0xD800) << 10) + code - 0xDC00 if high else 0xFFFD
            high = 0
        characters += 1
        if code in (0, 0xFFFD, 0xFFFE, 0xFFFF) or 0xE000 <= code < 0xF900 or code < 32 or 0x80 <= code < 0xA0:
            odd += 1
            if code < 32 or code >= 0xFFFD:
                continue
        if not pdfium.FPDFText_GetLooseCharBox(textpage, at, holder):
            continue
        x0, y0, x1, y1 = box.left, box.bottom, box.right, box.top
        if y1 <= y0 or x1 < x0 or x1 < 0 or x0 > width or y1 < 0 or y0 > height:
            continue
        if text:
            size = max(y1 - y0, top - bottom)
            shared = min(y1, top) - max(y0, bottom)
            gap = x0 - right if x0 >= left else left - x1
            if shared < 0.35 * min(y1 - y0, top - bottom) or gap > GAP * size or (x1 < left and gap > 0.4 * size):
                end()
        if not text:
            if abs(pdfium.FPDFText_GetCharAngle(textpage, at) % 3.14159265) > 0.3:
                continue
            style = _style(textpage, at)
            left, bottom, right, top = x0, y0, x1, y1
        elif space or (not _RTL.match(chr(code)) and x0 - right > _WORD_GAP * (top - bottom)):
            _turn(text, places)
            text.append(" ")
            places.append(x0)
        elif x0 == last_left and x1 == last_right and _RTL.match(chr(code)):
            places.append(x0)
            text.insert(-1, chr(code))  # of one glyph for two letters pdfium gives the last letter first
            continue
        space = False
        text.append(chr(code))
        places.append(x0)
        last, last_left, last_right = at, x0, x1
        left, right = min(left, x0), max(right, x1)
        if y1 - y0 > top - bottom:  # the line's own font, not that of its exponents
            bottom, top = y0, y1
    end()
    for segment in found:
        segment.text = unicodedata.normalize("NFKC", segment.text) if _presents(segment.text) else segment.text
    return Glyphs(found, characters, odd)


def _turn(text: list[str], places: list[float]) -> None:
    """Turn the last word around if it is of a script that runs to the left and its characters run to the right: some
    programs draw them so, and pdfium leaves them so."""
    begin = len(text) - text[::-1].index(" ") if " " in text else 0
    word = [c for c in text[begin:] if not unicodedata.combining(c)]
    if len(word) > 1 and places[begin] < places[-1] and all(_RTL.match(c) for c in word):
        text[begin:] = text[begin:][::-1]


def _presents(text: str) -> bool:
    """Whether there are ligatures, or Arabic letters in the forms that they have in a word (Unicode FB00 to FEFC)."""
    return any("\ufb00" <= c <= "\ufdff" or "\ufe70" <= c <= "\ufefc" for c in text)


def _style(textpage: pdfium.FPDF_TEXTPAGE, at: int) -> tuple[bool, bool]:
    """Whether a character is bold, and whether its font has one width for all."""
    flags, name = ctypes.c_int(), ctypes.create_string_buffer(128)
    if not 0 < pdfium.FPDFText_GetFontInfo(textpage, at, name, 128, ctypes.byref(flags)) <= 128:
        return False, False
    font = name.value.decode("latin-1")
    bold = bool(_BOLD.search(font)) or pdfium.FPDFText_GetFontWeight(textpage, at) >= 600
    return bold, bool(flags.value & 1 or _MONO.search(font))
