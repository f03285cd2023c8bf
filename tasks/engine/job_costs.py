"""Costs of jobs: CPU time, memory and requests, of one job and of all jobs of a phase, and how a phase grows."""

import os
import resource
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import psutil
import wrapt

from gristmill.storage.remote import traffic

if TYPE_CHECKING:
    from numba.core import event as numba_events
else:
    numba_events = wrapt.lazy_import("numba.core.event")


_lock = threading.Lock()
_thread = threading.local()  # `depth`: of an import or a kernel within another, which counts once
_counted = 0.0


def seconds() -> float:
    """CPU seconds for starting this process that were counted so far."""
    return _counted


def count_child(process: int) -> None:
    """Count the CPU time of a child process until now, when it is ready."""
    times = psutil.Process(process).cpu_times()
    _count(times.user + times.system)


def _count(seconds: float) -> None:
    global _counted
    with _lock:
        _counted += seconds


def watch() -> None:
    """Count imports and loads of kernels from now on. Later calls do nothing. Modules of packages that are already
    imported count, too."""
    with _lock:
        if any(isinstance(finder, _Imports) for finder in sys.meta_path):
            return
        sys.meta_path.insert(0, _Imports())
    if "numba" in sys.modules:
        _watch_kernels()


def _begin() -> None:
    _thread.depth = getattr(_thread, "depth", 0) + 1
    if _thread.depth == 1:
        _thread.began = time.thread_time()


def _end() -> None:
    _thread.depth -= 1
    if _thread.depth == 0:
        _count(time.thread_time() - _thread.began)


