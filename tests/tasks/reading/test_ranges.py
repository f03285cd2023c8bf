"""Ranges of an archive, read one by one, give what the whole file gives: whatever is in it, and wherever it is
damaged."""

import gzip
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator

from gristmill.tasks.reading.archives import records
from gristmill.tasks.reading.members import zstd
from gristmill.tasks.reading.range_plan import Range, Reading, corrected, ranges_of
from tests.tasks.reading.test_archive_fuzz import MAX_BYTES, arc_record, lz4_frame, mutate, warc_record, zstd_frame

COMPRESSIONS = {
    "gzip": gzip.compress,
    "stored gzip": lambda data: gzip.compress(data, 0),
    "zstd": zstd_frame,
    "lz4": lz4_frame,
    "plain": bytes,
}


def read_by(path: str, parts: list[Range], max_bytes: int = MAX_BYTES, **settings) -> tuple[list, list]:
    """The records of each range, and how it was read."""
    found, read = [], []
    for part in parts:
        reading = Reading()
        found.append(list(records(path, max_bytes, part=part, reading=reading, **settings)))
        read.append(reading.range)
    return found, read


def in_ranges(path: str, parts: list[Range], **settings) -> tuple[list, int]:
    """The records of a file that is read in ranges, and how many ranges were read again."""
    found, read = read_by(path, parts, **settings)
    again = corrected(list(zip(parts, read, strict=True)))
    for at, part in enumerate(again):
        if part is not None:
            found[at] = read_by(path, [part], **settings)[0][0]
    return [record for of in found for record in of], sum(part is not None for part in again)


def cut(size: int, range_bytes: int) -> list[Range]:
    return [part or Range(0, None) for part in ranges_of(size, range_bytes)]


def http(payload: bytes, nth: int) -> bytes:
    block = b"HTTP/1.1 200 OK\r\nContent-Type: application/gzip\r\n\r\n" + payload
    head = (
        b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:%d>\r\n"
        b"WARC-Target-URI: https://mill.example/\r\nContent-Length: %d\r\n\r\n"
    )
    return head % (nth, len(block)) + block + b"\r\n\r\n"


def element(kind: str, nth: int, draw: random.Random, compress) -> bytes:
    """What may lie in a file, from one place to the next."""
    write = draw.choice([warc_record, warc_record, arc_record]) if kind == "mixed" else warc_record
    one = write(nth, draw)[0]
    match kind:
        case "several":
            return compress(b"".join(warc_record(100 * nth + i, draw)[0] for i in range(draw.randint(2, 4))))
        case "across":  # records without a member of their own
            content = b"".join(warc_record(100 * nth + i, draw)[0] for i in range(3))
            ends = sorted(draw.sample(range(1, len(content)), 4))
            return b"".join(compress(content[a:b]) for a, b in zip([0, *ends], [*ends, len(content)], strict=True))
        case "arc":
            return compress(arc_record(nth, draw)[0])
        case "archive":  # members in the payload of a member, verbatim where it is stored
            inner = b"".join(gzip.compress(warc_record(100 * nth + i, draw)[0]) for i in range(draw.randint(1, 5)))
            return compress(http(draw.randbytes(draw.randint(0, 9)) + inner, nth))
        case "plain archive":
            return compress(http(b"\r\n".join(warc_record(100 * nth + i, draw)[0] for i in range(3)), nth))
        case "magic":
            return compress(http(b"\x1f\x8b\x08\x00".join(draw.randbytes(9) for _ in range(30)), nth))
        case "large":
            return compress(http(draw.randbytes(2 * MAX_BYTES), nth))
        case "lie":
            return compress(one.replace(b"Content-Length: ", b"Content-Length: %d" % draw.choice([1, 9, 99]), 1))
        case "empty":
            return compress(draw.choice([b"", b"\r\n\r\n"]))
        case "garbage":
            return draw.choice([bytes(9), draw.randbytes(draw.randint(1, 300)), b"\r\n" * 9])
        case "unpacked":
            return one
        case "dictionary":
            known = zstd.ZstdDict(one * 3, is_raw=True)
            return b"\x5d\x2a\x4d\x18" + len(known.dict_content).to_bytes(4, "little") + known.dict_content
        case _:
            return compress(one)


KINDS = (
    *("one", "one", "one", "mixed", "several", "across", "arc", "archive", "plain archive", "magic", "large", "lie"),
    *("empty", "garbage", "unpacked", "dictionary"),
)


def archive(name: str, kinds: list[str], seed: int, damage: int) -> bytes:
    draw = random.Random(seed)
    data = b"".join(element(kind, nth, draw, COMPRESSIONS[name]) for nth, kind in enumerate(kinds))
    for _ in range(damage if data else 0):
        data = mutate(data, draw)[0] or b"?"
    return data


# Of a file in which all is sound and each record has its member no range is read again, so most of the files are such.
SOUND = st.lists(st.sampled_from(["one", "large", "magic"]), min_size=1, max_size=12)
ANY = st.lists(st.sampled_from(KINDS), min_size=1, max_size=12)


