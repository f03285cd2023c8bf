"""Sorted partition files: what comes back is what was written, range by range, and damage is found."""

import errno
import io
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.storage import files, sorted_files
from gristmill.storage.remote import streams
from gristmill.storage.remote.retry import RemoteIOError

KEYS = st.lists(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 5)), max_size=60)


@settings(max_examples=60, deadline=None)
@given(KEYS, st.integers(1, 7))
def test_the_ranges_of_all_partitions_give_each_row_once_in_order(tmp_path_factory, keys, partitions):
    path = str(tmp_path_factory.mktemp("run") / "run.parquet")
    rows = np.arange(len(keys))
    ends = sorted_files.bounds(partitions)
    sorted_files.write(path, pa.table({"row": rows, "hash": np.array(keys, np.uint64)}), "hash", ends)
    found = [sorted_files.read(path, low, high).to_pylist() for low, high in zip(ends[:-1], ends[1:], strict=True)]
    pairs = zip(rows.tolist(), keys, strict=True)
    expected = sorted(({"row": r, "hash": k} for r, k in pairs), key=lambda r: r["hash"])
    assert [row for part in found for row in part] == expected
    for part, low, high in zip(found, ends[:-1], ends[1:], strict=True):
        assert all(low <= row["hash"] < high for row in part)


@settings(max_examples=60, deadline=None)
@given(KEYS, st.sets(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 5)), max_size=20), st.integers(1, 7))
def test_the_rows_of_some_keys(tmp_path_factory, keys, more, partitions):
    path = str(tmp_path_factory.mktemp("run") / "run.parquet")
    table = pa.table({"row": np.arange(len(keys)), "hash": np.array(keys, np.uint64)})
    sorted_files.write(path, table, "hash", sorted_files.bounds(partitions))
    wanted = sorted(more | set(keys[::2]))
    found = sorted_files.find(path, np.array(wanted, np.uint64)).to_pylist()
    expected = [{"row": row, "hash": key} for row, key in enumerate(keys) if key in wanted]
    assert found == sorted(expected, key=lambda row: row["hash"])


NEAR_ENDS = st.integers(0, 9).map(lambda n: 2**64 - 1 - n)
NODES = st.tuples(st.sampled_from([0, 1, 2047]), st.integers(0, 3), st.integers(0, 300))


@pytest.mark.extended
@settings(deadline=None)
@given(
    st.one_of(
        st.lists(st.one_of(st.integers(0, 9), NEAR_ENDS, st.integers(0, 2**64 - 1))).map(
            lambda n: np.array(n, np.uint64)
        ),
        st.lists(st.integers(-(2**63), 2**63 - 1)).map(lambda n: np.array(n, np.int64)),
        st.lists(NODES.map(lambda n: n[0] << 52 | n[1] << 32 | n[2]), min_size=200).map(
            lambda n: np.array(n, np.int64)
        ),
    )
)
def test_the_order_of_keys_is_that_of_a_stable_argsort(keys):
    assert sorted_files.order(keys).tolist() == np.argsort(keys, kind="stable").tolist()


@pytest.mark.parametrize("row_group", [1, 7, 1000])
def test_row_groups_are_no_larger_than_asked(tmp_path, row_group):
    path = str(tmp_path / "run.parquet")
    keys = np.random.default_rng(1).integers(0, 2**64, 100, np.uint64)
    sorted_files.write(path, pa.table({"hash": keys}), "hash", sorted_files.bounds(3), row_group)
    run = pq.ParquetFile(path)
    sizes = [run.metadata.row_group(g).num_rows for g in range(run.num_row_groups)]
    ends = np.cumsum(np.histogram(keys, np.array(sorted_files.bounds(3), float))[0]).tolist()
    assert max(sizes) <= row_group and set(ends) <= set(np.cumsum(sizes).tolist())
    assert (
        sorted_files.read(path, *sorted_files.bounds(3)[1:3])["hash"].to_numpy().tolist()
        == np.sort(keys)[ends[0] : ends[1]].tolist()
    )


