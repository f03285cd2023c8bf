"""Pages as a server would give them, written as WARC 1.1 files: the same bytes for the same pages."""

import base64
import gzip
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

# RFC 6761: no name under .invalid is ever delegated, so these addresses can be nobody's.
MANUAL = "https://manual.harvest.invalid/"
SERVICES = "https://services.harvest.invalid/"


def site(kind: str, project: str) -> str:
    """The address of a project, which has a host of its own, as projects on the web have: its pages are alike."""
    return f"https://{project}.{kind}.harvest.invalid/"


@dataclass(frozen=True)
class Page:
    """`kind` is the source it is filed under; `edited` marks what may become reference prose."""

    url: str
    kind: str
    content_type: str
    payload: bytes
    edited: bool = False


def html_page(title: str, body: str) -> bytes:
    """A whole HTML document in UTF-8. `body` is markup already, `title` is text."""
    title = html.escape(title)
    page = f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title></head>\n'
    return f"{page}<body>\n{body}\n</body>\n</html>\n".encode("utf-8", "replace")


def preformatted(title: str, text: str) -> bytes:
    """An HTML document that shows `text` as it is."""
    return html_page(title, f"<h1>{html.escape(title)}</h1>\n<pre>\n{html.escape(text)}\n</pre>")


# The files do not depend on when they were made: each harvest of an environment is the same.
DATE = "2024-01-01T00:00:00Z"
HTTP_DATE = "Mon, 01 Jan 2024 00:00:00 GMT"
SOFTWARE = "gristmill harvest"


def write_archive(path: Path, pages: Sequence[Page]) -> None:
    """A warcinfo record and a response record per page, gzip per record (WARC 1.1, annex D)."""
    with path.open("wb") as stream:
        writer = WARCWriter(stream, gzip=True, warc_version="WARC/1.1")
        info = f"software: {SOFTWARE}\r\nformat: WARC File Format 1.1\r\nconformsTo: {_STANDARD}\r\n".encode()
        info_id = _record_id("warcinfo", path.name, info)
        record = writer.create_warc_record(
            "",
            "warcinfo",
            payload=io.BytesIO(info),
            warc_content_type="application/warc-fields",
            warc_headers_dict={"WARC-Record-ID": info_id, "WARC-Filename": path.name, "WARC-Date": DATE},
        )
        writer.write_record(record)
        for page in pages:
            record = writer.create_warc_record(
                page.url,
                "response",
                payload=io.BytesIO(page.payload),
                http_headers=_http_headers(page),
                warc_headers_dict={
                    "WARC-Record-ID": _record_id("response", page.url, page.payload),
                    "WARC-Warcinfo-ID": info_id,
                    "WARC-Date": DATE,
                    "WARC-IP-Address": "127.0.0.1",
                },
            )
            writer.write_record(record)


_STANDARD = "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"


def _record_id(kind: str, name: str, payload: bytes) -> str:
    digest = base64.b32encode(sha1(payload).digest()).decode()
    return f"<urn:uuid:{uuid5(NAMESPACE_URL, f'{kind} {name} sha1:{digest}')}>"


def _http_headers(page: Page) -> StatusAndHeaders:
    headers = [
        ("Date", HTTP_DATE),
        ("Server", SOFTWARE),
        ("Content-Type", page.content_type),
        ("Content-Length", str(len(page.payload))),
        ("Last-Modified", HTTP_DATE),
    ]
    return StatusAndHeaders("200 OK", headers, protocol="HTTP/1.1")


def write_list(path: Path, names: Sequence[str]) -> None:
    """A `warc.paths.gz` as Common Crawl gives: one path a line, relative to the list."""
    path.write_bytes(gzip.compress("".join(f"{name}\n" for name in names).encode(), mtime=0))
