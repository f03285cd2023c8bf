"""The record that every reader yields, and what is read of a source: the columns of its files, or files of code."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gristmill.tasks.documents.step import DOCUMENT_COLUMNS, PAGE_COLUMNS

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
    carry, by the names that they have there. `headers`: the fields of the HTTP response that say how it may be used, as
    (name in lower case, value).
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
    headers: tuple[tuple[str, str], ...] = ()


Kept = Literal["generated", "vendored", "minified", "data"]
# whose releases decide what licenses are recognized
LIBRARIES = ("identify", "license-expression")
# The columns that documents of code carry, and what they are.
COLUMNS = {
    "path": "of the file in its repository; of a document of several files that of the first",
    "repository": "the name of the archive or folder, without its ending",
    "license": "as an SPDX expression; null where none is known",
    "license_type": "permissive, non_permissive or no_license",
    "license_by": "what says so: file, text, metadata, or none",
    "header_characters": "of the licence header that was left out, as an earlier file of the repository has it",
    "files": "how many the document has",
}


@dataclass(frozen=True)
class Repositories:
    """`unit`: what a document is; `document_bytes`: of a document of several files at most, in UTF-8, one larger file
    aside; `file_header`: the line before each file in such a document; `leave_out`: what files are dropped as;
    `repeated_headers`: license headers that an earlier file of the repository has are kept; `archive_bytes`: that an
    archive may unfold to."""

    unit: Literal["file", "repository"] = "file"
    document_bytes: int = 1 << 20
    file_header: str = "<file_sep>{path}"
    leave_out: tuple[Kept, ...] = ()
    repeated_headers: bool = False
    archive_bytes: int = 8 << 30


# Columns that a source gives by a key of their own, and those that steps give in every export.
_PLACED = ("text", "url", "id", "date")
TAKEN = frozenset({*DOCUMENT_COLUMNS, "language", "cluster_size"} - {*PAGE_COLUMNS})
OWN_NAME = re.compile(r"\w[\w -]*")


@dataclass(frozen=True)
class Columns:
    """Names of the columns, or keys, that are read; None for a missing one. `own`: columns that documents carry, as
    (name there, name in the file); `every`: all columns without another use; `pages`: whether the column `text` has the
    bytes of pages, which are extracted, instead of texts."""

    text: str = "text"
    url: str | None = None
    id: str | None = None
    date: str | None = None
    own: tuple[tuple[str, str], ...] = ()
    every: bool = False
    pages: bool = False

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that are read as text, URL, id or date."""
        return tuple(name for name in (self.text, self.url, self.id, self.date) if name)

    def own_of(self, there: Sequence[str]) -> list[tuple[str, str]]:
        """The columns of a file that documents carry: their name in the documents, and their name in the file."""
        if self.every:
            return [(name, name) for name in there if name not in self.named]
        return [(ours, theirs) for ours, theirs in self.own if theirs in there]

    def own_values(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a JSON object that documents carry, by the names that they have there."""
        if self.every:
            return {name: value for name, value in row.items() if name not in self.named}
        return {ours: value_of(row, theirs) for ours, theirs in self.own if is_in(row, theirs)}


def is_in(row: Mapping[str, Any], name: str) -> bool:
    """Whether a JSON object has a key: `a.b` is the key `b` of the object at `a`, unless the object has a key `a.b`."""
    if name in row or "." not in name:
        return name in row
    first, _, rest = name.partition(".")
    inner = row.get(first)
    return isinstance(inner, Mapping) and is_in(inner, rest)


def value_of(row: Mapping[str, Any], name: str) -> Any:
    """The value of a key as `is_in` has it; None without it."""
    if name in row or "." not in name:
        return row.get(name)
    first, _, rest = name.partition(".")
    inner = row.get(first)
    return value_of(inner, rest) if isinstance(inner, Mapping) else None


NO_COLUMNS = Columns()
MAX_FIELDS = 1000  # of the columns of a record that documents carry, with those within others
MAX_DEPTH = 32  # of a value within a column: deeper ones cannot be written


def oversized(own: Mapping[str, Any]) -> str:
    """Why the columns of a record cannot be carried, regardless of their types; "" if they can.

    Counts each name within a column once, however many objects of a list have it.
    """
    fields = len(own)
    waiting: list[tuple[list[Any], int]] = [([value], 1) for value in own.values()]
    while waiting and fields <= MAX_FIELDS:
        values, depth = waiting.pop()
        if depth > MAX_DEPTH:
            return f"a column is nested more than {MAX_DEPTH} deep"
        names: dict[str, list[Any]] = {}
        items: list[Any] = []
        for value in values:
            if isinstance(value, dict):
                for name, inner in value.items():
                    names.setdefault(name, []).append(inner)
            elif isinstance(value, list):
                items += [each for each in value if isinstance(each, dict | list)]
        fields += len(names)
        waiting += [(inner, depth + 1) for inner in names.values()]
        if items:
            waiting.append((items, depth + 1))
    return f"more than {MAX_FIELDS} columns, with those within others" if fields > MAX_FIELDS else ""


def check_own_names(columns: Mapping[str, str]) -> None:
    """Raise ValueError for a name of a column, by which documents carry one of a file's, that they cannot have."""
    for ours, theirs in columns.items():
        if ours in _PLACED:
            raise ValueError(
                f"has {ours}, which documents already have: write `{ours}_column: {theirs}` in the source, and list "
                f"the others one by one in `columns`{_renamed(ours, theirs).replace('; give', '; or give')}"
            )
        if ours in TAKEN:
            raise ValueError(f"has {ours}, which documents already have{_renamed(ours, theirs)}")
        if not OWN_NAME.fullmatch(ours):
            raise ValueError(
                f"has {ours!r}, with characters other than letters, digits, _, - and spaces; rename it, as "
                f"`columns: {{my_name: {theirs!r}}}`"
            )


def _renamed(ours: str, theirs: str) -> str:
    return f"; give it a different name, as `columns: {{their_{ours}: {theirs}}}`"


def columns_of(own: Any, text: str, url: str | None, id: str | None, date: str | None) -> Columns:
    """The columns of a source whose setting `columns` is `own`: "*" for all, names, or names by the file's names."""
    if own == "*":
        return Columns(text, url, id, date, every=True)
    return Columns(text, url, id, date, tuple(by_name(own).items()))


def by_name(columns: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """The names in the file of the columns that documents carry, by their names there."""
    return dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
