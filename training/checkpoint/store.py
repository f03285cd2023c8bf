"""The checkpoints of a run, wherever its machines have their disks.

Where all ranks see one folder, checkpoints are there, as `commit` writes them. Where each machine has a disk of its
own, they are in the store of the run, whole, and each machine has some of their files:

    <store>/step-00000100/*               copied by the rank that wrote it
    <store>/step-00000100/COMMIT          written last, when all ranks have copied theirs: only that is a checkpoint
    <out>/checkpoints/step-00000100/*     on each machine, what its ranks wrote and what they have fetched; no COMMIT

So a machine that is lost takes nothing with it, and what is on a disk is compared with the digests in COMMIT and
fetched where it differs: the disk only saves fetching. A rank fetches only what it reads.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from gristmill.storage import checked_json, files
from gristmill.storage.damage import DamagedFileError
from gristmill.training.checkpoint.commit import (
    Commit,
    DamagedCheckpointError,
    Progress,
    check_metadata,
    commit_of,
    damaged,
    load_checkpoint,
)
from gristmill.training.checkpoint.keeping import (
    COMMIT,
    Keeper,
    committed,
    fetch,
    fetch_lines,
    folder_name,
    remove_stored,
    set_aside,
    step_of,
    stored,
    upload_lines,
)
from gristmill.training.checkpoint.reader import METADATA, CheckpointReader, read_layout
from gristmill.training.config import CHECKPOINTS, RunConfig
from gristmill.training.world import World, all_do, all_gather

log = logging.getLogger(__name__)

Loaded = TypeVar("Loaded")


class CheckpointStore:
    """`folder`: where this machine's ranks write and read; `address`: where a COMMIT makes a checkpoint of what is
    there, which is the folder itself on one disk. `apart`: whether the machines have disks of their own.

    A checkpoint is named by its path in the folder. All methods but `commit_of` and `digest_of` are collectives.
    """

    def __init__(self, run: RunConfig, world: World, keeper: Keeper) -> None:
        self.run, self.world, self.keeper = run, world, keeper
        self.folder = run.out / CHECKPOINTS
        self.apart = run.own_disks and world.nodes > 1
        self.address = run.store if self.apart and run.store else str(self.folder)

    def begin(self) -> None:
        """Bring the disks to what the store has: metrics and events on that of rank 0, and no files of other
        checkpoints."""
        if not self.apart:
            return
        steps = self._steps()

        def work() -> None:
            if self.world.leads:
                fetch_lines(self.run.out, self.address)
            if self.world.leads_node:
                for path in self.folder.glob("step-*.tmp"):
                    shutil.rmtree(path)
                for path in self._folders():
                    if step_of(path.name) not in steps and not (path / COMMIT).exists():
                        shutil.rmtree(path)

        all_do(work)

    def newest(self, upto: int | None = None) -> Path | None:
        """The checkpoint with the most steps, at most `upto`; None if there is none."""
        step = max((step for step in self._steps() if upto is None or step <= upto), default=None)
        return None if step is None else self.folder / folder_name(step)

    def commit_of(self, path: Path, names: dict[str, str] | None = None) -> Commit:
        """What its COMMIT says; raises as `gristmill.training.checkpoint.commit.commit_of`."""
        return commit_of(self._address_of(path), names)

    def digest_of(self, path: Path) -> str:
        """xxh3-128 of its COMMIT."""
        return files.checksum(files.join(self._address_of(path), COMMIT))

    def load(self, path: Path, state: dict[str, torch.Tensor], names: dict[str, str]) -> Progress:
        """`load_checkpoint`, after fetching the files that the ranks of this machine need and do not have."""
        if self._address_of(path) == str(path):
            return load_checkpoint(path, state, names)
        commit = self.commit_of(path, names)
        self._fetch(path, commit, [METADATA] if self.world.leads_node else [])
        check_metadata(path, commit)
        of_nodes = all_gather((self.world.node, _read_files(path, state)))
        mine = sorted({name for node, required in of_nodes if node == self.world.node for name in required})
        ranks = sum(node == self.world.node for node, _ in of_nodes)
        self._fetch(path, commit, mine[self.world.node_rank :: ranks])
        dcp.load(state, storage_reader=CheckpointReader(path))
        return commit.progress

    def without_damaged(self, load: Callable[[], Loaded]) -> Loaded:
        """What `load` returns, which loads the newest checkpoint that is there. One that is damaged is set aside, and
        `load` is called again.

        Raises DamagedCheckpointError, on each rank that has met it, if there is none before the damaged one, or if that
        is not in the folder of the run.
        """
        while True:
            error: Exception
            try:
                return load()
            except DamagedCheckpointError as own:
                error, met = own, (own.path, own.reason)
            except RuntimeError as other:  # of `all_do`, in which another rank has met it
                if DamagedCheckpointError.__name__ not in str(other):
                    raise
                error, met = other, None
            path, reason = next(filter(None, all_gather(met)))
            folder, _, name = path.rpartition("/")
            if folder != self.address or min(self._steps()) == step_of(name):
                raise error
            if self.world.leads:
                log.warning("%s", set_aside(self.address, step_of(name), reason))
            dist.barrier()

    def publish(
        self, temporary: Path, final: Path, mine: list[Path], commit: Commit | None, group: dist.ProcessGroup
    ) -> None:
        """Copy a checkpoint to the store, COMMIT last, then remove those that are not kept, there and on the disks.

        `temporary`: the folder with the files `mine` of this rank, which gets the name `final`; `commit`: on rank 0.
        Raises on all ranks what one of them meets; the checkpoint before it is as it was.
        """
        target, kept = self._address_of(final), [set[int]()]

        def clear() -> None:  # what was copied of a save that did not end
            if self.world.leads:
                remove_stored(self.address, step_of(final.name))

        def copy() -> None:
            for path in mine:
                files.upload_file(str(path), files.join(target, path.name))

        def finish() -> None:
            if commit is not None:
                upload_lines(self.run.out, self.address)
                checked_json.write(files.join(target, COMMIT), commit.model_dump(mode="json"))
                steps = stored(self.address)
                kept[0] = self.keeper.kept(steps)
                for step in sorted(steps - kept[0]):
                    remove_stored(self.address, step)

        for work in (clear, copy, finish):
            all_do(work, group)
        dist.broadcast_object_list(kept, src=0, group=group)
        if self.world.leads_node:
            shutil.rmtree(final, ignore_errors=True)
            temporary.rename(final)
            for path in self._folders():
                if step_of(path.name) not in kept[0]:
                    shutil.rmtree(path)

    def remove_after(self, step: int) -> None:
        """Remove the checkpoints of later steps."""

        def work() -> None:
            if not self.apart:
                if self.world.leads:
                    self.keeper.remove_after(self.folder, step)
                return
            if self.world.leads:
                upload_lines(self.run.out, self.address)  # first: the events say why they go
                for later in sorted(stored(self.address)):
                    if later > step:
                        remove_stored(self.address, later)
            if self.world.leads_node:
                for path in self._folders():
                    if step_of(path.name) > step:
                        shutil.rmtree(path)

        all_do(work)

    def _address_of(self, path: Path) -> str:
        """Where a checkpoint is whole. One that the run begins with is in no store."""
        start = self.run.start
        if start and path == start.folder(self.run.out):
            return start.address
        return files.join(self.address, path.name) if path.parent == self.folder else str(path)

    def _steps(self) -> set[int]:
        """The steps of all checkpoints, as rank 0 finds them."""
        if not self.apart:
            return set(committed(self.folder))
        box = [stored(self.address) if self.world.leads else set[int]()]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def _folders(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("step-*") if path.suffix != ".tmp")

    def _fetch(self, path: Path, commit: Commit, names: list[str]) -> None:
        """Files of a checkpoint that are not in its folder as they were written."""
        source = self._address_of(path)

        def work() -> None:
            for name in names:
                try:
                    fetch(files.join(source, name), commit.files[name], path / name)
                except DamagedFileError:
                    raise damaged(source, name) from None

        all_do(work)


def _read_files(path: Path, state: dict[str, torch.Tensor]) -> set[str]:
    """The files of a checkpoint that this rank reads for its part of the state."""
    metadata = read_layout(path / METADATA)
    planner = dcp.DefaultLoadPlanner()
    planner.set_up_planner(state, metadata)
    return {metadata.storage_data[item.storage_index].relative_path for item in planner.create_local_plan().items}
