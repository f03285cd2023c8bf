"""From WARC records to documents: the main text of each page, with where it came from.

This is where the fused pass over a shard happens: a batch of documents is extracted, every document step that
follows in the recipe measures its signals on it, and the batch is written. A shard is read once and written once.
"""

import logging
import re
from collections.abc import Iterator
from itertools import islice
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import trafilatura
import xxhash
from pydantic import Field
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding, detect_mime, map_encoding_to_html5

from storage import files, ledger, stages
from storage.schema import DOCUMENTS
from tasks.step import DocumentStep, Settings
from tasks.warc import Response, responses

log = logging.getLogger(__name__)

BATCH = 512

_HTML = ("text/html", "application/xhtml+xml")
_PLAIN = ("text/plain",)
# how a page begins that does not say its type (WHATWG MIME Sniffing, section 7.1)
_HTML_BEGINS = re.compile(
    rb"(?:\xef\xbb\xbf)?[\t\n\f\r ]*<(?:!--|(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title"
    rb"|b|body|br|p)[ >])",
    re.IGNORECASE,
)


class Extract(Settings):
    """Main text of HTML pages; `text/plain` is taken as it is, anything else is dropped by content type."""

    step: Literal["extract"] = "extract"
    engine: Literal["resiliparse", "trafilatura"] = Field(
        "resiliparse", description="resiliparse is ten times faster, trafilatura more careful"
    )
    max_bytes: int = Field(10_000_000, gt=0, description="a larger payload is dropped as `too_large`")


def extract_shard(
    folder: str, shard: int, source: str, path: str, extract: Extract, steps: tuple[DocumentStep, ...]
) -> dict:
    """Read one WARC file, write its documents with the signals of `steps`, and return the shard's record.

    Every response record is either a row of the shard or a row of its ledger. Holds one batch of 512 documents
    and the shard's ledger.
    """
    schema = pa.schema([*DOCUMENTS, *(field for step in steps for field in step.signals)])
    dropped: list[dict] = []
    rows_in = rows_out = characters = 0
    seen: set[str] = set()
    with files.create(stages.part(folder, shard)) as target:
        with pq.ParquetWriter(target, schema, compression="zstd", compression_level=3, use_dictionary=False) as out:
            records = _documents(source, path, extract)
            while rows := list(islice(records, BATCH)):
                rows_in += len(rows)
                kept = []
                for row in rows:
                    if row["id"] in seen:
                        row = _drop(row["id"], "repeated_record", detail=row.get("warc_record_id"))
                    seen.add(row["id"])
                    (kept if "text" in row else dropped).append(row)
                table = pa.Table.from_pylist(kept, schema=DOCUMENTS)
                for step in steps:
                    for name, column in step.measure(table).items():
                        table = table.append_column(schema.field(name), column)
                out.write_table(table)
                rows_out += len(table)
                characters += sum(row["characters"] for row in kept)
    losses = ledger.table(dropped)
    stages.write_ledger(folder, shard, losses)
    log.info("%s: %d records, %d documents, %d characters", path.rsplit("/", 1)[-1], rows_in, rows_out, characters)
    return {
        "rows_in": rows_in,
        "rows_out": rows_out,
        "steps": [ledger.count("extract", rows_in, None, losses, characters)],
        "checksum": files.checksum(stages.part(folder, shard)),
    }


def _documents(source: str, path: str, extract: Extract) -> Iterator[dict]:
    """A row of DOCUMENTS or a row of the ledger for each response record."""
    name = path.rsplit("/", 1)[-1]
    for response in responses(path, extract.max_bytes):
        identity = "\n".join((source, name, str(response.offset), response.record_id))
        key = xxhash.xxh3_128_hexdigest(identity.encode())
        yield _document(key, source, name, response, extract.engine)


def _document(key: str, source: str, warc_file: str, response: Response, engine: str) -> dict:
    if response.problem:
        rule, detail = response.problem
        return _drop(key, rule, value=float(response.offset), detail=detail)
    if response.status != 200:
        return _drop(key, "http_status", value=float(response.status or 0), detail=response.url)
    kind = response.content_type or _sniff(response.payload)
    if kind not in _HTML + _PLAIN:
        return _drop(key, "content_type", detail=kind)
    charset = _charset(response)
    page = bytes_to_str(response.payload, charset)
    if kind in _HTML:
        try:
            text = _ENGINES[engine](page)
        except (ValueError, TypeError, AttributeError, RuntimeError, RecursionError) as error:
            return _drop(key, "extractor_error", detail=f"{type(error).__name__}: {error}"[:200])
    else:
        text = page
    text = text.encode("utf-8", "replace").decode().strip()
    if not text:
        return _drop(key, "empty_text", detail=response.url)
    return {
        "id": key,
        "source": source,
        "url": response.url,
        "date": response.date,
        "content_type": kind,
        "charset": charset,
        "warc_file": warc_file,
        "warc_offset": response.offset,
        "warc_record_id": response.record_id,
        "characters": len(text),
        "text": text,
    }


def _sniff(payload: bytes) -> str:
    return "text/html" if _HTML_BEGINS.match(payload) else detect_mime(payload)


def _drop(key: str, rule: str, value: float | None = None, detail: str | None = None) -> dict:
    return {"id": key, "step": "extract", "rule": rule, "value": value, "detail": detail}


def _charset(response: Response) -> str:
    """Byte order mark, then the HTTP header, then the page's meta element, then detection (HTML standard, 13.2.3)."""
    for mark, name in ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16be"), (b"\xff\xfe", "utf-16le")):
        if response.payload.startswith(mark):
            return name
    if response.charset and (named := map_encoding_to_html5(response.charset, fallback_utf8=False)):
        return named
    return detect_encoding(response.payload, from_html_meta=True) or "utf-8"


def _resiliparse(page: str) -> str:
    return extract_plain_text(page, main_content=True, alt_texts=False)


def _trafilatura(page: str) -> str:
    return trafilatura.extract(page, fast=True, include_comments=False) or ""


_ENGINES = {"resiliparse": _resiliparse, "trafilatura": _trafilatura}
