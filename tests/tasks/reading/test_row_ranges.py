"""Files of lines and Parquet files, read in ranges, give what the whole files give: whatever is in them, however they
are compressed and divided, and wherever they are damaged."""

import gzip
import json
import random
from pathlib import Path

import lz4.frame
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.storage.remote.config import DEFAULT
from gristmill.tasks.reading.members import zstd
from gristmill.tasks.reading.range_plan import EMPTY, Range, ranges_of
from gristmill.tasks.reading.ranges import count, divide
from gristmill.tasks.reading.record import Columns
from gristmill.tasks.reading.tables import records

MAX_BYTES = 300
COLUMNS = Columns(every=True)


def cut(size: int, range_bytes: int) -> list[Range]:
    return [part or Range(0, None) for part in ranges_of(size, range_bytes)]


def whole(path: Path, format: str = "jsonl") -> list:
    return list(records(str(path), format, COLUMNS, MAX_BYTES))


def in_ranges(path: Path, range_bytes: int) -> tuple[list, list[Range]]:
    """The records of a file of lines that is read in ranges, and these."""
    parts = cut(path.stat().st_size, range_bytes)
    read = divide([(part, count(str(path), part, DEFAULT)) for part in parts])
    assert len(read) == len(parts)
    return [each for part in read for each in records(str(path), "jsonl", COLUMNS, MAX_BYTES, part=part)], read


LINES = st.one_of(
    st.builds(lambda text, n: json.dumps({"text": text, "n": n}).encode(), st.text(max_size=40), st.integers(0, 9)),
    st.just(b""),
    st.just(b"  \r"),
    st.just(b"no JSON"),
    st.just(b"[1]"),
    st.just(b'{"text": null}'),
    st.builds(lambda n: json.dumps({"text": "long " * n}).encode(), st.integers(50, 400)),
    # what begins members, and what a text might hide
    st.just(b'{"text": "\x1f\x8b\x08\x00"}'),
    st.just(b"\x28\xb5\x2f\xfd" + b"x" * 20),
)
MEMBERS = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "stored gzip": lambda data: gzip.compress(data, 0, mtime=0),
    "zstd": lambda data: zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}),
    "lz4": lz4.frame.compress,
}


def pieces_of(content: bytes, cuts: list[float]) -> list[bytes]:
    ends = sorted({int(len(content) * each) for each in cuts} | {0, len(content)})
    return [content[a:b] for a, b in zip(ends, ends[1:], strict=False)]


