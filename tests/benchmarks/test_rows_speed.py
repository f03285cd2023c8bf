"""Single texts of a shard, by their pages, beside Arrow, which reads whole row groups; and what small pages cost."""

import os
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage import parquet
from tasks.documents.rows import read_rows
from tests.benchmarks.near_corpus import Planted

pytestmark = pytest.mark.bench

DOCUMENTS, TURNS = 50_000, 5


def of_row_groups(path: str, rows: np.ndarray) -> pa.Table:
    shard = pq.ParquetFile(path, memory_map=True)
    ends = np.cumsum([shard.metadata.row_group(g).num_rows for g in range(shard.num_row_groups)])
    of = np.searchsorted(ends, rows, side="right")
    pieces = []
    for group in np.unique(of).tolist():
        first = ends[group] - shard.metadata.row_group(group).num_rows
        table = shard.read_row_group(group, columns=["text"], use_threads=False)
        pieces.append(table.take(pa.array(rows[of == group] - first)))
    return pa.concat_tables(pieces)


def seconds(work, *arguments) -> float:
    taken = []
    for _ in range(TURNS):
        started = time.perf_counter()
        work(*arguments)
        taken.append(time.perf_counter() - started)
    return sorted(taken)[TURNS // 2]


def test_single_texts(tmp_path, capsys):
    small, large = str(tmp_path / "small.parquet"), str(tmp_path / "large.parquet")
    Planted(DOCUMENTS).write(small, 0, DOCUMENTS)
    pq.write_table(parquet.read_table(small), large, compression="zstd", compression_level=3, row_group_size=4_096)
    with capsys.disabled():
        print(f"\n  disk: {os.path.getsize(small) / os.path.getsize(large) - 1:+.1%} in small pages")
        print(f"  all texts: {seconds(parquet.read_table, small, ['text']):.3f} s, of large pages ", end="")
        print(f"{seconds(parquet.read_table, large, ['text']):.3f} s")
        for asked in (50, 500, 5_000):
            rows = np.sort(np.random.default_rng(0).choice(DOCUMENTS, asked, replace=False))
            assert read_rows(small, rows, ["text"])["text"].equals(of_row_groups(large, rows)["text"])
            ours, theirs = seconds(read_rows, small, rows, ["text"]), seconds(of_row_groups, large, rows)
            print(f"  {asked:,} of {DOCUMENTS:,}: {ours:.4f} s, row groups {theirs:.4f} s, ratio {theirs / ours:.1f}")