class _Imports(MetaPathFinder):
    """A finder that returns what the other finders return, with a loader whose time is counted."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        _begin()
        try:
            spec = next(filter(None, (each.find_spec(name, path, target) for each in self._others())), None)
        finally:
            _end()
        loader = None if spec is None else spec.loader
        # a loader that is a class, as for builtin modules, takes no time; others may load many modules
        load = getattr(loader, "exec_module", None)
        if load is not None and not isinstance(loader, type) and not isinstance(load, _Counted):
            with suppress(AttributeError):  # a loader that accepts no attributes is not counted
                loader.exec_module = _Counted(load)  # type: ignore[union-attr]
        return spec

    def _others(self) -> list[Any]:
        return [each for each in sys.meta_path if each is not self and hasattr(each, "find_spec")]


class _Counted:
    """Loads a module and counts the time."""

    def __init__(self, load: Any) -> None:
        self.load = load

    def __call__(self, module: ModuleType) -> None:
        _begin()
        try:
            self.load(module)
        finally:
            _end()
        if module.__name__ == "numba":
            _watch_kernels()


def _watch_kernels() -> None:
    """Count the time that numba holds its compiler lock, in which it compiles kernels and loads cached ones."""

    class Kernels(numba_events.Listener):
        def on_start(self, event: Any) -> None:
            _begin()

        def on_end(self, event: Any) -> None:
            _end()

    numba_events.register("numba:compiler_lock", Kernels())


# Opening a file takes two requests, one for its end and one for its contents; writing one takes one.
REQUESTS_A_READ = 2


Grows = Literal["documents", "documents^1.5", "constant"]
"""How CPU time, jobs and files of a phase grow: with the documents of the corpus; CPU time also with documents times
their square root; or not at all, for the result of a full sample. The memory of a job is constant in phases with many
jobs, and grows with the work in phases with one job."""

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


@dataclass(frozen=True)
class JobCost:
    """The cost of a job.

    cpu_seconds: of the worker and its children. start_seconds: the part that each process takes once, whatever its jobs
    contain (see `process_start`). first: whether it is the first job of the phase in its process. memory: bytes, the
    peak of the worker above its size before the job; None if the system does not report it. reads: opened files.
    writes: written files, including the mark of the job. read_bytes: None in records of releases that did not count
    them.
    """

    cpu_seconds: float = 0.0
    start_seconds: float = 0.0
    first: bool = False
    memory: int | None = None
    reads: int = 0
    writes: int = 0
    read_bytes: int | None = None


class JobSize(NamedTuple):
    """Size and time of a job. documents: rows of its shard, None if its record counts none. read_bytes: as in JobCost.
    seconds: CPU seconds without the start of its process. first: whether it is the first job of its process."""

    documents: int | None
    read_bytes: int | None
    seconds: float
    first: bool


# How many job sizes of a phase are kept: at least so many, and at most twice as many.
SAMPLE = 128


@dataclass
class PhaseCost:
    """All jobs of a phase: sums, of `longest` and `memory` the largest, of `shortest` the smallest. `once`: the phase
    is one job, however large the corpus; `full`: where a phase is `constant`, how many times as large a corpus fills
    the sample that it works on: so far it grows at most with the documents; `shared`: how many times as large a corpus
    fills what every job of the phase reads beside its own part, 1 where that does not grow; `processes`: that jobs ran
    in; `start_seconds`: what was counted of their starts; `first_seconds`: what the first job of each took beside that;
    `longest`, `shortest`: CPU seconds of a job beside what was counted of its process's start; `bytes`: of the files
    that the phase leaves; `documents`, `read_bytes`: of the jobs that count them; `sizes`: each `stride`-th job, in the
    order in which they ended."""

    grows: Grows
    once: bool = False
    full: float = 1.0
    jobs: int = 0
    cpu_seconds: float = 0.0
    processes: int = 0
    start_seconds: float = 0.0
    first_seconds: float = 0.0
    longest: float = 0.0
    shortest: float = 0.0
    memory: int | None = None
    reads: int = 0
    writes: int = 0
    bytes: int = 0
    shared: float = 1.0
    documents: int = 0
    read_bytes: int = 0
    stride: int = 1
    sizes: list[JobSize] = field(default_factory=list)

    def add(self, cost: JobCost, output_bytes: int, documents: int | None = None) -> None:
        """`output_bytes`: bytes of the files that the job leaves; `documents`: rows of its shard, where it has one."""
        seconds = max(0.0, round(cost.cpu_seconds - cost.start_seconds, 6))
        if self.jobs % self.stride == 0:
            self.sizes.append(JobSize(documents, cost.read_bytes, seconds, cost.first))
            if len(self.sizes) > 2 * SAMPLE:
                self.sizes, self.stride = self.sizes[::2], 2 * self.stride
        self.documents += documents or 0
        self.read_bytes += cost.read_bytes or 0
        self.longest = max(self.longest, seconds)
        self.shortest = min(self.shortest, seconds) if self.jobs else seconds
        self.jobs += 1
        self.cpu_seconds = round(self.cpu_seconds + cost.cpu_seconds, 6)
        self.start_seconds = round(self.start_seconds + cost.start_seconds, 6)
        if cost.first:
            self.processes += 1
            self.first_seconds = round(self.first_seconds + seconds, 6)
        if cost.memory is not None:
            self.memory = max(self.memory or 0, cost.memory)
        self.reads += cost.reads
        self.writes += cost.writes
        self.bytes += output_bytes

    @property
    def is_sized(self) -> bool:
        """Whether the sizes of its jobs are known."""
        return bool(self.sizes) and all(size.read_bytes is not None for size in self.sizes)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"sizes": [list(size) for size in self.sizes]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "PhaseCost":
        return cls(**{**values, "sizes": [JobSize(*size) for size in values["sizes"]]})


@dataclass
class Measuring:
    """`cost`: of the block of `measured`, once it has ended; what it wrote is not known here."""

    cost: JobCost = JobCost()


@contextmanager
def measured() -> Iterator[Measuring]:
    """Measure a block. Jobs in several threads of a process also count what the other threads take meanwhile. If a
    process does one job at a time, as Dask's workers do, a job counts only its own time."""
    measuring = Measuring()
    watch()
    started, bytes_before = seconds(), _begin_peak()
    opened_before, read_before = traffic.opened(), traffic.read_bytes()
    began = cpu_seconds()
    yield measuring
    # a guard's worker that is replaced meanwhile ends with CPU time that its parent never counts
    cpu = max(0.0, round(cpu_seconds() - began, 6))
    peak = None if bytes_before is None else _memory("VmHWM")
    measuring.cost = JobCost(
        cpu,
        # of what a child of a process counts in hundredths a part may be missing
        min(cpu, round(seconds() - started, 6)),
        memory=None if peak is None or bytes_before is None else max(0, peak - bytes_before),
        reads=traffic.opened() - opened_before,
        read_bytes=traffic.read_bytes() - read_before,
    )


def cpu_seconds() -> float:
    """CPU seconds of this process and of all of its children, including children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = time.process_time() + children.ru_utime + children.ru_stime
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # there are none, which is known at once; to look for them takes a millisecond
        return total
    return total + sum(map(_cpu_seconds, psutil.Process().children(recursive=True)))


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        return sum(process.cpu_times()[:4])  # its own and those of its children that have ended, by user and system
    except psutil.Error:  # it ended just now, and its parent counts it
        return 0.0


def _begin_peak() -> int | None:
    """Reset the peak size of this process, and return its current size in bytes. None on other systems than Linux."""
    try:
        _CLEAR.write_text("5")  # proc(5): resets the peak resident set size
        return _memory("VmRSS")
    except OSError:
        return None


def _memory(name: str) -> int | None:
    line = next((line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:")), None)
    return None if line is None else int(line.split()[1]) << 10
