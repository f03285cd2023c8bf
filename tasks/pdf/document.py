"""A PDF document as one text, with what it says of itself and how far it can be read."""

import ctypes
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import pairwise, product
from typing import Any

import pypdfium2.raw as pdfium

from gristmill.tasks.pdf.columns import Line, ordered
from gristmill.tasks.pdf.glyphs import Segment, glyphs
from gristmill.tasks.pdf.grids import with_tables
from gristmill.tasks.pdf.objects import objects, outline
from gristmill.tasks.pdf.paragraphs import Words, blocks, rendered

# An object whose dictionary says that it is a page or the catalog.
_OBJECT = re.compile(rb"(?<!\d)(\d{1,8})\s+(\d{1,5})\s+obj\b")
_TYPE = re.compile(rb"/Type\s*/(Page|Catalog)(?![A-Za-z])")
_LOOKED = 4000  # bytes of an object, at most
_MAX_REBUILT_PAGES = 10_000  # pages
# A stream of objects (ISO 32000-2, 7.5.7): N of them, the first at First, before them their numbers and places.
_STREAM = re.compile(rb"/Type\s*/ObjStm(?![A-Za-z])")
_COUNT, _FIRST = re.compile(rb"/N\s+(\d{1,7})(?!\s+\d+\s+R)"), re.compile(rb"/First\s+(\d{1,8})")
_DATA = re.compile(rb"stream\r?\n")
_UNPACKED = 64 << 20  # bytes of all streams of objects


def with_end(payload: bytes) -> bytes | None:
    """The file with a trailer that points to its catalog; or, if that is lost too, with a catalog and a list of the
    pages in it, in file order. None if neither is found.

    pdfium finds the objects of a file without a table by itself, but needs a trailer; those of compressed streams it
    does not find, so they are written as others. Holds the file once more, and 64 MiB of such streams.
    """
    if packed := b"".join(_packed(payload)):
        payload = b"%s\nendstream\nendobj\n%s" % (payload, packed)
    pages: list[bytes] = []
    root = None
    highest = 0
    for match in _OBJECT.finditer(payload):
        number = int(match[1])
        highest = max(highest, number)
        end = payload.find(b"endobj", match.end(), match.end() + _LOOKED)
        stream = payload.find(b"stream", match.end(), match.end() + _LOOKED)
        ends = [place for place in (end, stream) if place >= 0]
        kind = _TYPE.search(payload, match.end(), min(ends)) if ends else None
        if kind and kind[1] == b"Catalog":
            root = b"%d %s R" % (number, match[2])
        elif kind and len(pages) < _MAX_REBUILT_PAGES:
            pages.append(b"%d %s R" % (number, match[2]))
    # the catalog leads to the list of pages, which is lost if the file is cut off before it
    if not pages:
        return None if root is None else b"%s\nendobj\ntrailer<</Root %s>>\n%%%%EOF\n" % (payload, root)
    one, two = highest + 1, highest + 2
    page_list = b"\nendstream\nendobj\n%d 0 obj<</Type/Catalog/Pages %d 0 R>>endobj\n" % (one, two)
    page_list += b"%d 0 obj<</Type/Pages/Count %d/Kids[%s]>>endobj\n" % (two, len(pages), b" ".join(pages))
    return b"%s%strailer<</Size %d/Root %d 0 R>>\n%%%%EOF\n" % (payload, page_list, two + 1, one)


def _packed(payload: bytes) -> Iterator[bytes]:
    """The complete objects in compressed streams, each as a separate object."""
    remaining_bytes = _UNPACKED
    for match in _STREAM.finditer(payload):
        begin = payload.rfind(b"obj", max(0, match.start() - _LOOKED), match.start())
        data = _DATA.search(payload, match.end(), match.end() + _LOOKED)
        if begin < 0 or data is None or remaining_bytes <= 0:
            continue
        head = payload[begin : data.start()]
        count, first = _COUNT.search(head), _FIRST.search(head)
        if not count or not first or b"FlateDecode" not in head or b"/Predictor" in head:
            continue
        try:
            # the last one may be cut
            text = zlib.decompressobj().decompress(memoryview(payload)[data.end() :], remaining_bytes)
        except zlib.error:
            continue
        remaining_bytes -= len(text)
        numbers = text[: int(first[1])].split()[: 2 * int(count[1])]
        if not all(map(bytes.isdigit, numbers)):
            continue
        places = [(int(a), int(first[1]) + int(b)) for a, b in zip(numbers[::2], numbers[1::2], strict=False)]
        for (number, begin_of_object), (_, end) in pairwise([*places, (0, len(text))]):
            if begin_of_object < end < len(text) or (end == len(text) and len(places) == int(count[1])):
                yield b"%d 0 obj\n%s\nendobj\n" % (number, text[begin_of_object:end])


