"""A PDF document as one text, with what it says of itself and how far it can be read."""

import ctypes
import re
from collections.abc import Callable
from datetime import date
from typing import Any

import pypdfium2.raw as pdfium

from gristmill.tasks.pdf.columns import Line, ordered
from gristmill.tasks.pdf.ending import with_end
from gristmill.tasks.pdf.glyphs import Segment, glyphs
from gristmill.tasks.pdf.grids import with_tables
from gristmill.tasks.pdf.objects import objects
from gristmill.tasks.pdf.paragraphs import Words, blocks, rendered
from gristmill.tasks.pdf.running import without_running
from gristmill.tasks.pdf.structure import outline

# Pages that are read; a file may say that it has any number of them.
MOST_PAGES = 10_000
# A page with an image and fewer characters is a scan: a stamp or a page number may be text on it.
_SCANNED_BELOW = 20
# A page with a larger share of characters without a meaning is garbled: fonts without a map to Unicode.
_GARBLED_ABOVE = 0.1
_TITLE = 1000
_END = 2048  # bytes at the file's end in which its mark stands; the standard's readers look at 1024
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
    said = pdfium.FPDF_GetPageCount(document)
    for number in range(min(said, MOST_PAGES)):
        page = pdfium.FPDF_LoadPage(document, number)
        if not page:
            continue
        try:
            drawn = objects(page)
            found = glyphs(page, drawn)
            scanned += found.characters < _SCANNED_BELOW and drawn.image
        finally:
            pdfium.FPDF_ClosePage(page)
        garbled += found.odd > _GARBLED_ABOVE * found.characters
        characters += found.characters
        pages.append(with_tables(found.segments, found.rulings))
        heights.append(found.height)
    if not pages:
        return {"rule": "damaged_pdf", "detail": f"none of its {said} pages can be read"}
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
        "content_type": "application/pdf",
        "title": _said(document, "Title"),
        "canonical_url": None,
        "published": _day(_said(document, "CreationDate")),
        "engine": "pdf",
        "pdf_pages": len(pages),
        "pdf_scanned": scanned / len(pages),
        "pdf_garbled": garbled / len(pages),
        "pdf_truncated": truncated,
        "pdf_author": _said(document, "Author"),
        "pdf_producer": _said(document, "Producer"),
        "pdf_language": _language(document),
    }


def _said(document: pdfium.FPDF_DOCUMENT, key: str) -> str | None:
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


def _day(given: str | None) -> str | None:
    """The day of a date as PDF has it, `D:YYYYMMDDHHmmSS` (ISO 32000-2, 7.9.4)."""
    match = _DATE.match(given or "")
    if not match:
        return None
    try:
        return date(int(match[1]), int(match[2] or 1), int(match[3] or 1)).isoformat()
    except ValueError:
        return None
