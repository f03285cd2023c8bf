"""Rows that are made to take memory or time, or to end a run: each costs itself, or what is behind it in its group."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.tasks.reading import parquet_rows, tables
from gristmill.tasks.reading.listing import Shard
from gristmill.tasks.reading.record import MAX_DEPTH, MAX_FIELDS, Columns, oversized
from gristmill.tasks.reading.shard import find_types

MAX_BYTES = 10_000_000
GOOD = [f"text number {i}, which is read" for i in range(1000)]


def rules(path: Path, format: str = "parquet", columns: Columns | None = None) -> Counter:
    records = tables.records(str(path), format, columns or Columns(), MAX_BYTES)
    return Counter(record.problem[0] if record.problem else "read" for record in records)


def bomb(path: Path, length: int, rows: int) -> Path:
    """A text that all rows share."""
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["no more. " * (length // 9)]))
    pq.write_table(
        pa.table({"text": shared}),
        path,
        compression="zstd",
        store_schema=False,
        dictionary_pagesize_limit=1 << 30,
    )
    return path


def peak_memory(program: str, *arguments: str) -> int:
    """Bytes that a program, and each process that it started, had at most."""
    code = f"import resource, sys\n{program}\n" + (
        "print(max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))"
    )
    out = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True).stdout
    return int(out.split()[-1]) << 10


READ = """
from gristmill.tasks.reading import tables
from gristmill.tasks.reading.record import Columns
for record in tables.records(sys.argv[1], "parquet", Columns(), 10_000_000):
    pass
