"""Checkpoints that are written in the background, kept, copied to an object store, and averaged."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gristmill.storage import files
from gristmill.training.checkpoint import keeping
from gristmill.training.checkpoint.commit import Progress, Saver, fits_page_locked, load_checkpoint
from gristmill.training.checkpoint.keeping import COMMIT, committed, kept_steps
from gristmill.training.hub.weights import averaged
from gristmill.training.run.loop import train
from gristmill.training.run.tracking import METRICS
from gristmill.training.world import processes


@pytest.fixture
def world():
    with processes(60) as joined:
        yield joined


def test_what_is_saved_is_the_state_at_the_call(world, tmp_path):
    """Training goes on at once: later values of tensors and progress are not in the checkpoint."""
    state, progress = {"model.w": torch.arange(1_000_000.0)}, Progress(step=1, last={"loss": 0.5})
    with Saver(tmp_path, {"seed": "1"}, world, 60) as saver:
        path = saver.save(state, progress)
        state["model.w"].zero_()
        progress.step, progress.last["loss"] = 2, 0.25
        assert saver.save(state, progress) != path
    found = {"model.w": torch.empty(1_000_000)}
    assert load_checkpoint(path, found, {"seed": "1"}) == Progress(step=1, last={"loss": 0.5})
    assert torch.equal(found["model.w"], torch.arange(1_000_000.0))
    assert list(committed(tmp_path)) == [1, 2]


def test_a_save_that_fails_ends_the_run(world, tmp_path):
    (tmp_path / "step-00000001.tmp").touch()  # a file where the folder belongs
    state = {"model.w": torch.zeros(3)}
    with pytest.raises(RuntimeError, match=r"step-00000001 could not be saved: .*run again, which resumes") as failed:
        with Saver(tmp_path, {}, world, 60) as saver:
            saver.save(state, Progress(step=1))
    assert "\n" not in str(failed.value)
    with pytest.raises(RuntimeError, match="could not be saved"), Saver(tmp_path, {}, world, 60) as saver:
        saver.save(state, Progress(step=1))
        saver.save(state, Progress(step=2))
    with pytest.raises(ZeroDivisionError), Saver(tmp_path, {}, world, 60) as saver:
        saver.save(state, Progress(step=1))
        raise ZeroDivisionError  # which stays the error of the run
    assert not committed(tmp_path)


def test_page_locked_memory_is_at_most_half_of_what_is_available(tmp_path, monkeypatch):
    state = {"a": torch.zeros(1000), "b": torch.zeros(500, dtype=torch.float64)}  # 8,000 bytes
    (tmp_path / "memory.current").write_text("1000\n")
    for ranks, limit, fits in (("1", 17_000, True), ("1", 16_900, False), ("2", 17_000, False), ("2", 33_000, True)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        assert fits_page_locked(state, tmp_path) == fits
    (tmp_path / "memory.max").write_text("max\n")
    assert fits_page_locked(state, tmp_path) and fits_page_locked(state, tmp_path / "none")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(1 << 50))
    assert not fits_page_locked(state, tmp_path)


def test_what_is_kept():
    assert kept_steps(range(10, 101, 10), 2, 100) == {50, 90, 100}
    assert kept_steps(range(10, 101, 10), 1, 100, 40) == {40, 50, 80, 100}
    assert kept_steps([60, 70], 1, 100) - {0} == {70}
    assert kept_steps(range(10, 101, 10), 1, 100, peak=80) == {50, 80, 100}
    assert kept_steps([60, 79, 90], 1, 100, peak=80) - {0} == {79, 90}


def test_average_is_the_mean_of_the_weights(run_small, make_run, tmp_path):
    paths = committed(run_small.out / "checkpoints")
    (single, final) = (averaged([path]) for path in paths.values())
    exported = load_file(run_small.out / "model.safetensors")
    assert {f"model.{name}" for name in final} == exported.keys()
    assert all(torch.equal(weight, exported[f"model.{name}"]) for name, weight in final.items())
    both = averaged(list(paths.values()))
    for name, weight in both.items():
        torch.testing.assert_close(weight, (single[name].double() + final[name].double()).div(2).float())
    copy = tmp_path / "step-00000020"
    shutil.copytree(paths[20], copy)
    (copy / "__0_0.distcp").write_bytes(b"x")
    with pytest.raises(ValueError, match="is not what was written"):
        averaged([copy])


STORE = "s3://crawl/home/stages/model-1/checkpoints"


@pytest.mark.slow
def test_another_machine_goes_on_from_the_store(run_small, make_run, s3, tmp_path):
    """Half of a run here, which leaves its checkpoints in the store; the other half where the folder is empty."""
    there = make_run(tmp_path / "there", store=STORE, training={"checkpoint_every": 4})
    train(there)
    middle, last = sorted(keeping.stored(STORE))  # one that came while another was copied may be left out
    assert 0 < middle <= 20 and last == 40
    name = f"step-{middle:08d}"
    puts = [path for method, path, status in s3.requests if method == "PUT"]
    markers = [index for index, path in enumerate(puts) if path.endswith(f"{name}/{COMMIT}")]
    assert markers == [max(index for index, path in enumerate(puts) if f"/{name}/" in path)]

    files.remove(f"{STORE}/step-00000040/{COMMIT}")  # as if its upload had not ended
    here = make_run(tmp_path / "here", store=STORE, training={"checkpoint_every": 4})
    root = here.out / "checkpoints"
    root.mkdir(parents=True)
    assert keeping.restore(STORE, here.out, root) == root / name
    assert keeping.restore(STORE, here.out, root) is None
    train(here)
    assert (here.out / METRICS).read_bytes() == (run_small.out / METRICS).read_bytes()
    assert max(keeping.stored(STORE)) == 40


def test_a_damaged_checkpoint_in_the_store_is_refused(run_small, make_run, s3, tmp_path):
    path = committed(run_small.out / "checkpoints")[40]
    keeping.upload(path, STORE, run_small.out)
    files.write_bytes(f"{STORE}/{path.name}/.metadata", b"x")
    with pytest.raises(
        ValueError, match=f"{STORE}/step-00000040/.metadata is not what was written; restore it, or remove"
    ):
        keeping.restore(STORE, tmp_path, tmp_path / "checkpoints")
    assert not committed(tmp_path / "checkpoints")


def test_another_checkpoint_is_fetched_if_the_newest_in_the_store_is_damaged(run_small, tmp_path):
    store, said = f"file://{tmp_path}/store/model-1/checkpoints", []
    for path in committed(run_small.out / "checkpoints").values():
        keeping.upload(path, store, run_small.out)
    files.write_bytes(f"{store}/step-00000040/.metadata", b"x")
    root = tmp_path / "checkpoints"
    assert keeping.restore(store, tmp_path, root, said.append) == root / "step-00000020"
    assert keeping.stored(store) == {20} and files.exists(f"{store}/step-00000040/damaged-COMMIT")
    assert len(said) == 1 and f"{store}/step-00000040/.metadata is not what was written" in said[0]


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Callable[[int], None]]:
    """A file system of so many bytes, in memory; what is yielded changes its size."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True) if shutil.which("mount") else None
    if done is None or done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip() if done else 'no mount'}")

    def resize(size: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)

    try:
        yield resize
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # tracebacks hold files of it


