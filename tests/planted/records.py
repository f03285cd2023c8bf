"""How pages are sent and stored otherwise than an ordinary one: encodings, other kinds of records, hostile pages."""

import codecs
import io
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random

import pyarrow as pa
from fastwarc.stream_io import BrotliWriter

Headers = tuple[tuple[str, str], ...]
Damage = Callable[[Random, bytes], bytes]


@dataclass(frozen=True)
class Sent:
    """How a page becomes a record; the defaults are an ordinary page's.

    `yields` as in `writing.COLUMNS`. `body` gives the stored body from the page's HTML and its text. `http` False: the
    block is the body. `warc` are further WARC headers. The HTML is written with `codec` after a byte order `mark` and
    names the encoding `meta`, in a certain `language` or any. `before` damages the record before it is compressed,
    `after` what is stored.
    """

    body: Callable[[Random, bytes, str], bytes] = lambda rng, html, text: html
    headers: Headers = ()
    content_type: str | None = "text/html; charset=utf-8"
    yields: str = "page"
    status: str = "200 OK"
    record_type: str = "response"
    http: bool = True
    warc: Headers = ()
    codec: str = "utf-8"
    meta: str | None = "utf-8"
    mark: bytes = b""
    language: str | None = None
    before: Damage | None = None
    after: Damage | None = None


# Content and transfer encodings. `claimed_*`: the header stayed when the crawler took the encoding off, as is common.


def gzip(body: bytes) -> bytes:
    return zlib.compress(body, 6, zlib.MAX_WBITS | 16)


def _brotli(body: bytes) -> bytes:
    target = io.BytesIO()
    writer = BrotliWriter(target)
    writer.write(body)
    writer.close()
    return target.getvalue()


