"""The near-duplicate step on planted corpora, through the project's own stages and executor but without Prefect."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shutil import move
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import psutil

from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.dedup.near_duplicates import minhash
from gristmill.storage import layout, ledger, parquet
from gristmill.storage.schema import LEDGER
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.executors import Executor
from gristmill.tasks.engine.jobs import JobResult
from gristmill.tasks.engine.make import StageResult, find_or_make
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from tests.benchmarks.near_corpus import Planted
from tests.corpora import take_up

_SECONDS = 0.5
SHARD = 50_000


@dataclass
class Clock:
    """Takes the place of the progress that a flow shows: seconds of each phase."""

    seconds: dict[str, float] = field(default_factory=dict)
    _phase: str = ""
    _since: float = 0.0

    def phase(self, phase: str, total: int, size: object = None, total_size: int = 0) -> None:
        self.stop()
        self._phase, self._since = phase, time.perf_counter()

    def stop(self) -> None:
        if self._phase:
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + time.perf_counter() - self._since
        self._phase = ""

    def start(self) -> None: ...

    def advance(self, result: JobResult, number: int) -> None: ...

    def drain(self) -> None: ...

    def message(self, line: str) -> None: ...


@dataclass(frozen=True)
class Run:
    """What a run of the step made, and took: seconds by phase and outside of stages, bytes on disk by stage."""

    made: tuple[StageResult, ...]
    seconds: dict[str, float]
    stages: dict[str, int]

    @property
    def kept(self) -> StageResult:
        return self.made[-1]

    def set_aside(self, folder: str) -> None:
        """Move all stages that it made to a new folder. Were they removed, the disk would be told of it while what
        comes next is timed."""
        os.makedirs(folder)
        for built in self.made:
            move(built.folder, folder)

    @property
    def wall(self) -> float:
        return sum(self.seconds.values())

    def dropped(self) -> list[dict]:
        """The ledger's rows."""
        folder, shards_there = self.kept.folder, range(len(self.kept.records("split")))
        return [row for i in shards_there for row in parquet.read_table(layout.ledger_part(folder, i)).to_pylist()]


def write_corpus(
    home: str,
    planted: Planted,
    pool: Executor,
    sources: dict[str, tuple[int, int]] | None = None,
    shard: int = SHARD,
) -> Corpus:
    """Planted documents as a finished stage, in shards of `shard`; `sources`: from and up to which number each has."""
    sources = sources or {"planted": (0, planted.documents)}
    parts = [
        (name, low, min(low + shard, last))
        for name, (first, last) in sources.items()
        for low in range(first, last, shard)
    ]
    record = Description(corpus=repr(asdict(planted) | {"sources": sources, "shard": shard}))
    spec = StageSpec(name="documents", version=1, body=_written, record=record, inputs={}, places=len(parts))
    folder = spec.folder(home)
    jobs = [(replace(planted), folder, i, low, high) for i, (_, low, high) in enumerate(parts)]
    list(pool.map(_write, jobs))
    built = _build(home, pool, spec, {})
    return Corpus(tuple(name for name, _, _ in parts), built, built, (), (built,))


class Description(Settings):
    corpus: str


def _written(phases: PhaseRunner, record: Description, places: int) -> dict:
    """Take up the parts, which are there."""
    phases.map("plant", take_up, dict.fromkeys(range(places), {}))
    return {}


def _write(job: tuple[Planted, str, int, int, int]) -> int:
    planted, folder, shard, first, last = job
    ledger.write_ledger(folder, shard, LEDGER.empty_table())
    return planted.write(layout.part(folder, shard), first, last)


def near_duplicates(home: str, corpus: Corpus, step: MinHash, pool: Executor) -> Run:
    """The whole step."""
    recipe = SimpleNamespace(sources=[SimpleNamespace(name=name) for name in dict.fromkeys(corpus.sources)])
    seconds: dict[str, float] = {}
    context = RunContext(MachineSettings(home=home), lambda spec: _build(home, pool, spec, seconds))
    started = time.perf_counter()
    left = minhash(context, recipe, corpus, step)
    seconds["outside of stages"] = time.perf_counter() - started - sum(seconds.values())
    made = left.stages[len(corpus.stages) :]
    return Run(made, seconds, {built.name: _size(built.folder) for built in made})


def warm(step: MinHash, pool: Executor) -> None:
    """The step on a few documents, on a template, and beside an earlier crawl, so that what is compiled, imported and
    loaded once is not timed."""
    with TemporaryDirectory() as home:
        few = Planted(9_000, template=2_000, mean=50)
        crawls = {"earlier": (0, 8_000)}, {"new": (8_000, 9_000)}
        earlier, new = (write_corpus(home, few, pool, crawl, shard=500) for crawl in crawls)
        before = near_duplicates(home, earlier, step, pool)
        near_duplicates(home, new, step.model_copy(update={"earlier": (before.kept.folder,)}), pool)


def forget(folder: str) -> None:
    """Have all files of a folder on disk, and none in memory: what a run reads, and what was written before it, then
    costs every run the same."""
    os.sync()
    for path in Path(folder).rglob("*"):
        if path.is_file():
            with path.open("rb") as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _build(home: str, pool: Executor, spec: StageSpec, seconds: dict[str, float]) -> StageResult:
    clock = Clock()

    @contextmanager
    def progress() -> Iterator[Clock]:
        yield clock
        clock.stop()

    started = time.perf_counter()
    stage = find_or_make(home, spec, pool, progress)
    wall = time.perf_counter() - started
    seconds |= {f"{spec.name}.{phase}": s for phase, s in clock.seconds.items()}
    seconds[f"{spec.name}.rest"] = wall - sum(clock.seconds.values())
    return stage


def _size(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


class Watch:
    """What this process and all its children needed while it was open, looked at twice a second.

    `memory`: the most bytes that each had at once, with the pages of mapped files, as Linux counts them (VmHWM);
    `cpu`: seconds of all of them. What a child did in the half second before it ended is not seen.
    """

    def __init__(self) -> None:
        self.memory: dict[str, int] = {}
        self._used: dict[int, float] = {}
        self._before: dict[int, float] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def cpu(self) -> float:
        return sum(used - self._before.get(pid, 0.0) for pid, used in self._used.items())

    def __enter__(self) -> "Watch":
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak of what this process did before
        self._look()
        self._before = dict(self._used)
        self._thread.start()
        return self

    def __exit__(self, *exc) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._done.wait(_SECONDS):
            self._look()

    def _look(self) -> None:
        me = psutil.Process()
        for process in [me, *me.children(recursive=True)]:
            name = "flow" if process.pid == me.pid else f"child {process.pid}"
            with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                times = process.cpu_times()
                self._used[process.pid] = times.user + times.system
                self.memory[name] = max(self.memory.get(name, 0), _high_water(process.pid))


def _high_water(pid: int) -> int:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines.get("VmHWM", "0 kB").split()[0]) * 1024
