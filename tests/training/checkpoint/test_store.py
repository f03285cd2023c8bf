"""Checkpoints of machines with disks of their own: whole in the store or not there, whatever is lost."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.tensor import Shard, distribute_tensor

from gristmill.storage import checked_json, files
from gristmill.training.checkpoint import keeping
from gristmill.training.checkpoint.commit import METADATA, Progress, Saver, load_checkpoint
from gristmill.training.checkpoint.keeping import COMMIT, Keeper
from gristmill.training.checkpoint.store import CheckpointStore
from gristmill.training.config import RunConfig
from gristmill.training.world import World, all_do, processes

NAMES = {"seed": "1"}


def values(step: int) -> dict[str, torch.Tensor]:
    """What is saved after a step, whole."""
    return {"model.w": step * torch.arange(15.0).reshape(5, 3), "guard.count": torch.tensor([step])}


def state(world: World, step: int) -> dict[str, torch.Tensor]:
    whole = values(step)
    cut = distribute_tensor(whole["model.w"], world.mesh, [Shard(0)], src_data_rank=None)
    return {"model.w": cut, "guard.count": whole["guard.count"]}


@contextmanager
def node(rank: int, runs: list[RunConfig], meeting: str) -> Iterator[tuple[World, CheckpointStore]]:
    """One rank on each machine."""
    torch.set_num_threads(1)
    number, count = str(rank), str(len(runs))
    os.environ |= {"RANK": number, "WORLD_SIZE": count, "GROUP_RANK": number, "GROUP_WORLD_SIZE": count}
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "TRAINING_RENDEZVOUS": f"file://{meeting}"}
    run = runs[rank]
    with processes(60) as world, Keeper(run) as keeper:
        store = CheckpointStore(run, world, keeper)
        store.begin()
        yield world, store


def save(world: World, store: CheckpointStore, *steps: int) -> None:
    with Saver(store.folder, NAMES, world, 60, publish=store.publish) as saver:
        for step in steps:
            saver.save(state(world, step), Progress(step=step))


def check_loaded(world: World, store: CheckpointStore, step: int) -> None:
    found = store.newest()
    assert found == store.folder / keeping.folder_name(step)
    loaded, expected = state(world, 0), state(world, step)
    assert store.load(found, loaded, NAMES) == Progress(step=step)
    assert torch.equal(loaded["model.w"].to_local(), expected["model.w"].to_local())
    assert torch.equal(loaded["guard.count"], expected["guard.count"])


def saved_lost_and_killed(rank: int, runs: list[RunConfig], meeting: str) -> None:
    with node(rank, runs, meeting) as (world, store):
        assert store.newest() is None
        save(world, store, 1, 2)
        (kept,) = store.folder.iterdir()
        assert kept.name == keeping.folder_name(2) and not (kept / COMMIT).exists()
        assert {path.name for path in kept.iterdir()} - {METADATA} == {f"__{rank}_0.distcp"}
        assert keeping.stored(store.address) == {2}
        dist.barrier()
        if rank == 1:
            shutil.rmtree(store.folder)
        check_loaded(world, store, 2)
        assert (kept / f"__{rank}_0.distcp").exists()

        if rank == 0:

            def killed(path: str, value: object) -> None:
                assert files.exists(f"{store.address}/step-00000003/__1_0.distcp")
                os._exit(0)

            checked_json.write = killed  # both have published: COMMIT is next
        with pytest.raises(RuntimeError, match="step-00000003 could not be saved"):
            save(world, store, 3)
        os._exit(0)  # the other is gone


def goes_on(rank: int, runs: list[RunConfig], meeting: str) -> None:
    with node(rank, runs, meeting) as (world, store):
        assert sorted(path.name for path in store.folder.iterdir()) == ["step-00000002"]
        check_loaded(world, store, 2)
        save(world, store, 3)
        check_loaded(world, store, 3)
        store.remove_after(2)
        assert store.newest() is None and not list(store.folder.iterdir())
        save(world, store, 4)


@pytest.mark.extended
def test_what_is_committed_outlasts_a_disk_and_a_kill(make_run, tmp_path):
    address = f"file://{tmp_path}/store/model-1/checkpoints"
    runs = [make_run(tmp_path / f"disk-{rank}", store=address) for rank in range(2)]
    for number, main in enumerate((saved_lost_and_killed, goes_on)):
        given = (runs, str(tmp_path / f"meeting-{number}"))
        mp.start_processes(main, given, nprocs=2, start_method="forkserver")
    alone = tmp_path / "alone"
    alone.mkdir()
    found = keeping.restore(address, alone, alone / "checkpoints")
    loaded = {name: torch.zeros_like(value) for name, value in values(4).items()}
    with processes(60):
        assert load_checkpoint(found, loaded, NAMES) == Progress(step=4)
    assert all(torch.equal(loaded[name], value) for name, value in values(4).items())


def test_a_damaged_part_in_the_store_is_refused(make_run, tmp_path):
    """A machine that has it already goes on; one that must fetch it says what to remove."""
    address = f"file://{tmp_path}/store/model-1/checkpoints"
    run = make_run(tmp_path / "here", store=address)
    with processes(60) as alone, Keeper(run) as keeper:
        world = World(alone.rank, alone.size, alone.device, alone.mesh, nodes=2)  # of which the other is gone
        store = CheckpointStore(run, world, keeper)
        save(world, store, 1)
        files.write_bytes(f"{address}/step-00000001/__0_0.distcp", b"x")
        check_loaded(world, store, 1)
        (store.folder / "step-00000001" / "__0_0.distcp").unlink()
        name = f"{address}/step-00000001/__0_0.distcp"
        with pytest.raises(ValueError, match=f"{name} is not what was written; remove the checkpoint"):
            store.without_damaged(lambda: check_loaded(world, store, 1))
        assert keeping.stored(address) == {1}, "there is no other"
        files.remove(f"{address}/step-00000001/{COMMIT}")
        assert store.newest() is None


def test_a_damaged_part_of_the_newest_checkpoint_in_the_store_is_set_aside(make_run, tmp_path, caplog):
    address = f"file://{tmp_path}/store/model-1/checkpoints"
    run = make_run(tmp_path / "here", store=address, training={"keep_checkpoints": 2})
    with processes(60) as alone, Keeper(run) as keeper:
        world = World(alone.rank, alone.size, alone.device, alone.mesh, nodes=2)
        store = CheckpointStore(run, world, keeper)
        save(world, store, 1, 2)
        files.write_bytes(f"{address}/step-00000002/__0_0.distcp", b"x")
        (store.folder / "step-00000002" / "__0_0.distcp").unlink()
        loaded = state(world, 0)
        assert store.without_damaged(lambda: store.load(store.newest(), loaded, NAMES)) == Progress(step=1)
        assert torch.equal(loaded["model.w"].to_local(), state(world, 1)["model.w"].to_local())
        assert keeping.stored(address) == {1}
        assert f"{address}/step-00000002/__0_0.distcp is not what was written" in caplog.text
        save(world, store, 2)
        check_loaded(world, store, 2)


def test_the_error_of_long_work_is_that_of_the_run():
    def fails() -> None:
        raise OSError("no space left")

    with processes(60):
        all_do(lambda: None)
        with pytest.raises(OSError, match="no space left"):
            all_do(fails)


def test_a_checkpoint_of_one_machine_is_in_the_store_before_others_join(run_small, tmp_path):
    store = f"file://{tmp_path}/store/model-1/checkpoints"
    root = Path(run_small.out) / "checkpoints"
    keeping.upload_newer(root, store, run_small.out)
    assert keeping.stored(store) == {40}
    files.remove(f"{store}/step-00000040/__0_0.distcp")
    keeping.upload_newer(root, store, run_small.out)  # there is one as new
    assert not files.exists(f"{store}/step-00000040/__0_0.distcp")
