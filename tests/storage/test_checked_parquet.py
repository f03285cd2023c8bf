"""Parquet files with digests: plain Parquet to others; read here only where the bytes are those that were written."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.storage import files, parquet
from gristmill.storage.damage import DamagedFileError
from gristmill.storage.parquet import create_checked as create
from gristmill.storage.parquet import open_checked
from gristmill.storage.remote import streams

TABLE = pa.table(
    {
        "id": [f"d{i}" for i in range(2_000)],
        "list": [[i, None] if i % 3 else None for i in range(2_000)],
        "nested": [{"a": i, "b": "x" * (i % 5)} for i in range(2_000)],
        "hash": np.random.default_rng(1).integers(0, 1 << 63, 2_000, np.uint64),
        "text": pa.array(["wörter " * (i % 90) for i in range(2_000)], pa.large_string()),
    }
)


def written(path: str, row_group: int = 300) -> str:
    with create(path, TABLE.schema, compression="zstd", use_dictionary=["id"]) as out:
        out.write_table(TABLE, row_group_size=row_group)
    return path


@pytest.fixture(params=["local", "memory"])
def path(request, tmp_path) -> str:
    return written(f"{tmp_path}/t.parquet" if request.param == "local" else f"memory://checked/{tmp_path.name}.parquet")


def test_what_is_written_is_read_here_and_by_others(path):
    assert pq.read_table(pa.BufferReader(files.read_bytes(path))).equals(TABLE)
    assert parquet.read_table(path).equals(TABLE)
    with open_checked(path) as f:
        assert f.metadata.num_rows == 2_000 and f.schema.equals(TABLE.schema)
        assert f.read(columns=["id", "nested"]).equals(TABLE.select(["id", "nested"]))
        assert f.read([2, 5], ["list", "hash"]).equals(
            pa.concat_tables([TABLE[600:900], TABLE[1500:1800]]).select(["list", "hash"])
        )
        assert len(f.read([], ["text"])) == 0


def test_a_footer_of_any_length(path):
    written(path, row_group=2)
    assert len(files.read_bytes(path)) > 1_000 * 5 * 24 > 1 << 16
    assert parquet.read_table(path, ["hash", "text"]).equals(TABLE.select(["hash", "text"]))


def test_a_file_without_rows(path):
    parquet.write_table(path, TABLE[:0])
    assert parquet.read_table(path).equals(TABLE[:0]) and parquet.rows(path) == 0


def test_a_column_is_compared_when_it_is_read(path):
    data = bytearray(files.read_bytes(path))
    text = pq.read_metadata(pa.BufferReader(data)).row_group(3).column(5)
    assert text.path_in_schema == "text"
    data[text.data_page_offset + 5] ^= 1
    files.write_bytes(path, bytes(data))
    assert parquet.read_table(path, ["id", "hash"]).equals(TABLE.select(["id", "hash"]))
    found = parquet.groups(path, ["text"])
    assert [len(next(found)) for _ in range(3)] == [300] * 3
    with pytest.raises(DamagedFileError, match=r"is damaged between bytes \d+ and \d+; remove .* run the recipe"):
        next(found)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"x" * 500, b"\0" * 500, b"\xff" * 500])
def test_what_is_no_file_of_ours_is_refused(path, data):
    files.write_bytes(path, data)
    with pytest.raises(DamagedFileError, match="damaged at its end.*; remove"):
        parquet.rows(path)


def test_a_parquet_file_of_others_is_refused(path):
    with files.create(path) as f:
        pq.write_table(TABLE, f)
    with pytest.raises(DamagedFileError, match="or was not written by this version; remove"):
        parquet.read_table(path)


def test_of_a_remote_file_what_is_asked_for_is_fetched_once(tmp_path, monkeypatch):
    path, asked = written("memory://checked/counted.parquet", 500), []
    whole = streams._File.read
    monkeypatch.setattr(
        streams._File, "read", lambda f, start, end, *stop: asked.append((start, end)) or whole(f, start, end, *stop)
    )
    size = len(files.read_bytes(path))
    asked.clear()
    assert len(parquet.read_table(path)) == 2_000
    assert len(asked) == 2 and sum(end - start for start, end in asked) < size + (1 << 16)
