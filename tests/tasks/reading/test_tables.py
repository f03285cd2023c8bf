"""Rows, lines and texts: every one is a record, and what is wrong with one is wrong with it alone."""

import gzip
import io
import json
import math
import random
import tracemalloc
import zlib
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastwarc.stream_io import ZstdWriter

from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.storage.remote.streams import RemoteIOError
from gristmill.tasks.reading.members import MAX_HELD_BYTES
from gristmill.tasks.reading.record import Columns
from gristmill.tasks.reading.tables import read_row, records
from tests.crawl_server import Fault, seeded

FAST = RemoteIOConfig(
    block_bytes=4096, backoff_seconds=0.002, backoff_cap_seconds=0.01, budget_seconds=5, stall_seconds=1
)
ALL = Columns("text", "url", "id", "date")
LIMIT = 5000
DRAW = random.Random(1)
ROWS = [
    {
        "id": n,
        "url": f"https://mill.example/{n}",
        "date": "2024-05-01",
        "text": "".join(DRAW.choices('grain müller 麦 \n\t"\\😀', k=DRAW.randrange(1, 400))),
    }
    for n in range(600)
]


def zstd(data: bytes) -> bytes:
    """Two frames, as tools that append write them."""
    frames = io.BytesIO()
    for half in (data[: len(data) // 2], data[len(data) // 2 :]):
        one = io.BytesIO()
        writer = ZstdWriter(one)
        writer.write(half)
        writer.close()
        frames.write(one.getvalue())
    return frames.getvalue()


PACKED = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "two gzip members": lambda data: gzip.compress(data[:999]) + gzip.compress(data[999:]),
    "zstd": zstd,
}


def lines(rows: list) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def shown(found) -> list[dict]:
    return [{"id": int(r.record_id), "url": r.url, "date": r.date, "text": r.payload.decode()} for r in found]


def test_keys_within_objects(tmp_path):
    """As datatrove writes documents. A key with a dot in its name comes first."""
    rows = [
        {"text": "a", "id": "x", "metadata": {"url": "https://a.example/", "dump": "one", "deep": {"score": 1}}},
        {"text": "b", "id": "y", "metadata": {"url": None}},
        {"text": "c", "id": "z", "metadata": "none", "metadata.url": "https://c.example/"},
        {"text": "d", "id": "w"},
    ]
    (tmp_path / "rows.jsonl").write_bytes(lines(rows))
    own = (("dump", "metadata.dump"), ("score", "metadata.deep.score"))
    columns = Columns(url="metadata.url", id="id", own=own)
    found = list(records(str(tmp_path / "rows.jsonl"), "jsonl", columns, 1000))
    assert [each.url for each in found] == ["https://a.example/", "", "https://c.example/", ""]
    assert [each.own for each in found] == [{"dump": "one", "score": 1}, {}, {}, {}]


@pytest.mark.parametrize("packing", PACKED)
def test_lines_come_back_whatever_packs_them(crawl_server, packing):
    (crawl_server.folder / "a.jsonl").write_bytes(PACKED[packing](lines(ROWS)))
    crawl_server.plan = seeded(4, 0.4)
    for path in (f"{crawl_server.folder}/a.jsonl", f"{crawl_server.url}/a.jsonl"):
        found = list(records(path, "jsonl", ALL, LIMIT, FAST))
        assert shown(found) == ROWS
        assert [r.offset for r in found] == list(range(600))
        assert {(r.kind, r.length, r.status, r.content_type, r.charset) for r in found} == {
            ("row", None, None, "text/plain", "utf-8")
        }
    assert crawl_server.faults()


def test_a_wrong_line_costs_one_record(tmp_path):
    good = lines(ROWS[:1])
    wrong = {
        b'{"text": "half\n': "damaged_record",
        b"\xff\xfe\x00\n": "damaged_record",
        b'["text"]\n': "damaged_record",
        b'{"body": "x"}\n': "no_text",
        b'{"text": null}\n': "no_text",
        b'{"text": 5}\n': "no_text",
        b'{"text": "\\ud800"}\n': "damaged_record",
        b'{"text": "' + b"x" * LIMIT + b'"}\n': "too_large",
        b'{"text": "' + b"x" * 3_000_000 + b'"}\n': "too_large",
        b"[" * LIMIT + b"\n": "damaged_record",
    }
    content, begins = bytearray(b"\xef\xbb\xbf"), []
    for line in wrong:
        content += good + b" \r\n"
        begins.append(len(content))
        content += line
    (tmp_path / "a.jsonl").write_bytes(content + good.rstrip())
    found = list(records(f"{tmp_path}/a.jsonl", "jsonl", ALL, LIMIT))
    assert [r.problem and r.problem[0] for r in found] == [x for rule in wrong.values() for x in (None, rule)] + [None]
    assert {r.payload for r in found[::2]} == {ROWS[0]["text"].encode()}
    assert [r.offset for r in found] == [n for at in range(len(wrong)) for n in (3 * at, 3 * at + 2)] + [30]
    for record, begin in zip(found[1::2], begins, strict=True):
        assert record.problem[1].startswith(f"line {record.offset + 1}, at byte {begin}: ")
        assert record.payload == b"" and len(record.problem[1]) <= 200


def test_constants_that_json_does_not_have_are_null(tmp_path):
    """As null in tables; Python's `json` writes them."""
    rows = [{"text": f"row {n}", "score": value} for n, value in enumerate((math.nan, math.inf, -math.inf, 0.5))]
    rows += [{"text": "NaN is Infinity", "score": [math.nan, {"a": math.inf}]}]
    lines = [
        *map(json.dumps, rows),
        '{"text": "NaN", "score": nan}',
        '{"text": "half \\ud800", "score": NaN}',
        '{"text": "more", "score": 36893488147419103232, "b": NaN}',
        '{"text": "NaN in a \xff"}',
    ]
    (tmp_path / "a.jsonl").write_bytes("\n".join(lines).encode("latin-1"))
    read = [*records(str(tmp_path / "a.jsonl"), "jsonl", Columns("text", every=True), 1 << 20)]
    assert [each.payload.decode() for each in read[:5]] == [row["text"] for row in rows]
    assert [each.own["score"] for each in read[:5]] == [None, None, None, 0.5, [None, {"a": None}]]
    assert [each.problem[0] for each in read[5:]] == ["damaged_record"] * 4


def test_columns_that_nobody_named_are_empty(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines([{"body": "x", "url": "u", "id": 1}]))
    (record,) = records(f"{tmp_path}/a.jsonl", "jsonl", Columns("body"), LIMIT)
    assert (record.payload, record.url, record.record_id, record.date) == (b"x", "", "", "")


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
@pytest.mark.parametrize("damage", ["cut", "zeros"])
def test_a_damaged_file_is_read_as_far_as_it_goes(tmp_path, packing, damage):
    data = bytearray(PACKED[packing](lines(ROWS)))
    middle = len(data) // 2
    data[middle:] = b"" if damage == "cut" else bytes(200) + data[middle + 200 :]
    (tmp_path / "a.jsonl").write_bytes(data)
    *good, last = records(f"{tmp_path}/a.jsonl", "jsonl", ALL, LIMIT)
    assert last.problem[0] == "damaged_record" and last.offset == len(good)
    assert shown(good) == ROWS[: len(good)]


MANY = ROWS * 5


# RFC 8878, 3.1.2: frames of zstd and lz4 without content, as a table to seek in
_FRAME = b"\x5e\x2a\x4d\x18\x04\0\0\0seek"


@pytest.mark.parametrize("packing", ["gzip", "two gzip members", "zstd"])
@pytest.mark.parametrize(
    "padding",
    [b"\n\n\n", bytes(512), b"\0" * 3_000_000 + b" \r\n", _FRAME, _FRAME + bytes(9) + _FRAME + b"\n"],
    ids=["lines", "zeros", "long", "frame", "frames"],
)
def test_padding_after_the_last_member_is_nothing(tmp_path, packing, padding):
    (tmp_path / "a").write_bytes(PACKED[packing](lines(MANY)) + padding)
    assert shown(records(f"{tmp_path}/a", "jsonl", ALL, LIMIT)) == MANY
    (tmp_path / "b").write_bytes(PACKED[packing](lines(ROWS)) + padding)
    (text,) = records(f"{tmp_path}/b", "text", Columns(), 1 << 20)
    assert (text.problem, text.payload) == (None, lines(ROWS))


def test_garbage_after_the_last_member_costs_no_row(tmp_path):
    (tmp_path / "a").write_bytes(gzip.compress(lines(MANY)) + b"\n\n<html>")
    *good, last = records(f"{tmp_path}/a", "jsonl", ALL, LIMIT)
    assert shown(good) == MANY
    assert last.problem[0] == "damaged_record" and "no compressed member begins" in last.problem[1]


def test_all_lines_before_a_cut_or_a_damaged_place_are_there(tmp_path):
    whole = gzip.compress(lines(MANY))
    for end in (len(whole) - 20, len(whole) // 2, len(whole) - 1):
        (tmp_path / "a").write_bytes(whole[:end])
        inflated = zlib.decompressobj(31).decompress(whole[:end])
        *good, last = records(f"{tmp_path}/a", "jsonl", ALL, LIMIT)
        assert shown(good) == MANY[: inflated.count(b"\n")] and last.offset == len(good)
        assert last.problem[0] == "damaged_record" and "the file ends inside this gzip member" in last.problem[1]
    middle = len(whole) // 2
    (tmp_path / "a").write_bytes(whole[:middle] + b"\xff" * 4000 + whole[middle + 4000 :])
    # what is not trusted before the place where damage is noticed: 64 KiB, and two blocks of 8
    trusted = zlib.decompressobj(31).decompress(whole[: middle - (5 << 14)]).count(b"\n")
    found = list(records(f"{tmp_path}/a", "jsonl", ALL, LIMIT))
    assert trusted and shown(found[:trusted]) == MANY[:trusted]
    assert found[-1].problem[0] == "damaged_record" and "member is damaged" in found[-1].problem[1]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=lambda kind: str(kind)[:9]
)
def test_rows_of_parquet_files(crawl_server, kind):
    table = pa.Table.from_pylist(ROWS)
    table = table.set_column(table.schema.get_field_index("text"), "text", table["text"].cast(kind))
    pq.write_table(table, crawl_server.folder / "a.parquet", row_group_size=250)
    crawl_server.plan = seeded(4, 0.3)
    for path in (f"{crawl_server.folder}/a.parquet", f"{crawl_server.url}/a.parquet"):
        found = list(records(path, "parquet", ALL, LIMIT, FAST))
        assert shown(found) == ROWS
        assert [r.offset for r in found] == list(range(600))
    assert crawl_server.faults()
    assert shown([read_row(path, "parquet", 257, ALL, LIMIT, FAST)]) == ROWS[257:258]
    with pytest.raises(LookupError, match="row 600"):
        read_row(path, "parquet", 600, ALL, LIMIT, FAST)


def test_wrong_rows_cost_one_record_each(tmp_path):
    texts = pa.array([b"good", None, b"x" * (LIMIT + 1), b"\xff\xfe", b"good"], pa.binary()).view(pa.string())
    dates = pa.array([datetime(2024, 5, 1)] * 5)
    pq.write_table(pa.table({"text": texts, "date": dates}), tmp_path / "a.parquet")
    found = list(records(f"{tmp_path}/a.parquet", "parquet", Columns("text", date="date"), LIMIT))
    assert [r.problem and r.problem[0] for r in found] == [None, "no_text", "too_large", "damaged_record", None]
    assert found[3].problem[1] == "row 3: the string of text is not UTF-8 at its byte 0" and found[3].payload == b""
    assert found[0].date == "2024-05-01T00:00:00"
    numbers = list(records(f"{tmp_path}/a.parquet", "parquet", Columns("date"), LIMIT))
    assert [r.problem[0] for r in numbers] == ["no_text"] * 5
    with pytest.raises(ValueError, match="a.parquet has no column body, u; its columns are text, date"):
        list(records(f"{tmp_path}/a.parquet", "parquet", Columns("body", "u"), LIMIT))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_a_damaged_string_of_parquet_is_a_damaged_row(tmp_path, kind):
    latin, utf8 = "Müller mahlt".encode("latin-1"), "Müller".encode()
    texts = pa.array([utf8, latin, utf8, None, utf8], pa.binary()).view(pa.string())
    urls = pa.array([b"a", b"b", b"\xc3", b"d", b"e"], pa.binary()).view(pa.string())
    if pa.types.is_dictionary(kind):
        indices = pa.array([0, 1, 2, None, 4], pa.int32())
        texts = pa.DictionaryArray.from_arrays(indices, texts.view(pa.binary()).fill_null(b"").view(pa.string()))
    elif kind == pa.large_string():
        texts = texts.cast(pa.large_binary(), safe=False).view(pa.large_string())
    pq.write_table(pa.table({"text": texts, "url": urls}), tmp_path / "a.parquet")
    found = list(records(f"{tmp_path}/a.parquet", "parquet", Columns("text", url="url"), LIMIT))
    assert [r.problem and r.problem[0] for r in found] == [None, "damaged_record", "damaged_record", "no_text", None]
    assert "string of text is not UTF-8 at its byte 1" in found[1].problem[1]
    assert "string of url is not UTF-8 at its byte 0" in found[2].problem[1]
    assert (found[0].payload, found[0].charset, found[0].url) == (utf8, "utf-8", "a")
    # bytes promise no encoding: theirs is detected
    pq.write_table(pa.table({"text": pa.array([latin], pa.binary())}), tmp_path / "b.parquet")
    (found,) = records(f"{tmp_path}/b.parquet", "parquet", Columns("text"), LIMIT)
    assert (found.payload, found.charset, found.problem) == (latin, None, None)


def test_damaged_parquet_files(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=200, compression="zstd")
    data = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(1).column(3)
    begin = column.dictionary_page_offset or column.data_page_offset
    data[begin : begin + 200] = bytes(200)
    path.write_bytes(data)
    found = list(records(str(path), "parquet", ALL, LIMIT))
    problems = [r for r in found if r.problem]
    first = problems[0].offset
    assert {r.problem for r in problems} == {("damaged_record", problems[0].problem[1])}
    assert "to 399 cannot be read" in problems[0].problem[1]
    assert [r.offset for r in problems] == [*range(first, 400)] and 200 <= first < 400
    assert shown(r for r in found if not r.problem) == ROWS[:first] + ROWS[400:]
    path.write_bytes(data[:-20])
    assert [r.problem[0] for r in records(str(path), "parquet", ALL, LIMIT)] == ["damaged_record"]


def test_texts(tmp_path):
    written = {"a": "Grüße".encode(), "b": gzip.compress(b"packed"), "c": "Grüße".encode("latin-1"), "d": b""}
    for name, data in written.items():
        (tmp_path / name).write_bytes(data)
    found = [next(records(f"{tmp_path}/{name}", "text", Columns(), LIMIT)) for name in written]
    assert [r.payload for r in found] == [written["a"], b"packed", written["c"], b""]
    assert [r.charset for r in found] == ["utf-8", "utf-8", None, "utf-8"]
    (large,) = records(f"{tmp_path}/a", "text", Columns(), 6)
    assert large.problem == ("too_large", "more than 6 bytes")


@pytest.mark.parametrize("format", ["jsonl", "parquet", "text"])
def test_a_refusing_server_is_no_damage(crawl_server, format):
    packed = gzip.compress(lines(ROWS))
    (crawl_server.folder / "a").write_bytes(packed)
    if format == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), crawl_server.folder / "a", row_group_size=100)
    crawl_server.plan = lambda path, start, nth: Fault("status", 503) if 8000 < start < 30_000 else None
    impatient = replace(FAST, budget_seconds=0.1)
    with pytest.raises(RemoteIOError, match="503"):
        list(records(f"{crawl_server.url}/a", format, Columns(), 10_000_000, impatient))
    with pytest.raises(FileNotFoundError):
        list(records(f"{crawl_server.url}/none", format, Columns(), LIMIT, FAST))


