"""The columns of documents and of the ledger."""

import pyarrow as pa

DOCUMENTS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("url", pa.string()),
        pa.field("date", pa.string()),
        pa.field("content_type", pa.string()),
        pa.field("charset", pa.string()),
        pa.field("warc_file", pa.string()),
        pa.field("warc_offset", pa.int64()),
        pa.field("warc_record_id", pa.string()),
        pa.field("characters", pa.int64(), nullable=False, metadata={"what": "code points of the text"}),
        pa.field("text", pa.large_string(), nullable=False),
    ]
)

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
    ]
)