def test_columns_with_and_without_missing_values_go_together(tmp_path):
    paths = [str(tmp_path / f"{i}.parquet") for i in range(2)]
    tables = [pa.table({"node": [1, 3], "number": pa.array(column, pa.int64())}) for column in ([7, 8], [None, 9])]
    for path, table in zip(paths, tables, strict=True):
        sorted_files.write(path, table, "node")
    assert [pq.ParquetFile(path).schema_arrow.field("number").nullable for path in paths] == [False, True]
    assert pa.concat_tables(sorted_files.read_each(paths, 0, 5)).to_pylist() == pa.concat_tables(tables).to_pylist()


def test_keys_of_another_type_have_no_order():
    with pytest.raises(ValueError, match="int32: give uint64 or int64"):
        sorted_files.order(np.array([3, 1], np.int32))


def test_a_range_of_many_row_groups_is_found_by_the_statistics_of_few(tmp_path, monkeypatch):
    asked = []

    path, n = str(tmp_path / "run.parquet"), 1000
    ends = sorted_files.bounds(n)
    keys = np.sort(np.random.default_rng(0).integers(0, 2**64, 5 * n, np.uint64))
    sorted_files.write(path, pa.table({"hash": keys}), "hash", ends)
    assert pq.ParquetFile(path).num_row_groups > 0.9 * n
    ends_of = sorted_files._ends
    monkeypatch.setattr(sorted_files, "_ends", lambda f, at, group: asked.append(group) or ends_of(f, at, group))
    found = sorted_files.read(path, ends[700], ends[702])["hash"].to_numpy()
    assert found.tolist() == [key for key in keys.tolist() if ends[700] <= key < ends[702]] != []
    assert len(asked) <= 2 * 10 + 4


def test_columns_without_the_key(tmp_path):
    path = str(tmp_path / "run.parquet")
    sorted_files.write(path, pa.table({"node": np.array([5, -1, 3]), "name": ["a", "b", "c"]}), "node")
    assert sorted_files.read(path, 0, 5, ["name"]).to_pylist() == [{"name": "c"}]


def test_a_run_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        sorted_files.read(str(tmp_path / "run.parquet"), 0, 1)


@pytest.mark.parametrize(
    "error",
    [PermissionError(13, "403"), ConnectionResetError("lost"), OSError(errno.EIO, "disk"), RemoteIOError("gone")],
)
def test_what_is_wrong_on_the_way_to_a_run_is_not_called_damage(tmp_path, monkeypatch, error):
    class Failing(io.BytesIO):
        def readinto(self, target):
            raise error

    path = "memory://run.parquet"
    sorted_files.write(path, pa.table({"hash": np.arange(9, dtype=np.uint64)}), "hash")
    monkeypatch.setattr(streams, "open_ranges", lambda path: Failing(files.read_bytes(path)))
    with pytest.raises(type(error)) as raised:
        sorted_files.read(path, 0, 9)
    assert raised.value is error or str(raised.value) == str(error)


def test_remote_files_are_read_side_by_side_and_come_in_order(tmp_path, monkeypatch):
    rng, count = np.random.default_rng(2), 30
    paths = [f"memory://{tmp_path.name}/{i:05d}.parquet" for i in range(count)]
    for number, path in enumerate(paths):
        keys = rng.integers(0, 100, 50).astype(np.uint64)
        sorted_files.write(path, pa.table({"hash": keys, "of": np.full(50, number)}), "hash")
    reading, under_way, most = sorted_files.read, set(), []

    def read(path, *given):
        under_way.add(path)
        time.sleep(0.01 if path.endswith("0.parquet") else 0)
        most.append(len(under_way))
        found = reading(path, *given)
        under_way.discard(path)
        return found

    expected = [reading(path, 20, 60).to_pylist() for path in paths]
    monkeypatch.setattr(sorted_files, "read", read)
    assert [table.to_pylist() for table in sorted_files.read_each(paths, 20, 60)] == expected
    assert 1 < max(most) <= sorted_files.AT_ONCE
    with pytest.raises(FileNotFoundError):
        list(sorted_files.read_each([*paths, f"memory://{tmp_path.name}/none.parquet"], 20, 60))
