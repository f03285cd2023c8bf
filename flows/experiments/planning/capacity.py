"""What a whole crawl would take, by what the jobs of a finished run took and by how each phase says that it grows.

The CPU time of a phase has three parts. What a process takes to start is taken once by each worker of the crawl. What
the cheapest job of the run took, which holds next to nothing, is taken by each job. The rest grows with the corpus.

The work of a phase with many jobs is divided among all cores. What a phase does in one job takes as long as that job,
and the memory that it needs: where that grows with the corpus it is what limits a crawl.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from gristmill.flows.experiments.planning.options import CrawlOptions
from gristmill.flows.reports.run import Report
from gristmill.flows.reports.tables import Table
from gristmill.tasks.engine.job_costs import REQUESTS_A_READ, PhaseCost
from gristmill.tasks.engine.make import StageResult

# Of the flow and the scheduler, for each job: tests/benchmarks/test_engine_jobs.py prints it.
SECONDS_A_JOB = 0.002
# Bytes that a worker holds before its first job.
WORKER = 300 << 20
# CPU seconds of a phase below which it is the noise of a processor and not what a phase does that was measured.
SHORTEST = 0.05


@dataclass(frozen=True)
class PhaseCapacity:
    """What one phase takes. `hours`: until its last job has ended; `alone`: whether it is one job, whatever the crawl;
    `memory`: bytes of a job with its worker, None where it was not measured; `workers`: that run at the same time;
    `starting`, `each`: core hours of its processes' starts, and of what each job takes whatever it holds; `growing`:
    seconds that the run took of the rest, by which the crawl's hours were reckoned."""

    stage: str
    phase: str
    jobs: int
    core_hours: float
    hours: float
    alone: bool
    memory: int | None
    workers: int
    requests: int
    starting: float
    each: float
    growing: float


@dataclass(frozen=True)
class StageCapacity:
    """What one stage takes. `documents_in`, `documents_out`: None where none are counted; `phases`: None for a stage of
    a version that did not measure them; `bytes`: of its files in the home."""

    stage: str
    documents_in: int | None
    documents_out: int | None
    phases: tuple[PhaseCapacity, ...] | None
    bytes: int

    @property
    def core_hours(self) -> float | None:
        return None if self.phases is None else sum(phase.core_hours for phase in self.phases)

    @property
    def hours(self) -> float | None:
        return None if self.phases is None else sum(phase.hours for phase in self.phases)


@dataclass(frozen=True)
class Capacity:
    """A row for each stage of the corpus and its tokens, for a crawl of `documents` pages; the run had `measured`. A
    training is not in it: its time follows from its recipe."""

    documents: int
    measured: int
    tokens: int | None
    stages: tuple[StageCapacity, ...]
    crawl: CrawlOptions

    @property
    def table(self) -> Table:
        """A row for each stage."""
        columns = ("stage", "#documents in", "#documents out", "#core hours|,.1f", "#hours|,.1f", "#GB|,.1f")
        rows = [
            (row.stage, row.documents_in, row.documents_out,
             *("not measured" if hours is None else hours for hours in (row.core_hours, row.hours)), row.bytes / 1e9)
            for row in self.stages
        ]  # fmt: skip
        return Table(columns, rows)

    @cached_property
    def phases(self) -> tuple[PhaseCapacity, ...]:
        return tuple(phase for stage in self.stages for phase in stage.phases or ())

    @cached_property
    def core_hours(self) -> float:
        return sum(phase.core_hours for phase in self.phases)

    @property
    def fixed(self) -> float:
        """Core hours of the starts of processes, and of what jobs take whatever they hold."""
        return sum(phase.starting + phase.each for phase in self.phases)

    @property
    def short(self) -> tuple[str, ...]:
        """The phases whose growing part was too short in the run to be told."""
        return tuple(f"{each.phase} of {each.stage}" for each in self.phases if each.growing < SHORTEST)

    @property
    def jobs(self) -> int:
        return sum(phase.jobs for phase in self.phases)

    @property
    def dispatching(self) -> float:
        """Hours of the flow and the scheduler, which send jobs and take their results."""
        return self.jobs * SECONDS_A_JOB / 3600

    @property
    def hours(self) -> float:
        """One stage after the other. The flow sends jobs while others run: the longer of both counts."""
        return max(sum(phase.hours for phase in self.phases), self.dispatching)

    @property
    def limit(self) -> PhaseCapacity | None:
        """The phase that takes longest."""
        return max(self.phases, key=lambda phase: phase.hours, default=None)

    @property
    def largest(self) -> PhaseCapacity | None:
        """The phase whose jobs need most memory."""
        return max((phase for phase in self.phases if phase.memory), key=lambda phase: phase.memory or 0, default=None)

    @cached_property
    def bytes(self) -> int:
        return sum(stage.bytes for stage in self.stages)

    @property
    def requests(self) -> int:
        return sum(phase.requests for phase in self.phases)

    @property
    def computing(self) -> float:
        """The price of the processors."""
        return self.core_hours * self.crawl.core_hour

    @property
    def storing(self) -> float:
        """The price of the home, a month."""
        return self.bytes / 1e12 * self.crawl.terabyte_month

    @property
    def requesting(self) -> float:
        """The price of the requests to the store."""
        return self.requests / 1e6 * self.crawl.million_requests

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """The stages whose time is not in the sums."""
        return tuple(stage.stage for stage in self.stages if stage.phases is None)


