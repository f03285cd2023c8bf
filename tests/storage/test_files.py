"""A file that exists is whole, on a local disk and in an object store."""

import os
import signal
import subprocess
import sys

import pytest

from storage import files

WRITER = """
import sys, time
from storage import files
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
    files.write_json(path, {"b": 1, "a": [2, 3]})
    assert files.read_json(path) == {"a": [2, 3], "b": 1}
    assert files.names(files.join(root, "deep")) == ["file.json"]
    assert files.names(files.join(root, "nowhere")) == []
    monkeypatch.setenv("HOME", str(tmp_path))
    copied = files.local_copy(path)
    with open(copied, "rb") as f:
        assert f.read() == files.read_bytes(path)
