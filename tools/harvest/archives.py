"""Pages as a crawler would have stored them: HTML in WARC records, each its own gzip member, and what else it meets."""

import gzip
import hashlib
import html
import uuid
from datetime import UTC, datetime, timedelta

import numpy as np

from tools.harvest.pages import LANGUAGES, Pages, draw, keyed
from tools.harvest.texts import texts

# Shares of responses, about those of a snapshot of Common Crawl: nearly all of what it keeps was sent with the status
# 200 as HTML.
_OTHER_TYPES = {"application/pdf": 0.008, "text/plain": 0.004, "application/xml": 0.004, "application/json": 0.002}
_STATUS = {"301 Moved Permanently": 0.02, "404 Not Found": 0.03, "500 Internal Server Error": 0.002}
_CUT, _DAMAGED = 0.01, 0.001  # payloads that the crawler cut, and records of which bytes were lost
_CHARSETS = {"ru": "windows-1251", "de": "windows-1252", "fr": "windows-1252", "es": "windows-1252", "pl": "iso-8859-2"}
_OLD_CHARSET = 0.1  # of the pages in these languages
_BEGIN = datetime(2026, 10, 1, tzinfo=UTC)
_MENU = 12  # links of a host's menu


def archive(some: Pages, seed: int) -> bytes:
    """A WARC file: a `warcinfo` record, and a response for each of the documents. Holds it."""
    members = [
        _record(
            "warcinfo",
            "",
            day(some, 0),
            b"software: gristmill harvest\r\nformat: WARC File Format 1.0\r\n",
            keyed(some.number[:1], seed, "info"),
        )
    ]
    written = texts(some, seed).to_pylist()
    draws = {name: draw(some.number, seed, name) for name in ("type", "status", "cut", "damaged", "charset")}
    identity = keyed(some.number, seed, "record")
    names = list(LANGUAGES)
    for at, text in enumerate(written):
        language, host = names[some.language[at]], f"www.site{some.host[at]}.example"
        url = address(some, at)
        status = _chosen(_STATUS, draws["status"][at]) or "200 OK"
        media = _chosen(_OTHER_TYPES, draws["type"][at])
        charset = _CHARSETS.get(language, "utf-8") if draws["charset"][at] < _OLD_CHARSET else "utf-8"
        if status != "200 OK":
            body, kind = f"<html><title>{status}</title><h1>{status}</h1></html>".encode(), "text/html"
        elif media:
            body, kind = text.encode(), media
        else:
            body, kind = _page(text, host, language, charset), f"text/html; charset={charset}"
        extra = ""
        if draws["cut"][at] < _CUT:
            body, extra = body[: len(body) // 2], "WARC-Truncated: length\r\n"
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        member = _record("response", url, day(some, at), head + body, identity[at : at + 1], extra)
        if draws["damaged"][at] < _DAMAGED:
            middle = len(member) // 2
            member = member[:middle] + bytes(min(64, len(member) - middle)) + member[middle + 64 :]
        members.append(member)
    return b"".join(members)


def address(some: Pages, at: int) -> str:
    """The URL of a document."""
    return f"https://www.site{some.host[at]}.example/{some.text[at] % 97}/{some.number[at]:x}.html"


def day(some: Pages, at: int) -> str:
    """When a document was crawled: one a second, in the order of the numbers."""
    return (_BEGIN + timedelta(seconds=int(some.number[at]))).strftime("%Y-%m-%dT%H:%M:%SZ")


def _chosen(shares: dict[str, float], drawn: float) -> str | None:
    for name, share in shares.items():
        if drawn < share:
            return name
        drawn -= share
    return None


def _page(text: str, host: str, language: str, charset: str) -> bytes:
    paragraphs = [html.escape(line, quote=False) for line in text.split("\n") if line]
    title = " ".join(text.split()[:6])
    menu = "".join(f'<li><a href="https://{host}/{number}/">{host[8:14]} {number}</a></li>' for number in range(_MENU))
    body = "</p>\n<p>".join(paragraphs)
    page = (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="{charset}"><title>{html.escape(title)}</title>'
        f"<style>body{{margin:0}}</style></head><body><header><nav><ul>{menu}</ul></nav></header>\n"
        f"<main><article><h1>{html.escape(title)}</h1>\n<p>{body}</p></article></main>\n"
        f"<footer><p>&copy; 2026 {host}</p></footer></body></html>\n"
    )
    return page.encode(charset, "xmlcharrefreplace")


def _record(kind: str, url: str, date: str, block: bytes, identity: np.ndarray, extra: str = "") -> bytes:
    """A WARC record as a gzip member."""
    target = f"WARC-Target-URI: {url}\r\n" if url else ""
    media = "application/http; msgtype=response" if url else "application/warc-fields"
    name = uuid.UUID(bytes=hashlib.sha256(identity.tobytes()).digest()[:16], version=4)
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Date: {date}\r\nWARC-Record-ID: <urn:uuid:{name}>\r\n"
        f"{target}{extra}Content-Type: {media}\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return gzip.compress(head.encode() + block + b"\r\n\r\n", 1, mtime=0)
