"""Pages that make a careless extractor run out of memory, of stack or of time."""

import zlib
from collections.abc import Callable
from functools import cache

from tests.planted import transfer
from tests.planted.transfer import Headers

_MB = 1_000_000


@cache
def _zeros(megabytes: int) -> bytes:
    """A gzip member of so many zero bytes, a thousandth of their size."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join(packer.compress(bytes(_MB)) for _ in range(megabytes)) + packer.flush()


def _around(text: str, before: str, after: str = "") -> bytes:
    return f"<html><head><title>t</title></head><body>{before}<p>{text}</p>{after}</body></html>".encode()


def _table(depth: int) -> str:
    return "<table><tr><td>" * depth


# From the page's text (escaped) and the size of `large_page` to the body as it is stored and its headers.
VARIANTS: dict[str, Callable[[str, int], tuple[bytes, Headers]]] = {
    "deep_divs": lambda text, _: (_around(text, "<div>" * 100_000, "</div>" * 100_000), []),
    "deep_tables": lambda text, _: (_around(text, _table(20_000)), []),
    "deep_inline": lambda text, _: (_around(text, "<b><i><font>" * 30_000), []),
    "open_paragraphs": lambda text, _: (_around(text, "<p>" * 500_000), []),
    "gzip_bomb": lambda text, _: (_zeros(100), [("Content-Encoding", "gzip")]),
    "gzip_bomb_twice": lambda text, _: (transfer.gzip(_zeros(100)), [("Content-Encoding", "gzip, gzip")]),
    "endless_attribute": lambda text, _: (_around(text, '<a href="' + "x" * 5 * _MB), []),
    "many_attributes": lambda text, _: (_around(text, f"<div {' '.join(f'a{i}=1' for i in range(200_000))}>"), []),
    "endless_comment": lambda text, _: (_around(text, "<!--" + "-" * 3 * _MB), []),
    "endless_script": lambda text, _: (_around(text, "<script>" + "if(a<b){}" * 300_000), []),
    "entities": lambda text, _: (_around(text, "<p>" + "&amp;" * 600_000 + "</p>"), []),
    "one_word": lambda text, _: (_around(text, "<p>" + "w" * 5 * _MB + "</p>"), []),
    "many_lines": lambda text, _: (_around(text, "<pre>" + "\n" * 3 * _MB + "</pre>"), []),
    "many_links": lambda text, _: (_around(text, "<a href=/>x</a>" * 200_000), []),
    "nul_bytes": lambda text, _: (_around(text, "\0" * _MB), []),
    "brackets": lambda text, _: (_around(text, "<" * 2 * _MB), []),
    "large_page": lambda text, size: (_around(text, "<p>mill and bread</p>\n" * (size // 22)), []),
}
