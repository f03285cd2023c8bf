"""The launcher's watch over the ranks of its machine: finds one that hangs, and writes down what all of them do.

A rank hangs when its heartbeat (`gristmill.training.run.heartbeat`) does not move for longer than its phase may take.
Ranks wait for each other in every step, so one that hangs stops the heartbeats of all, on all machines, within a step:
each launcher finds that by itself, and the launchers need not talk about it. That a process is stopped (SIGSTOP) is
seen in its state, which the system has.

Seconds are counted while the launcher itself runs: a machine that was suspended, or a job that SLURM has suspended as a
whole, is not found to hang when it goes on. Imports no torch.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from gristmill.storage import files
from gristmill.training.run import heartbeat
from gristmill.training.run.heartbeat import Beat

LOOK_SECONDS = 1.0
# Of a look that comes late, so that seconds in which this process did not run do not count.
MAX_LOOK_SECONDS = 5.0
SLOWER = 4  # times the longest step so far: what a step may take if that is more than `hang_seconds`
ANSWER_SECONDS = 5.0  # for collectives, and then for stacks
GONE = ("", psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)  # a process that has ended


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
    """What a rank was at when it was found. `process`: as psutil has the status; `collectives`: of torch's flight
    recorder; `place`: the innermost function of the main thread, empty if it did not answer."""

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
    """`ranks`: all of this machine, which is one of `machines`; `report`: the folder with stacks and collectives;
    `agent_stopped`: that their agent was found, not they; `missing`: ranks that have not begun."""

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
    """Of one attempt. `folder`: of the heartbeats; `processes`: how many there are to be; `report`: the folder that is
    made for a hang; `agent`: the process that started the ranks, or the only rank; `machines`: of the run."""

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
        """Called often; a hang, if there is one now. Then stacks and collectives of the ranks are in its report."""
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
        """Those that are there."""
        return [rank.process for rank in self.ranks.values() if rank.process is not None]

    def _read(self, passed: float) -> None:
        self.waited += passed
        self.agent_stopped = (
            self.agent_stopped + passed if _status(self.agent_process) == psutil.STATUS_STOPPED else 0.0
        )
        for number, beat in heartbeat.read(self.folder).items():
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
        asked = [number for number, state in states.items() if state not in (*GONE, psutil.STATUS_STOPPED)]
        # Before there is an `.ask`, a signal would end the rank.
        asked = [number for number in asked if self._path(number, ".ask").exists()]
        for number in asked:
            self._ask_collectives(number)
        self._wait(asked, ".flight")
        # Only then the stacks: faulthandler can crash a process whose other threads run meanwhile, as the one that
        # answers with the collectives did in 5 of 65 trials.
        for number in asked:
            with suppress(ProcessLookupError):
                os.kill(self.ranks[number].beat.process, signal.SIGUSR1)
        self._wait(asked, ".stacks")
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
    """As psutil has it; empty for a process that is gone."""
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
