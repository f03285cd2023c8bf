"""Small files that tests of the tasks read: WARC files with any records, shards with any texts."""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from gristmill.storage import parquet
from gristmill.storage.schema import DOCUMENTS, SELECTION


@dataclass(frozen=True)
class Page:
    """A record to be written. `payload` goes into the file as it is, whatever the HTTP headers claim."""

    payload: bytes = b"<html><body><p>A page.</p></body></html>"
    http: tuple[tuple[str, str], ...] = (("Content-Type", "text/html"),)
    status: str = "200 OK"
    kind: str = "response"
    content_type: str = ""
    url: str = "https://mill.example/"
    warc: dict[str, str] = field(default_factory=dict)


@pytest.fixture
def page() -> type[Page]:
    return Page


@pytest.fixture
def write_warc() -> Callable[..., list[int]]:
    """`write_warc(path, pages, gzip=True)` writes a WARC file and returns the offset of each record."""

    def write(path: Path, pages: list[Page], gzip: bool = True) -> list[int]:
        offsets = []
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as f:
            writer = WARCWriter(f, gzip=gzip, warc_version="WARC/1.1")
            for i, page in enumerate(pages):
                offsets.append(f.tell())
                given = {"WARC-Date": "2024-01-01T00:00:00Z", "WARC-Record-ID": f"<urn:uuid:{i:032x}>", **page.warc}
                http = None
                if not page.content_type:
                    http = StatusAndHeaders(page.status, list(page.http), protocol="HTTP/1.1")
                record = writer.create_warc_record(
                    page.url,
                    page.kind,
                    payload=io.BytesIO(page.payload),
                    http_headers=http,
                    warc_content_type=page.content_type,
                    warc_headers_dict=given,
                )
                writer.write_record(record)
        return offsets

    return write


@pytest.fixture
def shard(tmp_path) -> Callable[..., tuple[str, str]]:
    """`shard(name, {id: text}, kept=None)` writes a shard and a selection of it; returns their two paths."""

    def write(name: str, texts: dict[str, str], kept: list[str] | None = None) -> tuple[str, str]:
        rows = [
            {"id": i, "source": name, "characters": len(text), "text": text, "url": f"https://{name}.example/{i}"}
            for i, text in texts.items()
        ]
        table = pa.Table.from_pylist(rows, schema=DOCUMENTS)
        chosen = [row for row in rows if kept is None or row["id"] in kept]
        documents, selection = str(tmp_path / f"{name}.parquet"), str(tmp_path / f"{name}-kept.parquet")
        parquet.write_table(documents, table)
        selected = [{"id": row["id"], "characters": row["characters"]} for row in chosen]
        parquet.write_table(selection, pa.Table.from_pylist(selected, schema=SELECTION))
        return documents, selection

    return write