def test_a_line_that_unfolds_without_end_takes_a_bounded_memory(tmp_path):
    """256 MB of one line in 8 kB of zstd: of it no more is held than one record's bytes and what damage could undo."""
    (tmp_path / "bomb.jsonl.zst").write_bytes(zstd(b"a" * (256 << 20)))
    tracemalloc.start()
    [record] = records(str(tmp_path / "bomb.jsonl.zst"), "jsonl", Columns(), 1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert record.problem[0] == "too_large" and peak < MAX_HELD_BYTES + (64 << 20)


def test_times_outside_of_pythons_years_cost_no_run(tmp_path):
    times = pa.array([-(2**62), 1_704_164_645_000_000, 253_402_300_800_000_000], pa.timestamp("us"))
    pq.write_table(pa.table({"text": ["a", "b", "c"], "posted": times}), tmp_path / "a.parquet")
    path = str(tmp_path / "a.parquet")
    # as a date, what is no time of Python's stays a number, which is no date
    dated = [*records(path, "parquet", Columns(date="posted"), 100)]
    assert [record.problem for record in dated] == [None] * 3
    assert [record.date for record in dated] == [f"{-(2**62)}", "2024-01-02T03:04:05", "253402300800000000"]
    # as a column that documents carry, it has no value: the row is lost, and says why
    first, second, third = records(path, "parquet", Columns(own=(("ours", "posted"),)), 100)
    assert second.problem is None and first.problem[0] == third.problem[0] == "damaged_record"
    assert third.problem[1] == "row 2: posted is the time 253402300800000000, outside of the years 1 to 9999"


def test_a_column_that_is_there_twice_is_named(tmp_path):
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="a.parquet has several columns named text; rename all but one of each"):
        list(records(str(tmp_path / "a.parquet"), "parquet", Columns(), 100))
