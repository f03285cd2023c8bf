"""Estimate the cost of a full crawl from the job costs of a finished run and the declared growth of each phase.

The estimate of a phase is a range (`phase_costs`). If the sum is too uncertain because of some phases, it is not
reported; instead, the report names the command that measures these phases.

The work of a phase with many jobs is divided among all cores. A phase with a single job takes as long as this job, on
one machine, so its time and memory limit the crawl if they grow with the corpus.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from gristmill.flows.curation import processing
from gristmill.flows.experiments.options import CrawlOptions
from gristmill.flows.experiments.planning.phase_costs import (
    FIRST,
    SHORT,
    SHORTEST,
    Crawl,
    PhaseCapacity,
    Range,
    phase_capacity,
    scheduling_seconds,
    sum_ranges,
)
from gristmill.flows.reports.run import Run
from gristmill.flows.reports.tables import Table
from gristmill.tasks.engine.make import StageResult

# Size of the largest cluster that is considered.
MAX_CORES = 10_000_000


@dataclass(frozen=True)
class StageCapacity:
    """The cost of one stage. `documents_in`, `documents_out`: None if documents are not counted; `phases`: None for a
    stage of a version that did not measure them; `bytes`: size of its files in the home."""

    stage: str
    documents_in: int | None
    documents_out: int | None
    phases: tuple[PhaseCapacity, ...] | None
    bytes: int

    @property
    def core_hours(self) -> Range | None:
        return None if self.phases is None else sum_ranges(phase.core_hours for phase in self.phases)

    @property
    def hours(self) -> Range | None:
        return None if self.phases is None else sum_ranges(phase.hours for phase in self.phases)

    @property
    def basis(self) -> str:
        """The data on which the estimate of its longest phase is based."""
        if not self.phases:
            return ""
        phase = max(self.phases, key=lambda phase: phase.core_hours.high)
        return f"{phase.phase}: {phase.basis.gap or phase.basis.text}"


@dataclass(frozen=True)
class Capacity:
    """The cost of the corpus and its tokens for a crawl of `documents` pages, by stage; the run of `recipe` had
    `measured` pages. Training is not included: its time follows from its recipe."""

    recipe: str
    documents: int
    measured: int
    tokens: int | None
    stages: tuple[StageCapacity, ...]
    crawl: CrawlOptions

    def as_json(self) -> dict[str, Any]:
        """All values for `--json`: unknown sums are null, and `gaps` has the phases that are the reason."""
        sums = (
            "core_hours",
            "hours",
            "scheduling",
            "scheduler_cores",
            "bytes",
            "requests",
            "computing",
            "storing",
            "requesting",
            "remedy",
            "preparation",
        )
        gaps = {phase.label: phase.basis.gap for phase in (*self.gaps, *self.time_gaps)}
        return {**asdict(self), **{name: getattr(self, name) for name in sums}, "gaps": gaps}

    @property
    def table(self) -> Table:
        """A row for each stage."""
        columns = ("stage", "#documents in", "#documents out", "#core hours", "#GB|,.1f", "based on")
        rows = [
            (row.stage, row.documents_in, row.documents_out, self._cell(row), row.bytes / 1e9, row.basis)
            for row in self.stages
        ]
        return Table(columns, rows)

    def _cell(self, row: StageCapacity) -> str:
        if (hours := row.core_hours) is None:
            return "not measured"
        if hours.is_known:
            return hours.text()
        # an upper bound is useful only if the phase does not decide the sum
        decisive = any(phase in self.gaps for phase in row.phases or ())
        return "not known" if decisive else f"at most {Range(hours.high, hours.high).text()}"

    @cached_property
    def phases(self) -> tuple[PhaseCapacity, ...]:
        return tuple(phase for stage in self.stages for phase in stage.phases or ())

    @cached_property
    def core_hours(self) -> Range | None:
        """None if phases were not measured, or if their sum is too uncertain."""
        hours = sum_ranges(phase.core_hours for phase in self.phases)
        return hours if hours.is_known and not self.unmeasured and self.phases else None

    @cached_property
    def gaps(self) -> tuple[PhaseCapacity, ...]:
        """The phases that make the sum of core hours too uncertain, the most uncertain first."""
        return _decisive(self.phases, [phase.core_hours for phase in self.phases])

    @cached_property
    def time_gaps(self) -> tuple[PhaseCapacity, ...]:
        """The same for the hours."""
        return _decisive(self.phases, [phase.hours for phase in self.phases])

    @property
    def jobs(self) -> int:
        return sum(phase.jobs for phase in self.phases)

    @property
    def scheduling(self) -> Range:
        """Hours that the flow and the scheduler are busy with sending jobs and receiving results, on one thread."""
        return sum_ranges(phase.scheduling for phase in self.phases)

    @property
    def scheduler_cores(self) -> Range | None:
        """Number of cores above which the flow and the scheduler take longer than the jobs of all divided phases. None
        if there is no such number, or if the core hours are unknown."""
        if self.core_hours is None:
            return None
        phases = [phase for phase in self.phases if not phase.alone]
        low, high = (
            limiting_cores([(phase.jobs, 3600 * end(phase.core_hours) / phase.jobs) for phase in phases])
            for end in (attrgetter("low"), attrgetter("high"))
        )
        return None if low is None or high is None else Range(low, high)

    @property
    def hours(self) -> Range | None:
        """Hours of all stages, one after the other. None if unknown."""
        hours = sum_ranges(phase.hours for phase in self.phases)
        return hours if hours.is_known and self.core_hours is not None else None

    @property
    def limit(self) -> PhaseCapacity | None:
        """The longest phase among those with known hours."""
        known = (phase for phase in self.phases if phase.hours.is_known)
        return max(known, key=lambda phase: phase.hours.high, default=None)

    @property
    def largest(self) -> PhaseCapacity | None:
        """The phase whose jobs need the most memory."""
        return max((phase for phase in self.phases if phase.memory), key=lambda phase: phase.memory or 0, default=None)

    @property
    def without_memory(self) -> tuple[str, ...]:
        """The phases with unknown memory."""
        return tuple(phase.label for phase in self.phases if phase.memory is None)

    @cached_property
    def bytes(self) -> int:
        return sum(stage.bytes for stage in self.stages)

    @property
    def requests(self) -> int:
        return sum(phase.requests for phase in self.phases)

    @property
    def computing(self) -> Range | None:
        """The price of the processors; None if the core hours are unknown."""
        return None if self.core_hours is None else self.core_hours.times(self.crawl.core_hour)

    @property
    def storing(self) -> float:
        """The price of storing the home, per month."""
        return self.bytes / 1e12 * self.crawl.terabyte_month

    @property
    def requesting(self) -> float:
        """The price of the requests to the store."""
        return self.requests / 1e6 * self.crawl.million_requests

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """The stages without job sizes in the home, since their files were removed."""
        return tuple(stage.stage for stage in self.stages if stage.phases is None)

    @property
    def remedy(self) -> str:
        """The command that measures unknown costs; "" if all are known."""
        has_tokens = any(stage.stage == "tokens" for stage in self.stages)
        run = f"gristmill {'run --tokens-only' if has_tokens else 'corpus'} {self.recipe}"
        if self.unmeasured:
            return " ".join([run, *(f"--remake {stage}" for stage in dict.fromkeys(self.unmeasured))])
        if self.core_hours is not None and self.hours is not None:
            return ""
        return run if self.preparation else f"GRISTMILL_WORKERS=1 {run} --remake all"

    @property
    def preparation(self) -> str:
        """The change to the recipe that `remedy` requires; "" if the run's own files are enough."""
        gaps = self.gaps or self.time_gaps
        if self.unmeasured or all(phase.basis.gap == FIRST for phase in gaps):
            return ""
        seconds = next((phase.basis.seconds for phase in gaps if phase.basis.gap == SHORT), SHORTEST)
        times = min(100, max(4, round(2 * SHORTEST / max(seconds, 0.01))))
        return (
            f"use recipe files with {self.measured * times:,} pages, at least 8 of them, the largest with at "
            "least 4 times the pages of the smallest"
        )


