"""Rows of a shard by number: what is read is what Arrow reads, whatever lies in the pages."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from storage import files, parquet
from tasks.documents import rows as module
from tasks.documents.rows import read_each, read_rows
from tasks.kernels.pages import offset_indexes, page_header, page_places

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


@settings(deadline=None)  # the first example compiles
@given(st.sets(st.integers(0, 8_999), max_size=60))
def test_rows_are_those_asked_for(shard, numbers):
    path, rows = shard
    asked = np.array(sorted(numbers), np.int64)
    assert read_rows(path, asked, SCHEMA.names).equals(rows.take(asked))
    assert read_rows(path, asked, ["hash", "text"]).equals(rows.select(["hash", "text"]).take(asked))


@pytest.fixture
def paged(monkeypatch) -> list[str]:
    """The columns of which single pages were opened."""
    seen: list[str] = []

    def spied(file, chunks, *rows):
        seen.append(chunks[0].path_in_schema)
        return pages(file, chunks, *rows)

    pages = module._pages
    monkeypatch.setattr(module, "_pages", spied)
    return seen


@pytest.mark.parametrize("home", ["memory://shards", "file://", None])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_all_rows_of_any_shard(tmp_path, home, missing, paged):
    rows = table(500, 2, missing)
    folder = f"file://{tmp_path}" if home == "file://" else home or str(tmp_path)
    path = files.join(folder, f"shard-{missing}.parquet")
    few = np.arange(3, 500, 60)
    for write in (written, parquet.write_table):
        write(path, rows)
        for asked in (np.arange(500), few):
            assert read_rows(path, asked, SCHEMA.names).equals(rows.take(asked))
            assert paged == ["text", "hash"]
            paged.clear()


def test_a_shard_without_rows(tmp_path):
    path, none = str(tmp_path / "shard.parquet"), np.empty(0, np.int64)
    for write in (written, parquet.write_table):
        write(path, SCHEMA.empty_table())
        assert read_rows(path, none, SCHEMA.names).equals(SCHEMA.empty_table())


@pytest.mark.parametrize("home", ["memory://each", None])
def test_rows_of_shard_after_shard_and_the_disk_is_told_of_the_next(tmp_path, home, monkeypatch):
    paths = [files.join(home or str(tmp_path), f"shard-{i}.parquet") for i in range(4)]
    tables = [table(900, i) for i in range(4)]
    for path, rows in zip(paths, tables, strict=True):
        written(path, rows)
    told = []
    expect = module.files.expect
    monkeypatch.setattr(module.files, "expect", lambda f, low, high: (told.append(f), expect(f, low, high)))
    asked = [np.arange(i, 900, 50) if i != 2 else np.empty(0, np.int64) for i in range(4)]
    seen = []
    for number, found in enumerate(read_each(zip(paths, asked, strict=True), SCHEMA.names)):
        assert found.equals(tables[number].take(asked[number]))
        seen.append(len(set(map(id, told))))
    assert number == 3 and seen == ([0] * 4 if home else [2, 2, 3, 3])  # of the third no row is read
    with pytest.raises(ValueError, match="shard-1"):
        list(read_each([(paths[0], asked[0]), (paths[1], np.array([900]))], ["text"]))


def test_rows_are_asked_for_once_and_in_order(shard):
    for asked in ([7, 7], [7, 3], [-1, 3], [7, 9_000]):
        with pytest.raises(ValueError, match="do not ascend"):
            read_rows(shard[0], np.array(asked), ["text"])


def test_columns_beside_nested_ones(tmp_path, paged):
    path = str(tmp_path / "nested.parquet")
    names = [f"T{i}" for i in range(99)]
    nested = pa.array([{"x": i, "y": i} for i in range(99)])
    text = pa.field("text", pa.large_string(), nullable=False)
    rows = pa.table([nested, names], schema=pa.schema([pa.field("a", nested.type), text]))
    parquet.write_table(path, rows)
    assert read_rows(path, np.array([5]), ["a", "text"]).equals(rows.take([5]))
    assert paged == ["text"]


def place_of_index(path: str) -> list[int]:
    """Where the offset index of the first texts begins, and how long it is."""
    metadata = pq.ParquetFile(path).metadata
    with files.open_mapped(path) as f:
        return module._offset_indexes(module._Pieces(f), metadata)[0, SCHEMA.names.index("text")].tolist()


def test_a_text_lies_in_a_small_page(shard):
    """16 kB and what four texts bring, not the whole row group's megabytes."""
    path, _ = shard
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(SCHEMA.names.index("text"))
    assert chunk.total_uncompressed_size > 4 << 20
    pages = chunk.total_uncompressed_size / (16 << 10)
    raw, rows = np.fromfile(path, np.uint8), pq.ParquetFile(path).metadata.row_group(0).num_rows
    begin, size = place_of_index(path)
    assert 0.2 * pages < page_places(raw[begin : begin + size], rows, 0, len(raw)).shape[1] < 2 * pages


@pytest.mark.parametrize("where", ["pages", "index"])
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_damage_is_an_error_and_not_a_hang(shard, tmp_path_factory, paged, where, at, flip):
    path, _ = shard
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(SCHEMA.names.index("text"))
    raw = bytearray(Path(path).read_bytes())
    begin, size = chunk.data_page_offset, chunk.total_compressed_size
    if where == "index":
        begin, size = place_of_index(path)
    raw[begin + int(at * size)] ^= flip
    damaged = tmp_path_factory.mktemp("damaged") / "shard.parquet"
    damaged.write_bytes(raw)
    asked = np.arange(0, 4_096, 40)
    paged.clear()
    try:
        found = read_rows(str(damaged), asked, ["text"])
        assert len(found) == len(asked)
        assert where == "pages" or found.equals(shard[1].select(["text"]).take(asked))
    except (OSError, pa.ArrowInvalid) as error:
        assert str(damaged) in error.__notes__[0]
    assert paged == ["text"] or where == "index"
    damaged.unlink()


@settings(deadline=None, max_examples=500)
@given(raw=st.binary(min_size=1, max_size=60), values=st.integers(1, 9))
@example(raw=bytes([0x18, 0x81]), values=1)
@example(raw=bytes([0x49, 0xFC] + 9 * [0xFF]), values=1)  # a list of very many structs
@example(raw=bytes([0x49] + 40 * [0x19]), values=1)  # a list of lists of lists
def test_any_bytes_end(raw, values):
    data = np.frombuffer(raw, np.uint8)
    places = page_places(data, values, 1, 1 << 20)
    if places is not None:
        assert places[0].min() >= 1 and places[1].min() > 0 and (places[0] + places[1]).max() <= 1 << 20
        assert places[2, 0] == 0 and (np.diff(places[2]) > 0).all() and places[2, -1] < values
    header, size, packed, count = page_header(data)
    assert -1 <= header <= len(raw) and (header < 0 or (size >= 0 and packed >= 0 and count > 0))
    indexes = offset_indexes(data, values, 2)
    assert indexes is None or indexes.shape == (values, 2, 2)


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
