"""What a rank reports of its progress, for the launcher of its machine, which may find that it hangs.

    <folder>/<rank>           one line of JSON, a Beat: replaced in place as the rank moves on
    <folder>/<rank>.stacks    the stacks of all threads, written when the rank gets SIGUSR1 (faulthandler)
    <folder>/<rank>.ask       a FIFO: who writes to it gets, in
    <folder>/<rank>.flight    the newest collectives as torch's flight recorder has them

The folder is in the temporary files of the launcher, whose path is in HEARTBEATS; without that nothing is reported. A
process has one heartbeat, as it has one log. A beat costs some microseconds: nothing of it waits for a disk. Imports
no torch.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import IO, Literal

from pydantic import BaseModel

HEARTBEATS = "TRAINING_HEARTBEATS"  # environment variable: the folder
# `start`: all before the figures of the first steps are known, and steps that may compile; `end`: all after the last
Phase = Literal["start", "step", "evaluation", "checkpoint", "rollback", "end"]
RECORD_BYTES = 160  # of a line, padded, so that one write replaces another
COLLECTIVES = 50  # of the flight recorder that are kept


class Beat(BaseModel, frozen=True):
    """`count`: beats so far; `step`: the last one that was begun."""

    process: int
    count: int
    phase: Phase
    step: int


class _Heart:
    def __init__(self, folder: Path, rank: str) -> None:
        self.path = folder / rank
        self.file = os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600)
        self.count, self.step = 0, 0
        self.stacks: IO[str] | None = None

    def beat(self, phase: Phase, step: int | None) -> None:
        self.count += 1
        self.step = self.step if step is None else step
        line = json.dumps({"process": os.getpid(), "count": self.count, "phase": phase, "step": self.step})
        os.pwrite(self.file, line.ljust(RECORD_BYTES - 1).encode() + b"\n", 0)

    def answer(self) -> None:
        """Be ready to write down what this process does, even if its main thread never runs again."""
        self.stacks = self.path.with_suffix(".stacks").open("w")
        faulthandler.register(signal.SIGUSR1, self.stacks, all_threads=True)
        ask = self.path.with_suffix(".ask")
        os.mkfifo(ask, 0o600)
        threading.Thread(target=self._answer, args=(ask,), name="heartbeat", daemon=True).start()

    def _answer(self, ask: Path) -> None:
        while True:
            ask.read_bytes()  # waits until somebody has written and closed
            temporary = self.path.with_suffix(".part")
            temporary.write_text(json.dumps(collectives()))
            temporary.rename(self.path.with_suffix(".flight"))


_heart: _Heart | None = None


def begin() -> None:
    """Report from now on, if the launcher has asked for it."""
    global _heart
    if folder := os.environ.get(HEARTBEATS):
        _heart = _Heart(Path(folder), os.environ.get("RANK", "0"))
        _heart.beat("start", None)
        _heart.answer()


def beat(phase: Phase, step: int | None = None) -> None:
    """Report that this rank is in a phase and moves. `step`: counted from 1; None: as before."""
    if _heart is not None:
        _heart.beat(phase, step)


def collectives() -> list[dict]:
    """The newest entries of torch's flight recorder, oldest first; none where this release of torch records nothing
    (https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html)."""
    if (c10d := sys.modules.get("torch._C._distributed_c10d")) is None:  # the rank has not come so far
        return []
    entries: list[dict] = []
    for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):  # of gloo, of NCCL
        if (dump := getattr(c10d, name, None)) is not None:
            entries += json.loads(dump()).get("entries", [])
    return sorted(entries, key=lambda entry: entry["time_created_ns"])[-COLLECTIVES:]


def read(folder: Path) -> dict[int, Beat]:
    """The newest beat of each rank that has one, by rank."""
    beats = {}
    for path in folder.iterdir():
        if path.name.isdecimal() and (line := path.read_bytes()):
            beats[int(path.name)] = Beat.model_validate_json(line)
    return beats
