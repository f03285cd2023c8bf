"""A file that exists is whole, on a local disk and in an object store."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pyarrow as pa
import pytest

from gristmill.storage import checked_json, files, parquet
from gristmill.storage.remote import config
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.storage.remote.streams import RemoteIOError
from tests.crawl_server import Fault

WRITER = """
import sys, time
from gristmill.storage import checked_json, files, parquet
with files.create(sys.argv[1]) as f:
    f.write(b"half")
    f.flush()
    print("writing", flush=True)
    time.sleep(60)
"""


def test_an_error_leaves_the_old_file(tmp_path):
    path = str(tmp_path / "a" / "file")
    files.write_bytes(path, b"old")
    with pytest.raises(RuntimeError), files.create(path) as f:
        f.write(b"new")
        raise RuntimeError
    assert files.read_bytes(path) == b"old"
    assert files.names(str(tmp_path / "a")) == ["file"]


def test_a_killed_writer_leaves_no_file(tmp_path):
    path = tmp_path / "file"
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
    child.stdout.readline()
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not path.exists()


def test_an_error_publishes_nothing_in_an_object_store():
    path = "memory://bucket/error"
    with pytest.raises(RuntimeError), files.create(path) as f:
        f.write(b"half")
        raise RuntimeError
    assert not files.exists(path)


@pytest.mark.parametrize("root", ["memory://bucket/round", "{tmp}/round"])
def test_what_is_written_is_read(root, tmp_path, monkeypatch):
    root = root.format(tmp=tmp_path)
    path = files.join(root, "deep", "file.json")
    checked_json.write(path, {"b": 1, "a": [2, 3]})
    assert checked_json.read(path) == {"a": [2, 3], "b": 1}
    assert files.names(files.join(root, "deep")) == ["file.json"]
    assert files.names(files.join(root, "nowhere")) == []
    monkeypatch.setenv("HOME", str(tmp_path))
    copied = files.local_copy(path)
    with open(copied, "rb") as f:
        assert f.read() == files.read_bytes(path)


def test_when_a_file_was_written_is_known_everywhere(s3, tmp_path):
    for root in ("s3://crawl", "memory://bucket", str(tmp_path)):
        began = time.time()
        files.write_bytes(f"{root}/written", b"x")
        assert began - 2 < files.modified(f"{root}/written") < time.time() + 2


def test_a_killed_writer_leaves_nothing_beside_the_file(tmp_path):
    if files._unnamed(tmp_path) is None:
        pytest.skip("the temporary folder's disk has no files without a name")
    test_a_killed_writer_leaves_no_file(tmp_path)
    files.write_bytes(str(tmp_path / "file"), b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("named", [False, True])
def test_writers_of_one_name_do_not_disturb_each_other(tmp_path, monkeypatch, named):
    if named:
        monkeypatch.delattr(os, "O_TMPFILE")
    path = str(tmp_path / "file")
    with files.create(path) as one, files.create(path) as two:
        one.write(b"one" * 9)
        two.write(b"two" * 9)
    assert files.read_bytes(path) == b"one" * 9
    mask = os.umask(0o022)
    os.umask(mask)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_store_that_refuses_is_not_a_file_that_is_missing(s3, crawl_server):
    s3.refuse = lambda method, path, nth: 503 if nth < 2 else None
    with patience_of(5):
        files.write_bytes("s3://crawl/a/file", b"x")
        s3.seen.clear()
        assert files.exists("s3://crawl/a/file") and not files.exists("s3://crawl/a/none")
        assert not files.is_folder("s3://crawl/a/file") and files.is_folder("s3://crawl/a")
        (crawl_server.folder / "list").write_bytes(b"<a href='x'>")
        crawl_server.plan = lambda path, start, nth: Fault("status", 503) if nth < 2 else None
        address = f"{crawl_server.url}/list"
        assert files.exists(address) and not files.is_folder(address) and not files.exists(f"{address}s")
    crawl_server.plan = lambda path, start, nth: Fault("status", 503)
    with patience_of(0.05), pytest.raises(RemoteIOError, match="503"):
        files.exists(address)


@contextmanager
def patience_of(seconds: float):
    before = config.configured()
    config.configure(RemoteIOConfig(budget_seconds=seconds, backoff_seconds=0.002, backoff_cap_seconds=0.01))
    try:
        yield
    finally:
        config.configure(before)


def test_what_is_written_below_a_folder_is_recorded(tmp_path):
    folder = f"{tmp_path}/stage"
    with files.recording(folder) as written:
        files.write_bytes(f"{folder}/deep/a.bin", b"abc")
        files.write_bytes(f"{tmp_path}/elsewhere.bin", b"x")
        parquet.write_table(f"{folder}/t.parquet", pa.table({"n": [1, 2]}))
        with pytest.raises(ZeroDivisionError), files.create(f"{folder}/broken.bin"):
            raise ZeroDivisionError
    files.write_bytes(f"{folder}/later.bin", b"y")
    assert written.keys() == {"deep/a.bin", "t.parquet"}
    assert written["deep/a.bin"] == {"bytes": 3, "content": files.digest(b"abc")}
    data = (tmp_path / "stage" / "t.parquet").read_bytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") :]
    assert written["t.parquet"] == {
        "bytes": len(data),
        "content": files.digest(data),
        "footer": files.digest(footer),
        "values": parquet.digest_rows(f"{folder}/t.parquet"),
    }


def test_files_of_an_object_store_are_recorded_before_they_are_sent(s3):
    with files.recording("s3://crawl/stage") as written:
        files.write_bytes("s3://crawl/stage/a.bin", b"abc")
    assert written == {"a.bin": {"bytes": 3, "content": files.digest(b"abc")}}


def test_a_file_of_a_store_is_read_by_one_request(s3):
    """An empty one, too, of which a range would be refused; one that is not there is said to be not there."""
    for name, content in (("empty", b""), ("small", b"one" * 9)):
        files.write_bytes(f"s3://crawl/{name}", content)
        s3.requests.clear()
        assert files.read_bytes(f"s3://crawl/{name}") == content
        assert [(method, path) for method, path, _ in s3.requests] == [("GET", f"/crawl/{name}")]
    with pytest.raises(FileNotFoundError):
        files.read_bytes("s3://crawl/none")
