"""Which checkpoints there are below a folder, and which of them stay. Reads names only, and imports no torch."""

from __future__ import annotations

import shutil
from collections.abc import Container, Iterable
from pathlib import Path

COMMIT = "COMMIT"


def step_of(name: str) -> int:
    """The step of a checkpoint's folder `step-00000100`."""
    return int(name.removeprefix("step-"))


def committed(root: Path) -> dict[int, Path]:
    """Committed checkpoints below root by step, oldest first."""
    found = [path.parent for path in Path(root).glob(f"step-*/{COMMIT}") if path.parent.suffix != ".tmp"]
    return {step_of(path.name): path for path in sorted(found)}


def latest(root: Path) -> Path | None:
    """The committed checkpoint with the most steps, or None."""
    return next(reversed(committed(root).values()), None)


def kept_steps(steps: Iterable[int], keep: int, total: int, every: int | None = None) -> set[int]:
    """Those of the checkpoints' steps that are kept: the newest `keep`, the middle one, and multiples of `every`.

    The middle one is the newest at or before half of the run's `total` steps: to go back to when the end went wrong,
    and to test resuming with.
    """
    ordered = sorted(steps)
    middle = max((step for step in ordered if step <= total // 2), default=0)
    return {*ordered[-keep:], middle, *(step for step in ordered if every and step % every == 0)}


def prune(root: Path, kept: Container[int]) -> list[Path]:
    """Remove all committed checkpoints but those of the steps in `kept`; returns what was removed."""
    removed = [path for step, path in committed(root).items() if step not in kept]
    for path in removed:
        remove(path)
    return removed


def remove(path: Path) -> None:
    """Remove a committed checkpoint. COMMIT goes first, so a half-removed directory is no checkpoint."""
    (path / COMMIT).unlink()
    shutil.rmtree(path)
