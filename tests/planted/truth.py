"""What was planted, record by record, beside the archives that hold it."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

_SPAN = [("start", pa.int64()), ("end", pa.int64())]
_PERSONAL = pa.list_(pa.struct([("kind", pa.string()), *_SPAN, ("value", pa.string())]))

# `file` is a path below the crawl's folder; `offset` and `length` count stored bytes, of the damaged record where it
# is damaged. `page` is null for warcinfo, request and metadata records.
# `yields`: what a careful reader makes of the record: `page` a document with the text `text`; `none` nothing, and
# nothing is wrong; `damaged` no document but a damaged record; `either` a document or a reason why not.
# Offsets in `personal`, `lookalikes` and `leaks` count code points of `text`. `base` and `pairs.page` are values of
# `page`; `jaccard` that of the word 5-grams of `text` and the base's.
SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("page", pa.int64()),
        ("record_id", pa.string()),
        ("record_type", pa.string()),
        ("kind", pa.string()),
        ("variant", pa.string()),
        ("yields", pa.string()),
        ("url", pa.string()),
        ("canonical_url", pa.string()),
        ("host", pa.string()),
        ("domain", pa.string()),
        ("date", pa.string()),
        ("snapshot", pa.string()),
        ("status", pa.int64()),
        ("language", pa.string()),
        ("charset", pa.string()),
        ("layout", pa.string()),
        ("title", pa.string()),
        ("published", pa.string()),
        ("text", pa.string()),
        ("blocks", pa.list_(pa.string())),
        ("base", pa.int64()),
        ("wanted_jaccard", pa.float64()),
        ("jaccard", pa.float64()),
        ("pairs", pa.list_(pa.struct([("page", pa.int64()), ("jaccard", pa.float64())]))),
        ("personal", _PERSONAL),
        ("lookalikes", _PERSONAL),
        ("leaks", pa.list_(pa.struct([("item", pa.int64()), *_SPAN, ("edits", pa.int64())]))),
    ]
)

FOLDER = "truth"


@dataclass(frozen=True)
class Truth:
    """A planted crawl: its archives and the truth about them, which `table` reads by columns and kinds."""

    folder: Path

    @property
    def archives(self) -> list[str]:
        """Paths of the archives, sorted."""
        found = self.folder.glob("crawl/*/*")
        return sorted(str(path) for path in found)

    @property
    def blocklist(self) -> Path:
        """A blocklist in the UT1 layout."""
        return self.folder / "blocklist"

    def table(self, columns: list[str] | None = None, **where: Any) -> pa.Table:
        """Rows of SCHEMA in the order of the crawl; `where` holds values, or tuples of values, that columns have."""
        chosen = None
        for name, value in where.items():
            test = pc.field(name).isin(value) if isinstance(value, tuple) else pc.field(name) == value
            chosen = test if chosen is None else chosen & test
        parts = sorted(str(path) for path in (self.folder / FOLDER).glob("*.parquet"))
        return ds.dataset(parts, schema=SCHEMA).to_table(columns=columns, filter=chosen)

    def rows(self, **where: Any) -> list[dict]:
        """The same as dictionaries, for small crawls."""
        return self.table(**where).to_pylist()

    def counts(self) -> Counter[tuple[str, str]]:
        """Records by (kind, variant)."""
        table = self.table(["kind", "variant"])
        return Counter(zip(table["kind"].to_pylist(), table["variant"].to_pylist(), strict=True))

    def pairs(self) -> list[tuple[int, int, float]]:
        """(page, page, Jaccard) of every planted pair: a copy and its base, two near copies of one base."""
        table = self.table(["page", "pairs"])
        return [
            (pair["page"], page, pair["jaccard"])
            for page, pairs in zip(table["page"].to_pylist(), table["pairs"].to_pylist(), strict=True)
            for pair in pairs or ()
        ]
