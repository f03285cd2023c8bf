"""Rows of a shard by number: what is read is what was written, and nothing is read beside their row groups."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.storage import files, parquet
from gristmill.storage.damage import DamagedFileError
from gristmill.tasks.documents.selection import read_groups, read_rows

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("title", pa.large_string()),
        pa.field("hash", pa.binary(24), nullable=False),
    ]
)


def table(rows: int, seed: int, missing: float = 0.0) -> pa.Table:
    """Texts of no, few and very many characters; titles of which some are missing."""
    rng = np.random.default_rng(seed)
    lengths = rng.choice([0, 1, 30, 3_000, 200_000], rows, p=[0.1, 0.2, 0.4, 0.298, 0.002])
    texts = ["".join(chr(c) for c in rng.integers(0x20, 0x2FF, min(n, 50))) * (n // 50 + 1) for n in lengths]
    titles = [None if rng.random() < missing else text[:9] for text in texts]
    hashes = [rng.bytes(24) for _ in texts]
    return pa.table([range(rows), [f"d{i}" for i in range(rows)], texts, titles, hashes], schema=SCHEMA)


def written(path: str, rows: pa.Table) -> str:
    with parquet.create(path, rows.schema) as out:
        for low in range(0, len(rows), 700):
            out.write_table(rows[low : low + 700])
    return path


@pytest.fixture(scope="module")
def shard(tmp_path_factory) -> tuple[str, pa.Table]:
    rows = table(9_000, 1)
    return written(str(tmp_path_factory.mktemp("shards") / "shard.parquet"), rows), rows


@pytest.mark.extended
@settings(deadline=None)  # the first example compiles
@given(st.sets(st.integers(0, 8_999), max_size=60))
def test_rows_are_those_asked_for(shard, numbers):
    path, rows = shard
    asked = np.array(sorted(numbers), np.int64)
    assert read_rows(path, asked, SCHEMA.names).equals(rows.take(asked))
    assert read_rows(path, asked, ["hash", "text"]).equals(rows.select(["hash", "text"]).take(asked))


@pytest.mark.parametrize("home", ["memory://shards", "file://", None])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_all_rows_of_any_shard(tmp_path, home, missing):
    rows = table(500, 2, missing)
    folder = f"file://{tmp_path}" if home == "file://" else home or str(tmp_path)
    path = files.join(folder, f"shard-{missing}.parquet")
    few = np.arange(3, 500, 60)
    for write in (written, parquet.write_table):
        write(path, rows)
        for asked in (np.arange(500), few):
            assert read_rows(path, asked, SCHEMA.names).equals(rows.take(asked))


def test_a_shard_without_rows(tmp_path):
    path, none = str(tmp_path / "shard.parquet"), np.empty(0, np.int64)
    for write in (written, parquet.write_table):
        write(path, SCHEMA.empty_table())
        assert read_rows(path, none, SCHEMA.names).equals(SCHEMA.empty_table())


def test_rows_are_asked_for_once_and_in_order(shard):
    for asked in ([7, 7], [7, 3], [-1, 3], [7, 9_000]):
        with pytest.raises(ValueError, match="are not in ascending order"):
            read_rows(shard[0], np.array(asked), ["text"])


def test_only_row_groups_that_have_a_row_are_read(shard, monkeypatch):
    path, rows = shard
    read = []
    whole = pq.ParquetFile.read_row_groups
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_groups", lambda f, groups, **given: read.extend(groups) or whole(f, groups, **given)
    )
    asked = np.array([0, 4_095, 8_500])
    found = list(read_groups(path, asked, ["text", "n"]))
    assert [len(some) for some in found] == [0, 2, 1] and read == [0, 2]
    assert pa.concat_tables(found).equals(rows.select(["text", "n"]).take(asked))


def test_a_damaged_shard_is_an_error_that_names_it(shard, tmp_path):
    path = tmp_path / "damaged.parquet"
    path.write_bytes(Path(shard[0]).read_bytes()[:-9])
    with pytest.raises(DamagedFileError, match="damaged.parquet is damaged at its end.*; remove"):
        read_rows(str(path), np.array([1]), ["text"])


def test_groups_are_read_one_by_one(tmp_path):
    path, numbers = str(tmp_path / "shard.parquet"), np.arange(70_000)
    parquet.write_table(path, pa.table({"n": numbers}))
    assert [len(group) for group in parquet.groups(path, ["n"])] == [65_536, 4_464]
    parquet.write_table(path, pa.table({"n": numbers[:9_000], "text": pa.array(["x"] * 9_000, pa.large_string())}))
    assert [len(group) for group in parquet.groups(path, ["n"])] == [4_096, 4_096, 808]


@pytest.mark.parametrize("batch", [1_000, 4_096, 5_000, 12_288])
def test_row_groups_do_not_depend_on_the_tables_that_were_written(tmp_path, batch):
    rows = pa.table({"n": np.arange(12_288), "text": pa.array(["x"] * 12_288, pa.large_string())})
    path = str(tmp_path / "shard.parquet")
    with parquet.create(path, rows.schema) as out:
        for low in range(0, len(rows), batch):
            out.write_table(rows[low : low + batch])
        out.write_table(rows[:0])
    assert [len(group) for group in parquet.groups(path, ["n"])] == [4_096] * 3
    assert parquet.read_table(path).equals(rows)
