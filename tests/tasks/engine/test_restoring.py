"""A stage whose files were removed is made again whole: whatever a removal, a restoration or another version left."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from gristmill.storage import checked_json, files, layout
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.engine.make import MAKER, find, restore
from gristmill.tasks.engine.phases import Silent
from tests.tasks.engine.test_make import made, spec


def restored(home: Path):
    stage = find(str(home), spec())
    assert stage is not None and stage.is_collected
    return restore(str(home), stage, Threads(1, None), lambda: nullcontext(Silent()))


@pytest.mark.parametrize("removals", range(5))
def test_a_removal_that_was_killed(tmp_path, monkeypatch, removals):
    whole = made(tmp_path, spec())
    parts = sorted(Path(whole.folder).glob("part-*"))
    texts, left, remove = [part.read_bytes() for part in parts], iter(range(removals)), files.remove

    def killed(path):
        next(left)
        remove(path)

    with monkeypatch.context() as patch, pytest.raises(StopIteration):
        patch.setattr(files, "remove", killed)
        layout.collect(whole.folder)
    assert restored(tmp_path).contents == whole.contents
    assert [part.read_bytes() for part in parts] == texts


def test_a_restoration_that_other_code_began(tmp_path):
    whole = made(tmp_path, spec())
    parts = sorted(Path(whole.folder).glob("part-*"))
    texts, done = [part.read_bytes() for part in parts], layout.done_record(whole.folder, "write", 0)
    maker = checked_json.read(f"{whole.folder}/{MAKER}")
    layout.collect(whole.folder)
    checked_json.write(f"{whole.folder}/{MAKER}", {**maker, "code": "other"})
    parts[0].write_bytes(b"of the other code")
    layout.mark_done(whole.folder, "write", 0, done or {})
    assert restored(tmp_path).contents == whole.contents
    assert [part.read_bytes() for part in parts] == texts
