"""Estimate the cost of one phase in a full crawl from the costs of its jobs in a run.

The CPU time of a job is a sum of nonnegative parts: one for each process, one for each job, and parts in proportion to
its documents and to the bytes that it reads. Many such laws can fit the jobs of the run, so the estimate is the range
of their predictions for the crawl (`stats.nonnegative`). If the jobs do not separate the parts that grow from the parts
that do not, the range is wide.

Some phases have bounds without a law: phases of less than a second, phases whose jobs all read data that grows with the
corpus, and phases on a sample that the run did not fill. The lower bound assumes no growth, the upper bound full
growth.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from gristmill.flows.experiments.options import CrawlOptions
from gristmill.flows.stats.nonnegative import predict
from gristmill.tasks.engine.job_costs import REQUESTS_A_READ, PhaseCost
from gristmill.tasks.engine.shared import JOB_COST, TASK_COST, task_size

# Memory of a worker before its first job, in bytes.
WORKER = 300 << 20
# No law is fitted to phases with fewer CPU seconds, not counting the starts of processes.
SHORTEST = 1.0
# A sum is reported if its upper bound is at most MAX_RATIO times its lower bound.
MAX_RATIO = 3.0
# Variation of the CPU time of the same jobs between runs, since other processes use caches and cores.
RUN_TO_RUN = 0.15
# The same for phases that are shorter than SHORTEST.
SHORT_RUN_TO_RUN = 0.6
# With fewer jobs, no process has both a second job and one of another size.
MIN_JOBS = 3
# Jobs have the same size if the largest is less than SAME_SIZE_RATIO times the smallest.
SAME_SIZE_RATIO = 1.5


@dataclass(frozen=True)
class Range:
    """A range from `low` to `high`."""

    low: float
    high: float

    def __add__(self, other: "Range") -> "Range":
        return Range(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> "Range":
        return Range(self.low * factor, self.high * factor)

    @property
    def is_known(self) -> bool:
        """Whether the range is narrow enough to be reported."""
        return self.high <= MAX_RATIO * self.low

    def text(self, digits: int = 0) -> str:
        """Format as `2,400 to 3,600`; below 10 with two significant digits."""
        low, high = (f"{value:,.{digits}f}" if value >= 10 else f"{value:.2g}" for value in (self.low, self.high))
        return low if low == high else f"{low} to {high}"


def sum_ranges(ranges: Iterable[Range]) -> Range:
    return reduce(add, ranges, Range(0.0, 0.0))


@dataclass(frozen=True)
class Basis:
    """The data on which the range of a phase is based. `jobs`: jobs of the run, of which `processes` were the first of
    their process; `documents`, `read_bytes`: of the smallest and the largest job, None if not counted; `seconds`: of
    all jobs, without the starts of processes; `gap`: why they do not give a law, or ""."""

    jobs: int
    processes: int
    documents: tuple[int, int] | None
    read_bytes: tuple[int, int] | None
    seconds: float
    gap: str = ""

    @property
    def text(self) -> str:
        sizes = ""
        if self.documents is not None:
            sizes = f" of {_span_text(*self.documents)} documents"
        elif self.read_bytes is not None:
            sizes = f" of {_span_text(*(max(1, size >> 10) for size in self.read_bytes))} KiB"
        return f"{self.jobs:,} job{'s' * (self.jobs != 1)}{sizes}, {self.seconds:,.1f} s"


def _span_text(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


@dataclass(frozen=True)
class PhaseCapacity:
    """The cost of one phase. `hours`: until its last job has ended; `scheduling`: hours that the flow and the scheduler
    are busy during it; `alone`: whether it is always a single job; `memory`: bytes of a job with its worker, None if
    unknown; `workers`: workers that run at the same time."""

    stage: str
    phase: str
    jobs: int
    core_hours: Range
    hours: Range
    scheduling: Range
    alone: bool
    memory: int | None
    workers: int
    requests: int
    basis: Basis

    @property
    def label(self) -> str:
        return f"{self.phase} of {self.stage}"


@dataclass(frozen=True)
class Crawl:
    """`factor`: size of the crawl relative to the run; `run_shards`, `shards`: files of the run, and of the crawl."""

    factor: float
    run_shards: int
    shards: int
    options: CrawlOptions


# Reasons why jobs do not give a law.
SHORT = f"less than {SHORTEST:.0f} s in the run"
FEW = "too few jobs"
FIRST = "most jobs were the first of their process"
ALONE = "one job, which does not show what part of it grows"
SAME = "jobs of one size, different from the size of the crawl's jobs"
VARIED = "jobs of the same size differ too much"
SHARED = "all jobs read data that grows with the corpus"
UNFILLED = "the run did not fill its sample"


def phase_capacity(stage: str, phase: str, cost: PhaseCost, crawl: Crawl) -> PhaseCapacity:
    jobs = cost.jobs
    if cost.grows != "constant" and not cost.once:
        # partitions of a small run are small, so a crawl never has more of them than shards
        divided = min(round(cost.jobs * crawl.factor), max(cost.jobs, crawl.shards))
        jobs = max(1, crawl.shards if cost.jobs == crawl.run_shards else divided)
    memory = _memory(cost, crawl, jobs)
    fitting = crawl.options.cores
    if (room := crawl.options.memory_bytes) is not None and memory:
        fitting = min(fitting, room // memory)
    workers = max(1, min(jobs, fitting * crawl.options.machines))
    work, gap = _without_starts(cost, crawl, jobs, workers)
    starting = workers * cost.start_seconds / max(1, cost.processes)
    seconds = Range(work.low + starting, work.high + starting)
    hours, scheduling = seconds, Range(0.0, 0.0)
    if not cost.once:
        longest = cost.longest + starting / workers
        scheduling = Range(*(scheduling_seconds(jobs, each / jobs, workers) for each in (seconds.low, seconds.high)))
        hours = Range(
            max(seconds.low / workers, longest, scheduling.low), max(seconds.high / workers, longest, scheduling.high)
        )
    files = (cost.reads * REQUESTS_A_READ + cost.writes) / cost.jobs
    requests = round(files * (min(_growth(cost, crawl), crawl.factor) if cost.once else jobs))
    core_hours, hours, scheduling = (each.times(1 / 3600) for each in (seconds, hours, scheduling))
    basis = _basis(cost, "" if core_hours.is_known else gap)
    return PhaseCapacity(stage, phase, jobs, core_hours, hours, scheduling, cost.once, memory, workers, requests, basis)


def scheduling_seconds(jobs: int, job_seconds: float, workers: int) -> float:
    """CPU seconds of the flow and the scheduler for the jobs of a phase with `workers` workers."""
    return jobs * JOB_COST + jobs / task_size(workers, job_seconds, jobs).jobs * TASK_COST


def _growth(cost: PhaseCost, crawl: Crawl) -> float:
    """Upper bound of the cost of the growing part of a phase in the crawl, relative to the run."""
    filling = min(crawl.factor, cost.full)
    return {"documents": crawl.factor, "documents^1.5": crawl.factor**1.5, "constant": filling}[cost.grows]


def _seconds(cost: PhaseCost) -> float:
    """CPU seconds of all jobs in the run, without the measured starts of processes."""
    return max(0.0, cost.cpu_seconds - cost.start_seconds)


def _without_starts(cost: PhaseCost, crawl: Crawl, jobs: int, workers: int) -> tuple[Range, str]:
    """CPU seconds of a phase in the crawl without the starts of processes, and the reason if the range is wide."""
    measured, growth = _seconds(cost), _growth(cost, crawl)
    shared = max(1.0, min(crawl.factor, cost.shared))
    if cost.grows == "constant":  # the time of a sample grows more slowly than the sample
        cost_range, gap = Range(measured, measured * growth), UNFILLED
    elif cost.once:
        # an empty job takes at most the time that is too short to measure
        low = max(measured - SHORTEST, 0.0) * growth + min(measured, SHORTEST)
        cost_range, gap = Range(min(low, measured * growth), measured * growth), ALONE
    else:
        cost_range, gap = _fit(cost, growth, jobs, workers)
        if shared > 1:
            gap = SHARED
        cost_range = Range(cost_range.low, cost_range.high * shared)
    spread = 1 + RUN_TO_RUN
    if measured < SHORTEST:
        # as much as in the run, or in proportion
        cost_range, gap = Range(measured * min(1.0, growth), measured * max(1.0, growth) * shared), SHORT
        spread = 1 + SHORT_RUN_TO_RUN
    return Range(cost_range.low / spread, cost_range.high * spread), gap


def _fit(cost: PhaseCost, growth: float, jobs: int, workers: int) -> tuple[Range, str]:
    """The range of the laws that fit the jobs of a phase, and the reason if it is wide."""
    first = np.array([size.first for size in cost.sizes], float)
    columns, target = [np.ones(len(first))], [float(jobs)]
    if first.any():
        columns.append(first)
        target.append(float(workers))
    sizes = [np.array(column, float) for column in (_documents(cost), _read_bytes(cost)) if column]
    totals = [
        total for total, column in ((cost.documents, _documents(cost)), (cost.read_bytes, _read_bytes(cost))) if column
    ]
    if not sizes:  # no job has a recorded size, so assume equal sizes
        sizes, totals = [np.ones(len(first))], [cost.jobs]
    columns += sizes
    target += [growth * total for total in totals]
    costs = np.array([size.seconds for size in cost.sizes])
    law = predict(np.column_stack(columns), costs, np.array(target), jobs)
    cost_range = Range(law.low, law.high)
    if cost.jobs < MIN_JOBS:
        return cost_range, FEW
    if 2 * cost.processes > cost.jobs and cost.processes > 1:
        return cost_range, FIRST
    return cost_range, SAME if all(size.max() < SAME_SIZE_RATIO * max(size.min(), 1.0) for size in sizes) else VARIED


def _documents(cost: PhaseCost) -> list[int]:
    """Documents of each job with a recorded size; empty if not counted."""
    counts = [size.documents for size in cost.sizes if size.documents is not None]
    return counts if len(counts) == len(cost.sizes) and any(counts) else []


def _read_bytes(cost: PhaseCost) -> list[int]:
    """Bytes read by each job with a recorded size; empty if they read nothing."""
    counts = [size.read_bytes or 0 for size in cost.sizes]
    return counts if any(counts) else []


def _memory(cost: PhaseCost, crawl: Crawl, jobs: int) -> int | None:
    """Bytes of a job of the crawl with its worker; None if the jobs of the run were too small to show it."""
    if cost.memory is None:
        return None
    growth = min(_growth(cost, crawl), crawl.factor)
    if cost.once:
        too_short = growth > 1 and _seconds(cost) < SHORTEST
        return None if too_short else WORKER + round(cost.memory * max(1.0, growth))
    documents = _documents(cost)
    if cost.grows != "constant" and documents and growth * cost.documents / jobs > SAME_SIZE_RATIO * max(documents):
        return None
    return WORKER + cost.memory


def _basis(cost: PhaseCost, gap: str) -> Basis:
    documents, read_bytes = map(_span, (_documents(cost), _read_bytes(cost)))
    return Basis(cost.jobs, cost.processes, documents, read_bytes, _seconds(cost), gap)


def _span(counts: list[int]) -> tuple[int, int] | None:
    return (min(counts), max(counts)) if counts else None
