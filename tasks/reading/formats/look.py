"""What a file is, as its beginning shows: the answer of the formats that recognize it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.tasks.reading.columns import NO_COLUMNS, Columns

TEXTS = 40  # texts of a file that are looked at
CHARACTERS = 2000  # of each of them
# Names of columns, the likeliest first; in either case.
_TEXT = (
    *("text", "content", "body", "raw_content", "page_content", "contents", "article", "document", "passage"),
    *("plain_text", "raw_text", "maintext", "markdown", "story", "abstract"),
)
_URL = ("url", "uri", "source_url", "page_url", "link", "permalink", "target_uri", "warc_target_uri")
_ID = (
    "id",
    "doc_id",
    "docid",
    "dockey",
    "doc_key",
    "document_id",
    "_id",
    "uuid",
    "guid",
    "record_id",
    "warc_record_id",
    "key",
)
_DATE = (
    *("date", "crawl_date", "date_download", "timestamp", "published", "published_at", "date_publish", "created"),
    *("created_at", "created_date", "pubdate", "pub_date", "when", "time", "warc_date", "added", "year"),
)


@dataclass(frozen=True)
class Beginning:
    """The beginning of a file. `head`: of its content, unpacked; `is_whole`: whether that is all of it; `stored`: its
    first bytes as they are stored."""

    path: str
    head: bytes
    is_whole: bool
    stored: bytes


@dataclass(frozen=True)
class Look:
    """What a file is. `kind`: the key of a source that reads it, or None, and `trouble` is the reason; `columns`: of
    tables, and `others` that there are; `texts`: the beginnings of some documents; `pages`: how many were HTML. A PDF
    document has the kind `pages`; it is not read here, as that needs a guarded process."""

    kind: str | None
    columns: Columns = NO_COLUMNS
    texts: tuple[str, ...] = ()
    pages: int = 0
    trouble: str = ""
    others: tuple[str, ...] = ()


def table_look(kind: str, values: Mapping[str, Sequence[Any]]) -> Look:
    """What a file of tables is. `values`: those of some rows, by column."""
    lengths = {
        name: sum(map(len, texts)) / len(column_values)
        for name, column_values in values.items()
        if (texts := [value for value in column_values if isinstance(value, str)])
        and len(texts) * 2 >= len(column_values)
    }
    lengths = {name: length for name, length in lengths.items() if length}
    if not lengths:
        return Look(None, trouble=f"no column with text; there are {', '.join(values) or 'none'}")
    text = _named(_TEXT, lengths) or max(lengths, key=lambda name: lengths[name])
    others = [
        name
        for name, column_values in values.items()
        if name != text and any(isinstance(each, str | int) for each in column_values)
    ]
    dates = [
        name
        for name, column_values in values.items()
        if name != text and any(each is not None for each in column_values)
    ]
    columns = Columns(text, _named(_URL, others), _named(_ID, others), _named(_DATE, dates))
    begun = tuple(value[:CHARACTERS] for value in values[text] if isinstance(value, str))
    others = [name for name in values if name not in columns.named]
    return Look(kind, columns, begun, others=tuple(others))


def _named(names: Sequence[str], columns: Sequence[str] | Mapping[str, Any]) -> str | None:
    """The column with the likeliest name."""
    lower = {column.lower().replace("-", "_"): column for column in reversed([*columns])}
    return next((lower[name] for name in names if name in lower), None)
