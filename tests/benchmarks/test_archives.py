"""Reading archives: speed beside fastwarc's bare loop, and every archive of the data sets beside warcio."""

import contextlib
import io
import os
import time
from collections import Counter
from pathlib import Path

import pytest
from fastwarc.warc import ArchiveIterator
from warcio.archiveiterator import ArchiveIterator as WarcioIterator

from gristmill.storage import layout, ledger, parquet
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.shard import extract_shard
from gristmill.tasks.reading.archives import read_at, records
from gristmill.tasks.reading.listing import Shard

MAX_BYTES = 10_000_000
# warcio takes any line of at least five words for an ARC record and a text for a file of them
NO_ARCHIVES = (".jsonl", "LICENSE")


@pytest.fixture
def folder() -> Path:
    if "GRISTMILL_TEST_DATA" not in os.environ:
        pytest.skip("GRISTMILL_TEST_DATA does not name the folder with the data sets")
    return Path(os.environ["GRISTMILL_TEST_DATA"]) / "warc"


def bare(path: str) -> None:
    for record in ArchiveIterator(path, parse_http=True):
        record.reader.read()


def ours(path: str) -> None:
    for _ in records(path, MAX_BYTES):
        pass


@pytest.mark.bench
def test_speed(folder, capsys):
    path = str(folder / "web" / "DEMO-00001.warc.gz")
    best = {}
    for _ in range(9):
        for loop in (bare, ours):
            started = time.thread_time()
            loop(path)
            best[loop] = min(best.get(loop, 1e9), time.thread_time() - started)
    with capsys.disabled():
        print(f"\nfastwarc's bare loop {best[bare]:.3f} s, ours {best[ours]:.3f} s: {best[bare] / best[ours]:.2f}x")


def by_warcio(path: Path) -> Counter:
    """Records by type, as many as it reads before it gives up."""
    found = Counter()
    with open(path, "rb") as f, contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception):
        for record in WarcioIterator(f):
            record.content_stream().read()
            found[record.rec_type] += 1
    return found


@pytest.mark.slow
def test_every_archive_is_read_as_far_as_warcio_reads_it(folder):
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        began = time.process_time()
        found = list(records(str(path), MAX_BYTES))
        assert time.process_time() - began < 60, path
        if not path.name.endswith(NO_ARCHIVES):
            assert len(found) >= by_warcio(path).total(), path
        for record in found[:20]:
            if record.problem is None:
                assert read_at(str(path), record.offset, record.length, MAX_BYTES) == record, path


@pytest.mark.slow
def test_every_archive_goes_through_the_pass_and_the_counts_add_up(folder, tmp_path, capsys):
    lines = []
    for number, path in enumerate(sorted(p for p in folder.rglob("*") if p.is_file())):
        shard = Shard("archive", str(path), path.name)
        made = extract_shard(str(tmp_path), number, "odd", (shard,), None, (), Extract(), None, ())
        dropped = parquet.read_table(layout.ledger_part(str(tmp_path), number))
        kept = parquet.rows(layout.part(str(tmp_path), number))
        ledger.balance(path.name, made["rows_in"], kept, made["steps"], dropped)
        damaged = [row for row in dropped.to_pylist() if row["rule"] == "damaged_record"]
        assert all(row["offset"] is not None and row["detail"] for row in damaged), path
        lines.append(f"{made['rows_in']:6} {kept:6} {made['steps'][0]['drops']}  {path.relative_to(folder)}")
    with capsys.disabled():
        print("\nrecords, documents, drops", *lines, sep="\n")
