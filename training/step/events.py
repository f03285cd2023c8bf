"""Decisions of the guard, in the order in which they were taken: events.jsonl, which is enough to take them again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from gristmill.storage import files
from gristmill.storage.damage import DamagedFileError

EVENTS = "events.jsonl"
REASON_NOT_FINITE, REASON_OUTLIER = "not finite", "outlier"  # why an update is skipped


class Event(BaseModel):
    """`skip`: the update of `step` was left out. `rollback`: after `step` the run went back to the weights after step
    `to`, and leaves out the batches `window` (first, end). `stop`: after `step` the run gave up. Steps count from 1,
    batches from 0."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: int
    what: Literal["skip", "rollback", "stop"]
    why: str
    began: int | None = None  # step that the spike began with
    to: int | None = None
    window: tuple[int, int] | None = None
    samples: tuple[int, int] | None = None  # (first, end) of the spike
    sources: dict[str, int] = {}  # how many of them each source has
    figures: dict[str, float] = {}


def read_events(path: Path) -> list[Event]:
    """The events of a file; none when there is no file. A last line that a crash cut off is left out."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(True)
    try:
        return [Event.model_validate_json(line) for line in lines if line.endswith("\n")]
    except ValidationError:
        raise DamagedFileError(
            f"{path} is not what was written; remove {path.parent} to train anew, or put the file back"
        ) from None


def write_events(path: Path, events: Sequence[Event]) -> None:
    """Replace the file by these events; when it returns, they outlast a crash of the machine."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w") as file:
        file.writelines(event.model_dump_json(exclude_defaults=True) + "\n" for event in events)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    files.sync(path.parent)


def event_line(event: Event) -> str:
    """An event in one line, for a person."""
    line = f"step {event.step}: {event.what}, {event.why}"
    if event.to is None or event.window is None:
        return line
    return (
        f"{line}; steps {event.to + 1} to {event.step} are left behind, batches {event.window[0]} to "
        f"{event.window[1] - 1} left out"
    )


def windows_left_out(events: Sequence[Event]) -> list[tuple[int, int]]:
    """The batches (first, end) that are left out."""
    return [event.window for event in events if event.window]


def skipped_updates(events: Sequence[Event]) -> dict[int, str]:
    """Why updates are left out, by step, in what remains of a run after its rollbacks."""
    reasons: dict[int, str] = {}
    for event in events:
        if event.what == "skip":
            reasons[event.step] = event.why
        elif event.to is not None:
            reasons = {step: why for step, why in reasons.items() if step <= event.to}
    return reasons
