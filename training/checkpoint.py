"""Checkpoints that exist completely or not at all, and that any number of ranks can load.

    step-00000100.tmp/   written by all ranks (torch.distributed.checkpoint), every file synced
    step-00000100/       renamed when all ranks are done
    step-00000100/COMMIT written last: progress, fingerprint, digests of the files, checksum of itself

Only a directory with a COMMIT is a checkpoint. What is saved are tensors under global names, cut along
their shards, so 2 ranks' checkpoint loads into 1 or 4. There is no random state: no layer drops out, and
data order, first weights and sample are keyed by the seed.

Safety: every file is compared with its digest before anything is loaded. Damage is an error and never an
older checkpoint in silence: whoever removes the damaged one resumes from the one before it. torch keeps the
layout in `.metadata`, which it reads with pickle. Its digest is a SHA-256, so an exchanged file is refused;
but whoever can rewrite both files can run code in the process that resumes. Load only checkpoints whose
directory you trust. The tensors themselves are read with weights_only=True, and nothing else is saved that
would need more.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from pydantic import BaseModel
from torch import nn

from storage import checked_json, files
from storage.damage import DamagedFileError
from storage.training_manifest import TrainingManifest
from training.config import NEUTRAL, RunConfig
from training.data import fingerprint
from training.events import Event
from training.loss_scale import LossScale
from training.optim import Optimizers
from training.outliers import Outliers
from training.parallel import World, gathered, share

COMMIT = "COMMIT"
METADATA = ".metadata"


class Progress(BaseModel):
    """What a resumed run must know besides weights and optimizer."""

    step: int = 0  # steps done
    tokens: int = 0  # targets learned from
    clipped: int = 0  # steps whose gradient was clipped
    skipped: int = 0  # steps without an update, by the verdict of `training.outliers`
    losses: list[float] = []  # the newest, which the guard measures the next ones against
    attention_logits: list[float] = []  # the largest of each of the newest looks
    events: list[Event] = []  # decisions so far
    last: dict[str, float] = {}  # newest value of each metric
    logs: dict[str, str] = {}  # digests of the files of metrics so far


class Commit(BaseModel):
    fingerprint: dict[str, str]
    progress: Progress
    world: int
    files: dict[str, str]  # xxh3-128 of each file's content
    metadata_sha256: str


def run_fingerprint(run: RunConfig, manifest: TrainingManifest) -> dict[str, str]:
    """What must be the same in a checkpoint and in the run that resumes it, setting by setting."""
    settings = {f"model.{k}": v for k, v in run.model.model_dump(mode="json").items()}
    settings |= {f"training.{k}": v for k, v in run.training.model_dump(mode="json", exclude=set(NEUTRAL)).items()}
    settings["init_digests"] = dict(sorted(run.init_digests.items()))
    return {name: json.dumps(value) for name, value in settings.items()} | {"data": fingerprint(manifest)}


def tensors(model: nn.Module, optimizers: Optimizers, scale: LossScale, outliers: Outliers) -> dict[str, torch.Tensor]:
    """The live tensors of a run under the names that they have in a checkpoint."""
    state = scale.tensors() | outliers.tensors()
    for name, parameter in model.named_parameters():
        state[f"model.{name}"] = parameter.detach()
        for key, value in optimizers.state(parameter).items():
            state[f"optimizer.{name}.{key}"] = value
    return state


def committed(root: Path) -> dict[int, Path]:
    """Committed checkpoints below root by step, oldest first. Reads names only."""
    found = [path.parent for path in Path(root).glob(f"step-*/{COMMIT}") if path.parent.suffix != ".tmp"]
    return {int(path.name.removeprefix("step-")): path for path in sorted(found)}


def latest(root: Path) -> Path | None:
    """The committed checkpoint with the most steps, or None."""
    return next(reversed(committed(root).values()), None)


def save(root: Path, state: dict[str, torch.Tensor], progress: Progress, names: dict[str, str], world: World) -> Path:
    """Write a checkpoint; a collective that returns when it is committed. An uncommitted one is replaced."""
    final = Path(root) / f"step-{progress.step:08d}"
    temporary = final.with_suffix(".tmp")
    if world.leads:
        for leftover in (temporary, final):
            shutil.rmtree(leftover, ignore_errors=True)
        temporary.mkdir(parents=True)
    dist.barrier()
    dcp.save(state, storage_writer=dcp.FileSystemWriter(temporary, sync_files=True))
    digests = _digests(temporary)
    if world.leads:
        for path in temporary.iterdir():
            files.sync(path)
        files.sync(temporary)
        temporary.rename(final)
        files.sync(final.parent)
        commit = Commit(
            fingerprint=names,
            progress=progress,
            world=world.size,
            files=digests,
            metadata_sha256=hashlib.sha256((final / METADATA).read_bytes()).hexdigest(),
        )
        checked_json.write(str(final / COMMIT), commit.model_dump(mode="json"))
    dist.barrier()
    return final


def load(path: Path, state: dict[str, torch.Tensor], names: dict[str, str]) -> Progress:
    """Load a committed checkpoint into live tensors, in place; a collective.

    Raises ValueError when the checkpoint is not committed, was damaged, or belongs to other data or settings:
    then the message has both values of each setting that differs.
    """
    path = Path(path)
    if not (path / COMMIT).exists():
        raise ValueError(f"{path}: no {COMMIT} file, so it was not finished; resume from another checkpoint")
    commit = _commit(path)
    different = [
        f"{name}: checkpoint {commit.fingerprint.get(name)}, this run {names.get(name)}"
        for name in sorted(commit.fingerprint.keys() | names.keys())
        if commit.fingerprint.get(name) != names.get(name)
    ]
    if different:
        raise ValueError(
            f"{path} is of another run: {'; '.join(different)}. Give this run an output directory of its "
            "own, or its old settings and data"
        )
    found = _digests(path)
    for name, digest in commit.files.items():
        if found.get(name) != digest:
            raise _damaged(path / name)
    if hashlib.sha256((path / METADATA).read_bytes()).hexdigest() != commit.metadata_sha256:
        raise _damaged(path / METADATA)
    dcp.load(state, storage_reader=dcp.FileSystemReader(path))
    return commit.progress


def progress(path: Path) -> Progress:
    """How far a committed checkpoint is. Raises ValueError when it was damaged."""
    return _commit(Path(path)).progress


def _commit(path: Path) -> Commit:
    try:
        return Commit.model_validate(checked_json.read(str(path / COMMIT)))
    except DamagedFileError:
        raise _damaged(path / COMMIT) from None


def _damaged(path: Path) -> ValueError:
    return ValueError(
        f"{path} is not what was written; remove the checkpoint {path.parent} and run again, which resumes from the "
        "one before it"
    )


def _digests(folder: Path) -> dict[str, str]:
    """xxh3-128 of each file of a folder but COMMIT, by name; a collective in which the ranks share the reading."""
    names = sorted(path.name for path in folder.iterdir() if path.name != COMMIT)
    mine = {name: files.checksum(str(folder / name)) for name in share(names)}
    return {name: digest for some in gathered(mine) for name, digest in some.items()}


def remove_after(root: Path, step: int) -> None:
    """Remove the committed checkpoints of later steps."""
    for later, path in committed(root).items():
        if later > step:
            _remove(path)


def _remove(path: Path) -> None:
    (path / COMMIT).unlink()
    shutil.rmtree(path)


def prune(root: Path, keep: int, steps: int) -> list[Path]:
    """Remove all committed checkpoints but the newest `keep` and the middle one; returns what was removed.

    The middle one is the newest at or before half of the run's steps: to go back to when the end went wrong,
    and to test resuming with. COMMIT goes first, so a half-removed directory is no checkpoint.
    """
    checkpoints = committed(root)
    kept = set(list(checkpoints)[-keep:]) | {max((s for s in checkpoints if s <= steps // 2), default=0)}
    removed = [path for step, path in checkpoints.items() if step not in kept]
    for path in removed:
        _remove(path)
    return removed
