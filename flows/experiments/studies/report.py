"""The answer of a study: a row for each arm, one sentence, and the page."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup

from gristmill.flows.reports import pages
from gristmill.flows.reports.pages import charts
from gristmill.flows.reports.pages.charts import Axis, Layer
from gristmill.flows.reports.tables import Table
from gristmill.flows.stats.critical_batch import CriticalBatch
from gristmill.flows.stats.verdict import Conditions

LEVEL = 0.9  # of the printed intervals


@dataclass(frozen=True)
class ArmResult:
    """The runs of one arm. `loss`: mean bits per byte of the judged documents; `effect`, `low`, `high`: the base's bits
    per byte minus the arm's, with its interval, None for the base; `outcome`: of the decision between the two;
    `seconds`: mean time of a run; `failure`: why its runs failed, empty if they did not."""

    label: str
    x: float | None = None
    loss: float | None = None
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    outcome: str = ""
    parameters: int | None = None
    flops: float | None = None
    seconds: float | None = None
    losses: tuple[float, ...] = ()
    keys: tuple[str, ...] = ()
    failure: str = ""

    @property
    def difference(self) -> str:
        """As `0.0123 (90% interval 0.0101 to 0.0146)`, without a sign."""
        if self.effect is None or self.low is None or self.high is None:
            return ""
        sign = -1 if self.effect < 0 else 1
        low, high = sorted((sign * self.low, sign * self.high))
        return f"{abs(self.effect):.4f} bits per byte ({LEVEL:.0%} interval {low:.4f} to {high:.4f})"


@dataclass(frozen=True, repr=False)
class StudyReport:
    """A finished study. `id`: 16 hexadecimal characters, of its decisions; `asks`: the question; `axis`: the name of
    the arms' numbers, or empty; `rows`: the base first; `critical`, `noise_scale`: of the study `batch`; `page`: the
    path of its page; `stale`: why the answer no longer holds, a sentence each."""

    id: str
    recipe: str
    question: str
    asks: str
    axis: str
    rows: tuple[ArmResult, ...]
    conditions: Conditions | None = None
    critical: CriticalBatch | None = None
    noise_scale: float | None = None
    page: str = field(default="", compare=False)
    stale: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<StudyReport of {self.recipe}: {self.sentence}>"

    @property
    def base(self) -> ArmResult:
        return self.rows[0]

    @property
    def sentence(self) -> str:
        """The answer, and what it applies to."""
        parts = [*self._compared(), *self._of_batches()]
        where = "" if self.conditions is None else f"; {self.conditions}"
        return f"{'; '.join(parts)}{where}"

    def _compared(self) -> Iterator[str]:
        for outcome in ("better", "worse"):
            for row in self.rows[1:]:
                if row.outcome == outcome:
                    yield f"{row.label} is {outcome} than {self.base.label} by {row.difference}"
        alike = [row for row in self.rows[1:] if row.outcome == "inconclusive"]
        if alike:
            ranges = ", ".join(
                f"{row.label} (interval of the effect {row.low:+.4f} to {row.high:+.4f} bits per byte)" for row in alike
            )
            yield f"no difference from {self.base.label} was detected for {ranges}"
        for row in self.rows[1:]:
            if row.outcome == "withheld":
                yield f"{row.label}: the learning rates disagree on whether it is better than {self.base.label}"
            if row.outcome == "identical":
                yield f"{row.label} has the same losses as {self.base.label}"
            if row.outcome not in ("better", "worse", "inconclusive", "withheld", "identical", ""):
                yield f"{row.label}: {row.outcome}"
            if row.failure:
                yield f"{row.label} failed: {row.failure.splitlines()[0]}"

    def _of_batches(self) -> Iterator[str]:
        if self.critical is not None:
            one = self.critical
            if one.value is None:
                yield f"these batches do not identify the critical batch: {one.reason}"
            else:
                ends = f"{LEVEL:.0%} interval {one.low:.3g} to {one.high:.3g}"
                suits = "if a rate by the square root of the batch suits each, else it is larger"
                yield f"the critical batch is {one.value:.3g} sequences ({ends}), {suits}"
        if self.noise_scale is not None:
            yield f"the gradient noise scale at the end of the runs is {self.noise_scale:.3g} sequences"

    @property
    def table(self) -> Table:
        """A row for each arm."""
        columns = ("arm", "#bits per byte|.4f", "#fewer than the base|+.4f", f"#{LEVEL:.0%} interval|+.4f", "outcome")
        costs = ("#parameters", "#operations of a run|.2e", "#seconds of a run|.1f")
        rows = [
            (row.label, row.loss, row.effect, (row.low, row.high), row.outcome or ("failed" if row.failure else "base"),
             row.parameters, row.flops, row.seconds)
            for row in self.rows
        ]  # fmt: skip
        return Table((*columns, *costs), rows)

    def as_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "id": self.id,
            "recipe": self.recipe,
            "question": self.question,
            "asks": self.asks,
            "sentence": self.sentence,
            "rows": [asdict(row) for row in self.rows],
            "conditions": asdict(self.conditions) if self.conditions else None,
            "critical_batch": asdict(self.critical) if self.critical else None,
            "noise_scale": self.noise_scale,
        }


def study_page(report: StudyReport) -> str:
    """The study on one HTML page that needs no server and no network."""
    return pages.render("study.html", report=report, plot=effect_plot(report))


def effect_plot(report: StudyReport) -> Markup | None:
    """The loss of each arm minus the base's, with its interval, by the numbers of the arms if they have any. None if no
    arm was compared by its loss."""
    rows = [row for row in report.rows if row.effect is not None and row.low is not None and row.high is not None]
    if not rows:
        return None
    shown = [report.base, *rows]
    at = np.array([row.x if report.axis else number for number, row in enumerate(shown)], float)
    axis = Axis(report.axis, log=True) if report.axis else Axis("", names=[row.label for row in shown])
    middle, low, high = (np.array([_above(row, end) for row in shown]) for end in ("effect", "high", "low"))
    layers = [Layer("line", [-np.inf, np.inf], [0, 0], "soft")]
    if report.axis:
        order = np.argsort(at)
        layers.append(Layer("line", at[order], middle[order], "light"))
        if report.critical and report.critical.value and report.critical.slope:
            layers.append(_curve(report, at))
    layers.append(Layer("points", at, middle, "part", f"{LEVEL:.0%} interval", low, high))
    label = f"bits per byte more than {report.base.label}"
    return charts.plot(label, axis, Axis(label, show=(0,)), *layers)


def _above(row: ArmResult, end: str) -> float:
    value = getattr(row, end)
    return 0.0 if value is None else -float(value)


def _curve(report: StudyReport, at: np.ndarray) -> Layer:
    """The fitted law of the critical batch."""
    assert report.critical and report.critical.value and report.critical.slope
    line = np.geomspace(at.min(), at.max(), 50)
    critical, slope = report.critical.value, report.critical.slope
    return Layer("dotted", line, slope * (np.log1p(line / critical) - np.log1p(at.min() / critical)), "cut", "fit")
