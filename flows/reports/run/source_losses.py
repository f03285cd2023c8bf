"""Sources that lost far more than comparable sources to one step, with the setting that exempts them.

A source is named if, even at the upper end of its interval, the step kept less than `group_losses.kept` of the share
that it kept of the median of the other sources. Compared are sources of one kind (crawls, or others) of which at least
`group_losses.least` documents reached the step, if there are at least three. With fewer, nothing can be known, and no
source is named. The interval is Wilson's (1927) at 95% for all comparisons together (Bonferroni). The median is not
moved by several such sources, as a mean is.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist, median

from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.group_losses import deciding
from gristmill.storage import files, parquet
from gristmill.storage.printable import one_line
from gristmill.tasks.documents.group_losses import ALPHA, KEPT, Limits
from gristmill.tasks.documents.step import Step
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.extraction.extract import Extract

log = logging.getLogger(__name__)

MIN_SOURCES = 3  # that are compared: a median of fewer others says nothing
MAX_LINES = 5

# By source and step how many documents the step dropped, and by source and KEPT how many are left.
Fates = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class SourceLoss:
    """A source that lost far more than comparable ones to a step.

    `documents`: that reached the step; `dropped`: of these; `low`, `high`: ends of the interval of their share;
    `others`: comparable sources; `median`: of the shares that they lost, in [0, 1]; `fix`: a change of the recipe.
    """

    step: str
    source: str
    documents: int
    dropped: int
    low: float
    high: float
    others: int
    median: float
    fix: str

    @property
    def share(self) -> float:
        """The share of its documents that the step dropped, in [0, 1]."""
        return self.dropped / self.documents

    @property
    def sentence(self) -> str:
        """The figures and the fix."""
        return (
            f"`{self.step}` dropped {self.share:.1%} of the {self.documents:,} documents of the source "
            f"{one_line(self.source)} (95% interval {self.low:.1%} to {self.high:.1%}), but a median of "
            f"{self.median:.1%} for {self.others:,} other sources. To keep these documents, {self.fix}"
        )


def losses_by_step(recipe: Recipe, corpus: Corpus, counted: StageResult | None) -> list[SourceLoss]:
    """Sources that lost far more to a step, the largest loss first. `counted`: the stage `group_losses` of the corpus;
    none without it, or if its files were removed, or if it does not count by source."""
    settings = recipe.group_losses
    if counted is None or counted.is_collected or "source" not in settings.by:
        return []
    order = [count["step"] for stage in corpus.stages for count in stage.step_counts]
    steps = {step.step: step for step in recipe.steps if not isinstance(step, Extract)}
    by_design = deciding(recipe, "source")
    fates = _fates(counted)
    kinds = [[one.name for one in recipe.sources if one.is_crawl == crawl] for crawl in (True, False)]
    compared = [
        (step, _reached(fates, order, step.step, names, settings.least, getattr(step, "reference", ())))
        for name, step in steps.items()
        if name in order and name not in by_design
        for names in kinds
    ]
    compared = [(step, of) for step, of in compared if len(of) >= MIN_SOURCES]
    tests = sum(len(of) for _, of in compared)
    losses = [loss for step, of in compared for loss in lost_by(step, of, settings, tests)]
    return sorted(losses, key=lambda one: (-one.dropped, one.step, one.source))


def log_losses(recipe: Recipe, corpus: Corpus, counted: StageResult) -> None:
    """Log a line for each source that lost far more than comparable ones to a step."""
    for line in sentences(losses_by_step(recipe, corpus, counted)):
        log.warning("%s", line)


def sentences(losses: Sequence[SourceLoss]) -> Iterator[str]:
    """A line for each of the first."""
    yield from (one.sentence for one in losses[:MAX_LINES])
    if (more := len(losses) - MAX_LINES) > 0:
        yield f"{more:,} more losses of sources to one step: see the report"


def lost_by(step: Step, reached: Mapping[str, tuple[int, int]], limits: Limits, tests: int) -> list[SourceLoss]:
    """The sources that lost far more to a step than the others. `reached`: by source how many documents reached the
    step, and how many of these it dropped; `tests`: comparisons of all steps."""
    found = []
    for name, (documents, dropped) in reached.items():
        usual = median(lost / arrived for other, (arrived, lost) in reached.items() if other != name)
        low, high = _interval(dropped, documents, ALPHA / tests)
        if 1 - low < limits.kept * (1 - usual):
            found.append((name, documents, dropped, low, high, usual))
    fix = _fix(step, [name for name, *_ in found])
    others = len(reached) - 1
    return [
        SourceLoss(step.step, name, documents, dropped, low, high, others, usual, fix)
        for name, documents, dropped, low, high, usual in found
    ]


def _fates(counted: StageResult) -> Fates:
    table = parquet.read_table(files.join(counted.folder, "groups.parquet"))
    fates: dict[str, dict[str, int]] = {}
    for row in table.to_pylist():
        if row["by"] == "source":
            fates.setdefault(row["group"], {})[row["step"]] = row["documents"]
    return fates


def _reached(
    fates: Fates, order: Sequence[str], step: str, names: Sequence[str], least: int, reference: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """By source how many documents reached a step, and how many of these it dropped."""
    last = len(order) - 1 - order[::-1].index(step)  # a step that cuts is counted earlier, too, and drops nothing there
    later = {KEPT, *order[last:]}
    found = {}
    for name in names:
        reached = sum(count for each, count in fates.get(name, {}).items() if each in later)
        if reached >= least and name not in reference:
            found[name] = reached, fates[name].get(step, 0)
    return found


def _interval(dropped: int, documents: int, alpha: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf(1 - alpha / 2)
    share = dropped / documents
    middle, scale = share + z * z / (2 * documents), 1 + z * z / documents
    half = z * sqrt(share * (1 - share) / documents + (z / (2 * documents)) ** 2)
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def _fix(step: Step, sources: Sequence[str]) -> str:
    if step.only is not None:
        return f"remove {', '.join(sources)} from `only` of `{step.step}`"
    return f"set `except: [{', '.join((*(step.left_out or ()), *sources))}]` in `{step.step}`"
