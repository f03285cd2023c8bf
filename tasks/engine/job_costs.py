"""What jobs take: CPU time, memory and requests, of one job and of all jobs of a phase; and how a phase grows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from gristmill.storage import files

Grows = Literal["documents", "documents^1.5", "constant"]
"""How CPU time, jobs and files of a phase grow: with the documents of the corpus, the time with these times their root,
or not at all, as what is made of a sample. The memory of a job stays the same where a phase has many jobs, and grows
with what a phase does in one."""

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


@dataclass(frozen=True)
class JobCost:
    """`cpu_seconds`: of the worker and of all that it started; `memory`: bytes that the worker held at the most beyond
    what it held before, None where the system does not tell; `reads`: files that were opened; `writes`: files that were
    written, the mark of the job among them."""

    cpu_seconds: float = 0.0
    memory: int | None = None
    reads: int = 0
    writes: int = 0


@dataclass
class PhaseCost:
    """All jobs of a phase: sums, and of `longest` (CPU seconds of a job) and `memory` the largest. `once`: the phase is
    one job, however large the corpus; `bytes`: of the files that it leaves."""

    grows: Grows
    once: bool = False
    jobs: int = 0
    cpu_seconds: float = 0.0
    longest: float = 0.0
    memory: int | None = None
    reads: int = 0
    writes: int = 0
    bytes: int = 0

    def add(self, cost: JobCost, left: int) -> None:
        """`left`: bytes of the files that the job leaves."""
        self.jobs += 1
        self.cpu_seconds = round(self.cpu_seconds + cost.cpu_seconds, 3)
        self.longest = max(self.longest, cost.cpu_seconds)
        if cost.memory is not None:
            self.memory = max(self.memory or 0, cost.memory)
        self.reads += cost.reads
        self.writes += cost.writes
        self.bytes += left

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Measuring:
    """`cost`: of the block of `measured`, once it has ended; what it wrote is not known here."""

    cost: JobCost = JobCost()


@contextmanager
def measured() -> Iterator[Measuring]:
    """Measures a block. Of jobs in threads of one process each counts what the others take meanwhile; where a process
    does one job at a time, as Dask's workers do, each counts its own."""
    found = Measuring()
    began, opened, held = cpu_seconds(), files.opened(), _begin_peak()
    yield found
    peak = None if held is None else _memory("VmHWM")
    found.cost = JobCost(
        # a guard's worker that is replaced meanwhile ends with what its parent never counts
        max(0.0, round(cpu_seconds() - began, 3)),
        None if peak is None or held is None else max(0, peak - held),
        files.opened() - opened,
    )


def cpu_seconds() -> float:
    """Of this process and of all that it started, those that have ended included, since each began."""
    here = psutil.Process()
    total = 0.0
    for process in (here, *here.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it ended just now, and its parent counts it
            continue
        total += times.user + times.system
        total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total


def _begin_peak() -> int | None:
    """Let Linux forget the largest size of this process, and return the present one, in bytes; None elsewhere."""
    try:
        _CLEAR.write_text("5")  # proc(5): resets the peak resident set size
        return _memory("VmRSS")
    except OSError:
        return None


def _memory(name: str) -> int | None:
    line = next((line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:")), None)
    return None if line is None else int(line.split()[1]) << 10