@pytest.mark.extended
def test_a_full_disk_is_one_sentence_and_the_older_checkpoint_stays(run_small, make_run, tmp_path):
    taken = sum(path.stat().st_size for path in (run_small.out / "checkpoints" / "step-00000040").iterdir())
    with small_disk(tmp_path / "disk", int(1.7 * taken)) as resize:
        run = make_run(tmp_path / "disk" / "run")
        with pytest.raises(RuntimeError) as raised:
            train(run)
        root = run.out / "checkpoints"
        said = re.fullmatch(
            rf"the checkpoint {root}/step-00000020 could not be saved: the disk of {root} is full, or its quota is "
            r"used up: without this checkpoint ([\d.]+) MB are free, and it takes at least ([\d.]+) MB, beside those "
            "that are kept. Free some space and run again, which resumes from the checkpoint before it",
            str(raised.value),
        )
        assert said, raised.value
        free, needed = (float(each) * 1e6 for each in said.groups())
        assert free < needed <= taken + 1e5
        assert [path.name for path in root.iterdir()] == ["step-00000010"]
        resize(4 * taken)
        train(run)
        ours, expected = (load_file(out / "model.safetensors") for out in (run.out, run_small.out))
        assert all(torch.equal(ours[name], expected[name]) for name in expected)


def test_a_store_may_be_a_folder(run_small, make_run, tmp_path):
    path, store = committed(run_small.out / "checkpoints")[40], f"file://{tmp_path}/store/model-1/checkpoints"
    keeping.upload(path, store, run_small.out)
    assert keeping.stored(store) == {40}
    (tmp_path / "here").mkdir()
    there = keeping.restore(store, tmp_path / "here", tmp_path / "here" / "checkpoints")
    assert {file.name: file.read_bytes() for file in there.iterdir()} == {
        file.name: file.read_bytes() for file in path.iterdir()
    }
    assert (tmp_path / "here" / METRICS).read_bytes() == (run_small.out / METRICS).read_bytes()


def test_a_store_that_refuses_ends_the_run(make_run, s3, tmp_path, monkeypatch):
    def refuse(path: str, target: str) -> None:
        raise OSError(f"{target}: refused")

    monkeypatch.setattr(files, "upload_file", refuse)
    with pytest.raises(RuntimeError, match="refused"):
        train(make_run(tmp_path, store=STORE, training={"steps": 6, "checkpoint_every": 6}))
    assert list(committed(tmp_path / "checkpoints")) == [6]


@pytest.mark.extended
def test_what_a_rollback_leaves_behind_goes_from_the_store_first(make_run, tmp_path, monkeypatch):
    """A run killed between the two would fetch it again, and the events from before the rollback with it."""
    run = make_run(tmp_path / "run", store=f"memory://{tmp_path.name}/checkpoints", training={"checkpoint_every": 10})
    train(run)

    def killed(path):
        raise KeyboardInterrupt

    root = run.out / "checkpoints"
    newest = max(committed(root))
    monkeypatch.setattr(keeping, "remove", killed)
    with pytest.raises(KeyboardInterrupt), keeping.Keeper(run) as keeper:
        keeper.remove_after(root, newest - 1)
    assert newest in committed(root) and newest not in keeping.stored(run.store)
