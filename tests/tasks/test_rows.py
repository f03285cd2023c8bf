"""Rows of a shard by number: what is read is what Arrow reads, whatever lies in the pages."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import files, shards
from tasks.kernels.pages import pages as pages_of
from tasks.rows import read_rows

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("title", pa.large_string()),
        pa.field("hash", pa.binary(24)),
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
    with shards.create(path, rows.schema) as out:
        for low in range(0, len(rows), 700):
            out.write_table(rows[low : low + 700])
    return path


@pytest.fixture(scope="module")
def shard(tmp_path_factory) -> tuple[str, pa.Table]:
    rows = table(9_000, 1)
    return written(str(tmp_path_factory.mktemp("shards") / "shard.parquet"), rows), rows


@settings(deadline=None)  # the first example compiles
@given(st.sets(st.integers(0, 8_999), max_size=60))
def test_rows_are_those_asked_for(shard, numbers):
    path, rows = shard
    asked = np.array(sorted(numbers), np.int64)
    assert read_rows(path, asked, SCHEMA.names).equals(rows.take(asked))
    assert read_rows(path, asked, ["hash", "text"]).equals(rows.select(["hash", "text"]).take(asked))


@pytest.mark.parametrize("home", ["memory://shards", None])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_all_rows_of_any_shard(tmp_path, home, missing):
    rows = table(500, 2, missing)
    path = files.join(home or str(tmp_path), f"shard-{missing}.parquet")
    asked = np.arange(500)
    assert read_rows(written(path, rows), asked, SCHEMA.names).equals(rows)
    shards.write_table(path, rows)
    assert read_rows(path, asked, SCHEMA.names).equals(rows)


def test_a_text_lies_in_a_small_page(shard):
    """64 kB and what one text more brings, not the whole row group's megabytes."""
    path, rows = shard
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(SCHEMA.names.index("text"))
    assert chunk.total_uncompressed_size > 4 << 20
    pages = chunk.total_uncompressed_size / (64 << 10)
    raw = np.frombuffer(open(path, "rb").read(), np.uint8)[chunk.data_page_offset :][: chunk.total_compressed_size]
    assert 0.2 * pages < pages_of(raw, chunk.num_values).shape[1] < 2 * pages


@settings(deadline=None)
@given(at=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_damage_is_an_error_and_not_a_hang(shard, tmp_path_factory, at, flip):
    path, rows = shard
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(SCHEMA.names.index("text"))
    raw = bytearray(open(path, "rb").read())
    raw[chunk.data_page_offset + int(at * chunk.total_compressed_size)] ^= flip
    damaged = str(tmp_path_factory.mktemp("damaged") / "shard.parquet")
    open(damaged, "wb").write(raw)
    asked = np.arange(4_096, 8_192, 5)
    try:
        found = read_rows(damaged, asked, ["text"])
    except (OSError, pa.ArrowInvalid):
        return
    assert len(found) == len(asked)


def test_groups_are_read_one_by_one(tmp_path):
    path = str(tmp_path / "shard.parquet")
    shards.write_table(path, pa.table({"n": np.arange(20_000)}))
    assert [len(group) for group in shards.groups(path, ["n"])] == [4096, 4096, 4096, 4096, 3616]
