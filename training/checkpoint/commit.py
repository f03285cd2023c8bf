"""Checkpoints that exist completely or not at all, and that any number of ranks can load.

    step-00000100.tmp/   written by all ranks (torch.distributed.checkpoint), every file synced
    step-00000100/       renamed when all ranks are done
    step-00000100/COMMIT written last: progress, fingerprint, digests of the files, checksum of itself

Only a directory with a COMMIT is a checkpoint. What is saved are tensors under global names, cut along
their shards, so 2 ranks' checkpoint loads into 1 or 4. There is no random state: no layer drops out, and
data order, first weights and sample are keyed by the seed.

Safety: every file is compared with its digest before anything is loaded. Damage is an error; `store` sets a
damaged checkpoint aside, with a sentence, and takes the one before it. torch keeps the
layout in `.metadata`, a pickle, which `reader` decodes without calling what it names. The tensors themselves
are read with weights_only=True. So a checkpoint that somebody else wrote can hold wrong weights, but runs no code.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Self

import psutil
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from pydantic import BaseModel, Field

from gristmill.storage import checked_json, files
from gristmill.storage.damage import DamagedFileError
from gristmill.storage.training_manifest import TrainingManifest
from gristmill.training.batches import fingerprint
from gristmill.training.checkpoint.keeping import COMMIT, folder_name
from gristmill.training.checkpoint.reader import METADATA, CheckpointReader
from gristmill.training.config import NEUTRAL, RunConfig, TrainingConfig
from gristmill.training.step.guard import Event
from gristmill.training.world import World, all_gather, local, precision, rank_slice

# A setting that an older checkpoint does not name is newer than it: its default is what that run did.
UNNAMED = {f"training.{name}": json.dumps(value) for name, value in TrainingConfig().model_dump(mode="json").items()}
# what these were before they were settings
UNNAMED |= {"training.embedding_rate": "1.0", "training.momentum": "0.95", "model.block": '"llama"'}
UNNAMED["training.loss_scaling"] = "true"  # which no dump has at its default


class Progress(BaseModel):
    """What a resumed run must know besides weights and optimizer."""

    step: int = 0  # steps done
    tokens: int = 0  # targets learned from
    clipped: int = 0  # steps whose gradient was clipped
    skipped: int = 0  # steps without an update, by the verdict of `gristmill.training.step.state`
    losses: list[float | None] = []  # the newest, which the guard measures the next ones against; None: not finite
    attention_logits: list[float] = []  # the largest of each of the newest probes
    noise: list[float] = []  # means of `gristmill.training.step.monitor.NoiseScale`
    events: list[Event] = []  # decisions so far
    last: dict[str, float] = {}  # newest value of each metric
    logs: dict[str, str] = {}  # digests of the files of metrics so far


class Commit(BaseModel):
    fingerprint: dict[str, str]
    progress: Progress
    world: int
    files: dict[Annotated[str, Field(pattern=r"^[^/]*[^/.][^/]*$")], str]  # xxh3-128 of each file's content, by name
    metadata_sha256: str


def run_fingerprint(run: RunConfig, manifest: TrainingManifest, device: torch.device) -> dict[str, str]:
    """What must be the same in a checkpoint and in the run that resumes it, setting by setting: the precision as it is
    on this device, the learning rates as the optimizer has them."""
    settings = {f"model.{k}": v for k, v in run.model.model_dump(mode="json").items()}
    learned = run.training.model_dump(mode="json", exclude={**dict.fromkeys(NEUTRAL, True), "guard": {"max_rollbacks"}})
    learned |= run.training.filled
    learned["precision"] = precision(run.training.precision, device)
    learned["loss_scaling"] |= learned["precision"] != "fp16"  # which only fp16 reads
    settings |= {f"training.{k}": v for k, v in learned.items()}
    settings["init_digests"] = dict(sorted(run.init_digests.items()))
    return {name: json.dumps(value) for name, value in settings.items()} | {"data": fingerprint(manifest)}


def load_checkpoint(path: Path, state: dict[str, torch.Tensor], names: dict[str, str]) -> Progress:
    """Load a committed checkpoint into the tensors of a TrainState, in place; a collective.

    Raises DamagedCheckpointError when the checkpoint was damaged; ValueError when it is not committed, or belongs to
    other data or settings: then the message has both values of each setting that differs.
    """
    path = Path(path)
    commit = commit_of(path, names)
    check_files(path, commit, _digests(path))
    dcp.load(state, storage_reader=CheckpointReader(path))
    return commit.progress


def commit_of(path: Path | str, names: dict[str, str] | None = None) -> Commit:
    """What the COMMIT of a checkpoint says, in a folder or at an address; of a run with the fingerprint `names`, if
    given. Raises as `load_checkpoint`."""
    try:
        commit = Commit.model_validate(checked_json.read(files.join(str(path), COMMIT)))
    except FileNotFoundError:
        raise ValueError(f"{path}: no {COMMIT} file, so it was not finished; resume from another checkpoint") from None
    except DamagedFileError:
        raise damaged(path, COMMIT) from None
    names = commit.fingerprint if names is None else names
    then = {name: UNNAMED[name] for name in names if name in UNNAMED} | commit.fingerprint
    different = [
        f"{name}: checkpoint {then.get(name)}, this run {names.get(name)}"
        for name in sorted(then.keys() | names.keys())
        if then.get(name) != names.get(name)
    ]
    if different:
        raise ValueError(
            f"{path} belongs to another run: {'; '.join(different)}. Use a different output directory for "
            "this run, or its old settings and data"
        )
    return commit


def check_files(path: Path, commit: Commit, digests: dict[str, str]) -> None:
    """Raises DamagedCheckpointError where the digests of a checkpoint's files, `digests`, do not match its
    COMMIT."""
    for name, digest in commit.files.items():
        if digests.get(name) != digest:
            raise damaged(path, name)
    check_metadata(path, commit)


def check_metadata(path: Path, commit: Commit) -> None:
    """Raises DamagedCheckpointError for a layout that is not what was written."""
    if hashlib.sha256((path / METADATA).read_bytes()).hexdigest() != commit.metadata_sha256:
        raise damaged(path, METADATA)


class DamagedCheckpointError(ValueError):
    """A file of the checkpoint `path`, in a folder or at an address, is not what was written, or is missing."""

    def __init__(self, path: str, name: str) -> None:
        self.path, self.reason = path, f"{files.join(path, name)} is not what was written"
        super().__init__(f"{self.reason}; remove the checkpoint {path} and run again without it, or restore the file")


def damaged(path: Path | str, name: str) -> DamagedCheckpointError:
    """The error for a file of a checkpoint, in a folder or at an address."""
    return DamagedCheckpointError(str(path), name)


def _digests(folder: Path) -> dict[str, str]:
    """xxh3-128 of each file of a folder but COMMIT, by name; a collective in which the ranks share the reading."""
    names = sorted(path.name for path in folder.iterdir() if path.name != COMMIT)
    mine = {name: files.checksum(str(folder / name)) for name in rank_slice(names)}
    return {name: digest for some in all_gather(mine) for name, digest in some.items()}


# Checkpoints that are written while training goes on.
#
# What is saved is copied to the memory of the CPU, which is all that training waits for. A thread then writes the copy,
# takes the digests, and commits; the ranks' threads talk to each other through a process group of their own, since
# collectives of two threads in one group have no order.


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
        self.bytes = 0  # of a checkpoint on this machine's disk

    def save(self, state: dict[str, torch.Tensor], progress: Progress) -> Path:
        """Begin to save the state as it is now; returns the path that the checkpoint will have. An uncommitted one is
        replaced.

        Raises RuntimeError when the one before could not be saved.
        """
        self.wait()
        self.path = self.root / folder_name(progress.step)
        temporary = self.path.with_suffix(".tmp")
        if self._owns_folder:
            for leftover in (temporary, self.path):
                shutil.rmtree(leftover, ignore_errors=True)
        self.bytes = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
        if self.publish:
            self.bytes //= self.world.nodes  # about: each machine writes what its ranks have
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
        """`digests`: of all ranks; `folder`: of rank 0, with torch's layout."""
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
            reason = self._full() if _is_full(error) else f"{_reason(error)}; fix that"
            raise RuntimeError(
                f"the checkpoint {self.path} could not be saved: {reason} and run again, which resumes from the "
                "checkpoint before it"
            ) from error

    def _full(self) -> str:
        """Why and what to do, for a disk that is full. What was written is removed first: it would take the space that
        logs and the other checkpoints need."""
        unfinished = self.path.with_suffix(".tmp")
        written = sum(path.stat().st_size for path in unfinished.glob("*")) if self._owns_folder else 0
        if self._owns_folder:
            shutil.rmtree(unfinished, ignore_errors=True)
            if not (self.path / COMMIT).exists():
                shutil.rmtree(self.path, ignore_errors=True)
        free = shutil.disk_usage(self.root).free
        return (
            f"the disk of {self.root} is full, or its quota is used up: without this checkpoint {_megabytes(free)} are "
            f"free, and it takes at least {_megabytes(max(self.bytes, written))}, beside those that are kept. Free "
            "some space"
        )

    @property
    def _owns_folder(self) -> bool:
        """Whether this rank removes what is left in the folder, for all that write there."""
        return self.world.leads or bool(self.publish and self.world.leads_node)

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


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


def _is_full(error: BaseException) -> bool:
    """Whether a disk was full. torch's writer of files then only finds that less was written than it had asked for:
    "unexpected pos 704 vs 598" (caffe2/serialize/inline_container.cc)."""
    causes = [error]
    if isinstance(error, dcp.CheckpointException):
        causes += [each for each, _ in error.failures.values()]
    return any(files.is_full(each) or "unexpected pos" in str(each) for each in causes)


def _reason(error: BaseException) -> str:
    """The first error of a rank, on one line, of those that torch has gathered."""
    if isinstance(error, dcp.CheckpointException):
        rank, (first, _) = min(error.failures.items())
        return f"rank {rank}: {_reason(first)}"
    return f"{type(error).__name__}: {error}".splitlines()[0]
