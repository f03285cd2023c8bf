"""Small archives of every format, damaged at random: what is untouched is found, and no half passes for whole."""

import base64
import gzip
import hashlib
import random
import time
import zlib
from dataclasses import dataclass

import lz4.frame
import pytest

from gristmill.tasks.reading.archives import records
from gristmill.tasks.reading.members import zstd

MAX_BYTES = 1 << 16
# Far above what any of these archives needs, on a busy machine too: a reader that goes round in circles is over it.
CPU_SECONDS = 5.0
LINE_ENDS = 4


@dataclass(frozen=True)
class Part:
    """A span of the file that is whole or damaged as one, and the payloads of the records in it, by place."""

    start: int
    end: int
    offsets: tuple[int, ...]
    payloads: tuple[bytes, ...]


def warc_record(i: int, draw: random.Random, line: bytes = b"\r\n") -> tuple[bytes, bytes]:
    """A response, a conversion or a resource, with its digest."""
    words = [bytes(draw.choices(b"abcdefgh", k=draw.randint(1, 9))) for _ in range(draw.randint(5, 300))]
    payload = b"<html>%d " % i + b" ".join(words) + draw.choice([b"", b"\n\n", b"\r\n", draw.randbytes(200)])
    kind = draw.choice(["response", "response", "resource", "conversion"])
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" if kind == "response" else b""
    block = http + payload
    head = [
        b"WARC/1.%d" % draw.randint(0, 1),
        b"WARC-Type: " + kind.encode(),
        b"WARC-Record-ID: <urn:uuid:%d>" % i,
        b"WARC-Target-URI: https://mill.example/%d" % i,
        b"WARC-Block-Digest: sha1:" + base64.b32encode(hashlib.sha1(block).digest()),
        b"Content-Type: text/plain",
        b"Content-Length: %d" % len(block),
    ]
    return line.join(head) + line * 2 + block + line * 2, payload


def arc_record(i: int, draw: random.Random) -> tuple[bytes, bytes]:
    payload = warc_record(i, draw)[1]
    block = b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n" + payload
    return b"http://mill.example/%d 192.0.2.1 20080430204825 text/html %d\n" % (i, len(block)) + block + b"\n", payload


