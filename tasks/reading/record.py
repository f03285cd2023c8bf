"""The record that every reader yields. Separate: the readers share only this."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# A record of one of these kinds is a page, or was meant to be one; every other kind is counted and passed over.
PAGES = frozenset({"response", "revisit", "resource", "conversion", "row", "unknown"})


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a source's file, its payload without transfer and content encodings.

    `kind`: the WARC type (`response`, `request`, ...), `row` for a row of a table, a line of JSON or a text,
    `unknown` for one so damaged that its type cannot be read. `offset`, `length`: bytes in the file as it is stored
    (of the compressed member where records are compressed one by one); for a table the row number and None.
    `digest`, `ip`, `truncated`: as the crawler wrote them. `status`, `content_type` (essence, lower case, "" if
    unsaid), `charset`: of the HTTP response; `status` is None for a record without one. `note`: in what way a record
    that was read is not as its format wants it, else None. `problem`: a pair (rule, detail) when the record cannot
    become a document, else None; the payload is empty then. `own`: of a table the values of columns that documents
    carry, by the names that they have there.
    """

    kind: str
    offset: int
    length: int | None
    record_id: str = ""
    url: str = ""
    date: str = ""
    ip: str | None = None
    digest: str | None = None
    truncated: str | None = None
    status: int | None = None
    content_type: str = ""
    charset: str | None = None
    payload: bytes = b""
    note: str | None = None
    problem: tuple[str, str] | None = None
    own: Mapping[str, Any] | None = None
