"""The columns of documents, of the ledger and of the edits."""

import pyarrow as pa

DOCUMENTS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("url", pa.string()),
        pa.field("date", pa.string(), metadata={"what": "when it was crawled"}),
        pa.field("ip", pa.string(), metadata={"what": "of the server"}),
        pa.field("status", pa.int16(), metadata={"what": "of the HTTP response; null where there was none"}),
        pa.field("content_type", pa.string()),
        pa.field("charset", pa.string(), metadata={"what": "by which the payload was read, as Python names it"}),
        pa.field("charset_declared", pa.string(), metadata={"what": "as the HTTP header, else the page itself says"}),
        pa.field("truncated", pa.string(), metadata={"what": "why the crawler cut the payload"}),
        pa.field("file", pa.string(), metadata={"what": "the source's file that holds the record"}),
        pa.field("note", pa.string(), metadata={"what": "in what way the record is not as its format wants it"}),
        # without a length: of the file's uncompressed content, or the number of a table's row
        pa.field("offset", pa.int64(), metadata={"what": "bytes from the file's start"}),
        pa.field("length", pa.int64(), metadata={"what": "bytes of the record as it is stored"}),
        pa.field("record_id", pa.string()),
        pa.field("digest", pa.string(), metadata={"what": "of the payload, as the crawler wrote it"}),
        pa.field("title", pa.string()),
        pa.field("canonical_url", pa.string(), metadata={"what": "as the page itself says"}),
        pa.field("published", pa.string(), metadata={"what": "date, as the page itself says"}),
        pa.field(
            "engine",
            pa.string(),
            metadata={"what": "the extraction engine that gave the text; data: the text is from JSON in the page"},
        ),
        pa.field("characters", pa.int64(), nullable=False, metadata={"what": "code points of the text"}),
        pa.field("text", pa.large_string(), nullable=False),
    ]
)

_OWN = {"own": "of the source's files"}


def documents_with(own: pa.Schema) -> pa.Schema:
    """DOCUMENTS with the columns that documents carry from the files of their sources, by which `carried` and `own_of`
    know them."""
    ours = [
        field.with_metadata((field.metadata or {}) | _OWN) if field.name in own.names else field for field in DOCUMENTS
    ]
    return pa.schema([*ours, *(field.with_metadata(_OWN) for field in own if field.name not in DOCUMENTS.names)])


def carried(schema: pa.Schema) -> list[str]:
    """The columns of a table with documents that are in DOCUMENTS, and the columns of the sources' own."""
    return list(dict.fromkeys([*DOCUMENTS.names, *own_of(schema)]))


def own_of(schema: pa.Schema) -> list[str]:
    """The names of the columns of the sources' own."""
    return [field.name for field in schema if b"own" in (field.metadata or {})]


# The documents that are still there after a step: what a corpus is handed on as.
SELECTION = pa.schema([DOCUMENTS.field("id"), DOCUMENTS.field("characters")])

LEDGER = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata={"what": "the document that was dropped"}),
        pa.field("step", pa.string(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("value", pa.float64(), metadata={"what": "the signal, where it is a number"}),
        pa.field("threshold", pa.float64(), metadata={"what": "the end of the bound that it crossed"}),
        pa.field("detail", pa.string(), metadata={"what": "the signal, where it is text; or the error"}),
        pa.field("representative", pa.string(), metadata={"what": "the duplicate that stays in its place"}),
        pa.field("url", pa.string(), metadata={"what": "of a record that never became a document"}),
        pa.field("file", pa.string(), metadata={"what": "the source's file that holds that record"}),
        pa.field("offset", pa.int64(), metadata={"what": "where it begins there"}),
        pa.field("length", pa.int64(), metadata={"what": "bytes of it as it is stored"}),
    ]
)

# What the steps that change a text have cut out of it: a row for each span.
EDITS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("step", pa.string(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("first_line", pa.int64(), metadata={"what": "of the text that reached the step, from 0"}),
        pa.field("last_line", pa.int64()),
        pa.field("start", pa.int64(), metadata={"what": "code points of the text that reached the step"}),
        pa.field("stop", pa.int64()),
        pa.field("removed", pa.large_string(), metadata={"what": "null where it may not be kept"}),
        pa.field("replacement", pa.string(), metadata={"what": "what stands there now"}),
    ]
)
