"""What a record's block gives: the answer's status and type, and the payload without its encodings."""

import re
from collections.abc import Iterator
from typing import Any

from gristmill.tasks.reading.digests import differs
from gristmill.tasks.reading.headers import HEAD, fields, head_end, media_type
from gristmill.tasks.reading.payload import dechunk, decode

WITH_PAYLOAD = frozenset({"response", "resource", "conversion"})
BARE = "no HTTP headers"

_DETAIL = 200
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})(?!\d)")
_REFERS = (b"warc-refers-to-target-uri", b"warc-refers-to-date", b"warc-refers-to")
# Fields behind no status line: a damaged head is no page.
_HEADLESS = re.compile(rb"(?:[^\r\n<]{0,1000}\r{0,2}\n)?[A-Za-z][A-Za-z0-9-]{0,60}:[ \t]")
_WEB = re.compile(r"(?:https?|ftp)://", re.IGNORECASE)


def read_block(
    data: bytes, start: int, end: int, known: dict[str, Any], found: dict[bytes, bytes], max_bytes: int, verify: bool
) -> dict[str, Any]:
    """Columns of Record from its block, `data[start:end]`: payload or problem, and what the answer's head says.

    `known`: columns from the record's own headers, `kind` and `url` among them; `found`: these headers.
    """
    kind = known["kind"]
    if kind == "unknown":
        return wrong("unknown_type", text_of(found.get(b"warc-type", b"")))
    if verify and (unlike := differs(found.get(b"warc-block-digest", b""), [data[start:end]])):
        return wrong("digest_mismatch", f"block: {unlike}")
    columns: dict[str, Any] = {}
    http: dict[bytes, bytes] = {}
    if kind in ("response", "revisit"):
        columns, http, start = _answer(data, start, end, known["url"], found)
    elif kind in ("resource", "conversion"):
        essence, charset = media_type(found.get(b"content-type", b""))
        if kind == "conversion":
            essence, charset = essence or "text/plain", charset or "utf-8"
        columns = {"content_type": essence, "charset": charset}
    if kind == "revisit":
        refers = [text_of(value).strip("<>") for name in _REFERS if (value := found.get(name))]
        columns |= wrong("revisit", " ".join(refers))
    if kind not in WITH_PAYLOAD or "problem" in columns:
        return columns
    if end - start > max_bytes:
        return columns | wrong("too_large", f"more than {max_bytes} bytes")
    raw = payload = data[start:end]
    try:
        if http:
            payload = decode(raw, http, max_bytes)
    except (OSError, ValueError) as error:
        return columns | wrong("undecodable_payload", str(error))
    if verify and (unlike := differs(found.get(b"warc-payload-digest", b""), _bodies(raw, payload))):
        return columns | wrong("digest_mismatch", f"payload: {unlike}")
    if len(payload) > max_bytes:
        return columns | wrong("too_large", f"more than {max_bytes} bytes")
    columns["payload"] = payload
    return columns


def _answer(
    data: bytes, start: int, end: int, url: str, found: dict[bytes, bytes]
) -> tuple[dict[str, Any], dict[bytes, bytes], int]:
    """Columns of Record from an HTTP answer's head, its fields, and where its body begins.

    Old crawls and exports of archives hold answers without a head (that is also what HTTP/0.9 sends): such a block of
    an address of the web is a body, its type that of the record.
    """
    if not data.startswith(b"HTTP/", start, end):
        essence, charset = media_type(found.get(b"content-type", b""))
        if not _WEB.match(url) or _HEADLESS.match(data, start, end):
            return wrong("not_http", text_of(found.get(b"content-type", b""))), {}, start
        if essence == "application/http":
            essence, charset = "", None
        return {"content_type": essence, "charset": charset, "note": BARE}, {}, start
    head = head_end(data, start, min(end, start + HEAD))
    if head is None:
        if end - start >= HEAD:
            return wrong("damaged_record", f"its HTTP headers do not end within {HEAD} bytes"), {}, start
        head = (end, end)
    http = fields(data[start : head[0]])
    status = _STATUS.match(data, start, head[1])
    essence, charset = media_type(http.get(b"content-type", b""))
    return {"status": int(status[1]) if status else None, "content_type": essence, "charset": charset}, http, head[1]


def _bodies(raw: bytes, decoded: bytes) -> Iterator[bytes]:
    """What crawlers take a payload's digest of: the body as sent, without its chunks, without any encoding."""
    yield raw
    yield decoded
    try:
        yield dechunk(raw, len(raw))
    except ValueError:
        return


def wrong(rule: str, detail: str) -> dict[str, Any]:
    """The column of a record that cannot become a document."""
    return {"problem": (rule, detail[:_DETAIL])}


def text_of(value: bytes) -> str:
    """A header's value."""
    return value.decode("utf-8", "replace").strip()
