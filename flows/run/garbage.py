"""Finds and removes what no recorded run needs: stages of a home, files that killed runs left for workers, folders of
runs on SLURM, and kernel caches of older versions.

A recorded run (`gristmill.flows.machine.runs`) needs its stages, and the stages that these were made from, until it is
forgotten. A model stays until a run that had it is forgotten, whatever else was recorded. A stage that a process is
making stays, too. The manifest of a removed finished stage stays, so that stages that were made from it are found.
"""

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import wrapt

from gristmill.flows.machine.runs import RELEASED, RecordedRun, all_runs, stages_of_runs
from gristmill.storage import files, layout, leftovers
from gristmill.storage.home import FinishedStage, Home, StageFolder, UnfinishedStage, UnreadableStage
from gristmill.tasks.engine.executors import WORK
from gristmill.tasks.engine.lease import is_held, lease, maker_of
from gristmill.tasks.engine.shared import works
from gristmill.tasks.engine.slurm.meeting import Meeting, meetings

if TYPE_CHECKING:
    from gristmill.tasks.kernels import compiled
else:
    compiled = wrapt.lazy_import("gristmill.tasks.kernels.compiled")

_DAY = 24 * 3600
# The folder of a run on SLURM that has not ended stays until nothing has written to it for this long: the run may wait
# in a queue.
OPEN_DAYS = 7


@dataclass(frozen=True)
class Garbage:
    """A folder that can be removed, or a file if `kind` is `work`.

    kind: `slurm` for the folder of a run on SLURM that has ended, `slurm-open` for one that has not. label: of the
    stage, the cache, or the run on SLURM. bytes: of its files. modified: of the newest file, in seconds since 1970.
    """

    kind: Literal["finished", "unfinished", "unreadable", "work", "kernels", "slurm", "slurm-open"]
    label: str
    folder: str
    bytes: int
    modified: float


@dataclass(frozen=True)
class Found:
    """`garbage` can be removed. `young` is newer than `days`, and the stages of `held` are being made, so they stay."""

    garbage: tuple[Garbage, ...]
    young: tuple[Garbage, ...]
    held: tuple[str, ...]


def find(home: str, days: float, slurm_folder: str = "") -> Found:
    """Find what nothing needs in a home and in this machine's kernel cache. Removes nothing.

    days: files that are newer stay. slurm_folder: the folder where runs on SLURM meet their workers. Raises
    DamagedFileError if the record of a run cannot be read.
    """
    now = time.time()
    before = {"slurm-open": now - max(days, OPEN_DAYS) * _DAY}
    needed = _needed(home)
    stages = [stage for stage in _all(Home(home)) if stage.label not in needed and not _is_kept(stage)]
    with ThreadPoolExecutor(16) as pool:  # requests to a store are mostly waiting
        held = [stage.label for stage, one in zip(stages, pool.map(_held, stages), strict=True) if one]
        items = list(pool.map(_measured, (stage for stage in stages if stage.label not in held)))
    items += _works(home) + _kernels() + [_measured_meeting(each) for each in meetings(slurm_folder)]
    items.sort(key=lambda one: (-one.bytes, one.label))
    old = tuple(one for one in items if one.modified <= before.get(one.kind, now - days * _DAY))
    return Found(old, tuple(one for one in items if one not in old), tuple(held))


def remove(home: str, garbage: Garbage) -> bool:
    """Remove one folder, or all files of a finished stage except its manifest. Returns False if a run uses it now.

    The lease of the stage is held meanwhile, so a run that needs the stage waits and makes it again.
    """
    if garbage.kind == "kernels":
        shutil.rmtree(garbage.folder, ignore_errors=True)
        return True
    if garbage.kind == "work":
        files.remove(garbage.folder)
        return True
    if garbage.kind in ("slurm", "slurm-open"):
        if _measured_meeting(Meeting(garbage.folder)).modified > garbage.modified:
            return False
        files.remove(garbage.folder)
        return True
    if is_held(garbage.folder):
        return False
    with lease(garbage.folder, lambda line: None) as held:
        if garbage.label in _needed(home):
            return False
        held.confirm()
        if garbage.kind == "finished":
            layout.collect(garbage.folder)
            return True
        files.remove(garbage.folder)
    files.remove(garbage.folder)
    return True


