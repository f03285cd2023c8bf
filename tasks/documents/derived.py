"""Documents that were written from other ones: which record each is from. Separate: evaluation reads it, too.

A rewrite is in the file `<source>/<file>`, at the offset of the document that it is from.
"""

import pyarrow as pa

# Columns of the documents of a corpus with rewrites; the last two are null for other documents.
DERIVED = ("file", "offset", "derived_source", "derived_record")


def file_name(source: str, file: str) -> str:
    """The file of the rewrites of documents from a file of a source."""
    return f"{source}/{file}"


def source_records(documents: pa.Table) -> pa.ChunkedArray:
    """Of each document the record that it was written from, as `gristmill.tasks.evaluation.documents.records` names
    records; null for one that was not written from another. `documents`: the columns DERIVED."""
    named = [
        None if source is None else f"{file.removeprefix(file_name(source, ''))}\n{_text(offset)}\n{record}"
        for file, offset, source, record in zip(*(documents[name].to_pylist() for name in DERIVED), strict=True)
    ]
    return pa.chunked_array([pa.array(named, pa.string())])


def _text(offset: int | None) -> str:
    return "" if offset is None else str(offset)
