"""Remote bytes are the right bytes or an error that says what to do, whatever the server does."""

import errno
import gzip
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from types import SimpleNamespace

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.storage import files, fingerprint, parquet
from gristmill.storage.remote import config
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.storage.remote.streams import RemoteIOError, fetch, info, open_ranges, open_stream, retrying_call
from tests.crawl_server import BAD_MOMENTS, Fault, seeded

FAST = RemoteIOConfig(
    block_bytes=4096,
    budget_seconds=5,
    backoff_seconds=0.002,
    backoff_cap_seconds=0.02,
    stall_seconds=0.3,
    block_seconds=2,
)
CONTENT = random.Random(5).randbytes(70_001)


@pytest.fixture
def planted(crawl_server):
    (crawl_server.folder / "file.warc.gz").write_bytes(CONTENT)
    return crawl_server


@pytest.fixture
def address(planted) -> str:
    return f"{planted.url}/file.warc.gz"


def read(address: str, remote_io: RemoteIOConfig = FAST, size: int = 1000) -> bytes:
    """By pieces that do not divide the blocks; `tell` must follow."""
    pieces = []
    with open_stream(address, remote_io) as f:
        while piece := f.read(size):
            pieces.append(piece)
            assert f.tell() == sum(map(len, pieces))
    assert {len(piece) for piece in pieces[:-1]} <= {size}
    return b"".join(pieces)


@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 4097, 8192, 70_001])
@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_of_any_length(crawl_server, length, ranges):
    crawl_server.ranges = ranges
    (crawl_server.folder / "file").write_bytes(CONTENT[:length])
    address = f"{crawl_server.url}/file"
    assert read(address) == CONTENT[:length]
    assert info(address, FAST)["size"] == length


def test_blocks_are_asked_for_in_order_and_once(planted, address):
    assert read(address) == CONTENT
    assert [(r.start, r.end) for r in planted.requests] == [(at, at + 4096) for at in range(0, len(CONTENT), 4096)]


def test_no_more_than_one_block_is_fetched_ahead(planted, address):
    with open_stream(address, FAST) as f:
        f.read(10)
        time.sleep(0.1)
        assert len(planted.requests) == 2
    assert read(address)[:10] == CONTENT[:10]


@pytest.mark.parametrize("seed", range(3))
def test_bad_moments_change_no_byte(planted, address, seed):
    planted.plan = seeded(seed, 0.6)
    assert read(address) == CONTENT
    assert sum(planted.faults().values()) > 10


