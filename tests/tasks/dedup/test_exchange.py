"""Exchanges through sorted files: what is merged, or put together by shards, is what is there; how much that takes."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.flows.stages.dedup.exchange import collected, merged
from gristmill.storage import parquet, sorted_files
from gristmill.tasks.dedup import exchange
from gristmill.tasks.dedup.exchange import KeyRanges, SortedFiles, fan_ins, partitions_of
from gristmill.tasks.engine import options
from tests.corpora import Direct

SMALL = st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1), st.integers(2**64 - 3, 2**64 - 1))
FILES = st.lists(st.lists(SMALL, max_size=40), min_size=1, max_size=12)


def planted(folder: str, keys: list[list[int]], kind: type = np.uint64) -> tuple[SortedFiles, pa.Table]:
    """Files with these keys, and all rows: by key, then in the order of the files. Some have missing values."""
    written, tables = SortedFiles(folder, len(keys)), []
    for number, (path, some) in enumerate(zip(written.paths(), keys, strict=True)):
        of = [None if number % 3 == 1 and row % 5 == 0 else f"{number}-{row}" for row in range(len(some))]
        tables.append(pa.table({"key": np.array(some, kind), "of": pa.array(of, pa.large_string())}))
        sorted_files.write(path, tables[-1], "key", row_group=4)
    rows = pa.concat_tables(tables)
    return written, rows.take(np.argsort(rows["key"].to_numpy(), kind="stable"))


@settings(deadline=None, max_examples=20)
@given(FILES, st.integers(1, 9), st.integers(1, 2000))
def test_a_merged_file_has_the_rows_of_all_in_their_order(tmp_path_factory, keys, ranges, slab):
    folder = str(tmp_path_factory.mktemp("merged"))
    written, expected = planted(f"{folder}/given", keys)
    ends = KeyRanges(ranges).ends()
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(exchange, "_SLAB_BYTES", slab)
        assert exchange.merge(written.paths(), f"{folder}/one.parquet", ends) == len(expected)
    assert sorted_files.read(f"{folder}/one.parquet", 0, 1 << 64).to_pylist() == expected.to_pylist()
    with parquet.open_checked(f"{folder}/one.parquet") as file:
        groups = list(sorted_files.ends_of_groups(file, "one"))
    # no row group reaches into two ranges
    assert all(low <= one < high for one, other, _ in groups for low, high in pairwise(ends) if low <= other < high)


def test_a_key_of_many_rows_is_merged_file_by_file(tmp_path, monkeypatch):
    """So that what is held does not grow with it."""
    written, expected = planted(str(tmp_path / "given"), [[3] * 5 + [7] * 900 + [9], [7] * 800, [1, 7, 8]])
    monkeypatch.setattr(exchange, "_SLAB_BYTES", 4_000)
    sorting, most = sorted_files.sorted_by, []
    monkeypatch.setattr(sorted_files, "sorted_by", lambda table, key: most.append(len(table)) or sorting(table, key))
    exchange.merge(written.paths(), str(tmp_path / "one.parquet"))
    assert sorted_files.read(str(tmp_path / "one.parquet"), 0, 1 << 64).to_pylist() == expected.to_pylist()
    assert max(most) < 30


@pytest.mark.extended
@settings(deadline=None, max_examples=20)
@given(FILES, st.integers(1, 9), st.integers(2, 4), st.integers(2, 4))
def test_every_range_reads_its_rows_from_few_files(tmp_path_factory, keys, ranges, most, least):
    folder = str(tmp_path_factory.mktemp("exchange"))
    written, expected = planted(f"{folder}/given", keys)
    divided, found = KeyRanges(ranges), []
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(exchange, "FAN_IN", most)
        changed.setattr(exchange, "MIN_FAN_IN", least)
        few = merged(Direct(folder), "few", written, divided)
    assert few.files <= most
    for number in range(ranges):
        rows = pa.concat_tables(few.each(*divided.bounds(number)))
        found += rows.take(np.argsort(rows["key"].to_numpy(), kind="stable")).to_pylist()
    assert found == expected.to_pylist()


@pytest.mark.extended
@settings(deadline=None, max_examples=20)
@given(st.lists(st.lists(st.integers(0, 2**20 - 1), max_size=40), min_size=1, max_size=6), st.data())
def test_every_shard_reads_its_rows_from_one_file(tmp_path_factory, keys, data):
    folder = str(tmp_path_factory.mktemp("shards"))
    written, expected = planted(f"{folder}/given", keys, np.int64)
    units = data.draw(st.integers(1, 40))
    shards = KeyRanges(data.draw(st.integers(1, units)), units, first=1000, each=data.draw(st.integers(1, 9999)))
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(exchange, "FAN_IN", 2)
        changed.setattr(exchange, "MIN_FAN_IN", 2)
        by_shard = collected(Direct(folder), "by-shard", written, shards, "key")
    for shard in range(units):
        low, high = shards.unit_bounds(shard)
        wanted = [row for row in expected.to_pylist() if low <= row["key"] < high]
        assert by_shard.read(shard).to_pylist() == wanted


@given(st.integers(1, 10**7), st.integers(1, 10**6), st.integers(0, 2**40), st.integers(1, 2**32))
def test_a_unit_is_in_its_range(units, ranges, first, each):
    divided = KeyRanges(min(ranges, units), units, first, each)
    for unit in {0, units // 3, units - 1}:
        low, high = divided.bounds(divided.of(unit))
        assert low <= divided.unit_bounds(unit)[0] < divided.unit_bounds(unit)[1] <= high
    assert divided.begin(0) == first and divided.begin(divided.ranges) == first + units * each


@given(st.integers(0, 10**8))
def test_files_are_merged_in_as_few_passes_as_there_can_be(n_files):
    left, passes = n_files, fan_ins(n_files)
    for fan_in in passes:
        assert exchange.MIN_FAN_IN <= fan_in <= exchange.FAN_IN
        left = -(-left // fan_in)
    assert left <= exchange.FAN_IN and n_files <= exchange.FAN_IN ** (len(passes) + 1)
    assert not passes or n_files > exchange.FAN_IN ** len(passes)


def test_files_of_a_snapshot_are_merged_once_and_of_ten_twice():
    assert fan_ins(512) == [] and fan_ins(600) == [32]
    assert fan_ins(90_000) == [176] and fan_ins(900_000) == [42, 42]


@given(st.integers(0, 10**12), st.integers(1, 10**4))
def test_a_partition_holds_half_of_what_a_job_may(rows, row_bytes):
    partitions = partitions_of(rows, row_bytes)
    assert rows * row_bytes / partitions <= exchange.JOB_BYTES == options.JobOptions().memory / 2
    assert partitions_of(rows + 1, row_bytes) >= partitions
    # and no more partitions than are of use
    assert partitions == 1 or rows * row_bytes / (partitions - 1) >= exchange.SMALL_BYTES


def test_a_snapshot_has_a_partition_for_each_core_and_a_small_corpus_few():
    assert partitions_of(2_500_000_000 * 16, 90) == 6706
    assert partitions_of(1_000_000 * 16, 90) == 64 and partitions_of(10_000 * 16, 90) == 1