from gristmill.tasks.guard.parent import _leave
_leave()
"""


@pytest.mark.slow
def test_a_short_file_that_decodes_to_gigabytes_takes_a_bounded_memory(tmp_path):
    path = bomb(tmp_path / "bomb.parquet", 40_000_000, 256)
    assert path.stat().st_size < 8_000
    # the process that decodes has 1 GiB beside its libraries; decoded as it is, the file takes 7.7 GB
    assert peak_memory(READ, str(path)) < 1.5 * (1 << 30)
    found = rules(path)
    assert found.total() == 256 and found["too_large"] >= 6 and set(found) == {"too_large", "damaged_record"}


@pytest.mark.slow
def test_rows_that_are_short_enough_are_read_from_a_group_that_is_too_large(tmp_path):
    """A batch of them takes more than a process may have; three at a time do not."""
    path = bomb(tmp_path / "large.parquet", 6_000_000, 40)
    numbers = [record.offset for record in tables.records(str(path), "parquet", Columns(), MAX_BYTES)]
    assert numbers == [*range(40)] and rules(path)["read"] == 40


def test_a_group_is_the_same_in_both_ways(tmp_path, monkeypatch):
    """Read with its dictionaries kept, over pages with and without them, and rows that are too large."""
    texts = [text * (1 + i % 40) for i, text in enumerate(GOOD)]
    texts[500:] = [f"{i % 7} again " * 50 for i in range(500)]
    texts[123] = None
    table = pa.table(
        {
            "text": pa.array(texts, pa.string()),
            "blob": pa.array([text and text.encode() for text in texts], pa.binary()),
            "kind": pa.array([str(i % 5) for i in range(1000)]).dictionary_encode(),
            "list": pa.array([[i, i + 1] for i in range(1000)]),
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=700, dictionary_pagesize_limit=4096, data_page_size=2048)
    columns = Columns(own=(("blob", "blob"), ("kind", "kind"), ("list", "list")))
    expected = [*tables.records(str(path), "parquet", columns, 2000)]
    real = parquet_rows.Guard.map

    def full(guard, calls):
        """The limit of memory is reached, unless the dictionaries are kept."""
        first, *others = calls
        keeps = first[5] is not None
        yield from real(guard, iter([first, *others])) if keeps else [{"rule": "page_memory", "detail": "over"}]

    monkeypatch.setattr(parquet_rows.Guard, "map", full)
    found = [*tables.records(str(path), "parquet", columns, 2000)]
    assert [record.offset for record in found] == [record.offset for record in expected] == [*range(1000)]
    large = [record.offset for record in expected if record.problem and record.problem[0] == "too_large"]
    for ours, theirs in zip(found, expected, strict=True):
        # what is left out is known by all strings of a row, and not by its text alone
        assert ours == theirs or (ours.problem and ours.problem[0] == "too_large" and len(theirs.payload) > 900)
    assert {*large} <= {record.offset for record in found if record.problem}


def deep(depth: int) -> str:
    return "[" * depth + "]" * depth


LINES = {
    "nested": f'{{"text": "x", "own": {deep(900)}}}',
    "objects": '{"text": "x", "own": ' + '{"a":' * 200 + "1" + "}" * 201,
    "wide": json.dumps({"text": "x"} | {f"k{i}": i for i in range(300_000)}),
    "wide within": json.dumps({"text": "x", "own": {f"k{i}": i for i in range(2000)}}),
    "wide in a list": json.dumps({"text": "x", "own": [{f"k{i}": i} for i in range(2000)]}),
}


@pytest.mark.extended
@pytest.mark.parametrize("name", LINES)
def test_a_line_whose_columns_cannot_be_carried_costs_itself(tmp_path, name):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([json.dumps({"text": GOOD[0], "own": None}), LINES[name], json.dumps({"text": GOOD[1]})]))
    assert rules(path, "jsonl", Columns(every=True)) == {"read": 2, "too_large": 1}
    assert rules(path, "jsonl") == {"read": 3}, "whose columns nobody asks for"
    shard = Shard("jsonl", str(path), "a", Columns(every=True))
    found = find_types("", 0, "web", (shard,), MAX_BYTES)
    assert [kind for kind, *_ in found["types"]] == ["own"]


@pytest.mark.extended
def test_what_can_be_carried(tmp_path):
    assert not oversized({f"k{i}": i for i in range(MAX_FIELDS)}) and oversized(
        {f"k{i}": i for i in range(MAX_FIELDS + 1)}
    )
    assert not oversized({"own": [{"a": 1, "b": [1.0] * 5000}] * 5000})
    assert not oversized({"own": orjson.loads(deep(MAX_DEPTH))}) and oversized(
        {"own": orjson.loads(deep(MAX_DEPTH + 1))}
    )


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["deep", "wide"])
def test_a_parquet_file_whose_columns_cannot_be_carried_costs_itself(tmp_path, kind):
    own = pa.string()
    for _ in range(MAX_DEPTH + 2):
        own = pa.list_(own)
    fields = [("own", own)] if kind == "deep" else [(f"k{i}", pa.string()) for i in range(2000)]
    rows = {"text": pa.array(["a", "b"])} | {name: pa.nulls(2, type) for name, type in fields}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(rows), path)
    assert rules(path, columns=Columns(every=True)) == {"too_large": 1}
    assert rules(path) == {"read": 2}
    shard = Shard("parquet", str(path), "a", Columns(every=True))
    assert find_types("", 0, "web", (shard,), MAX_BYTES)["types"] == []


def test_a_footer_that_promises_more_rows_than_there_are(tmp_path):
    """The lie is in the number of rows of the group, which is a varint of Thrift."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": GOOD[:100]}), path, compression="none", use_dictionary=False)
    data = path.read_bytes()
    [*_, last] = [i for i in range(len(data) - 2) if data[i : i + 2] == b"\xc8\x01"]
    assert rules(path) == {"read": 100}
    changed = data[:last] + b"\xd0\x01" + data[last + 2 :]
    path.write_bytes(changed)
    found = rules(path)
    assert found["read"] <= 100 and set(found) <= {"read", "damaged_record"}


@pytest.mark.extended
def test_the_first_rows_of_a_bomb_are_none(tmp_path):
    with pytest.raises(parquet_rows.UndecodableError):
        parquet_rows.first_rows(str(bomb(tmp_path / "bomb.parquet", 40_000_000, 256)), 40)
    pq.write_table(pa.table({"text": GOOD}), tmp_path / "good.parquet")
    assert parquet_rows.first_rows(str(tmp_path / "good.parquet"), 40) == {"text": GOOD[:40]}


def test_a_group_of_more_rows_than_bytes_costs_one_reason(tmp_path):
    """Nulls, or one value: 10,000,000 rows take 1 kB, and each would be a row of the ledger."""
    path = tmp_path / "a.parquet"
    nulls = pa.table({"text": pa.nulls(5_000_000, pa.string())})
    with pq.ParquetWriter(path, nulls.schema) as out:
        out.write_table(pa.table({"text": GOOD[:3]}))
        out.write_table(nulls, row_group_size=5_000_000)
        out.write_table(pa.table({"text": GOOD[3:5]}))
    assert rules(path) == {"read": 5, "damaged_record": 1}
    [lost] = [record for record in tables.records(str(path), "parquet", Columns(), MAX_BYTES) if record.problem]
    assert "5,000,000 rows in" in lost.problem[1] and lost.offset == 3
    assert [*tables.records(str(path), "parquet", Columns(), MAX_BYTES)][-1].offset == 5_000_004
