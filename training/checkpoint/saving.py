"""Checkpoints that are written while training goes on.

What is saved is copied to the memory of the CPU, which is all that training waits for. A thread then writes the copy,
takes the digests, and commits; the ranks' threads talk to each other through a process group of their own, since
collectives of two threads in one group have no order.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import psutil
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from gristmill.storage import checked_json, files
from gristmill.training.checkpoint.commit import METADATA, Commit, Progress
from gristmill.training.checkpoint.keeping import COMMIT
from gristmill.training.parallel.world import World, local

log = logging.getLogger(__name__)

PAGE_LOCKED = 0.5  # of the memory that is available, at most
Publish = Callable[[Path, Path, list[Path], Commit | None, dist.ProcessGroup], None]


class Saver:
    """Saves checkpoints below `root`, one at a time; to make one is a collective, and so is `save`.

    `names`: the run's fingerprint. `committed` is called on rank 0, in the thread, with each checkpoint that is whole.
    `publish`: commits it in place of that, where machines have disks of their own, see `CheckpointStore`. A context
    manager, whose end waits for the save that is in progress, also when an error ends it.
    """

    def __init__(
        self,
        root: Path,
        names: dict[str, str],
        world: World,
        timeout_seconds: float,
        committed: Callable[[Path], None] = lambda path: None,
        publish: Publish | None = None,
    ) -> None:
        self.root, self.names, self.world = Path(root), names, world
        self.committed, self.publish = committed, publish
        self.group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_seconds))
        self.writer: dcp.FileSystemWriter | None = None
        self.thread = ThreadPoolExecutor(1, "checkpoint")
        self.saving: Future[None] | None = None
        self.path = self.root

    def save(self, state: dict[str, torch.Tensor], progress: Progress) -> Path:
        """Begin to save the state as it is now; returns the path that the checkpoint will have. An uncommitted one is
        replaced.

        Raises RuntimeError when the one before could not be saved.
        """
        self.wait()
        self.path = self.root / f"step-{progress.step:08d}"
        temporary = self.path.with_suffix(".tmp")
        if self.world.leads or (self.publish and self.world.leads_node):
            for leftover in (temporary, self.path):
                shutil.rmtree(leftover, ignore_errors=True)
        if self.writer is None:
            # from a GPU one copies faster into page-locked memory, which is then kept for the next time
            pinned = self.world.device.type == "cuda" and fits_page_locked(state)
            self.writer = dcp.FileSystemWriter(self.root, sync_files=True, cache_staged_state_dict=pinned)
        # No rank writes before rank 0 has the plans of all, which they send after this removal.
        pending_write = dcp.async_save(
            state, checkpoint_id=temporary, storage_writer=self.writer, process_group=self.group
        )
        assert isinstance(pending_write, Future), "the writer copies before it returns"
        copy = progress.model_copy(deep=True)
        self.saving = self.thread.submit(self._commit, pending_write, temporary, self.path, copy)
        return self.path

    def _commit(self, pending_write: Future[Any], temporary: Path, final: Path, progress: Progress) -> None:
        pending_write.result()
        mine = [path for path in sorted(temporary.iterdir()) if path.name.startswith(f"__{self.world.rank}_")]
        if self.world.leads:
            mine.append(temporary / METADATA)
        digests: list[Any] = [None] * self.world.size
        dist.all_gather_object(digests, {path.name: files.checksum(str(path)) for path in mine}, group=self.group)
        commit = self._described(digests, temporary, progress) if self.world.leads else None
        if self.publish:
            return self.publish(temporary, final, mine, commit, self.group)
        if commit:
            if missing := sorted(commit.files.keys() - {path.name for path in temporary.iterdir()}):
                raise FileNotFoundError(
                    f"{temporary / missing[0]}: another rank wrote it on a disk that is not this one"
                )
            for path in temporary.iterdir():
                files.sync(path)
            files.sync(temporary)
            temporary.rename(final)
            files.sync(final.parent)
            checked_json.write(str(final / COMMIT), commit.model_dump(mode="json"))
            self.committed(final)
        dist.barrier(group=self.group)  # so that every rank knows that it is committed

    def _described(self, digests: list[dict[str, str]], folder: Path, progress: Progress) -> Commit:
        """`digests`: those of all ranks; `folder`: that of rank 0, with torch's layout."""
        return Commit(
            fingerprint=self.names,
            progress=progress,
            world=self.world.size,
            files={name: digest for some in digests for name, digest in some.items()},
            metadata_sha256=hashlib.sha256((folder / METADATA).read_bytes()).hexdigest(),
        )

    def check(self) -> None:
        """Raises RuntimeError if a save has failed; does not wait for one that is in progress."""
        if self.saving and self.saving.done():
            self.wait()

    def wait(self) -> None:
        """Return when what was begun is committed; raises RuntimeError if it could not be."""
        if not self.saving:
            return
        error = self.saving.exception()
        self.saving = None
        if error:
            raise RuntimeError(
                f"the checkpoint {self.path} could not be saved: {_reason(error)}; mend that and run again, which goes "
                "on from the checkpoint before it"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.wait()
        except RuntimeError as error:
            if kind is None:
                raise
            log.warning("%s", error)
        finally:
            self.thread.shutdown()


def fits_page_locked(state: dict[str, torch.Tensor], groups: Path = Path("/sys/fs/cgroup")) -> bool:
    """Whether copies of the state by all ranks of this machine take at most PAGE_LOCKED of what memory is available.

    No other process gets page-locked memory, nor does the system's cache of files. Available is what the machine has,
    within the limit of its container or job (https://docs.kernel.org/admin-guide/cgroup-v2.html, memory.max).
    """
    size = sum(local(tensor).nbytes for tensor in state.values()) * int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    available = psutil.virtual_memory().available
    with suppress(OSError, ValueError):  # no such group, not of the second version, or "max": there is no limit
        limit, used = (int((groups / f"memory.{name}").read_text()) for name in ("max", "current"))
        available = min(available, limit - used)
    return size <= PAGE_LOCKED * available


def _reason(error: BaseException) -> str:
    """The first error of a rank, on one line, of those that torch has gathered."""
    if isinstance(error, dcp.CheckpointException):
        rank, (first, _) = min(error.failures.items())
        return f"rank {rank}: {_reason(first)}"
    return f"{type(error).__name__}: {error}".splitlines()[0]
