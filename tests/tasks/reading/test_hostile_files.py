"""Files that are made to take memory and time, read as a run reads them: within 1 GiB beside what the reader has at its
beginning, all of its processes together, and 60 seconds of processor time. Texts beside the hostile part are read."""

import gzip
import io
import json
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MB = 1 << 20
MEMORY, SECONDS = 1 << 30, 60
GOOD = "Alder and birch grow beside the mill, and the miller knows each of them."
LINE = json.dumps({"text": GOOD}).encode() + b"\n"

# Reads a file, prints its memory when all is loaded, then what became of the records.
READ = """
import json, os, sys
from collections import Counter
import psutil
from gristmill.storage.remote.config import DEFAULT
from gristmill.tasks.reading.listing import Shard
from gristmill.tasks.reading.record import Columns, Repositories
from gristmill.tasks.reading.shard import read
path, format, good = sys.argv[1:]
print(psutil.Process().memory_info().rss, flush=True)
columns = Columns(every=True) if format in ("jsonl", "parquet") else Columns()
how = {"repositories": Repositories(archive_bytes=1 << 30)} if format == "code" else {}
rules, kept = Counter(), 0
for _, record in read(Shard(format, path, os.path.basename(path), columns, **how), 10_000_000, False, DEFAULT):
    rules[record.problem[0] if record.problem else "read"] += 1
    kept += good.encode() in record.payload
print(json.dumps([rules, kept]))
"""


def dictionary(path: Path) -> None:
    """8,000 rows of 1 MB from 3 kB, between two good groups."""
    kind = pa.dictionary(pa.int32(), pa.string())
    good = pa.table({"text": pa.array([GOOD]).dictionary_encode()})
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 8000, pa.int32()), pa.array(["a" * MB]))
    with pq.ParquetWriter(path, pa.schema({"text": kind}), compression="zstd", store_schema=False) as out:
        for table in (good, pa.table({"text": texts}), good):
            out.write_table(table)


def one_list(path: Path) -> None:
    """A row with a list of 8 GB, in a column beside the text."""
    items = pa.DictionaryArray.from_arrays(pa.array([0] * 8000, pa.int32()), pa.array(["a" * MB]))
    tags = pa.ListArray.from_arrays(pa.array([0, 8000], pa.int32()), items)
    pq.write_table(pa.table({"text": [GOOD], "tags": tags}), path, compression="zstd", store_schema=False)


def front_coded(path: Path) -> None:
    """2,000 rows that share all but their last bytes with the row before: each is written as the difference."""
    texts = [("a" * MB) + str(i) for i in range(2000)]
    options = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}, "compression": "zstd"}
    pq.write_table(pa.table({"text": texts}), path, data_page_size=1 << 32, **options)


def nulls(path: Path) -> None:
    empty = pa.table({"text": pa.nulls(10_000_000, pa.string())})
    with pq.ParquetWriter(path, empty.schema) as out:
        out.write_table(pa.table({"text": [GOOD]}))
        for _ in range(10):
            out.write_table(empty, row_group_size=10_000_000)


def row_groups(path: Path) -> None:
    table = pa.table({"text": [GOOD]})
    with pq.ParquetWriter(path, table.schema, write_statistics=False) as out:
        for _ in range(5000):
            out.write_table(table)


def lines(hostile: Callable[[], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(LINE + hostile() + b"\n" + LINE) and None


def gzip_bomb(head: bytes) -> bytes:
    """10 GB: one piece of a deflate stream, many times."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = compressor.compress(head) + compressor.flush(zlib.Z_FULL_FLUSH)
    piece = compressor.compress(b"a" * 64 * MB) + compressor.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + first + piece * 160 + b"\x03\0" + bytes(8)


def members(path: Path) -> None:
    """Empty ones before a line."""
    path.write_bytes(gzip.compress(b"") * 100_000 + gzip.compress(LINE))


def zstd_bomb(path: Path) -> None:
    head, frame = (pa.compress(data, "zstd", asbytes=True) for data in (LINE + b'{"text": "', b"a" * 512 * MB))
    path.write_bytes(head + frame * 20)


def zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("a.py", f"# {GOOD}\nprint(1)\n")
        with out.open("b.py", "w", force_zip64=True) as f:
            for _ in range(64):
                f.write(b"#" * 64 * MB)


def tar_members(path: Path) -> None:
    """A member of 2^60 bytes, links outside, and names outside, before a good one."""
    with tarfile.open(path, "w") as out:
        for name, kind in (("a", tarfile.SYMTYPE), ("../../b.py", tarfile.REGTYPE), ("/etc/c.py", tarfile.REGTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            out.addfile(member)
        text = f"# {GOOD}\nprint(1)\n".encode()
        member = tarfile.TarInfo("good.py")
        member.size = len(text)
        out.addfile(member, io.BytesIO(text))


# By name: format, builder, good texts that are read.
CASES: dict[str, tuple[str, Callable[[Path], None], int]] = {
    "dictionary.parquet": ("parquet", dictionary, 2),
    "list.parquet": ("parquet", one_list, 0),
    "front.parquet": ("parquet", front_coded, 0),
    "nulls.parquet": ("parquet", nulls, 1),
    "groups.parquet": ("parquet", row_groups, 5000),
    "long.jsonl": ("jsonl", lines(lambda: b'{"text": "' + b"word " * (20 * MB) + b'"}'), 2),
    "keys.jsonl": ("jsonl", lines(lambda: json.dumps({f"k{i}": i for i in range(300_000)}).encode()), 2),
    "deep.jsonl": ("jsonl", lines(lambda: b'{"text": "x", "y": ' + b"[" * 900 + b"]" * 900 + b"}"), 2),
    "open.jsonl": ("jsonl", lines(lambda: b"[" * 1_000_000), 2),
    "bomb.jsonl.gz": ("jsonl", lambda path: path.write_bytes(gzip_bomb(LINE + b'{"text": "')) and None, 1),
    "members.jsonl.gz": ("jsonl", members, 1),
    "bomb.jsonl.zst": ("jsonl", zstd_bomb, 1),
    "bomb.txt.gz": ("text", lambda path: path.write_bytes(gzip_bomb(b"")) and None, 0),
    "bomb.zip": ("code", zip_bomb, 1),
    "names.tar": ("code", tar_members, 1),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_costs_a_bounded_memory_and_time(tmp_path, name):
    format, build, good = CASES[name]
    path = tmp_path / name
    build(path)
    command = [sys.executable, "-c", READ, str(path), format, GOOD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        begin, reader = int(process.stdout.readline()), psutil.Process(process.pid)
        most = cpu = 0.0
        while process.poll() is None:
            try:
                members = [reader, *reader.children(recursive=True)]
                most = max(most, sum(member.memory_info().rss for member in members))
                cpu = max(cpu, sum(sum(member.cpu_times()[:2]) for member in members))
            except psutil.Error:
                pass
            time.sleep(0.05)
        rules, kept = json.loads(process.stdout.read())
    assert process.returncode == 0 and kept == good, rules
    # the process that decodes has loaded the same libraries as the reader
    assert most < 2 * begin + MEMORY, f"{most / MB:.0f} MB, {begin / MB:.0f} at the beginning"
    assert cpu < SECONDS
