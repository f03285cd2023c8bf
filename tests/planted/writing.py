"""A plan written out: archives, the truth about each record beside them, a blocklist."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.planted import archive, sites
from tests.planted.pages import Page, page
from tests.planted.plan import Plan
from tests.planted.truth import FOLDER, SCHEMA, Truth

_ROWS = 1000
_CLIPPED = 0.6
# columns with few different values
_FEW = ["file", "record_type", "kind", "variant", "yields", "snapshot", "language", "charset", "layout"]


def plant(folder: Path | str, plan: Plan, processes: int = 1) -> Truth:
    """Write the crawl into `folder`: `crawl/<snapshot>/*`, `truth/*.parquet`, `blocklist/`.

    A process holds one page and a thousand rows of truth. The bytes are the same for any number of processes.
    Raises FileExistsError if a crawl is there already.
    """
    folder = Path(folder)
    if (folder / FOLDER).exists():
        raise FileExistsError(f"{folder} holds a planted crawl already: name another folder or remove it")
    (folder / FOLDER).mkdir(parents=True)
    for path, content in sites.blocklist().items():
        (folder / "blocklist" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "blocklist" / path).write_text(content)
    write = partial(_write_archive, folder, plan)
    if processes == 1:
        for file in range(plan.files):
            write(file)
    else:
        with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
            list(pool.map(write, range(plan.files)))
    return Truth(folder)


def _write_archive(folder: Path, plan: Plan, file: int) -> None:
    name = f"{plan.snapshot(file)}/planted-{file:05d}{archive.suffix(plan.container)}"
    path = folder / "crawl" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = folder / FOLDER / f"{file:05d}.parquet"
    with open(path, "wb") as f, pq.ParquetWriter(rows, SCHEMA, compression="zstd", use_dictionary=_FEW) as out:
        written = _rows(f, f"crawl/{name}", plan, file)
        while batch := list(islice(written, _ROWS)):
            out.write_table(pa.Table.from_pylist(batch, schema=SCHEMA))


def _rows(f: IO[bytes], name: str, plan: Plan, file: int) -> Iterator[dict[str, Any]]:
    """Write the records of an archive, and give the row of the truth for each."""
    compress, numbers = archive.compressor(plan.container), plan.pages_of(file)
    for raw, truth, after in _records(plan, file, numbers):
        stored = compress(raw)
        if truth.get("page") == numbers[-1] and file < plan.clipped_files:
            stored = stored[: int(len(stored) * _CLIPPED)]
            truth |= {"kind": "broken", "variant": "file_end", "yields": "damaged"}
        elif after:
            stored = after(stored)
        row = truth | {"file": name, "offset": f.tell(), "length": len(stored)}
        f.write(stored)
        yield row


def _records(
    plan: Plan, file: int, numbers: range
) -> Iterator[tuple[bytes, dict[str, Any], Callable[[bytes], bytes] | None]]:
    """(uncompressed bytes, row of the truth, damage to the stored bytes)."""
    serialise = archive.arc if plan.container == "arc" else archive.warc
    yield _first(plan, file)
    for number in numbers:
        made = page(plan, number)
        rng = Random(f"{plan.seed}/record/{number}")
        accompanied = rng.random() < plan.companions and plan.container not in ("arc", "wet")
        accompanied = accompanied and not (number == numbers[-1] and file < plan.clipped_files)
        if accompanied:
            yield _companion(rng, made, "request")
        raw = serialise(made.message)
        fault = made.fault
        if fault and fault.before:
            raw = fault.before(rng, raw)
        yield raw, made.truth, partial(fault.after, rng) if fault and fault.after else None
        if accompanied:
            yield _companion(rng, made, "metadata")


def _first(plan: Plan, file: int) -> tuple[bytes, dict[str, Any], None]:
    date = f"{plan.snapshot(file)}-01T00:00:00Z"
    rng = Random(f"{plan.seed}/warcinfo/{file}")
    name = f"planted-{file:05d}{archive.suffix(plan.container)}"
    row = {"record_type": "warcinfo", "kind": "companion", "variant": "warcinfo", "yields": "none", "date": date}
    row |= {"snapshot": plan.snapshot(file), "record_id": archive.record_id(rng)}
    if plan.container == "arc":
        return archive.arc_head(name, date), row | {"record_id": None, "record_type": "arc_header"}, None
    body = f"software: gristmill tests\r\nformat: WARC File Format 1.1\r\nisPartOf: {plan.snapshot(file)}\r\n".encode()
    extra = (("WARC-Filename", name),)
    info = archive.Message("warcinfo", "", date, row["record_id"], body, None, "application/warc-fields", None, extra)
    return archive.warc(info), row, None


def _companion(rng: Random, made: Page, kind: str) -> tuple[bytes, dict[str, Any], None]:
    """The request of a page, or what the crawler noted about it."""
    of, host = made.message, made.truth["host"]
    body, content_type = {
        "request": (
            f"GET / HTTP/1.1\r\nHost: {host}\r\nUser-Agent: planted\r\n\r\n",
            "application/http;msgtype=request",
        ),
        "metadata": (f"fetchTimeMs: {rng.randrange(2000)}\r\n", "application/warc-fields"),
    }[kind]
    message = replace(
        of,
        record_type=kind,
        record_id=archive.record_id(rng),
        body=body.encode(),
        http=None,
        content_type=content_type,
        extra=(("WARC-Concurrent-To", of.record_id),),
    )
    row = {"record_type": kind, "kind": "companion", "variant": kind, "yields": "none", "record_id": message.record_id}
    row |= {name: made.truth[name] for name in ("url", "canonical_url", "host", "domain", "date", "snapshot")}
    return archive.warc(message), row, None