def limiting_cores(phases: Sequence[tuple[int, float]]) -> int | None:
    """Number of cores above which the flow and the scheduler take longer than the jobs of the phases. None if there is
    no such number. `phases`: number of jobs of each phase, and seconds of a job."""

    def is_limit(cores: int) -> bool:
        busy = sum(scheduling_seconds(jobs, seconds, min(cores, jobs)) for jobs, seconds in phases)
        return busy >= sum(jobs * seconds / min(cores, jobs) for jobs, seconds in phases)

    if not phases or not is_limit(MAX_CORES):
        return None
    return bisect_left(range(1, MAX_CORES + 1), True, key=is_limit) + 1


def _decisive(phases: Sequence[PhaseCapacity], ranges: Sequence[Range]) -> tuple[PhaseCapacity, ...]:
    """The phases with the widest ranges, without which the sum of the other phases is known."""
    left, missing = sum_ranges(ranges), []
    for phase, one in sorted(zip(phases, ranges, strict=True), key=lambda each: each[1].low - each[1].high):
        if left.is_known:
            break
        if one.is_known:
            continue
        missing.append(phase)
        left = Range(left.low, left.high - one.high + one.low)
    return tuple(missing)


def capacity(report: Run, crawl: CrawlOptions, recipe: str = "") -> Capacity:
    """Estimate the cost of a crawl from a finished run. Reads a small file for each stage.

    `crawl.shard_pages` determines the number of jobs of a phase and of the files that they open. The cost of
    near-duplicates grows faster than the corpus if a larger crawl has a larger share of them. `recipe`: name of the
    recipe in commands, default: its own name. Raises ValueError for a run that read no documents.
    """
    measured = report.steps[0].documents_in if report.steps else 0
    if not measured:
        raise ValueError(f"the run of {report.recipe.name} read no documents; give a recipe whose run read some")
    factor = crawl.pages / measured
    tokens = None if report.tokens is None else round(report.tokens * factor)
    shards = max(1, -(-crawl.pages // crawl.shard_pages))
    whole = Crawl(factor, len(report.corpus.sources), shards, crawl)
    rows = tuple(_row(stage, whole) for stage in processing(report.built))
    return Capacity(recipe or report.recipe.name, crawl.pages, measured, tokens, rows, crawl)


def _row(stage: StageResult, crawl: Crawl) -> StageCapacity:
    steps, costs, factor = stage.step_counts, stage.costs, crawl.factor
    written_bytes = sum(cost.bytes for cost in (costs or {}).values())
    growing = sum(cost.bytes for cost in (costs or {}).values() if cost.grows != "constant")
    grown = factor if not written_bytes else 1 + (factor - 1) * growing / written_bytes
    ran = {phase: cost for phase, cost in (costs or {}).items() if cost.jobs}
    unsized = costs is None or not all(cost.is_sized for cost in ran.values())
    return StageCapacity(
        stage.name,
        round(steps[0]["rows_in"] * factor) if steps else None,
        round(steps[-1]["rows_out"] * factor) if steps else None,
        None if unsized else tuple(phase_capacity(stage.name, *each, crawl) for each in ran.items()),
        round(stage.manifest["parts"]["bytes"] * grown),
    )