def _chunked(rng: Random, body: bytes, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    """RFC 9112, section 7.1; chunks of 1 byte to 8 kB."""
    parts, at = [], 0
    while piece := body[at : at + rng.choice((1, 100, 1000, 4096, 8192))]:
        parts.append(b"%x%s\r\n%s\r\n" % (len(piece), extension, piece))
        at += len(piece)
    return b"".join([*parts, b"0\r\n", trailer, b"\r\n"])


def encoded(name: str) -> Headers:
    return (("Content-Encoding", name),)


CHUNKED = (("Transfer-Encoding", "chunked"),)
TRANSFER = {
    "gzip": Sent(lambda rng, b, _: gzip(b), encoded("gzip")),
    "x-gzip": Sent(lambda rng, b, _: gzip(b), encoded("x-gzip")),
    "deflate": Sent(lambda rng, b, _: zlib.compress(b), encoded("deflate")),
    "raw_deflate": Sent(lambda rng, b, _: zlib.compress(b, 6, -zlib.MAX_WBITS), encoded("deflate")),
    "br": Sent(lambda rng, b, _: _brotli(b), encoded("br")),
    "zstd": Sent(lambda rng, b, _: pa.Codec("zstd", 3).compress(b, asbytes=True), encoded("zstd")),
    "gzip_twice": Sent(lambda rng, b, _: gzip(gzip(b)), encoded("gzip, gzip")),
    "chunked": Sent(lambda rng, b, _: _chunked(rng, b), CHUNKED),
    "chunked_extras": Sent(lambda rng, b, _: _chunked(rng, b, b";name=value", b"Expires: never\r\n"), CHUNKED),
    "gzip_chunked": Sent(lambda rng, b, _: _chunked(rng, gzip(b)), encoded("gzip") + CHUNKED),
    "br_chunked": Sent(lambda rng, b, _: _chunked(rng, _brotli(b)), encoded("br") + CHUNKED),
    "claimed_gzip": Sent(headers=encoded("gzip")),
    "claimed_br": Sent(headers=encoded("br")),
    "claimed_chunked": Sent(headers=CHUNKED),
    "identity": Sent(headers=encoded("identity")),
}

# Labels of encodings that pages name, by the language that they are tried on; and the codec that browsers use for a
# label (WHATWG Encoding) where Python has another.
_LABELS = {
    "ru": "utf-8 windows-1251 koi8-r iso-8859-5",
    "de": "windows-1252 iso-8859-1",
    "fr": "iso-8859-15",
    "pl": "windows-1250 iso-8859-2",
    "ar": "windows-1256",
    "th": "windows-874",
    "ja": "shift_jis euc-jp iso-2022-jp",
    "zh": "gb18030 gbk utf-16le utf-16be",
    "ko": "euc-kr",
}
_CODECS = {"iso-8859-1": "cp1252", "windows-874": "cp874", "shift_jis": "cp932", "euc-kr": "cp949"}
_MARKS = {"utf-8": codecs.BOM_UTF8, "utf-16le": codecs.BOM_UTF16_LE, "utf-16be": codecs.BOM_UTF16_BE}


def _charsets(label: str, language: str) -> dict[str, Sent]:
    """By encoding and how it is declared: in `wrong_*` what counts by the HTML standard is wrong; in `*_over_*` what
    counts is right and what does not is wrong."""
    wrong, other = ("windows-1252", "windows-1251") if label == "utf-8" else ("utf-8", None)
    mark, found = _MARKS.get(label, b""), {}
    declared = {"bom": (None, None), "bom_over_header": ("iso-8859-1", other)} if mark else {}
    if not label.startswith("utf-16"):
        declared |= {"header": (label, None), "meta": (None, label), "none": (None, None), "wrong_meta": (None, wrong)}
        declared |= {"header_over_meta": (label, wrong), "wrong_header": (wrong, label)}
    for how, (header, meta) in declared.items():
        kind = f"text/html; charset={header}" if header else "text/html"
        before = mark if how.startswith("bom") else b""
        sent = Sent(content_type=kind, codec=_CODECS.get(label, label), meta=meta, mark=before, language=language)
        found[f"{label}/{how}"] = sent
    return found


CHARSETS = {
    name: sent
    for lang, labels in _LABELS.items()
    for label in labels.split()
    for name, sent in _charsets(label, lang).items()
}

# Records that are no pages, and pages that are not HTML or do not say so.


def _short(message: str) -> Callable[[Random, bytes, str], bytes]:
    return lambda rng, html, text: f"<html><body><h1>{message}</h1></body></html>".encode()


def _begins(magic: bytes) -> Callable[[Random, bytes, str], bytes]:
    return lambda rng, html, text: magic + rng.randbytes(rng.randint(500, 5000))


def _rows(row: bytes, count: int) -> Callable[[Random, bytes, str], bytes]:
    return lambda rng, html, text: b"".join(row % rng.randrange(256) for _ in range(count))


_PDF = _begins(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
_REVISIT = (("WARC-Profile", "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"),)
OTHERS = {
    "redirect": Sent(_short("Moved"), (("Location", "/moved"),), yields="none", status="301 Moved Permanently"),
    "not_found": Sent(_short("Not found"), yields="none", status="404 Not Found"),
    "server_error": Sent(_short("Error"), yields="none", status="503 Service Unavailable"),
    "image": Sent(_begins(b"\x89PNG\r\n\x1a\n"), (), "image/png", "none"),
    "pdf": Sent(_PDF, (), "application/pdf", "none"),
    "pdf_as_html": Sent(_PDF, (), "text/html", "none"),
    "json": Sent(_rows(b'{"n": %d}\n', 50), (), "application/json", "none"),
    "robots": Sent(_rows(b"User-agent: *\nDisallow: /p%d\n", 9), (), "text/plain", "either"),
    "empty_body": Sent(lambda *_: b"", yields="none"),
    "empty_page": Sent(lambda *_: b"<html><head></head><body><script>1</script></body></html>", yields="none"),
    "revisit": Sent(lambda *_: b"", yields="none", record_type="revisit", warc=_REVISIT),
    "truncated": Sent(
        lambda _, html, text: html[: len(html) // 2], yields="either", warc=(("WARC-Truncated", "length"),)
    ),
    "dns": Sent(_rows(b"20240101\nplanted-mill.com. 1 IN A 203.0.113.%d\n", 1), (), "text/dns", "none", http=False),
    "resource": Sent(yields="either", record_type="resource", http=False),
    "plain_text": Sent(lambda rng, html, text: text.encode(), content_type="text/plain; charset=utf-8"),
    "xhtml": Sent(content_type="application/xhtml+xml; charset=utf-8"),
    "no_content_type": Sent(content_type=None),
    "wrong_content_type_case": Sent(content_type="TEXT/HTML;CHARSET=UTF-8"),
}

# Pages that make a careless extractor run out of memory, of stack or of time.
_MB = 1_000_000


@cache
def _zeros() -> bytes:
    """A gzip member of 100 MB of zero bytes, a thousandth of their size."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join(packer.compress(bytes(_MB)) for _ in range(100)) + packer.flush()


def _before(markup: Callable[[], str], after: str = "") -> Sent:
    def body(rng: Random, html: bytes, text: str) -> bytes:
        return f"<html><head><title>t</title></head><body>{markup()}<p>{text}</p>{after}</body></html>".encode()

    return Sent(body, yields="either")


HOSTILE = {
    "deep_divs": _before(lambda: "<div>" * 100_000, "</div>" * 100_000),
    "deep_tables": _before(lambda: "<table><tr><td>" * 20_000),
    "deep_inline": _before(lambda: "<b><i><font>" * 30_000),
    "open_paragraphs": _before(lambda: "<p>" * 500_000),
    "gzip_bomb": Sent(lambda *_: _zeros(), encoded("gzip"), yields="either"),
    "gzip_bomb_twice": Sent(lambda *_: gzip(_zeros()), encoded("gzip, gzip"), yields="either"),
    "endless_attribute": _before(lambda: '<a href="' + "x" * 5 * _MB),
    "many_attributes": _before(lambda: f"<div {' '.join(f'a{i}=1' for i in range(200_000))}>"),
    "endless_comment": _before(lambda: "<!--" + "-" * 3 * _MB),
    "endless_script": _before(lambda: "<script>" + "if(a<b){}" * 300_000),
    "entities": _before(lambda: "<p>" + "&amp;" * 600_000 + "</p>"),
    "one_word": _before(lambda: "<p>" + "w" * 5 * _MB + "</p>"),
    "many_lines": _before(lambda: "<pre>" + "\n" * 3 * _MB + "</pre>"),
    "many_links": _before(lambda: "<a href=/>x</a>" * 200_000),
    "nul_bytes": _before(lambda: "\0" * _MB),
    "brackets": _before(lambda: "<" * 2 * _MB),
    "large_page": _before(lambda: "<p>mill and bread</p>\n" * (10 * _MB // 22)),
}
