"""Exact deduplication of 200,000 documents in one process: documents a second of each phase, of CPU time."""

import os
import resource
import time

import numpy as np
import pytest

from gristmill.storage import layout, parquet
from gristmill.storage.schema import SELECTION
from gristmill.tasks.dedup import exact
from gristmill.tasks.dedup.exact import ContentDedup, UrlDedup
from gristmill.tasks.dedup.exchange import CollectedShards, KeyRanges, collect_shards
from tests.benchmarks.near_corpus import SAME, Planted

pytestmark = pytest.mark.bench

DOCUMENTS = int(os.environ.get("GRISTMILL_TEST_EXACT_DOCUMENTS", "200000"))
SHARDS, PARTITIONS = 8, 16


def test_speed(tmp_path):
    planted = Planted(DOCUMENTS)
    parts = [(str(tmp_path / f"{i}.parquet"), str(tmp_path / f"{i}-kept.parquet")) for i in range(SHARDS)]
    ends = np.linspace(0, DOCUMENTS, SHARDS + 1).astype(int)
    size = 0
    for (documents, kept), low, high in zip(parts, ends[:-1], ends[1:], strict=True):
        size += planted.write(documents, low, high)
        parquet.write_table(kept, parquet.read_table(documents, SELECTION.names))
    print(f"\n{DOCUMENTS:,} documents, {size / 1e6:,.0f} MB of text, {SHARDS} shards")
    _step(tmp_path / "warm", parts[:1], ContentDedup())
    for step in (ContentDedup(keep=("longest",)), UrlDedup()):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        dropped, seconds = _step(tmp_path / step.step, parts, step)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        told = ", ".join(f"{phase} {DOCUMENTS / spent:,.0f}" for phase, spent in seconds.items())
        print(f"{step.step}: {DOCUMENTS / sum(seconds.values()):,.0f} documents/s ({told}), {dropped:,} dropped,")
        print(f"  peak memory {after >> 10} MB (before it {before >> 10} MB)")
        assert dropped >= np.count_nonzero(planted.how == SAME) * (step.step == "content_dedup")


def _step(folder, parts, step) -> tuple[int, dict[str, float]]:
    """Documents dropped, and the CPU seconds of each phase."""
    folder = str(folder)
    ranges, shards = KeyRanges(PARTITIONS), KeyRanges(1, len(parts))
    clock = [time.process_time()]
    for i, (documents, kept) in enumerate(parts):
        exact.hash_shard(folder, i, documents, kept, signals=(), source=0, settings=step, ranges=ranges)
    clock.append(time.process_time())
    hashes, dropping = exact.hashes_files(folder, len(parts)), exact.dropped_files(folder, PARTITIONS)
    dropped = sum(exact.choose(folder, p, ranges, hashes, shards, step)["dropped"] for p in range(PARTITIONS))
    collect_shards(folder, 0, dropping, "verdicts", shards, "shard")
    clock.append(time.process_time())
    verdicts = CollectedShards(f"{folder}/verdicts", shards)
    records = [exact.split_shard(folder, i, *part, verdicts, step) for i, part in enumerate(parts)]
    clock.append(time.process_time())
    assert sum(record["rows_in"] - record["rows_out"] for record in records) == dropped
    assert len(parquet.read_table(layout.part(folder, 0))) == records[0]["rows_out"]
    return dropped, dict(zip(("hash", "choose", "split"), np.diff(clock).tolist(), strict=True))
