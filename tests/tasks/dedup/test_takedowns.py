"""Takedown lists: what names a document, and that a process reads a list once."""

import pyarrow as pa

from gristmill.tasks.dedup.takedowns import taken_down
from gristmill.tasks.url.step import Url

DOCUMENTS = pa.table(
    {
        "id": ["1a", "2b", "3c", "4d"],
        "url": ["https://a.example/x", "https://b.example/y", "https://gone.example/z", None],
    }
)


def test_a_list_is_read_once_in_a_process(tmp_path):
    path = tmp_path / "court.txt"
    path.write_text("# order 7\n2b\n4d\nhttps://gone.example/*\n")
    pinned = Url(takedowns=(str(path),)).pinned()
    expected = [None, "court.txt: 2b", "court.txt: gone.example", "court.txt: 4d"]
    assert taken_down(DOCUMENTS, pinned).to_pylist() == expected
    path.unlink()
    assert taken_down(DOCUMENTS, pinned).to_pylist() == expected
    other = tmp_path / "other.txt"
    other.write_text("1a\n")
    assert taken_down(DOCUMENTS, Url(takedowns=(str(other),)).pinned()).to_pylist() == [
        "other.txt: 1a",
        None,
        None,
        None,
    ]


def test_without_lists_all_may_stay():
    assert taken_down(DOCUMENTS, Url().pinned()).to_pylist() == [None] * 4