@pytest.mark.extended
@given(
    st.lists(LINES, max_size=40),
    st.sampled_from(["plain", *MEMBERS]),
    st.lists(st.floats(0, 1), max_size=12),
    st.integers(1, 2000),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_lines_of_any_ranges_are_those_of_the_whole_file(tmp_path_factory, lines, kind, cuts, range_bytes, ended, bom):
    content = b"\xef\xbb\xbf" * bom + b"\n".join(lines) + b"\n" * ended
    data = content if kind == "plain" else b"".join(MEMBERS[kind](piece) for piece in pieces_of(content, cuts))
    path = tmp_path_factory.mktemp("lines") / "some.jsonl"
    path.write_bytes(data)
    assert in_ranges(path, range_bytes)[0] == whole(path)


@given(st.integers(0, 10_000), st.sampled_from(["plain", *MEMBERS]), st.integers(0, 10_000), st.integers(100, 3000))
@settings(max_examples=100, deadline=None)
def test_damaged_lines_of_any_ranges_are_those_of_the_whole_file(tmp_path_factory, seed, kind, at, range_bytes):
    draw = random.Random(seed)
    members = []
    for nth in range(12):
        lines = [json.dumps({"text": draw.randbytes(draw.randint(0, 60)).hex(), "n": nth}) for _ in range(5)]
        part = "\n".join(lines).encode()
        members.append(part if kind == "plain" else MEMBERS[kind](part + b"\n" * draw.randint(0, 1)))
    data = bytearray(b"".join(members))
    at %= len(data)
    match draw.randint(0, 2):
        case 0:
            data[at] ^= 1 << draw.randint(0, 7)
        case 1:
            del data[at:]
        case _:
            data[at:at] = draw.randbytes(draw.randint(1, 40))
    path = tmp_path_factory.mktemp("damaged") / "some.jsonl"
    path.write_bytes(bytes(data))
    assert in_ranges(path, range_bytes)[0] == whole(path)


@pytest.mark.parametrize("kind", ["plain", *MEMBERS])
def test_many_jobs_read_a_large_file_and_one_a_single_stream(tmp_path, kind):
    lines = [json.dumps({"text": f"line {nth} " * 5}).encode() + b"\n" for nth in range(400)]
    pieces = [b"".join(lines[at : at + 10]) for at in range(0, len(lines), 10)]
    path = tmp_path / "some.jsonl"
    path.write_bytes(b"".join(pieces if kind == "plain" else map(MEMBERS[kind], pieces)))
    range_bytes = path.stat().st_size // 7
    found, read = in_ranges(path, range_bytes)
    assert len(found) == 400 and found == whole(path)
    assert len(read) == 8 and all(part != EMPTY for part in read)
    if kind != "plain":
        path.write_bytes(MEMBERS[kind](b"".join(draw_apart(400))))
        found, read = in_ranges(path, path.stat().st_size // 7)
        assert len(found) == 400 and found == whole(path)
        assert [part == EMPTY for part in read] == [False, *[True] * (len(read) - 1)]


def draw_apart(lines: int) -> list[bytes]:
    draw = random.Random(1)
    return [json.dumps({"text": draw.randbytes(40).hex()}).encode() + b"\n" for _ in range(lines)]


def test_a_member_within_a_member_is_no_beginning(tmp_path):
    """Lines that hold compressed files as they are, in members that store them: the ranges do not fit, and one job
    reads what is left."""
    inner = gzip.compress(b'{"text": "not of this file"}\n', mtime=0)
    rows = [json.dumps({"text": f"row {nth}"}).encode() + b"\n" for nth in range(60)]
    nested = gzip.compress(b'{"text": "before"}\n' + b"".join(inner + b"\n" for _ in range(40)), 0, mtime=0)
    path = tmp_path / "some.jsonl.gz"
    path.write_bytes(b"".join([*(gzip.compress(row, mtime=0) for row in rows[:30]), nested, gzip.compress(rows[30])]))
    for range_bytes in (100, 500, 900, 2000):
        found, _ = in_ranges(path, range_bytes)
        assert found == whole(path)
    assert all(record.payload != b"not of this file" for record in found)


def test_members_with_a_dictionary_are_read_with_it(tmp_path):
    rows = [json.dumps({"text": f"the mill by the river grinds grain {nth}"}).encode() + b"\n" for nth in range(200)]
    trained = zstd.train_dict(rows, 1000)
    # RFC 8878, 3.1.2: a skippable frame, as the WARC convention for dictionaries has it
    frame = b"\x5d\x2a\x4d\x18" + len(trained.dict_content).to_bytes(4, "little") + trained.dict_content
    path = tmp_path / "some.jsonl.zst"
    path.write_bytes(frame + b"".join(zstd.compress(row, zstd_dict=trained) for row in rows))
    found, read = in_ranges(path, 1000)
    assert len(found) == 200 and found == whole(path) and sum(part != EMPTY for part in read) > 2


@pytest.mark.extended
@given(
    st.lists(st.lists(st.text(max_size=30) | st.none(), max_size=30), min_size=1, max_size=12),
    st.integers(300, 5000),
    st.none() | st.integers(0, 10_000),
)
@settings(max_examples=50, deadline=None)
def test_rows_of_any_ranges_are_those_of_the_whole_file(tmp_path_factory, groups, range_bytes, damage):
    path = tmp_path_factory.mktemp("rows") / "some.parquet"
    schema = pa.schema([("text", pa.string()), ("n", pa.int64())])
    with pq.ParquetWriter(path, schema, write_page_checksum=True) as out:
        for group in groups:
            out.write_table(pa.table([group, range(len(group))], schema=schema))
    if damage is not None:
        data = bytearray(path.read_bytes())
        data[damage % len(data)] ^= 1
        path.write_bytes(bytes(data))
    read = cut(path.stat().st_size, range_bytes)
    found = [each for part in read for each in records(str(path), "parquet", COLUMNS, MAX_BYTES, part=part)]
    assert found == whole(path, "parquet")
