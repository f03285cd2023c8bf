"""What one phase would take in a whole crawl, by what its jobs took in a run.

The CPU time of a job has a part that its process takes once, a part that each job takes whatever it holds, and parts in
proportion to its documents and to the bytes that it reads. None is negative. A phase takes in the crawl what some such
law says that fits the jobs of the run, so what is reported is the range of all of them (`stats.nonnegative`). Where the
jobs cannot tell what grows from what does not, the range is wide.

Bounds without a law: a phase of less than a second, one whose jobs all read something that grows with the corpus, and
one on a sample that the run did not fill take at least what does not grow, and at most what grows with all of it.
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

# Bytes that a worker holds before its first job.
WORKER = 300 << 20
# CPU seconds of a phase beside the starts of its processes, below which no law is fitted.
SHORTEST = 1.0
# A sum is reported if its upper bound is at most so many times its lower one.
MAX_RATIO = 3.0
# By which share of the CPU time the same jobs differ from one run to another, as other processes use caches and cores.
RUN_TO_RUN = 0.15
# The same of phases that are shorter than SHORTEST.
SHORT_RUN_TO_RUN = 0.6
# Jobs of which one process has a second one and another that differs.
MIN_JOBS = 3
# Jobs whose largest is less than so many times the smallest are of one size.
ALIKE = 1.5


@dataclass(frozen=True)
class Range:
    """From `low` to `high`, of what is counted in the same unit."""

    low: float
    high: float

    def __add__(self, other: "Range") -> "Range":
        return Range(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> "Range":
        return Range(self.low * factor, self.high * factor)

    @property
    def is_known(self) -> bool:
        """Whether it is narrow enough to be reported."""
        return self.high <= MAX_RATIO * self.low

    def text(self, digits: int = 0) -> str:
        """As `2,400 to 3,600`; below 10 with two digits that count."""
        low, high = (f"{value:,.{digits}f}" if value >= 10 else f"{value:.2g}" for value in (self.low, self.high))
        return low if low == high else f"{low} to {high}"


def sum_ranges(ranges: Iterable[Range]) -> Range:
    return reduce(add, ranges, Range(0.0, 0.0))


@dataclass(frozen=True)
class Basis:
    """What the range of a phase rests on: `jobs` of the run, of which `processes` were the first of their process, with
    `documents` and `read_bytes`, of the smallest and the largest, None where they count none; `seconds` of all beside
    the starts of processes; `gap`: why they do not give a law, "" where they do."""

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
    """What one phase takes. `hours`: until its last job has ended; `scheduling`: hours that flow and scheduler are busy
    meanwhile; `alone`: whether it is one job, whatever the crawl;
    `memory`: bytes of a job with its worker, None where the run does not say; `workers`: that run at the same time."""

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
    """`factor`: how many times as large as the run; `had`, `shards`: files of the run, and of the crawl."""

    factor: float
    had: int
    shards: int
    options: CrawlOptions


# Why jobs give no law.
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
        # partitions of a small run hold little: a crawl has never more of them than shards
        divided = min(round(cost.jobs * crawl.factor), max(cost.jobs, crawl.shards))
        jobs = max(1, crawl.shards if cost.jobs == crawl.had else divided)
    memory = _memory(cost, crawl, jobs)
    fitting = crawl.options.cores
    if (room := crawl.options.memory_bytes) is not None and memory:
        fitting = min(fitting, room // memory)
    workers = max(1, min(jobs, fitting * crawl.options.machines))
    beside, gap = _beside(cost, crawl, jobs, workers)
    starting = workers * cost.start_seconds / max(1, cost.processes)
    seconds = Range(beside.low + starting, beside.high + starting)
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
    """CPU seconds of flow and scheduler for the jobs of a phase, which so many workers do together."""
    return jobs * JOB_COST + jobs / task_size(workers, job_seconds, jobs).jobs * TASK_COST


def _growth(cost: PhaseCost, crawl: Crawl) -> float:
    """How many times as much the growing part of a phase takes in the crawl as in the run, at most."""
    filling = min(crawl.factor, cost.full)
    return {"documents": crawl.factor, "documents^1.5": crawl.factor**1.5, "constant": filling}[cost.grows]


def _seconds(cost: PhaseCost) -> float:
    """Of all jobs in the run, beside what was counted of the starts of processes."""
    return max(0.0, cost.cpu_seconds - cost.start_seconds)


def _beside(cost: PhaseCost, crawl: Crawl, jobs: int, workers: int) -> tuple[Range, str]:
    """CPU seconds of a phase in the crawl beside what is counted of the starts of processes; and where these are a wide
    range, why."""
    measured, growth = _seconds(cost), _growth(cost, crawl)
    shared = max(1.0, min(crawl.factor, cost.shared))
    if cost.grows == "constant":  # the time of a sample grows more slowly than the sample
        found, gap = Range(measured, measured * growth), UNFILLED
    elif cost.once:
        # a job that holds nothing ends within the time that is too short to measure
        low = max(measured - SHORTEST, 0.0) * growth + min(measured, SHORTEST)
        found, gap = Range(min(low, measured * growth), measured * growth), ALONE
    else:
        found, gap = _fit(cost, growth, jobs, workers)
        if shared > 1:
            gap = SHARED
        found = Range(found.low, found.high * shared)
    spread = 1 + RUN_TO_RUN
    if measured < SHORTEST:
        # as much as in the run, or in proportion
        found, gap = Range(measured * min(1.0, growth), measured * max(1.0, growth) * shared), SHORT
        spread = 1 + SHORT_RUN_TO_RUN
    return Range(found.low / spread, found.high * spread), gap


def _fit(cost: PhaseCost, growth: float, jobs: int, workers: int) -> tuple[Range, str]:
    """The range of what fits the jobs of a phase, and where it is wide, why."""
    first = np.array([size.first for size in cost.sizes], float)
    columns, target = [np.ones(len(first))], [float(jobs)]
    if first.any():
        columns.append(first)
        target.append(float(workers))
    sizes = [np.array(column, float) for column in (_documents(cost), _read_bytes(cost)) if column]
    totals = [
        total for total, column in ((cost.documents, _documents(cost)), (cost.read_bytes, _read_bytes(cost))) if column
    ]
    if not sizes:  # nothing says how much each held: as much
        sizes, totals = [np.ones(len(first))], [cost.jobs]
    columns += sizes
    target += [growth * total for total in totals]
    costs = np.array([size.seconds for size in cost.sizes])
    law = predict(np.column_stack(columns), costs, np.array(target), jobs)
    found = Range(law.low, law.high)
    if cost.jobs < MIN_JOBS:
        return found, FEW
    if 2 * cost.processes > cost.jobs and cost.processes > 1:
        return found, FIRST
    return found, SAME if all(size.max() < ALIKE * max(size.min(), 1.0) for size in sizes) else VARIED


def _documents(cost: PhaseCost) -> list[int]:
    """Of each job whose size is kept; empty where they do not count them."""
    counts = [size.documents for size in cost.sizes if size.documents is not None]
    return counts if len(counts) == len(cost.sizes) and any(counts) else []


def _read_bytes(cost: PhaseCost) -> list[int]:
    """Of each job whose size is kept; empty where they read nothing."""
    counts = [size.read_bytes or 0 for size in cost.sizes]
    return counts if any(counts) else []


def _memory(cost: PhaseCost, crawl: Crawl, jobs: int) -> int | None:
    """Bytes of a job of the crawl with its worker; None where the jobs of the run say nothing of it: they held less, or
    too little to measure."""
    if cost.memory is None:
        return None
    growth = min(_growth(cost, crawl), crawl.factor)
    if cost.once:
        too_short = growth > 1 and _seconds(cost) < SHORTEST
        return None if too_short else WORKER + round(cost.memory * max(1.0, growth))
    documents = _documents(cost)
    if cost.grows != "constant" and documents and growth * cost.documents / jobs > ALIKE * max(documents):
        return None
    return WORKER + cost.memory


def _basis(cost: PhaseCost, gap: str) -> Basis:
    documents, read_bytes = map(_span, (_documents(cost), _read_bytes(cost)))
    return Basis(cost.jobs, cost.processes, documents, read_bytes, _seconds(cost), gap)


def _span(counts: list[int]) -> tuple[int, int] | None:
    return (min(counts), max(counts)) if counts else None
