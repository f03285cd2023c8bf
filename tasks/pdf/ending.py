"""An end for a file that has lost its own: crawlers cut large files, and what leads to the pages stands at the end."""

import re
import zlib
from collections.abc import Iterator
from itertools import pairwise

# An object whose dictionary says that it is a page or the catalog.
_OBJECT = re.compile(rb"(?<!\d)(\d{1,8})\s+(\d{1,5})\s+obj\b")
_TYPE = re.compile(rb"/Type\s*/(Page|Catalog)(?![A-Za-z])")
_LOOKED = 4000  # bytes of an object, at most
_MOST = 10_000  # pages
# A stream of objects (ISO 32000-2, 7.5.7): N of them, the first at First, ahead of them their numbers and places.
_STREAM = re.compile(rb"/Type\s*/ObjStm(?![A-Za-z])")
_COUNT, _FIRST = re.compile(rb"/N\s+(\d{1,7})(?!\s+\d+\s+R)"), re.compile(rb"/First\s+(\d{1,8})")
_DATA = re.compile(rb"stream\r?\n")
_UNPACKED = 64 << 20  # bytes of all streams of objects


def with_end(payload: bytes) -> bytes | None:
    """The file with a trailer that leads to its catalog; or, where that is lost too, with a catalog and a list of the
    pages that are in it, by the order in which they stand. None where neither is found.

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
        elif kind and len(pages) < _MOST:
            pages.append(b"%d %s R" % (number, match[2]))
    # the catalog leads to the list of pages, which is lost where the file is cut ahead of it
    if not pages:
        return None if root is None else b"%s\nendobj\ntrailer<</Root %s>>\n%%%%EOF\n" % (payload, root)
    one, two = highest + 1, highest + 2
    made = b"\nendstream\nendobj\n%d 0 obj<</Type/Catalog/Pages %d 0 R>>endobj\n" % (one, two)
    made += b"%d 0 obj<</Type/Pages/Count %d/Kids[%s]>>endobj\n" % (two, len(pages), b" ".join(pages))
    return b"%s%strailer<</Size %d/Root %d 0 R>>\n%%%%EOF\n" % (payload, made, two + 1, one)


def _packed(payload: bytes) -> Iterator[bytes]:
    """The whole objects of compressed streams, each as one by itself."""
    left = _UNPACKED
    for match in _STREAM.finditer(payload):
        begin = payload.rfind(b"obj", max(0, match.start() - _LOOKED), match.start())
        data = _DATA.search(payload, match.end(), match.end() + _LOOKED)
        if begin < 0 or data is None or left <= 0:
            continue
        head = payload[begin : data.start()]
        count, first = _COUNT.search(head), _FIRST.search(head)
        if not count or not first or b"FlateDecode" not in head or b"/Predictor" in head:
            continue
        try:
            # the last one may be cut
            text = zlib.decompressobj().decompress(memoryview(payload)[data.end() :], left)
        except zlib.error:
            continue
        left -= len(text)
        numbers = text[: int(first[1])].split()[: 2 * int(count[1])]
        if not all(map(bytes.isdigit, numbers)):
            continue
        places = [(int(a), int(first[1]) + int(b)) for a, b in zip(numbers[::2], numbers[1::2], strict=False)]
        for (number, at), (_, end) in pairwise([*places, (0, len(text))]):
            if at < end < len(text) or (end == len(text) and len(places) == int(count[1])):
                yield b"%d 0 obj\n%s\nendobj\n" % (number, text[at:end])
