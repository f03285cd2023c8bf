"""Checkpoints that exist completely or not at all, and that any number of ranks can load.

    step-00000100.tmp/   written by all ranks (torch.distributed.checkpoint), every file synced; see `saving`
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
from pathlib import Path
from typing import Annotated

import torch
import torch.distributed.checkpoint as dcp
from pydantic import BaseModel, Field

from gristmill.storage import checked_json, files
from gristmill.storage.damage import DamagedFileError
from gristmill.storage.training_manifest import TrainingManifest
from gristmill.training.checkpoint.keeping import COMMIT
from gristmill.training.config import NEUTRAL, RunConfig, TrainingConfig
from gristmill.training.data.batches import fingerprint
from gristmill.training.parallel.collectives import all_gather, rank_slice
from gristmill.training.parallel.world import precision
from gristmill.training.step.events import Event

METADATA = ".metadata"
# A setting that an older checkpoint does not name is newer than it: its default is what that run did.
UNNAMED = {f"training.{name}": json.dumps(value) for name, value in TrainingConfig().model_dump(mode="json").items()}
UNNAMED["training.embedding_rate"] = json.dumps(1.0)  # of all optimizers, before it was a setting


class Progress(BaseModel):
    """What a resumed run must know besides weights and optimizer."""

    step: int = 0  # steps done
    tokens: int = 0  # targets learned from
    clipped: int = 0  # steps whose gradient was clipped
    skipped: int = 0  # steps without an update, by the verdict of `gristmill.training.step.state`
    losses: list[float] = []  # the newest, which the guard measures the next ones against
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
    on this device, the learning rate as the optimizer has it."""
    settings = {f"model.{k}": v for k, v in run.model.model_dump(mode="json").items()}
    learned = run.training.model_dump(mode="json", exclude={**dict.fromkeys(NEUTRAL, True), "guard": {"max_rollbacks"}})
    learned["learning_rate"] = run.training.peak_rate
    learned["embedding_rate"] = run.training.embedding_factor
    learned["precision"] = precision(run.training.precision, device)
    settings |= {f"training.{k}": v for k, v in learned.items()}
    settings["init_digests"] = dict(sorted(run.init_digests.items()))
    return {name: json.dumps(value) for name, value in settings.items()} | {"data": fingerprint(manifest)}


def load_checkpoint(path: Path, state: dict[str, torch.Tensor], names: dict[str, str]) -> Progress:
    """Load a committed checkpoint into the tensors of a TrainState, in place; a collective.

    Raises ValueError when the checkpoint is not committed, was damaged, or belongs to other data or settings:
    then the message has both values of each setting that differs.
    """
    path = Path(path)
    commit = commit_of(path, names)
    check_files(path, commit, _digests(path))
    dcp.load(state, storage_reader=dcp.FileSystemReader(path))
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
            f"{path} is of another run: {'; '.join(different)}. Give this run an output directory of its "
            "own, or its old settings and data"
        )
    return commit


def check_files(path: Path, commit: Commit, digests: dict[str, str]) -> None:
    """Raises ValueError where the digests of a checkpoint's files, `digests`, are not those of its COMMIT."""
    for name, digest in commit.files.items():
        if digests.get(name) != digest:
            raise damaged(path, name)
    check_metadata(path, commit)


def check_metadata(path: Path, commit: Commit) -> None:
    """Raises ValueError for a layout that is not what was written, before torch reads it with pickle."""
    if hashlib.sha256((path / METADATA).read_bytes()).hexdigest() != commit.metadata_sha256:
        raise damaged(path, METADATA)


def damaged(path: Path | str, name: str) -> ValueError:
    """The error for a file of a checkpoint, in a folder or at an address."""
    return ValueError(
        f"{files.join(str(path), name)} is not what was written; remove the checkpoint {path} and run again, which "
        "resumes from the one before it"
    )


def _digests(folder: Path) -> dict[str, str]:
    """xxh3-128 of each file of a folder but COMMIT, by name; a collective in which the ranks share the reading."""
    names = sorted(path.name for path in folder.iterdir() if path.name != COMMIT)
    mine = {name: files.checksum(str(folder / name)) for name in rank_slice(names)}
    return {name: digest for some in all_gather(mine) for name, digest in some.items()}
