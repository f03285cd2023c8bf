"""A plan written out: archives and a blocklist; and the truth about each record."""

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.planted import sites
from tests.planted.pages import Page, page
from tests.planted.plan import Plan
from tests.planted.records import gzip

# Columns of the truth. `file` is a path below the crawl's folder; `offset` and `length` count stored bytes, of the
# damaged record where it is damaged. `page` is None for warcinfo, request and metadata records.
# `yields`: what a careful reader makes of the record: `page` a document with the text `text`; `none` nothing, and
# nothing is wrong; `damaged` no document but a damaged record; `either` a document or a reason why not.
# Offsets in `personal`, `lookalike` and `leak` count code points of `text`. `base` and `pairs.page` are values of
# `page`; `jaccard` that of the word 5-grams of `text` and the base's.
COLUMNS = (
    *("file", "offset", "length", "page", "record_id", "record_type", "kind", "variant", "yields", "url"),
    *("canonical_url", "host", "domain", "date", "snapshot", "status", "language", "charset", "layout", "title"),
    *("published", "text", "base", "wanted_jaccard", "jaccard", "pairs", "personal", "lookalike", "leak"),
)


@dataclass(frozen=True)
class Truth:
    """A planted crawl: its archives below `folder`, and a row for each record in the order of the crawl."""

    folder: Path
    records: list[dict[str, Any]]

    @property
    def archives(self) -> list[str]:
        """Paths of the archives, sorted."""
        return sorted(str(path) for path in self.folder.glob("crawl/*/*"))

    @property
    def blocklist(self) -> Path:
        """A blocklist in the UT1 layout."""
        return self.folder / "blocklist"

    def rows(self, **where: Any) -> list[dict[str, Any]]:
        """Rows by COLUMNS; `where` holds values, or tuples of values, that columns have."""
        wanted = {name: value if isinstance(value, tuple) else (value,) for name, value in where.items()}
        return [row for row in self.records if all(row[name] in values for name, values in wanted.items())]

    def stored(self, row: dict[str, Any]) -> bytes:
        """The bytes of a record in its archive."""
        with open(self.folder / row["file"], "rb") as f:
            f.seek(row["offset"])
            return f.read(row["length"])

    def pairs(self) -> list[tuple[int, int, float]]:
        """(page, page, Jaccard) of every planted pair: a copy and its base, two near copies of one base."""
        return [(pair["page"], row["page"], pair["jaccard"]) for row in self.records for pair in row["pairs"] or ()]


def plant(folder: Path | str, plan: Plan) -> Truth:
    """Write the crawl into a new `folder`: `crawl/<snapshot>/*.warc.gz` and `blocklist/`."""
    folder = Path(folder)
    (folder / "blocklist" / "gambling").mkdir(parents=True)
    for path, content in sites.BLOCKLIST.items():
        (folder / "blocklist" / path).write_text(content)
    rows = []
    for file in range(plan.files):
        name = f"crawl/{plan.snapshot(file)}/planted-{file:05d}.warc.gz"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with open(folder / name, "wb") as f:
            for stored, row in _records(plan, file):
                place = {"file": name, "offset": f.tell(), "length": len(stored)}
                rows.append(dict.fromkeys(COLUMNS) | row | place)
                f.write(stored)
    return Truth(folder, rows)


def _records(plan: Plan, file: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """(stored bytes, row of the truth) of the records of an archive."""
    date = f"{plan.snapshot(file)}-01T00:00:00Z"
    info = {"record_type": "warcinfo", "date": date, "snapshot": plan.snapshot(file)}
    yield _companion(Random(f"{plan.seed}/warcinfo/{file}"), info, b"software: gristmill tests\r\n")
    numbers = plan.pages_of(file)
    for number in numbers:
        rng, made = Random(f"{plan.seed}/record/{number}"), page(plan, number)
        clipped = number == numbers[-1] and file < plan.clipped_files
        accompanied = rng.random() < plan.companions and not clipped
        if accompanied:
            yield _companion(rng, made.truth | {"record_type": "request"}, b"GET / HTTP/1.1\r\nHost: planted\r\n\r\n")
        stored = _page(rng, made)
        if clipped:
            stored = stored[: int(len(stored) * 0.6)]
            made.truth.update(kind="broken", variant="file_end", yields="damaged")
        yield stored, made.truth
        if accompanied:
            yield _companion(rng, made.truth | {"record_type": "metadata"}, b"fetchTimeMs: 120\r\n")


def _page(rng: Random, made: Page) -> bytes:
    sent, block, extra = made.sent, made.body, list(made.sent.warc)
    kind = sent.content_type
    if sent.http:
        lines = "".join([f"{name}: {value}\r\n" for name, value in made.headers])
        block = f"HTTP/1.1 {sent.status}\r\n{lines}\r\n".encode() + made.body
        digest = base64.b32encode(hashlib.sha1(made.body).digest()).decode()
        kind = "application/http;msgtype=response"
        extra.append(("WARC-Payload-Digest", f"sha1:{digest}"))
    record = _warc(rng, made.truth, block, kind, extra)
    stored = gzip(sent.before(rng, record) if sent.before else record)
    return sent.after(rng, stored) if sent.after else stored


def _companion(rng: Random, of: dict[str, Any], block: bytes) -> tuple[bytes, dict[str, Any]]:
    """A record that is no page: the archive's first, the request of a page, what the crawler noted about it."""
    same = ("record_type", "url", "canonical_url", "host", "domain", "date", "snapshot")
    row = {name: of.get(name) for name in same}
    row |= {"kind": "companion", "variant": row["record_type"], "yields": "none"}
    kind = "application/http;msgtype=request" if row["record_type"] == "request" else "application/warc-fields"
    return gzip(_warc(rng, row, block, kind, [])), row


def _warc(rng: Random, row: dict[str, Any], block: bytes, content_type: str, extra: list[tuple[str, str]]) -> bytes:
    """A WARC 1.1 record, uncompressed; gives the row its `record_id`."""
    h = f"{rng.getrandbits(128):032x}"
    row["record_id"] = f"<urn:uuid:{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}>"
    headers = [
        *(("WARC-Type", row["record_type"]), ("WARC-Record-ID", row["record_id"]), ("WARC-Date", row["date"])),
        *(("Content-Type", content_type), ("Content-Length", len(block)), ("WARC-Target-URI", row["url"]), *extra),
    ]
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers if value is not None)
    return f"WARC/1.1\r\n{lines}\r\n".encode() + block + b"\r\n\r\n"
