"""Rows of what reads sources: archives, tables, files, repositories, PDF, an index; extraction and normalisation."""

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages.documents import documents
from gristmill.tasks.reading.archives import records
from tests.golden.rows.row import BOOKS, COPIES, EVALUATED, WEB, Row, curated, placed, recipe, row
from tests.golden.run import Golden


def warc(name: str, *files: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "warc": [f"{{fixture}}/crawl/{file}" for file in files], **more}


PAGES, FEW = warc("pages", "pages-*.warc.gz"), warc("few", "few.warc.gz", "empty.warc.gz")
UNRENDERED = warc("unrendered", "unrendered.warc.gz")
ODD = warc("odd", "odd.warc.gz", "odd-plain.warc")
PDF = warc("pdf", "pdf.warc.gz")
LENGTH = {"step": "ccnet", "min_characters": 1}


def _extract(**given: Any) -> dict[str, Any]:
    return {"step": "extract", **given}


_PAIRS: tuple[tuple[str, list, list], ...] = (
    ("pages-blocks", [PAGES], [_extract(), LENGTH]),
    ("pages-markdown", [PAGES], [_extract(format="markdown"), {"step": "normalize"}, LENGTH]),
    (
        "few-union",
        [FEW],
        [
            _extract(engine="union", engines=["resiliparse", "blocks", "justext"]),
            {"step": "gopher_quality", "min_words": 60},
        ],
    ),
    ("few-plain", [FEW], [_extract(engine="plain"), {"step": "normalize"}, LENGTH]),
    ("few-resiliparse", [FEW], [_extract(engine="resiliparse"), LENGTH]),
    ("few-trafilatura", [FEW], [_extract(engine="trafilatura"), LENGTH]),
    ("few-trafilatura-whole", [FEW], [_extract(engine="trafilatura", fast=False, favor_precision=True), LENGTH]),
    ("few-justext", [FEW], [_extract(engine="justext"), LENGTH]),
    ("few-justext-german", [FEW], [_extract(engine="justext", stop_list="German"), LENGTH]),
    ("unrendered-blocks", [UNRENDERED], [_extract(), {"step": "normalize"}, LENGTH]),
    (
        "unrendered-union",
        [UNRENDERED],
        [_extract(engine="union", engines=["trafilatura", "plain"]), {"step": "gopher_quality", "min_words": 30}],
    ),
    ("odd", [ODD], [_extract(), {"step": "normalize", "mojibake": True}, LENGTH]),
    (
        "odd-checked",
        [ODD],
        [
            _extract(types=["html"], engine="plain", verify_digests=True, max_bytes=20_000),
            {"step": "normalize"},
            LENGTH,
        ],
    ),
    ("pdf", [PDF], [_extract(types=["html", "pdf"]), {"step": "normalize"}, LENGTH]),
    ("pdf-markdown", [PDF], [_extract(types=["pdf"], format="markdown"), LENGTH]),
    (
        "old-formats",
        [warc("old", "old.arc.gz", "text.warc.wet.gz", shard_bytes=100)],
        [_extract(), {"step": "normalize"}, LENGTH],
    ),
    (
        "ranges",
        [warc("ranged", "ranged.warc.gz", range_bytes=5000), warc("plain", "ranged.warc", range_bytes=7000)],
        [_extract(engine="plain"), LENGTH],
    ),
    (
        "texts",
        [{"name": "texts", "text": ["{fixture}/texts/*.txt", "{fixture}/texts/*.gz"]}],
        [{"step": "normalize", "mojibake": True}, LENGTH],
    ),
    ("texts-as-they-are", [{"name": "texts", "text": ["{fixture}/texts/*.txt"], "shard_bytes": 600}], [LENGTH]),
    (
        "odd-lines",
        [
            {
                "name": "odd",
                "jsonl": ["{fixture}/texts/odd.jsonl"],
                "url_column": "url",
                "date_column": "date",
                "columns": "*",
            }
        ],
        [{"step": "normalize"}, LENGTH],
    ),
    (
        "line-ranges",
        [{**COPIES, "range_bytes": 20_000, "columns": ["score"]}, {**BOOKS, "range_bytes": 3000}],
        [LENGTH],
    ),
    ("limited", [COPIES, WEB], [{"step": "normalize"}, LENGTH]),
    ("table", [WEB], [{"step": "normalize"}, LENGTH]),
    (
        "page-table",
        [
            {
                "name": "table",
                "parquet": ["{fixture}/texts/pages.parquet"],
                "payload_column": "body",
                "url_column": "where",
                "columns": ["lang"],
            }
        ],
        [_extract(), LENGTH],
    ),
)


def _selection(golden: Golden, **filters: Any) -> None:
    """Records that an index names, of the archives of the fixture."""
    folder = golden.fixture / "index"
    if not folder.exists():
        folder.mkdir()
        rows = []
        for name in ("pages-0.warc.gz", "few.warc.gz"):
            for at, record in enumerate(records(golden.path(f"crawl/{name}"), 1 << 20)):
                host = record.url.split("/")[2] if record.url else ""
                rows.append(
                    {
                        "url": record.url,
                        "url_host_name": host,
                        "url_host_registered_domain": host,
                        "url_host_tld": "example",
                        "content_languages": ("eng", "eng,deu", "deu,eng", None)[at % 4],
                        "content_mime_detected": ("text/html", "application/pdf")[at % 5 == 4],
                        "fetch_status": 404 if at % 7 == 6 else 200,
                        "warc_filename": f"crawl/{name}",
                        "warc_record_offset": record.offset,
                        "warc_record_length": record.length,
                    }
                )
        rows.sort(key=lambda each: str(each["url"]))
        for half in range(2):
            pq.write_table(pa.Table.from_pylist(rows[half::2]), folder / f"part-{half}.parquet", row_group_size=9)
    source = {"name": "chosen", "index": ["{fixture}/index/*.parquet"], "base": "{fixture}", **filters}
    curated(golden, recipe([source], [_extract(engine="plain"), LENGTH]))


def _drawn(golden: Golden, fraction: float) -> None:
    """The documents that may be held out, some of which a step before the extraction drops."""
    steps: list = [{"step": "url", "blocklists": ["{fixture}/lists/held.txt"]}, _extract(), {"step": "normalize"}]
    given = recipe([EVALUATED, PAGES], steps, mixture={"weights": {"pages": 1}, "heldout_fraction": fraction})
    documents(golden.context(), load(placed(given, golden)), ())


def _row(name: str, sources: list, steps: list) -> Row:
    more: dict[str, Any] = {"limit": 7} if name == "limited" else {}
    return row(name, sources, steps, ("documents",), **more)


def _selected(name: str, **filters: Any) -> Row:
    return Row(name, ("selection", "documents"), partial(_selection, **filters), str(filters))


ROWS = (
    *(_row(*each) for each in _PAIRS),
    _selected("selection", languages=["eng"], records_per_shard=20),
    _selected(
        "selection-limited", limit=25, status=[200, 404], mime=[], hosts=[f"page{at}.example" for at in range(4)]
    ),
    _selected(
        "selection-prefixes",
        url_prefixes=["https://page1.example/1", "https://few.example/"],
        domains=["few.example", "page1.example"],
    ),
    *(
        Row(f"drawn-{name}", ("documents", "url"), partial(_drawn, fraction=fraction), str(fraction))
        for name, fraction in (("tenth", 0.1), ("half", 0.5))
    ),
)