def zstd_frame(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


def lz4_frame(data: bytes) -> bytes:
    return lz4.frame.compress(data, content_checksum=True)


# How records are written, how many go into a member, how a member is compressed.
FORMATS = {
    "plain": (warc_record, 1, bytes),
    "line feeds": (lambda i, draw: warc_record(i, draw, b"\n"), 1, bytes),
    "gzip": (warc_record, 1, gzip.compress),
    "stored gzip": (warc_record, 1, lambda data: gzip.compress(data, 0)),
    "gzip, two a member": (warc_record, 2, gzip.compress),
    "gzip, one member": (warc_record, 99, gzip.compress),
    "zstd": (warc_record, 1, zstd_frame),
    "lz4": (warc_record, 1, lz4_frame),
    "arc": (arc_record, 1, bytes),
    "arc, gzip": (arc_record, 1, gzip.compress),
}


def archive(name: str, seed: int) -> tuple[bytes, list[Part]]:
    write, together, compress = FORMATS[name]
    draw = random.Random(seed)
    written = [write(i, draw) for i in range(draw.randint(4, 9))]
    data, parts, content = b"", [], 0
    for first in range(0, len(written), together):
        group = written[first : first + together]
        member = compress(b"".join(record for record, _ in group))
        offsets, at = [], content
        for record, _ in group:
            offsets.append(len(data) if len(group) == 1 else at)
            at += len(record)
        parts.append(Part(len(data), len(data) + len(member), tuple(offsets), tuple(p for _, p in group)))
        data, content = data + member, at
    return data, parts


def mutate(data: bytes, draw: random.Random) -> tuple[bytes, int, int]:
    """Damaged bytes, and the span of the original ones, from the first to behind the last, that is not as it was."""
    start = draw.randrange(len(data))
    size = min(draw.choice([1, 2, 5, 20, 100, 1000]), len(data) - start)
    match draw.randrange(7):
        case 0:
            flipped = bytes([data[start] ^ 1 << draw.randrange(8)])
            return data[:start] + flipped + data[start + 1 :], start, start + 1
        case 1:
            return data[:start] + data[start + size :], start, start + size
        case 2:
            return data[:start] + draw.randbytes(size) + data[start:], start, start
        case 3:
            other = draw.randrange(len(data))
            return data[:start] + data[other : other + size] + data[start:], start, start
        case 4:
            fill = bytes(size) if draw.random() < 0.5 else draw.randbytes(size)
            return data[:start] + fill + data[start + size :], start, start + size
        case 5:
            digits = [i for i in range(len(data)) if data[i : i + 1].isdigit()] or [start]
            at = draw.choice(digits)
            return data[:at] + b"%d" % draw.randrange(10) + data[at + 1 :], at, at + 1
        case _:
            return data[:start], start, len(data)


def expected(
    name: str, data: bytes, parts: list[Part], start: int, end: int, grown: int
) -> list[tuple[int | None, bytes]]:
    """Where the records that the damage did not touch must be, and their payloads."""
    found = []
    for part in parts:
        if part.end <= start:
            found += zip(part.offsets, part.payloads, strict=True)
        elif part.start >= end:
            # what a damaged member would have held is unknown, so offsets in the content are others behind it
            alone = len(part.offsets) == 1
            found += [(o + grown if alone else None, p) for o, p in zip(part.offsets, part.payloads, strict=True)]
        elif len(part.offsets) > 1:
            sound = zlib.decompressobj(31).decompress(data[part.start : start])
            ends = [*part.offsets[1:], part.offsets[0] + len(gzip.decompress(data[part.start : part.end]))]
            inside = [i for i, e in enumerate(ends) if e - part.offsets[0] <= len(sound)]
            found += [(part.offsets[i], part.payloads[i]) for i in inside]
    return found


def check(path, name: str, seed: int) -> None:
    data, parts = archive(name, seed)
    draw = random.Random(f"{name} {seed}")
    damaged, start, end = mutate(data, draw)
    path.write_bytes(damaged)
    began = time.process_time()
    found = list(records(str(path), MAX_BYTES, verify_digests=True))
    assert time.process_time() - began < CPU_SECONDS
    whole = [(r.offset, r.payload) for r in found if r.problem is None]
    payloads = [payload for _, payload in whole]
    for offset, payload in expected(name, data, parts, start, end, len(damaged) - len(data)):
        assert (offset, payload) in whole if offset is not None else payload in payloads, (offset, payload)
    originals = {payload for part in parts for payload in part.payloads}
    assert all(r.payload == b"" for r in found if r.problem)
    problems = any(r.problem for r in found)
    together = any(len(part.payloads) > 1 for part in parts)
    if name != "arc":
        # of a member with several records only the end tells whether it is sound
        assert set(payloads) <= originals or (together and problems)
    if len(whole) < sum(len(part.payloads) for part in parts):
        between = damaged == data[:start] and any(part.end - LINE_ENDS <= start <= part.end for part in parts)
        assert problems or between or not damaged or found[-1].truncated  # a little short of its length


@pytest.mark.parametrize("name", FORMATS)
def test_undamaged(tmp_path, name):
    for seed in range(5):
        data, parts = archive(name, seed)
        (tmp_path / "a").write_bytes(data)
        found = list(records(str(tmp_path / "a"), MAX_BYTES, verify_digests=True))
        assert [(r.offset, r.payload) for r in found] == [
            pair for part in parts for pair in zip(part.offsets, part.payloads, strict=True)
        ]
        assert {r.problem for r in found} == {None}


@pytest.mark.parametrize("name", FORMATS)
def test_mutations(tmp_path, name):
    for seed in range(40):
        check(tmp_path / "a", name, seed)


ALMOST_ARC = {
    "signs": b"http: 1.2.3.4 20200101 ",
    "schemes": b"http: ",
    "lines": b"http://a 1.2.3.4 20200101 \n",
    "long lines": b"http: 1.2.3.4 20200101 " * 300 + b"\n",
    "result codes": b"http: 1.2.3.4 20200101 200 a b 1 " * 200 + b"\n",
    "colons": b"http:" + b" " + b":" * 5000 + b"\n",
    "digits": b"http: " + b"1 " * 4000 + b"\n",
}


def repeated(part: bytes, size: int) -> bytes:
    return (part * (size // len(part) + 1))[:size]


@pytest.mark.extended
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("text", ALMOST_ARC)
def test_what_looks_like_arc_lines_takes_linear_time(tmp_path, text, packed):
    garbage = repeated(ALMOST_ARC[text], 1 << 20)
    before = arc_record(0, random.Random(1))
    data = gzip.compress(before[0] + garbage) if packed else b"?" + garbage
    (tmp_path / "a").write_bytes(data)
    began = time.process_time()
    found = list(records(str(tmp_path / "a"), MAX_BYTES))
    assert time.process_time() - began < CPU_SECONDS
    assert [r.problem and r.problem[0] for r in found] == [None] * packed + ["damaged_record"]
    if not packed:
        assert (found[0].offset, found[0].length) == (0, len(data))


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_an_arc_record_is_found_behind_what_looks_like_one(tmp_path, compress):
    draw = random.Random(1)
    written = [arc_record(i, draw) for i in range(3)]
    garbage = b"".join(repeated(part, 20_000) + b"?\n" for part in ALMOST_ARC.values())
    (tmp_path / "a").write_bytes(compress(written[0][0] + garbage + written[1][0] + written[2][0]))
    found = list(records(str(tmp_path / "a"), MAX_BYTES))
    assert [r.payload for r in found if not r.problem] == [payload for _, payload in written]
    assert any(r.problem for r in found)


def test_a_record_over_many_small_members_takes_linear_time(tmp_path):
    payload = random.Random(1).randbytes(40_000 * 100)
    head = b"http://mill.example/ 192.0.2.1 20080430204825 image/png %d\n" % (len(payload) + 19)
    block = b"HTTP/1.0 200 OK\r\n\r\n"[:19] + payload
    content = head + block + b"\n"
    (tmp_path / "a").write_bytes(b"".join(gzip.compress(content[i : i + 100]) for i in range(0, len(content), 100)))
    began = time.process_time()
    (record,) = records(str(tmp_path / "a"), len(content))
    assert time.process_time() - began < CPU_SECONDS
    assert record.problem is None and record.payload == payload


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_many_mutations(tmp_path, name):
    for seed in range(1000, 2000):
        check(tmp_path / "a", name, seed)
