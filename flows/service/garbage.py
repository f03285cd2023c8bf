"""Stages of a home that no recipe's recorded run needs any more, and caches of kernels of older versions.

A stage is needed if the last run of a recipe had it, or the run before, where the last has not ended as it should; if
it is among the inputs of such a stage; or if a process makes it now.
"""

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gristmill.flows.machine.runs import stages_of_runs
from gristmill.storage import files
from gristmill.storage.home import FinishedStage, Home, StageFolder, UnfinishedStage, UnreadableStage
from gristmill.tasks.engine.lease import is_held, lease

_DAY = 24 * 3600


@dataclass(frozen=True)
class Garbage:
    """A folder that can go. `label`: of the stage, or of the cache; `bytes`: of its files; `modified`: when the last of
    them was written, in seconds since 1970."""

    kind: Literal["finished", "unfinished", "unreadable", "kernels"]
    label: str
    folder: str
    bytes: int
    modified: float


@dataclass(frozen=True)
class Found:
    """What can go; and what is as little needed, but stays: younger than asked, or made now."""

    garbage: tuple[Garbage, ...]
    young: tuple[Garbage, ...]
    held: tuple[str, ...]


def find(home: str, days: float) -> Found:
    """What a home and this machine's cache of kernels hold that nobody needs. Removes nothing.

    `days`: what was written since then stays. Raises DamagedFileError where a record of a run cannot be read.
    """
    before = time.time() - days * _DAY
    needed = _needed(home)
    stages = [stage for stage in _all(Home(home)) if stage.label not in needed]
    with ThreadPoolExecutor(16) as pool:  # requests to a store are mostly waiting
        held = [stage.label for stage, one in zip(stages, pool.map(_held, stages), strict=True) if one]
        found = list(pool.map(_measured, (stage for stage in stages if stage.label not in held)))
    found += _kernels()
    found.sort(key=lambda one: (-one.bytes, one.label))
    old = tuple(one for one in found if one.modified <= before)
    return Found(old, tuple(one for one in found if one not in old), tuple(held))


def remove(home: str, garbage: Garbage) -> bool:
    """Remove one folder; whether it was. A stage that a run has taken up meanwhile stays.

    The lease of the stage is held for that: a run that asks for it waits, and makes it anew.
    """
    if garbage.kind == "kernels":
        shutil.rmtree(garbage.folder, ignore_errors=True)
        return True
    if is_held(garbage.folder):
        return False
    with lease(garbage.folder, lambda line: None) as held:
        if garbage.label in _needed(home):
            return False
        held.confirm()
        manifest = files.join(garbage.folder, "manifest.json")
        if files.exists(manifest):  # first, so that the stage is not taken for finished at any moment
            files.remove(manifest)
        files.remove(garbage.folder)
    files.remove(garbage.folder)
    return True


def _all(home: Home) -> Iterator[StageFolder]:
    yield from home.stages()
    yield from home.unfinished()
    yield from home.unreadable()


def _needed(home: str) -> set[str]:
    """Labels of the stages of the recorded runs, and of all that these were made from."""
    labels = stages_of_runs(home)
    stages = Home(home)
    by_key = {stage.key: stage for stage in _all(stages)}
    waiting = [stage for stage in by_key.values() if stage.label in labels]
    while waiting:
        stage = waiting.pop()
        for key in stage.inputs.values() if isinstance(stage, FinishedStage) else ():
            behind = by_key.get(key)
            if behind is not None and behind.label not in labels:
                labels.add(behind.label)
                waiting.append(behind)
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


def _kernels() -> list[Garbage]:
    from gristmill.tasks.kernels import FOLDER  # numba takes half a second to import

    found = []
    for folder in sorted(FOLDER.parent.glob("kernels-*")):
        if folder != FOLDER:
            size, written = files.size_of(str(folder))
            modified = max(written, folder.stat().st_mtime)  # one without files may be about to be filled
            found.append(Garbage("kernels", Path(folder).name, str(folder), size, modified))
    return found
