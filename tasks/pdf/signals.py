"""The columns that the extraction of PDF documents gives."""

from gristmill.tasks.documents.step import Signal

_PDF = "PDF 2.0 (ISO 32000-2)"
SIGNALS = (
    Signal("pdf_pages", "int32", "pages", _PDF, "pages that could be read; null where the document is no PDF"),
    Signal("pdf_scanned", "float32", "share of pages", "own", "pages with an image and fewer than 20 characters"),
    Signal(
        "pdf_garbled",
        "float32",
        "share of pages",
        "own",
        "pages, over 10% of whose characters have no known meaning or order",
    ),
    Signal("pdf_truncated", "bool", "", _PDF, "the file ends without its end mark, as where a crawler has cut it"),
    Signal("pdf_author", "string", "", _PDF, "as the document says itself"),
    Signal("pdf_producer", "string", "", _PDF, "the program that wrote the file"),
    Signal("pdf_language", "string", "", _PDF, "as the document says itself, such as en-GB"),
)
