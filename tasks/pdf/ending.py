"""An end for a file that has lost its own: crawlers cut large files, and what leads to the pages stands at the end."""

import re

# An object whose dictionary says that it is a page or the catalog, not those in compressed object streams.
_OBJECT = re.compile(rb"(?<!\d)(\d{1,8})\s+(\d{1,5})\s+obj\b")
_TYPE = re.compile(rb"/Type\s*/(Page|Catalog)(?![A-Za-z])")
_LOOKED = 4000  # bytes of an object, at most
_MOST = 10_000  # pages


def with_end(payload: bytes) -> bytes | None:
    """The file with a trailer that leads to its catalog; or, where that is lost too, with a catalog and a list of the
    pages that are in it, by the order in which they stand. None where neither is found.

    pdfium finds the objects of a file without a table by itself, but needs a trailer. Holds the file once more.
    """
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
        elif kind and len(pages) < _MOST:
            pages.append(b"%d %s R" % (number, match[2]))
    # the catalog leads to the list of pages, which is lost where the file is cut ahead of it
    if not pages:
        return None if root is None else b"%s\nendobj\ntrailer<</Root %s>>\n%%%%EOF\n" % (payload, root)
    one, two = highest + 1, highest + 2
    made = b"\nendstream\nendobj\n%d 0 obj<</Type/Catalog/Pages %d 0 R>>endobj\n" % (one, two)
    made += b"%d 0 obj<</Type/Pages/Count %d/Kids[%s]>>endobj\n" % (two, len(pages), b" ".join(pages))
    return b"%s%strailer<</Size %d/Root %d 0 R>>\n%%%%EOF\n" % (payload, made, two + 1, one)
