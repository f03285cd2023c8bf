"""What a whole crawl would take: the measured CPU time and files of a finished run, in proportion to its documents."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from gristmill.flows.reports.run import Report
from gristmill.tasks.engine.make import StageResult

# Pages of the crawl of December 2024, CC-MAIN-2024-51, as Common Crawl has published it:
# https://commoncrawl.org/blog/december-2024-crawl-archive-now-available
SNAPSHOT_PAGES = 2_640_000_000
# Made of samples and of reference documents: they do not grow with a crawl.
_FIXED = ("perplexity_model", "quality_model", "tokenizer")


@dataclass(frozen=True)
class StageCapacity:
    """What one stage takes. `documents_in`, `documents_out`: None where none are counted; `core_hours`: None for a
    stage of a version that did not measure it; `bytes`: of its files in the home."""

    stage: str
    documents_in: int | None
    documents_out: int | None
    core_hours: float | None
    bytes: int


@dataclass(frozen=True)
class Capacity:
    """A row for each stage of the corpus and its tokens, for a crawl of `documents` pages; the run had `measured`.

    `core_hour`, `terabyte_month`: prices, in one currency. A training is not in it: its time follows from its recipe.
    """

    documents: int
    measured: int
    tokens: int | None
    stages: tuple[StageCapacity, ...]
    core_hour: float
    terabyte_month: float

    @cached_property
    def core_hours(self) -> float:
        return sum(stage.core_hours or 0.0 for stage in self.stages)

    @cached_property
    def bytes(self) -> int:
        return sum(stage.bytes for stage in self.stages)

    @property
    def computing(self) -> float:
        """The price of the processors."""
        return self.core_hours * self.core_hour

    @property
    def storing(self) -> float:
        """The price of the home, a month."""
        return self.bytes / 1e12 * self.terabyte_month

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """The stages whose time is not in the sum."""
        return tuple(stage.stage for stage in self.stages if stage.core_hours is None)


def capacity(
    report: Report, documents: int = SNAPSHOT_PAGES, core_hour: float = 0.0, terabyte_month: float = 0.0
) -> Capacity:
    """What a crawl of so many pages takes, by a finished run. Reads a small file for each stage.

    All grows with the number of documents, but for models of samples; near-duplicates grow faster if a larger crawl has
    a larger share of them. Raises ValueError for a run that read no documents.
    """
    measured = report.steps[0].documents_in if report.steps else 0
    if not measured:
        raise ValueError(f"the run of {report.recipe.name} read no documents; give a recipe whose run read some")
    factor = documents / measured
    stages = report.data.stages if report.data else report.corpus.stages
    tokens = None if report.tokens is None else round(report.tokens * factor)
    rows = tuple(_row(stage, 1.0 if stage.name in _FIXED else factor) for stage in _distinct(stages))
    return Capacity(documents, measured, tokens, rows, core_hour, terabyte_month)


def _distinct(stages: Iterable[StageResult]) -> Iterable[StageResult]:
    return {stage.folder: stage for stage in stages}.values()


def _row(stage: StageResult, factor: float) -> StageCapacity:
    seconds = stage.cpu_seconds
    steps = stage.step_counts
    return StageCapacity(
        stage.name,
        round(steps[0]["rows_in"] * factor) if steps else None,
        round(steps[-1]["rows_out"] * factor) if steps else None,
        None if seconds is None else seconds * factor / 3600,
        round(stage.manifest["parts"]["bytes"] * factor),
    )
