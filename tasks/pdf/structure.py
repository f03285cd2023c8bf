"""What a document says of its own headings: its outline (bookmarks), and the tags of its text."""

import ctypes
import re
from dataclasses import dataclass

import pypdfium2.raw as pdfium

from gristmill.tasks.pdf.objects import address

_MAX_ENTRIES = 10_000  # entries of an outline, elements of a page's structure
_LETTERS = 300  # of a heading
# Structure types of headings (ISO 32000-2, 14.8.4.3.2): H1 to any depth, Title since PDF 2.0.
_HEADING = re.compile(r"H([1-9])|Title")
MAX_LEVEL = 6  # of Markdown and HTML


@dataclass(frozen=True)
class Entry:
    """Of an outline. `level`: 1 for the outermost; `page` counts from 0."""

    title: str
    level: int
    page: int


def outline(document: pdfium.FPDF_DOCUMENT) -> list[Entry]:
    """The entries of a document's outline, in their order; those of deeper levels than 6 are left out."""
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
    """Of the marked content of a page that is tagged as a heading the level, by its number."""
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