@pytest.mark.extended
@settings(max_examples=300)
@given(
    name=st.sampled_from([*COMPRESSIONS]),
    kinds=ANY | SOUND,
    seed=st.integers(0, 1 << 32),
    damage=st.integers(0, 3),
    count=st.integers(1, 9),
)
def test_ranges_give_what_the_whole_file_gives(tmp_path_factory, name, kinds, seed, damage, count):
    data = archive(name, kinds, seed, damage)
    path = tmp_path_factory.getbasetemp() / "archive"
    path.write_bytes(data)
    whole = list(records(str(path), MAX_BYTES, verify_digests=True))
    parts = cut(len(data), max(1, len(data) // count))
    found, again = in_ranges(str(path), parts, verify_digests=True)
    assert found == whole
    if not damage and set(kinds) <= {"one", "magic"}:
        assert again == 0


def test_members_in_a_payload_are_no_records_of_the_file(tmp_path):
    """Where a range begins within an archive that a record holds, what it finds there is given up."""
    draw = random.Random(0)
    written = [gzip.compress(warc_record(n, draw)[0], mtime=0) for n in range(30)]
    holder = gzip.compress(http(b"".join(written), 0), 0, mtime=0)
    (tmp_path / "a").write_bytes(b"".join([written[0], holder, written[1]]))
    size = (tmp_path / "a").stat().st_size
    whole = list(records(str(tmp_path / "a"), MAX_BYTES))
    assert [record.offset for record in whole] == [0, len(written[0]), size - len(written[1])]
    parts = cut(size, size // 4)
    found, read = read_by(str(tmp_path / "a"), parts)
    assert sum(map(len, found)) > 10 and read[1].first is not None
    assert in_ranges(str(tmp_path / "a"), parts) == (whole, len(parts) - 1)


def test_a_range_is_read_to_the_end_of_its_last_record_and_no_further(tmp_path):
    draw = random.Random(1)
    written = [gzip.compress(warc_record(n, draw)[0], mtime=0) for n in range(9)]
    ends = [sum(map(len, written[: n + 1])) for n in range(9)]
    data = b"".join(written)
    (tmp_path / "a").write_bytes(data)
    for begin, end, inside in (
        (0, ends[0], [0]),
        (ends[1] - 1, ends[1] + 1, [2]),
        (ends[1], ends[4], [2, 3, 4]),
        (ends[1] + 1, ends[2], []),
        (ends[7] + 1, None, []),
    ):
        found, [read] = read_by(str(tmp_path / "a"), [Range(begin, end)])
        assert [record.record_id for record in found[0]] == [f"<urn:uuid:{n}>" for n in inside]
        assert (read.first is not None) == bool(inside)
        if inside and end is not None:
            assert read.next.at == ends[inside[-1]]


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20, 21, 1 << 40])
def test_ranges_have_one_size_and_are_no_larger_than_asked(size):
    parts = ranges_of(size, 10 if size < 100 else 1 << 28)
    if size <= 10:
        assert parts == [None]
        return
    ends = [part.end for part in parts[:-1]] + [size]
    lengths = [end - part.begin for part, end in zip(parts, ends, strict=True)]
    assert parts[-1].end is None and sum(lengths) == size
    assert [part.begin for part in parts] == [0, *ends[:-1]]
    assert max(lengths) - min(lengths) <= 1 and max(lengths) <= (10 if size < 100 else 1 << 28)
    assert ranges_of(None, 10) == [None]


def real_archives() -> list[str]:
    folder = Path(os.environ.get("GRISTMILL_TEST_DATA", "")) / "warc"
    found = [*folder.rglob("*arc.gz"), *folder.rglob("*arc"), *folder.rglob("*.w?t.gz")]
    return sorted(str(path) for path in found if path.is_file())


@pytest.mark.slow
def test_ranges_of_real_archives():
    """Crawls of many makers, some damaged on purpose."""
    if "GRISTMILL_TEST_DATA" not in os.environ:
        pytest.skip("GRISTMILL_TEST_DATA does not name the folder with the data sets")
    compared = 0
    for path in real_archives():
        size = os.path.getsize(path)
        whole = list(records(path, 1 << 24))
        for count in (2, 7):
            assert in_ranges(path, cut(size, max(1, size // count)), max_bytes=1 << 24)[0] == whole, path
        compared += path.endswith("warc.gz") and same_as_warcio(path, whole)
    assert compared > 10


def same_as_warcio(path: str, whole: list) -> bool:
    """Whether warcio reads the file to its end; what it finds must be what was found, by ids and offsets."""
    theirs = []
    try:
        with open(path, "rb") as f:
            archive = ArchiveIterator(f)
            for record in archive:
                theirs.append((record.rec_headers.get_header("WARC-Record-ID"), archive.get_record_offset()))
    except Exception:  # which it gives up, for reasons of its own
        return False
    if any(record.problem and record.problem[0] == "damaged_record" for record in whole):
        return False
    assert [(record.record_id, record.offset) for record in whole] == theirs, path
    return True