def _all(home: Home) -> Iterator[StageFolder]:
    yield from home.stages()
    yield from home.unfinished()
    yield from home.unreadable()
    with ThreadPoolExecutor(16) as pool:  # requests to a store are mostly waiting
        folders = pool.map(lambda stage: (stage, layout.removable(stage.folder)), home.collected())
        yield from (stage for stage, names in folders if names)  # left by a removal or restoration that was killed


def _is_kept(stage: StageFolder) -> bool:
    """Whether a stage stays although no run needs it: a model, of any format, that no `home forget` has released."""
    return (
        isinstance(stage, FinishedStage | UnreadableStage)
        and stage.name == "model"
        and not files.exists(files.join(stage.folder, RELEASED))
    )


def held_by(home: str) -> list[tuple[RecordedRun, int]]:
    """The recorded runs, each with the bytes of the stages that only it needs."""
    runs, stages = all_runs(home), Home(home)
    held = [_needed(home, set(run.stages), stages) for run in runs]
    sizes = {stage.label: stage.bytes for stage in stages.stages()}
    counts = Counter(label for labels in held for label in labels)
    return [
        (run, sum(sizes.get(label, 0) for label in labels if counts[label] == 1))
        for run, labels in zip(runs, held, strict=True)
    ]


def _needed(home: str, labels: set[str] | None = None, stages: Home | None = None) -> set[str]:
    """Labels of stages and of all stages that they were made from. Default: the stages of recorded runs, and models
    that stay."""
    stages = stages or Home(home)
    by_key = {stage.key: stage for stage in _all(stages)}
    if labels is None:
        labels = stages_of_runs(home) | {stage.label for stage in by_key.values() if _is_kept(stage)}
    waiting = [stage for stage in by_key.values() if stage.label in labels]
    while waiting:
        stage = waiting.pop()
        for key in stage.inputs.values() if isinstance(stage, FinishedStage) else ():
            source = by_key.get(key)
            if source is not None and source.label not in labels:
                labels.add(source.label)
                waiting.append(source)
    return labels


def _held(stage: StageFolder) -> bool:
    return is_held(stage.folder)


def _measured(stage: StageFolder) -> Garbage:
    size, modified = files.size_of(stage.folder)
    kind: Literal["finished", "unfinished", "unreadable"] = "finished"
    if isinstance(stage, UnfinishedStage):
        kind = "unfinished"
    elif isinstance(stage, UnreadableStage):
        kind = "unreadable"
    return Garbage(kind, stage.label, stage.folder, size, modified)


def _works(home: str) -> list[Garbage]:
    """Files with the work of phases whose flow was killed. The next run on that machine removes them, too."""
    owners = {path: owner for path, owner in works(files.join(home, WORK)).items() if not _lives(owner)}
    if any(not leftovers.is_of_this_host(owner) for owner in owners.values()):
        # only the leases tell which processes of another machine are alive
        with ThreadPoolExecutor(16) as pool:
            makers = {*pool.map(lambda stage: maker_of(stage.folder), Home(home).unfinished())}
        owners = {path: owner for path, owner in owners.items() if owner not in makers}
    sizes = {path: files.size_of(path) for path in owners}
    return [
        Garbage("work", f"{WORK}/{path.rpartition('/')[2]}", path, size, modified)
        for path, (size, modified) in sizes.items()
    ]


def _measured_meeting(meeting: Meeting) -> Garbage:
    size, written = files.size_of(str(meeting.folder))
    modified = max(written, *(folder.stat().st_mtime for folder in (meeting.folder, meeting.workers)))
    kind: Literal["slurm", "slurm-open"] = "slurm" if meeting.is_ended() else "slurm-open"
    return Garbage(kind, meeting.folder.name, str(meeting.folder), size, modified)


def _lives(owner: str) -> bool:
    """Whether a process is on this host and has not ended."""
    return leftovers.is_of_this_host(owner) and not leftovers.has_ended(owner)


def _kernels() -> list[Garbage]:
    caches = []
    for folder in sorted(compiled.FOLDER.parent.glob("kernels-*")):
        if folder != compiled.FOLDER:
            size, written = files.size_of(str(folder))
            modified = max(written, folder.stat().st_mtime)  # an empty cache may be about to be filled
            caches.append(Garbage("kernels", Path(folder).name, str(folder), size, modified))
    return caches