_NUMBER = re.compile(r"\d+")
# Only a page number: 7, - 7 -, Page 7 of 9, 7/9, vii. Digits of any script. A word and a number may be a heading.
_PAGE_NUMBER = re.compile(
    r"\W*(?:(?:\w{1,8}\.? )?\d{1,4} ?(?:/|\w{1,4}) ?\d{1,4}|\d{1,4}|[ivxlc]{1,7})\W*", re.IGNORECASE
)
_EDGE = 6  # segments at the top and at the bottom of a page that may be running
_HEAD, _FOOT = 0.12, 0.15  # of the page's height in which they are: LaTeX's numbers are at .12
_COUNTED = 3  # numbers of a segment that may be the page's
_SHARE = 0.25  # of the pages that have the same text


def without_running(pages: Sequence[list[Segment]], heights: Sequence[float]) -> list[list[Segment]]:
    """The segments of all pages without running heads and page numbers. A segment at the edge of a page is removed if
    the same text is at the same height on at least two pages and on a quarter of them, or on one of the two pages
    before or after; numbers are the same if they are equal or grow with the pages. It is also removed if it is only a
    page number, apart from the rest at the very edge."""
    edges = [
        _edge(segments, height, page_index)
        for page_index, (segments, height) in enumerate(zip(pages, heights, strict=True))
    ]
    near = [{key for keys in edge.values() for key in keys} for edge in edges]
    counts = Counter(key for keys in near for key in keys)
    need = max(2, min(_SHARE * len(pages), 8))
    page_segments = []
    for page_index, segments in enumerate(pages):
        beside = set().union(
            *(near[k] for k in (page_index - 2, page_index - 1, page_index + 1, page_index + 2) if 0 <= k < len(pages))
        )
        running = {
            k
            for k, keys in edges[page_index].items()
            if any(counts[key] >= need or key in beside for key in keys) or _is_number(segments, k, heights[page_index])
        }
        # only a whole row is removed: single words of the text may be in the same place by chance
        beyond = [segment for k, segment in enumerate(segments) if k not in running]
        removed = {k for k in running if not any(other.bottom < segments[k].middle < other.top for other in beyond)}
        page_segments.append([segment for k, segment in enumerate(segments) if k not in removed])
    return page_segments


def _edge(segments: Sequence[Segment], height: float, page: int) -> dict[int, set[tuple[str, int]]]:
    """For the outermost segments of a page, by their index, the texts that they count as, and the height in steps of 4
    points."""
    by_height = sorted(range(len(segments)), key=lambda k: -segments[k].top)
    outer = [k for k in by_height[:_EDGE] if segments[k].bottom > (1 - _HEAD) * height]
    outer += [k for k in by_height[-_EDGE:] if segments[k].top < _FOOT * height and k not in outer]
    return {k: {(text, round(segments[k].middle / 4)) for text in _texts(segments[k].text, page)} for k in outer}


def _texts(text: str, page: int) -> list[str]:
    """A text with each of its first three numbers as it is, or counted from the page that has it."""
    parts = _NUMBER.split(text.lower())
    numbers = [int(each[:9]) for each in _NUMBER.findall(text)]
    texts = []
    for flags in product((False, True), repeat=min(len(numbers), _COUNTED)):
        ways = [*flags, *[False] * (len(numbers) - len(flags))]
        numerals = [f"<{n - page}>" if way else str(n) for n, way in zip(numbers, ways, strict=True)]
        texts.append("".join(a + b for a, b in zip(parts, [*numerals, ""], strict=True)))
    return texts


def _is_number(segments: Sequence[Segment], k: int, height: float) -> bool:
    one = segments[k]
    if not _PAGE_NUMBER.fullmatch(one.text.strip()) or not re.search(r"\d|^\W*[ivxlc]+\W*$", one.text):
        return False
    others = [other for index, other in enumerate(segments) if index != k]
    room = one.top - one.bottom
    below = one.top < _FOOT * height and all(other.bottom >= one.top + room for other in others)
    above = one.bottom > (1 - _HEAD) * height and all(other.top <= one.bottom - room for other in others)
    return below or above


# Pages that are read; a file may say that it has any number of them.
MAX_PAGES = 10_000
# A page with an image and fewer characters is a scan: a stamp or a page number may be text on it.
_SCANNED_BELOW = 20
# A page with a larger share of characters without a meaning is garbled: fonts without a map to Unicode.
_GARBLED_ABOVE = 0.1
_TITLE = 1000
_END = 2048  # bytes at the file's end that may have its mark; the standard's readers look at 1024
_DATE = re.compile(r"(?:D:)?(\d{4})(\d{2})?(\d{2})?")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]+")

pdfium.FPDF_InitLibrary()