@pytest.mark.parametrize("fault", [*BAD_MOMENTS, Fault("stalled")], ids=str)
def test_each_bad_moment_is_resumed_at_its_block(planted, address, fault):
    planted.plan = lambda path, start, nth: fault if start == 8192 and nth < 2 else None
    assert read(address) == CONTENT
    assert planted.faults() == {fault.kind: 2}
    assert len(planted.requests) == 2 + -(-len(CONTENT) // 4096)


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_without_ranges_the_bytes_are_the_same_and_come_at_once(planted, address, framing):
    planted.ranges, planted.framing = False, framing
    assert read(address) == CONTENT
    assert len(planted.requests) == 1


@pytest.mark.parametrize("kind", ["reset", "truncated", "stalled"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_without_ranges_a_break_is_read_over(planted, address, kind, framing):
    planted.ranges, planted.framing = False, framing
    planted.plan = lambda path, start, nth: Fault(kind) if nth == 0 else None
    assert read(address) == CONTENT
    assert fetch(address, 69_000, 69_100, FAST) == CONTENT[69_000:69_100]


def test_a_file_of_unknown_length_cannot_be_read_from_its_end(planted, address):
    planted.ranges, planted.framing = False, "chunked"
    with pytest.raises(RemoteIOError, match="does not say how long it is"):
        open_ranges(address, FAST)


def test_a_file_without_a_known_end_is_refused(planted, address):
    planted.ranges, planted.framing = False, "close"
    with pytest.raises(RemoteIOError, match="neither ranges nor lengths"):
        read(address)


def test_ranges_of_a_file(planted, address):
    for start, end in ((0, 1), (5, 9000), (70_000, 70_001), (70_000, 80_000), (70_001, 70_002), (90_000, 90_001)):
        assert fetch(address, start, end, FAST) == CONTENT[start:end]
    assert fetch(address, 7, 7, FAST) == b""


def test_the_same_of_local_files(tmp_path):
    path = str(tmp_path / "file")
    (tmp_path / "file").write_bytes(CONTENT)
    assert read(path) == CONTENT
    assert fetch(path, 70_000, 80_000) == CONTENT[70_000:]
    with open_ranges(path) as f:
        assert f.seek(-3, os.SEEK_END) == 69_998 and f.read() == CONTENT[-3:]


def test_an_archive_is_not_unpacked_on_its_way(crawl_server):
    """A server may call the archive's own compression that of the transfer."""
    data = gzip.compress(CONTENT)
    (crawl_server.folder / "a.gz").write_bytes(data)
    crawl_server.extra = (("Content-Encoding", "gzip"),)
    assert read(f"{crawl_server.url}/a.gz") == data


@pytest.mark.parametrize("change", ["content", "length"])
@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_that_changes_is_an_error(planted, address, change, ranges):
    planted.ranges = ranges
    if not ranges:
        planted.plan = lambda path, start, nth: Fault("truncated") if nth == 0 else None
    planted.tags = change == "content"
    with pytest.raises(RemoteIOError) as error, open_stream(address, FAST) as f:
        f.read(100)
        changed = CONTENT[::-1] if change == "content" else CONTENT + b"more"
        (planted.folder / "file.warc.gz").write_bytes(changed)
        f.read()
    assert "changed while it was read" in str(error.value) and address in str(error.value)


def test_a_file_that_goes_away_is_an_error_that_no_parser_takes_for_damage(planted, address):
    with pytest.raises(RemoteIOError, match="404"), open_stream(address, FAST) as f:
        f.read(100)
        (planted.folder / "file.warc.gz").unlink()
        f.read()
    assert not issubclass(RemoteIOError, OSError)


def test_a_missing_file_is_missing_at_once(planted):
    for call in (read, info, lambda a: fetch(a, 0, 5)):
        with pytest.raises(FileNotFoundError, match="none.warc.gz"):
            call(f"{planted.url}/none.warc.gz")
    assert len(planted.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 405, 451])
def test_what_no_waiting_helps_fails_at_once(planted, address, status):
    planted.plan = lambda path, start, nth: Fault("status", status)
    with pytest.raises(RemoteIOError, match=f"{status}.*1 attempt in"):
        read(address)
    assert len(planted.requests) == 1


@pytest.mark.parametrize(
    "fault,said",
    [
        (Fault("status", 503), "per_host below 4"),
        (Fault("status", 403), "bars this machine"),
        (Fault("status", 500), "Run the same command again"),
        (Fault("reset"), "Run the same command again"),
        (Fault("truncated"), "Run the same command again"),
        (Fault("short"), "2048 of 4096 bytes"),
        (Fault("stalled"), "no answer in time"),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_the_budget_ends_with_an_error_that_names_everything(planted, address, fault, said):
    planted.plan = lambda path, start, nth: fault if start == 4096 else None
    began = time.monotonic()
    with pytest.raises(RemoteIOError) as error, open_stream(address, replace(FAST, budget_seconds=0.5)) as f:
        assert f.read(4096) == CONTENT[:4096]
        f.read(1)
    assert time.monotonic() - began < 2
    attempts = sum(planted.faults().values())
    assert attempts > 1
    message = str(error.value)
    assert said in message and f"({attempts} attempt" in message and f"{address}, bytes 4096-8191" in message
    if fault.kind == "status":
        assert str(fault.status) in message


def test_nobody_listens(tmp_path):
    with pytest.raises(RemoteIOError, match="http://127.0.0.1:9/x.*attempts.*Run the same command again"):
        fetch("http://127.0.0.1:9/x", 0, 1, replace(FAST, budget_seconds=0.1))


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_the_server_says_how_long_to_wait(planted, address, form):
    value = "1" if form == "seconds" else format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    planted.plan = lambda path, start, nth: Fault("status", 503, (("Retry-After", value),)) if nth == 0 else None
    began = time.monotonic()
    assert fetch(address, 0, 10, FAST) == CONTENT[:10]
    assert 0.9 < time.monotonic() - began < 3


def test_a_wait_that_is_longer_than_the_budget_is_not_begun(planted, address):
    planted.plan = lambda path, start, nth: Fault("status", 503, (("Retry-After", "3600"),))
    began = time.monotonic()
    with pytest.raises(RemoteIOError, match="503.*1 attempt in"):
        fetch(address, 0, 10, FAST)
    assert time.monotonic() - began < 1


def test_waits_grow_and_are_logged(planted, address, caplog):
    planted.plan = lambda path, start, nth: Fault("status", 503) if nth < 9 else None
    with caplog.at_level("INFO", "gristmill.storage"):
        fetch(address, 0, 10, replace(FAST, backoff_seconds=0.0001, backoff_cap_seconds=0.05))
    waits = [float(r.args[2]) for r in caplog.records if "again in" in r.getMessage()]
    bounds = [min(0.05, 0.0001 * 2**n) for n in range(9)]
    assert len(waits) == 9 and all(0 <= w <= bound for w, bound in zip(waits, bounds, strict=True))
    assert len(set(waits)) == 9


def test_closing_ends_waiting(planted, address):
    planted.plan = lambda path, start, nth: Fault("status", 503) if start else None
    slow = replace(FAST, backoff_seconds=60, backoff_cap_seconds=60, budget_seconds=900)
    f = open_stream(address, slow)
    f.read(10)
    time.sleep(0.1)
    began = time.monotonic()
    f.close()
    # its slot is free again, too
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: fetch(address, 0, 5, FAST), range(4))) == [CONTENT[:5]] * 4
    assert time.monotonic() - began < 2


def test_seeking_and_parquet(planted):
    table = pa.table({"n": range(5000), "s": [f"text {i}" * 9 for i in range(5000)]})
    pq.write_table(table, planted.folder / "t.parquet", row_group_size=1000)
    planted.plan = seeded(3, 0.4)
    address = f"{planted.url}/t.parquet"
    with open_ranges(address, FAST) as f:
        assert pq.ParquetFile(f).read() == table
    parquet.write_table(str(planted.folder / "ours.parquet"), table)
    assert parquet.read_table(f"{planted.url}/ours.parquet", ["n"]) == table.select(["n"])
    with files.open_file(address) as f:
        assert f.read(4) == b"PAR1" and f.seek(-4, os.SEEK_END) and f.read() == b"PAR1"


LEFT = """
import sys
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.storage.remote.streams import open_stream
f = open_stream(sys.argv[1], RemoteIOConfig(block_bytes=4096))
print(len(f.read(10)), flush=True)
sys.stdin.readline()
"""


def test_a_process_that_ends_waits_for_nobody(planted, address):
    planted.plan = lambda path, start, nth: Fault("status", 503) if start else None
    child = subprocess.Popen([sys.executable, "-c", LEFT, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"10\n"
    while len(planted.requests) < 2:
        time.sleep(0.01)
    child.stdin.close()
    assert child.wait(timeout=5) == 0


@pytest.mark.parametrize("setting", ["per_host", "block_bytes"])
def test_settings_that_would_wait_for_ever(setting):
    with pytest.raises(ValueError, match=setting):
        RemoteIOConfig(**{setting: 0})


HOLD = """
import sys, threading, time
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.storage.remote.streams import fetch
told = threading.Thread(target=sys.stdin.read, daemon=True)
told.start()
i = 0
while told.is_alive():
    fetch(sys.argv[1], i % 4, i % 4 + 5, RemoteIOConfig(per_host=2))
    if i == 0:
        print("one answered", flush=True)
    i += 1
    time.sleep(0.1)
"""


@pytest.mark.extended
def test_slots_hold_across_processes_and_threads(planted, address):
    planted.delay = 0.05
    # of an impatient one the server still holds what was given up and is asked for again
    remote_io = RemoteIOConfig(per_host=2)
    children = [
        subprocess.Popen([sys.executable, "-c", HOLD, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    # both children ask from here until they are told to stop
    assert [child.stdout.readline() for child in children] == [b"one answered\n"] * 2
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert list(pool.map(lambda i: fetch(address, i, i + 5, remote_io), range(8))) == [
                CONTENT[i : i + 5] for i in range(8)
            ]
    for child in children:
        child.stdin.close()
    assert [child.wait() for child in children] == [0, 0]
    assert planted.most == 2


def test_a_killed_process_frees_its_slot(planted, address):
    planted.plan = lambda path, start, nth: Fault("status", 503) if start == 3 else None
    one = replace(FAST, per_host=1)
    waiting = (
        "import sys; from gristmill.storage.remote.streams import *\n"
        "fetch(sys.argv[1], 3, 9, RemoteIOConfig(per_host=1))"
    )
    child = subprocess.Popen([sys.executable, "-c", waiting, address])
    while not planted.requests:
        time.sleep(0.01)
    with ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(fetch, address, 0, 5, one)
        time.sleep(0.3)
        assert not blocked.done()
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert blocked.result(timeout=2) == CONTENT[:5]


def test_calls_are_made_until_they_succeed():
    results = iter([ConnectionError("one"), TimeoutError("two"), 3])

    def call():
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    assert retrying_call(call, "counting", FAST) == 3
    with pytest.raises(RemoteIOError, match="counting: StopIteration"):
        retrying_call(call, "counting", FAST)


def test_the_fingerprint_of_a_remote_file(planted, address, tmp_path):
    planted.plan = seeded(1, 0.9, in_a_row=1)
    before = fingerprint.fingerprint(address, str(tmp_path))
    assert before == fingerprint.fingerprint(address, str(tmp_path))
    assert address in before and str(len(CONTENT)) in before
    (planted.folder / "file.warc.gz").write_bytes(CONTENT[::-1])
    assert fingerprint.fingerprint(address, str(tmp_path)) != before


class TestObjectStore:
    @pytest.fixture
    def stored(self, s3) -> SimpleNamespace:
        fsspec.filesystem("s3").pipe("crawl/a/file", CONTENT)
        s3.requests.clear()
        return s3

    def test_blocks_and_ranges(self, stored):
        assert read("s3://crawl/a/file") == CONTENT
        assert sum(method == "GET" for method, _, _ in stored.requests) == -(-len(CONTENT) // 4096)
        assert fetch("s3://crawl/a/file", 69_000, 80_000, FAST) == CONTENT[69_000:]
        assert fetch("s3://crawl/a/file", 80_000, 80_001, FAST) == b""
        assert files.checksum("s3://crawl/a/file") == files.digest(CONTENT)
        assert info("s3://crawl/a/file")["size"] == len(CONTENT)

    def test_a_small_table_is_one_request_and_a_large_one_its_end_and_its_columns(self, stored):
        rng = np.random.default_rng(3)
        small = pa.table({"a": np.arange(100), "b": rng.random(100)})
        large = pa.table({"a": rng.random(50_000), "b": rng.random(50_000)})
        for table, requests in ((small, 1), (large, 2)):
            parquet.write_table("s3://crawl/table.parquet", table)
            stored.requests.clear()
            assert parquet.read_table("s3://crawl/table.parquet", columns=["a"]).equals(table.select(["a"]))
            assert [method for method, _, _ in stored.requests] == ["GET"] * requests

    def test_an_empty_object_and_what_is_after_the_end(self, stored):
        fsspec.filesystem("s3").pipe("crawl/none", b"")
        assert read("s3://crawl/none") == b"" == fetch("s3://crawl/none", 5, 9, FAST)
        with open_ranges("s3://crawl/none", FAST) as f:
            assert f.seek(0, 2) == 0 and f.read(3) == b""
        with open_ranges("s3://crawl/a/file", FAST) as f:
            assert f.seek(0, 2) == len(CONTENT) and f.read(3) == b""
            for start in (0, 5, 4_460, len(CONTENT) - 1):  # the end that is kept begins at 4,465
                f.seek(start)
                assert f.read(9) == CONTENT[start : start + 9]

    @pytest.mark.parametrize("status", [500, 503])
    def test_bad_moments(self, stored, status):
        stored.refuse = lambda method, path, nth: status if nth in (1, 3) else None
        assert read("s3://crawl/a/file") == CONTENT
        assert [s for _, _, s in stored.requests].count(status) >= 2

    def test_what_may_not_be_read_says_so_at_once(self, stored):
        stored.refuse = lambda method, path, nth: 403
        with pytest.raises(RemoteIOError, match="s3://crawl/a/file.*403.*credentials"):
            fetch("s3://crawl/a/file", 0, 10, FAST)
        stored.refuse = lambda method, path, nth: None
        with pytest.raises(FileNotFoundError):
            fetch("s3://crawl/a/none", 0, 10, FAST)

    def test_an_object_that_changes_is_an_error(self, stored):
        with pytest.raises(RemoteIOError, match="s3://crawl/a/file"), open_stream("s3://crawl/a/file", FAST) as f:
            f.read(10)
            fsspec.filesystem("s3").pipe("crawl/a/file", CONTENT[::-1])
            f.read()

    def test_writing(self, stored, tmp_path):
        stored.refuse = lambda method, path, nth: 500 if method == "PUT" and nth < 1 else None
        with files.create("s3://crawl/b/part") as f:
            f.write(CONTENT)
        assert files.read_bytes("s3://crawl/b/part") == CONTENT
        with pytest.raises(ZeroDivisionError), files.create("s3://crawl/b/half") as f:
            f.write(CONTENT[:9])
            raise ZeroDivisionError
        assert not files.exists("s3://crawl/b/half")
        files.write_json("s3://crawl/b/note.json", {"b": 1})
        assert files.names("s3://crawl/b") == ["note.json", "part"]
        (tmp_path / "folder" / "deep").mkdir(parents=True)
        (tmp_path / "folder" / "deep" / "x").write_bytes(b"x")
        files.upload_file(str(tmp_path / "folder" / "deep" / "x"), "s3://crawl/c/deep/x")
        assert files.read_bytes("s3://crawl/c/deep/x") == b"x"

    @pytest.mark.slow
    def test_an_upload_in_parts_is_whole_or_not_there(self, stored):
        """More than 100 MB go up in parts, of which one is refused: again and again, or twice."""
        large = bytes(101 << 20)
        stored.refuse = lambda method, path, nth: 403 if method == "PUT" and nth >= 1 else None
        with pytest.raises(RemoteIOError, match="writing s3://crawl/large.*credentials"):
            files.write_bytes("s3://crawl/large", large)
        assert not files.exists("s3://crawl/large")
        stored.seen.clear()
        stored.refuse = lambda method, path, nth: 500 if method == "PUT" and nth in (1, 2) else None
        files.write_bytes("s3://crawl/large", large)
        assert files.checksum("s3://crawl/large") == files.digest(large)


@pytest.fixture
def signed(planted, monkeypatch, tmp_path) -> str:
    """The address of the file with a password and a signature, on a machine without slots."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (planted.folder / "file.warc.gz?sig=s3cret").write_bytes(CONTENT)
    return planted.url.replace("://", "://user:pa55word@") + "/file.warc.gz?sig=s3cret"


def test_passwords_and_signatures_are_neither_logged_nor_kept(planted, signed, tmp_path, caplog):
    said, listed = [], fsspec.filesystem("http")
    with caplog.at_level("DEBUG", "gristmill.storage"):
        planted.plan = lambda path, start, nth: Fault("status", 503) if nth < 2 else None
        assert read(signed) == CONTENT
        said.append(fingerprint.fingerprint(signed, str(tmp_path), FAST))
        planted.plan = lambda path, start, nth: None if "none" in path else Fault("status", 503)
        for call in (
            lambda: fetch(signed, 0, 10, replace(FAST, budget_seconds=0.05)),
            lambda: retrying_call(partial(listed.glob, f"{signed}&*"), "listing", replace(FAST, budget_seconds=0.05)),
            lambda: fetch(signed.replace("file", "none"), 0, 10, FAST),
        ):
            with pytest.raises((RemoteIOError, FileNotFoundError)) as error:
                call()
            said += traceback.format_exception(error.value)
    slots = [path.name for path in (tmp_path / "tmp").rglob("*")]
    text = "\n".join([caplog.text, *said, *slots])
    assert "file.warc.gz" in text and "again in" in text and len(slots) > 1
    assert not [secret for secret in ("user:", "pa55word", "s3cret") if secret in text]


def test_two_queries_without_tags_are_two_files(planted, tmp_path):
    planted.tags = False
    for n in "12":
        (planted.folder / f"get?id={n}").write_bytes(n.encode())
    one, two = (fingerprint.fingerprint(f"{planted.url}/get?id={n}", str(tmp_path), FAST) for n in "12")
    assert one != two


def test_what_lies_in_this_machine_is_not_asked_again():
    for error in (IsADirectoryError(errno.EISDIR, "x"), PermissionError(errno.EACCES, "x"), OSError(errno.ENOSPC, "x")):
        calls = []

        def call(error=error, calls=calls):
            calls.append(1)
            raise error

        with pytest.raises(RemoteIOError, match="1 attempt in"):
            retrying_call(call, "writing", FAST)
        assert len(calls) == 1
    results = iter([OSError(errno.EHOSTUNREACH, "x"), OSError(errno.ENETUNREACH, "x"), None])

    def heals():
        if result := next(results):
            raise result
        return 1

    assert retrying_call(heals, "writing", FAST) == 1


def test_local_paths_are_asked_once(tmp_path):
    with pytest.raises(IsADirectoryError):
        info(str(tmp_path))
    (tmp_path / "a").touch()
    with pytest.raises(FileExistsError):
        files.upload_file(str(tmp_path / "a"), str(tmp_path / "a" / "b"))


def test_a_host_that_refuses_from_the_start_has_a_short_budget(planted, address, caplog):
    one = replace(FAST, refused_seconds=0.5)
    planted.plan = lambda path, start, nth: Fault("status", 403)
    began = time.monotonic()
    with pytest.raises(RemoteIOError, match="fewer requests.*address may also be wrong or need credentials"):
        fetch(address, 0, 10, one)
    assert time.monotonic() - began < FAST.budget_seconds and len(planted.requests) > 1
    assert len([r for r in caplog.records if r.levelname == "WARNING" and "403" in r.getMessage()]) == 1
    planted.plan = lambda path, start, nth: None
    assert fetch(address, 0, 10, one) == CONTENT[:10]
    # now it is known to give what is asked for
    began = time.monotonic()
    planted.plan = lambda path, start, nth: Fault("status", 403) if time.monotonic() < began + 1.2 else None
    assert fetch(address, 20, 30, one) == CONTENT[20:30]


@pytest.fixture
def configured():
    """The process's configuration is what it was, after the test."""
    before = config.configured()
    yield
    config.configure(before)


def test_a_process_fetches_as_it_is_configured(planted, address, configured, tmp_path):
    config.configure(FAST)
    assert files.read_bytes(address) == CONTENT
    assert [(r.start, r.end) for r in planted.requests][:2] == [(0, 4096), (4096, 8192)]
    planted.plan = lambda path, start, nth: Fault("status", 503)
    config.configure(replace(FAST, budget_seconds=0.05))
    for call in (files.read_bytes, files.exists, lambda path: fingerprint.fingerprint(path, str(tmp_path))):
        with pytest.raises(RemoteIOError, match="budget_seconds above 0.05"):
            call(address)


@pytest.mark.parametrize(
    "setting,value", [("budget_seconds", -5), ("stall_seconds", 0), ("gap_bytes", -1), ("budget_seconds", float("nan"))]
)
def test_settings_that_make_no_sense(setting, value):
    with pytest.raises(ValueError, match=f"{setting} is {value}"):
        RemoteIOConfig(**{setting: value})


@pytest.mark.parametrize("kind", ["open", "file", "link"])
def test_slots_are_in_a_folder_of_this_user_alone(planted, address, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"gristmill-slots-{os.getuid()}"
    if kind == "open":
        folder.mkdir()
        folder.chmod(0o777)
    elif kind == "file":
        folder.touch()
    else:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RemoteIOError, match=f"{folder}.*not private to this user.*TMPDIR"):
        fetch(address, 0, 10, FAST)
    assert not planted.requests