def capacity(
    report: Report,
    crawl: CrawlOptions,
) -> Capacity:
    """What a crawl of so many pages takes, by a finished run. Reads a small file for each stage.

    `crawl.shard_pages` decides how many jobs a phase has and how many files they open; what
    the jobs of the run held is what they hold there if its files were as large. Near-duplicates grow faster than in
    proportion if a larger crawl has a larger share of them. Raises ValueError for a
    run that read no documents.
    """
    measured = report.steps[0].documents_in if report.steps else 0
    if not measured:
        raise ValueError(f"the run of {report.recipe.name} read no documents; give a recipe whose run read some")
    factor = crawl.pages / measured
    stages = report.data.stages if report.data else report.corpus.stages
    tokens = None if report.tokens is None else round(report.tokens * factor)
    if report.group_losses is not None:
        stages = (*stages, report.group_losses)
    distinct_stages = [*_distinct(stages)]
    costs = [cost for stage in distinct_stages for cost in (stage.costs or {}).values() if cost.jobs]
    cheapest = min((cost.shortest for cost in costs), default=0.0)
    shards = max(1, -(-crawl.pages // crawl.shard_pages))
    whole = _Crawl(factor, len(report.corpus.sources), shards, crawl, cheapest)
    rows = tuple(_row(stage, whole) for stage in distinct_stages)
    return Capacity(crawl.pages, measured, tokens, rows, crawl)


def _distinct(stages: Iterable[StageResult]) -> Iterable[StageResult]:
    return {stage.folder: stage for stage in stages}.values()


@dataclass(frozen=True)
class _Crawl:
    """`factor`: how many times as large as the run; `had`, `shards`: files of the run, and of the crawl; `cheapest`:
    CPU seconds of the job of the run that took least."""

    factor: float
    had: int
    shards: int
    options: CrawlOptions
    cheapest: float = 0.0


def _row(stage: StageResult, crawl: _Crawl) -> StageCapacity:
    steps, costs, factor = stage.step_counts, stage.costs, crawl.factor
    written_bytes = sum(cost.bytes for cost in (costs or {}).values())
    growing = sum(cost.bytes for cost in (costs or {}).values() if cost.grows != "constant")
    grown = factor if not written_bytes else 1 + (factor - 1) * growing / written_bytes
    return StageCapacity(
        stage.name,
        round(steps[0]["rows_in"] * factor) if steps else None,
        round(steps[-1]["rows_out"] * factor) if steps else None,
        None if costs is None else tuple(_phase(stage.name, *each, crawl) for each in costs.items()),
        round(stage.manifest["parts"]["bytes"] * grown),
    )


def _phase(stage: str, phase: str, cost: PhaseCost, crawl: _Crawl) -> PhaseCapacity:
    constant = min(crawl.factor, cost.full)
    factor = {"documents": crawl.factor, "documents^1.5": crawl.factor**1.5, "constant": constant}[cost.grows]
    jobs = cost.jobs
    if cost.grows != "constant" and not cost.once:
        # partitions of a small run hold little: a crawl has never more of them than shards
        divided = min(round(cost.jobs * crawl.factor), max(cost.jobs, crawl.shards))
        jobs = crawl.shards if cost.jobs == crawl.had else divided
    held = min(factor, crawl.factor) if cost.once else 1.0
    memory = None if cost.memory is None else WORKER + round(cost.memory * held)
    fitting = crawl.options.cores
    if (room := crawl.options.memory_bytes) is not None and memory:
        fitting = min(fitting, room // memory)
    workers = max(1, min(jobs, fitting * crawl.options.machines))
    beside = max(0.0, cost.cpu_seconds - cost.starting)
    growing = max(0.0, beside - crawl.cheapest * cost.jobs)
    starting = workers * cost.starting / max(1, cost.processes)
    each = (beside - growing) / max(1, cost.jobs) * jobs
    seconds = starting + each + growing * factor
    hours = (seconds if cost.once else max(seconds / workers, cost.longest + starting / workers)) / 3600
    files = (cost.reads * REQUESTS_A_READ + cost.writes) / max(cost.jobs, 1)
    requests = round(files * (held if cost.once else jobs))
    parts = starting / 3600, each / 3600, growing
    return PhaseCapacity(stage, phase, jobs, seconds / 3600, hours, cost.once, memory, workers, requests, *parts)