def read(payload: bytes, markdown: bool) -> dict:
    """The row of a document: text, content_type, title, published, engine (`pdf`), and the columns of `SIGNALS`.

    Or rule and detail of a drop: `encrypted_pdf` for one that wants a password; `damaged_pdf` for one in which pdfium
    finds no page; `no_text_layer` where no page has text, and the detail says how many are images. Holds the
    characters of all pages, about 300 bytes for each line.
    """
    truncated = b"%%EOF" not in payload[-_END:]
    document = pdfium.FPDF_LoadMemDocument64(payload, len(payload), None)
    code = 0 if document else pdfium.FPDF_GetLastError()
    if not document and code == pdfium.FPDF_ERR_FORMAT and (ended := with_end(payload)):
        document = pdfium.FPDF_LoadMemDocument64(ended, len(ended), None)
        payload = ended  # which pdfium reads from as long as the document is open
    if not document:
        if code in (pdfium.FPDF_ERR_PASSWORD, pdfium.FPDF_ERR_SECURITY):
            return {"rule": "encrypted_pdf", "detail": "it wants a password, or has a protection that is not known"}
        cut = "; the file is truncated" if truncated else ""
        return {"rule": "damaged_pdf", "detail": f"pdfium finds no document in it (error {code}){cut}"}
    try:
        return _read(document, markdown, truncated)
    finally:
        pdfium.FPDF_CloseDocument(document)


def _read(document: pdfium.FPDF_DOCUMENT, markdown: bool, truncated: bool) -> dict:
    pages: list[list[Segment]] = []
    heights: list[float] = []
    scanned = garbled = characters = 0
    page_count = pdfium.FPDF_GetPageCount(document)
    for number in range(min(page_count, MAX_PAGES)):
        page = pdfium.FPDF_LoadPage(document, number)
        if not page:
            continue
        try:
            drawn = objects(page)
            page_glyphs = glyphs(page, drawn)
            scanned += page_glyphs.characters < _SCANNED_BELOW and drawn.image
        finally:
            pdfium.FPDF_ClosePage(page)
        garbled += page_glyphs.odd > _GARBLED_ABOVE * page_glyphs.characters
        characters += page_glyphs.characters
        pages.append(with_tables(page_glyphs.segments, page_glyphs.rulings))
        heights.append(page_glyphs.height)
    if not pages:
        return {"rule": "damaged_pdf", "detail": f"none of its {page_count} pages can be read"}
    kept: list[Line] = []
    for number, segments in enumerate(without_running(pages, heights)):
        lines = ordered(segments)
        for line in lines:
            line.page = number
        kept += lines
    words = Words(kept)
    parts = [rendered(block, words, markdown) for block in blocks(kept, outline(document))]
    text = "\n\n".join(part for part in parts if part.strip())
    text = text.replace("\x00", "").encode("utf-8", "replace").decode()
    if not text.strip():
        return {"rule": "no_text_layer", "detail": f"{scanned} of {len(pages)} pages are images, none has text"}
    return {
        "text": text,
        "charset": None,
        "charset_declared": None,
        "content_type": "application/pdf",
        "title": _metadata_text(document, "Title"),
        "canonical_url": None,
        "published": _day(_metadata_text(document, "CreationDate")),
        "engine": "pdf",
        "pdf_pages": len(pages),
        "pdf_scanned": scanned / len(pages),
        "pdf_garbled": garbled / len(pages),
        "pdf_truncated": truncated,
        "pdf_author": _metadata_text(document, "Author"),
        "pdf_producer": _metadata_text(document, "Producer"),
        "pdf_language": _language(document),
    }


def _metadata_text(document: pdfium.FPDF_DOCUMENT, key: str) -> str | None:
    """A value of the document's information, on one line; None for none."""
    size = min(pdfium.FPDF_GetMetaText(document, key.encode(), None, 0), 1 << 16)
    return _text(lambda buffer: pdfium.FPDF_GetMetaText(document, key.encode(), buffer, size), size)


def _language(document: pdfium.FPDF_DOCUMENT) -> str | None:
    size = min(pdfium.FPDFCatalog_GetLanguage(document, None, 0), 256)
    return _text(lambda buffer: pdfium.FPDFCatalog_GetLanguage(document, buffer, size), size)


def _text(fill: Callable[[Any], int], size: int) -> str | None:
    if size <= 2:
        return None
    buffer = ctypes.create_string_buffer(size)
    fill(ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)))
    value = _CONTROLS.sub(" ", buffer.raw[:size].decode("utf-16-le", "replace").rstrip("\x00"))
    return " ".join(value.split())[:_TITLE] or None


def _day(text: str | None) -> str | None:
    """The day of a date as PDF has it, `D:YYYYMMDDHHmmSS` (ISO 32000-2, 7.9.4)."""
    match = _DATE.match(text or "")
    if not match:
        return None
    try:
        return date(int(match[1]), int(match[2] or 1), int(match[3] or 1)).isoformat()
    except ValueError:
        return None
