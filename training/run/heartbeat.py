"""Heartbeats of ranks, and the launcher's watch over them: it detects a rank that hangs, and reports what all ranks do.

    <folder>/<rank>           one line of JSON, a Beat, which the rank replaces in place
    <folder>/<rank>.stacks    the stacks of all threads, written when the rank gets SIGUSR1 (faulthandler)
    <folder>/<rank>.ask       a FIFO: when something is written to it, the rank writes
    <folder>/<rank>.flight    the newest collectives of torch's flight recorder

The folder is among the temporary files of the launcher. The variable HEARTBEATS has its path; without it nothing is
reported. A process has one heartbeat, as it has one log. A beat costs a few microseconds and does not wait for a disk.

A rank hangs if its heartbeat does not change for longer than its phase may take. Ranks wait for each other in every
step, so a rank that hangs stops the heartbeats of all ranks on all machines within a step. Each launcher detects that
by itself, and launchers do not need to communicate. A process that is stopped (SIGSTOP) is detected by its state.

Only seconds in which the launcher runs are counted. So a machine that was suspended, or a job that SLURM suspended as a
whole, is not reported as hanging when it continues. Imports no torch.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

import psutil
from pydantic import BaseModel

from gristmill.storage import files

HEARTBEATS = "TRAINING_HEARTBEATS"  # environment variable: the folder
# `start`: until the figures of the first steps are known, and steps that may compile; `end`: after the last step
Phase = Literal["start", "step", "evaluation", "checkpoint", "rollback", "end"]
RECORD_BYTES = 160  # of a line, padded, so that one write replaces another
COLLECTIVES = 50  # newest ones that are kept

LOOK_SECONDS = 1.0
MAX_LOOK_SECONDS = 5.0  # counted for a late check, so that seconds in which this process did not run do not count
SLOWER = 4  # a step may take this many times the longest step so far, if that is more than `hang_seconds`
ANSWER_SECONDS = 5.0  # for collectives, and then for stacks
GONE = ("", psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)  # a process that has ended


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
        """Prepare to report what this process does, even if its main thread never runs again."""
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
    """Report from now on, if the launcher requested it."""
    global _heart
    if folder := os.environ.get(HEARTBEATS):
        _heart = _Heart(Path(folder), os.environ.get("RANK", "0"))
        _heart.beat("start", None)
        _heart.answer()


def beat(phase: Phase, step: int | None = None) -> None:
    """Report that this rank makes progress in a phase. `step`: counted from 1; None: as before."""
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


@dataclass(frozen=True)
class Limits:
    """Seconds without a heartbeat after which a rank hangs. `hang`: in a step, and of a process that is stopped;
    `slow`: before the first steps are done, and in an evaluation, a checkpoint, a rollback and the end."""

    hang: int = 120
    slow: int = 3600


@dataclass
class _Watched:
    beat: Beat
    process: psutil.Process | None
    silent: float = 0.0  # seconds since the newest beat
    stopped: float = 0.0  # of these, those in a row in which the process was stopped
    longest: float = 0.0  # seconds between two beats of steps


@dataclass(frozen=True)
class RankState:
    """What a rank did when the hang was detected. `process`: its status, as in psutil; `collectives`: from torch's
    flight recorder; `place`: the innermost function of the main thread, empty if the rank did not answer."""

    rank: int
    beat: Beat
    silent: float
    process: str
    collectives: tuple[dict, ...] = ()
    place: str = ""

    @property
    def is_frozen(self) -> bool:
        return self.process == psutil.STATUS_STOPPED or not self.place

    @property
    def sequence(self) -> dict[str, int]:
        """The number of the newest collective, by process group."""
        return {str(entry["process_group"]): entry["collective_seq_id"] for entry in self.collectives}

    def __str__(self) -> str:
        where = f"step {self.beat.step}" if self.beat.phase == "step" else f"{self.beat.phase}, step {self.beat.step}"
        text = f"rank {self.rank} (process {self.beat.process}): {where}, no progress for {self.silent:.0f} s"
        if self.process == psutil.STATUS_STOPPED:
            return f"{text}, stopped by a signal"
        if not self.place:
            return f"{text}, {self.process}, does not answer"
        if not self.collectives:
            return f"{text}, in {self.place}"
        newest = self.collectives[-1]
        name = f"{newest['profiling_name']} {newest['collective_seq_id']} of {newest['process_group'][-1]}"
        return f"{text}, in {self.place}, last collective {name}"


@dataclass(frozen=True)
class Hang:
    """`ranks`: of this machine, which is one of `machines`; `report`: the folder with stacks and collectives;
    `agent_stopped`: whether the agent of the ranks is stopped, not a rank; `missing`: ranks that have not begun."""

    host: str
    ranks: tuple[RankState, ...]
    report: Path
    machines: int = 1
    agent_stopped: bool = False
    missing: int = 0

    def suspects(self) -> tuple[RankState, ...]:
        """The ranks that the others wait for, as far as this machine can see: those that are stopped or do not answer,
        or that have begun fewer collectives, or that are in none. Empty if all wait alike."""
        if frozen := tuple(rank for rank in self.ranks if rank.is_frozen):
            return frozen
        groups = set.intersection(*({*rank.sequence} for rank in self.ranks)) if self.ranks else set()
        first = {group: min(rank.sequence[group] for rank in self.ranks) for group in groups}
        last = {group: max(rank.sequence[group] for rank in self.ranks) for group in groups}
        late = [group for group in groups if first[group] < last[group]]
        if late:
            return tuple(rank for rank in self.ranks if any(rank.sequence[group] == first[group] for group in late))
        return self.ranks if len(self.ranks) == self.machines == 1 else ()

    def __str__(self) -> str:
        if self.agent_stopped:
            return f"training hangs on {self.host}: the agent of its ranks is stopped by a signal"
        if self.missing:
            return f"training hangs on {self.host}: {self.missing} of its ranks have not begun"
        suspects = self.suspects()
        if not suspects:
            where = ", perhaps for another machine" if self.machines > 1 else ""
            return f"training hangs on {self.host}: all its ranks wait{where}, such as {self.ranks[0]}"
        return f"training hangs on {self.host}: {'; '.join(map(str, suspects))}"


@dataclass
class Watch:
    """The watch over one attempt. `folder`: of the heartbeats; `processes`: the expected number of ranks; `report`: the
    folder that is created for a hang; `agent`: the process that started the ranks, or the only rank; `machines`: of the
    run."""

    folder: Path
    processes: int
    limits: Limits
    report: Path
    agent: int
    machines: int = 1
    clock: Callable[[], float] = time.monotonic
    ranks: dict[int, _Watched] = field(default_factory=dict)
    waited: float = 0.0
    agent_stopped: float = 0.0
    looked: float | None = None

    def __post_init__(self) -> None:
        self.agent_process = _process(self.agent)

    def look(self) -> Hang | None:
        """Return the current hang, or None. Call it often. The report of a hang has stacks and collectives of the
        ranks."""
        now = self.clock()
        if self.looked is not None and now - self.looked < LOOK_SECONDS:
            return None
        passed = 0.0 if self.looked is None else min(now - self.looked, MAX_LOOK_SECONDS)
        self.looked = now
        self._read(passed)
        missing = self.processes - len(self.ranks)
        own = {rank.beat.process for rank in self.ranks.values()}
        agent_hangs = self.agent_stopped > self.limits.hang and self.agent not in own
        late = bool(missing) and self.waited > self.limits.slow
        if agent_hangs or late or any(rank.silent > self._limit(rank) for rank in self.ranks.values()):
            return self._found(agent_hangs, missing if late else 0)
        return None

    def processes_of_ranks(self) -> list[psutil.Process]:
        """The processes of the ranks that exist."""
        return [rank.process for rank in self.ranks.values() if rank.process is not None]

    def _read(self, passed: float) -> None:
        self.waited += passed
        self.agent_stopped = (
            self.agent_stopped + passed if _status(self.agent_process) == psutil.STATUS_STOPPED else 0.0
        )
        for number, beat in read(self.folder).items():
            if number not in self.ranks:
                self.ranks[number] = _Watched(beat, _process(beat.process))
            rank = self.ranks[number]
            rank.silent += passed
            stopped = _status(rank.process) == psutil.STATUS_STOPPED
            rank.stopped = rank.stopped + passed if stopped else 0.0
            if beat.count != rank.beat.count:
                if beat.phase == rank.beat.phase == "step":
                    rank.longest = max(rank.longest, rank.silent)
                rank.beat, rank.silent = beat, 0.0

    def _limit(self, rank: _Watched) -> float:
        if rank.stopped > self.limits.hang:
            return self.limits.hang
        if rank.beat.phase != "step" or _status(rank.process) in GONE:
            return self.limits.slow
        return max(self.limits.hang, SLOWER * rank.longest)

    def _found(self, agent_stopped: bool, missing: int) -> Hang:
        states = {number: _status(rank.process) for number, rank in self.ranks.items()}
        answering = [number for number, state in states.items() if state not in (*GONE, psutil.STATUS_STOPPED)]
        # Before there is an `.ask`, a signal would end the rank.
        answering = [number for number in answering if self._path(number, ".ask").exists()]
        for number in answering:
            self._ask_collectives(number)
        self._wait(answering, ".flight")
        # Only then the stacks: faulthandler can crash a process whose other threads run meanwhile, as the one that
        # answers with the collectives did in 5 of 65 trials.
        for number in answering:
            with suppress(ProcessLookupError):
                os.kill(self.ranks[number].beat.process, signal.SIGUSR1)
        self._wait(answering, ".stacks")
        ranks = tuple(
            RankState(
                number,
                rank.beat,
                rank.silent,
                states[number] or "gone",
                tuple(json.loads(self._text(number, ".flight") or "[]")),
                _place(self._text(number, ".stacks")),
            )
            for number, rank in sorted(self.ranks.items())
        )
        hang = Hang(socket.gethostname(), ranks, self.report, self.machines, agent_stopped, missing)
        self.report.mkdir(parents=True)
        for number in self.ranks:
            for suffix, name in ((".stacks", "stacks.txt"), (".flight", "collectives.json")):
                if text := self._text(number, suffix):
                    files.write_bytes(str(self.report / f"rank-{number}-{name}"), text.encode())
        lines = [str(hang), *map(str, ranks)]
        files.write_bytes(str(self.report / "ranks.txt"), "".join(line + "\n" for line in lines).encode())
        return hang

    def _path(self, number: int, suffix: str) -> Path:
        return self.folder / f"{number}{suffix}"

    def _text(self, number: int, suffix: str) -> str:
        path = self._path(number, suffix)
        return path.read_text(errors="replace") if path.exists() else ""

    def _ask_collectives(self, number: int) -> None:
        self._path(number, ".flight").unlink(missing_ok=True)
        with suppress(OSError):  # nobody reads: it has ended
            os.close(os.open(self._path(number, ".ask"), os.O_WRONLY | os.O_NONBLOCK))

    def _wait(self, numbers: list[int], suffix: str) -> None:
        """Wait until ranks have answered with a file, for at most ANSWER_SECONDS."""
        end = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < end and not all(self._text(number, suffix) for number in numbers):
            time.sleep(0.05)


def _process(number: int) -> psutil.Process | None:
    try:
        return psutil.Process(number)
    except psutil.NoSuchProcess:
        return None


def _status(process: psutil.Process | None) -> str:
    """The status of a process from psutil; empty for a process that is gone."""
    try:
        return process.status() if process else ""
    except psutil.NoSuchProcess:
        return ""


def _place(stacks: str) -> str:
    """The innermost function of the main thread, which faulthandler writes last, with its module or file."""
    main = stacks.rpartition("hread 0x")[2]  # "Thread" or "Current thread"
    innermost = next((line.strip() for line in main.splitlines() if line.strip().startswith("File ")), "")
    if not innermost:
        return ""
    path, _, rest = innermost.removeprefix('File "').partition('", line ')
    line, _, function = rest.partition(" in ")
    if "site-packages/" in path:
        return path.rpartition("site-packages/")[2].removesuffix(".py").replace("/", ".") + f".{function}"
    return f"{function} ({path}:{line})"
