"""Records that are no pages, and pages that are not HTML or do not say so."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Other:
    """How a record differs from an ordinary page's: its WARC type, HTTP status, content type, body.

    `body` gives the stored body from the page's HTML and its text; `yields` as in `truth.SCHEMA`. `http` False:
    the block is the body. `warc` are further WARC headers.
    """

    yields: str
    body: Callable[[Random, bytes, str], bytes]
    content_type: str | None = "text/html; charset=utf-8"
    status: str = "200 OK"
    record_type: str = "response"
    http: bool = True
    headers: tuple[tuple[str, str], ...] = ()
    warc: tuple[tuple[str, str], ...] = ()

    @property
    def in_arc(self) -> bool:
        """ARC knows HTTP responses, and nothing about them but what stands in its one line."""
        return self.http and self.record_type == "response" and not self.warc


def _page(rng: Random, html: bytes, text: str) -> bytes:
    return html


def _text(rng: Random, html: bytes, text: str) -> bytes:
    return text.encode()


def _nothing(rng: Random, html: bytes, text: str) -> bytes:
    return b""


def _short(message: str) -> Callable[[Random, bytes, str], bytes]:
    return lambda rng, html, text: f"<html><body><h1>{message}</h1></body></html>".encode()


def _begins(magic: bytes) -> Callable[[Random, bytes, str], bytes]:
    return lambda rng, html, text: magic + rng.randbytes(rng.randint(500, 5000))


def _rows(rng: Random, html: bytes, text: str) -> bytes:
    return b'{"rows": [%s]}' % b", ".join(b'{"n": %d}' % rng.randrange(10**6) for _ in range(50))


def _dns(rng: Random, html: bytes, text: str) -> bytes:
    return b"20240101000000\nplanted-mill.com. 1 IN A 203.0.113.%d\n" % rng.randrange(256)


def _robots(rng: Random, html: bytes, text: str) -> bytes:
    return b"User-agent: *\n" + b"".join(b"Disallow: /p%d\n" % rng.randrange(1000) for _ in range(9))


_REVISIT = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"

VARIANTS: dict[str, Other] = {
    "redirect": Other("none", _short("Moved"), status="301 Moved Permanently", headers=(("Location", "/moved"),)),
    "not_found": Other("none", _short("Not found"), status="404 Not Found"),
    "server_error": Other("none", _short("Error"), status="503 Service Unavailable"),
    "image": Other("none", _begins(b"\x89PNG\r\n\x1a\n"), "image/png"),
    "pdf": Other("none", _begins(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"), "application/pdf"),
    "pdf_as_html": Other("none", _begins(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"), "text/html"),
    "json": Other("none", _rows, "application/json"),
    "robots": Other("either", _robots, "text/plain"),
    "empty_body": Other("none", _nothing),
    "empty_page": Other("none", lambda rng, html, text: b"<html><head></head><body><script>1</script></body></html>"),
    "revisit": Other("none", _nothing, record_type="revisit", warc=(("WARC-Profile", _REVISIT),)),
    "truncated": Other("either", lambda rng, html, text: html[: len(html) // 2], warc=(("WARC-Truncated", "length"),)),
    "dns": Other("none", _dns, "text/dns", http=False),
    "resource": Other("either", _page, "text/html; charset=utf-8", record_type="resource", http=False),
    "plain_text": Other("page", _text, "text/plain; charset=utf-8"),
    "xhtml": Other("page", _page, "application/xhtml+xml; charset=utf-8"),
    "no_content_type": Other("page", _page, None),
    "wrong_content_type_case": Other("page", _page, "TEXT/HTML;CHARSET=UTF-8"),
}
