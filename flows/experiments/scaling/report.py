"""Scaling laws of a recipe's runs: the law, its errors, optima of compute budgets, forecasts, and the page."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from markupsafe import Markup
from scipy.stats import t as student

from gristmill.flows.experiments.scaling.grid import RateSweep
from gristmill.flows.reports import pages
from gristmill.flows.reports.pages import charts
from gristmill.flows.reports.pages.charts import Axis, Layer
from gristmill.flows.reports.tables import Table, span
from gristmill.flows.stats.law import (
    Fit,
    Forecast,
    ForecastCheck,
    FutureErrors,
    Interval,
    OptimumIntervals,
    ScalingRuns,
    TokenCost,
    bootstrap,
    fit,
    leave_future_out,
    optimum,
    optimum_intervals,
    token_cost,
)

# Probability that a budget that follows the law is left out, over all that are tested.
ERROR = 0.02


@dataclass(frozen=True)
class Plateau:
    """The runs that follow a law. `kept`: bool (runs,); `error`: mean of loss / predicted - 1 of the longest budget
    that is left out, under the law of the longer ones; `tested`: the number of budgets with enough longer ones for a
    test."""

    kept: np.ndarray
    error: float
    tested: int


def plateau(runs: ScalingRuns) -> Plateau:
    """Find the token budgets whose runs do not follow the law of the longer runs.

    Raises ValueError for runs that do not determine a law.
    """
    budgets = np.unique(runs.tokens)
    tested = [budget for budget in budgets[::-1] if not runs.take(runs.tokens > budget).problem]
    for budget in tested:
        longer, own = runs.take(runs.tokens > budget), runs.take(runs.tokens == budget)
        error, p_value = _failure(longer, own)
        if p_value < ERROR / len(tested):
            return Plateau(runs.tokens > budget, error, len(tested))
    return Plateau(np.ones(len(runs), bool), 0.0, len(tested))


def _failure(longer: ScalingRuns, own: ScalingRuns) -> tuple[float, float]:
    """Mean of loss / predicted - 1 of `own` runs under the law of `longer` ones, and its two-sided p value."""
    fitted = fit(longer)
    error = own.loss / fitted.law.loss(own.parameters, own.tokens) - 1
    mean = float(error.mean())
    spread = fitted.mean_error(own.parameters, own.tokens)
    return mean, float(2 * student.sf(abs(mean) / spread, fitted.freedom))


DRAWS = 400  # of the bootstrap: a 5% point moves by a tenth of the interval's width
_SEED = 0
LEVEL = 0.9
LAW = ("E", "A", "alpha", "B", "beta")


@dataclass(frozen=True)
class GridRun:
    """A finished run. `parameters`: all of them, tied ones once; `non_embedding`: those outside of embedding and output
    projection; `flops`: of its training; `loss`: bits per byte of the judged evaluation documents, `by_set`: of each
    set; `key`: of its stage."""

    parameters: int
    non_embedding: int
    tokens: int
    flops: float
    learning_rate: float
    pair: int
    loss: float
    key: str
    by_set: dict[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class CheckedForecast:
    """A forecast, the key of the forecast run, the id of its MLflow run, and the result. `earlier`: whether an earlier
    command registered it, perhaps from fewer runs."""

    key: str
    forecast: Forecast
    mlflow_run: str
    earlier: bool
    check: ForecastCheck


@dataclass(frozen=True, repr=False)
class ScalingReport:
    """A finished grid. `id`: 16 hexadecimal characters of a digest of its inputs; `budgets`: compute budgets to compute
    the optimum for, in floating-point operations; `sweeps`: of the learning rate, at some of the sizes;
    `mlflow_run`: its id, empty before it is logged; `page`: the path of its page; `stale`: why the law no longer
    holds, a sentence each."""

    recipe: str
    id: str
    runs: tuple[GridRun, ...]
    judged: tuple[str, ...]
    budgets: tuple[float, ...] = ()
    sweeps: tuple[RateSweep, ...] = ()
    forecasts: tuple[CheckedForecast, ...] = ()
    mlflow_run: str = ""
    page: str = ""
    stale: tuple[str, ...] = ()

    @cached_property
    def plateau(self) -> Plateau:
        """Which runs follow a law. Raises ValueError for runs that do not determine one."""
        return plateau(scaling_runs(self.runs))

    @cached_property
    def fitted(self) -> tuple[GridRun, ...]:
        """The runs that the law is fitted to."""
        return tuple(run for run, kept in zip(self.runs, self.plateau.kept, strict=True) if kept)

    @cached_property
    def fit(self) -> Fit:
        """The law, with N all parameters. Raises ValueError for runs that do not determine one."""
        return fit(scaling_runs(self.fitted))

    @cached_property
    def alpha_non_embedding(self) -> float:
        """The exponent of size where N counts no embedding and no output projection, as Kaplan et al. (2020) do."""
        whole = scaling_runs(self.fitted)
        counts = np.array([run.non_embedding for run in self.fitted], float)
        return fit(ScalingRuns(counts, whole.tokens, whole.loss)).law.alpha

    @cached_property
    def cost(self) -> TokenCost:
        n = np.array([run.parameters for run in self.runs], float)
        return token_cost(n, np.array([run.flops / run.tokens for run in self.runs]))

    @cached_property
    def compute(self) -> np.ndarray:
        """Floating-point operations of each fitted run, float64 (runs,)."""
        return np.array([run.flops for run in self.fitted])

    @cached_property
    def law_intervals(self) -> dict[str, Interval]:
        """The law's parameters with percentile intervals of the bootstrap by run."""
        found = {}
        for name in LAW:
            low, high = np.quantile([getattr(one, name) for one in self._laws], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
            found[name] = Interval(getattr(self.fit.law, name), float(low), float(high), LEVEL)
        return found

    @cached_property
    def future(self) -> list[FutureErrors]:
        return leave_future_out(scaling_runs(self.fitted), self.compute, LEVEL)

    @cached_property
    def optima(self) -> list[OptimumIntervals]:
        """The best parameters and tokens of each budget."""
        return [optimum_intervals(self.fit.law, self._laws, self.cost, budget, LEVEL) for budget in self.budgets]

    @property
    def sentence(self) -> str:
        """The law, as one sentence."""
        law, intervals = self.fit.law, self.law_intervals
        alpha, beta = intervals["alpha"], intervals["beta"]
        return (
            f"bits per byte = {law.E:.3f} + {law.A:.3g} N^-{law.alpha:.3f} + {law.B:.3g} D^-{law.beta:.3f}, "
            f"from {len(self.fitted)} runs (90% intervals: alpha {alpha.low:.2f} to {alpha.high:.2f}, beta "
            f"{beta.low:.2f} to {beta.high:.2f}); a run deviates from it by {self.fit.deviation:.2%}. N "
            f"counts all parameters; without embeddings, alpha is {self.alpha_non_embedding:.3f}"
        )

    @property
    def remarks(self) -> list[str]:
        """Which runs were left out and why, what was not tested, and what the learning rate is worth."""
        sentences = []
        if out := [run for run in self.runs if run not in self.fitted]:
            budgets = sorted({run.tokens for run in out})
            sentences.append(
                f"{len(out)} runs of {', '.join(f'{budget:,}' for budget in budgets)} tokens are excluded: "
                f"runs of {budgets[-1]:,} tokens deviate by {self.plateau.error:+.1%} from the law of the "
                "longer runs, as is typical of runs that end on the plateau of token frequencies"
            )
        if not self.plateau.tested:
            sentences.append(
                "whether the shortest runs follow a law was not tested: this requires four token budgets or "
                "more, with seven runs in the three longest"
            )
        return sentences + [sweep.sentence for sweep in self.sweeps]

    @property
    def forecast_sentence(self) -> str:
        """The number of correct forecasts; empty without forecasts."""
        if not self.forecasts:
            return ""
        inside = sum(one.check.inside for one in self.forecasts)
        return f"{inside} of {len(self.forecasts)} forecasts are inside their {LEVEL:.0%} interval"

    def forecast_rows(self) -> Iterator[dict[str, Any]]:
        """A row for each forecast: the run, the forecast, and the result."""
        for one in self.forecasts:
            claim = one.forecast
            yield {
                "parameters": claim.parameters,
                "tokens": claim.tokens,
                "reach": claim.reach,
                "forecast": claim.loss.value,
                "low": claim.loss.low,
                "high": claim.loss.high,
                "loss": one.check.loss,
                "inside": one.check.inside,
                "error": one.check.error,
                "outside": one.check.outside,
                "key": one.key,
                "mlflow_run": one.mlflow_run,
            }

    def as_json(self) -> dict[str, Any]:
        """All of it, for `--json` and for the file in the home."""
        return {
            "recipe": self.recipe,
            "id": self.id,
            "judged": list(self.judged),
            "law": {name: asdict(interval) for name, interval in self.law_intervals.items()},
            "parameters_counted": "total",
            "alpha_non_embedding": self.alpha_non_embedding,
            "left_out": [run.key for run in self.runs if run not in self.fitted],
            "sweeps": [asdict(sweep) | {"sentence": sweep.sentence} for sweep in self.sweeps],
            "deviation": self.fit.deviation,
            "token_cost": asdict(self.cost),
            "runs": [asdict(run) for run in self.runs],
            "leave_future_out": [asdict(one) for one in self.future],
            "optima": [asdict(one) for one in self.optima],
            "forecasts": list(self.forecast_rows()),
            "mlflow_run": self.mlflow_run,
        }

    @cached_property
    def _laws(self) -> list:
        return bootstrap(self.fit, DRAWS, _SEED)


def scaling_runs(runs: Sequence[GridRun]) -> ScalingRuns:
    """The runs as arrays."""
    return ScalingRuns(
        np.array([run.parameters for run in runs], float),
        np.array([run.tokens for run in runs], float),
        np.array([run.loss for run in runs]),
    )


_CURVES = 6  # of equal compute: more would overlap
_COMPUTE = Axis("floating-point operations of training", log=True)
_LOSS = Axis("bits per byte")


def scaling_page(report: ScalingReport) -> str:
    """The law on one HTML page that needs no server and no network."""
    law = report.law_intervals
    return pages.render(
        "scale.html",
        report=report,
        figures=[
            ("runs", len(report.fitted)),
            *((name, f"{law[name].value:.3f}") for name in ("E", "alpha", "beta")),
            ("deviation of a run", f"{report.fit.deviation:.2%}"),
        ],
        compute=by_compute(report),
        isoflop=isoflop(report),
        future=future(report) if report.future else None,
        remarks=report.remarks,
        tables=list(scaling_tables(report)),
    )


def scaling_tables(report: ScalingReport) -> Iterator[tuple[str, Table]]:
    """A sentence and a table each for forecasts, optima, and errors of predictions, as far as there are any."""
    if report.forecasts:
        yield report.forecast_sentence, _forecasts(report)
    if report.optima:
        rows = [
            (best.compute, _ends(best.parameters, ",.0f"), _ends(best.tokens, ",.0f"), _ends(best.loss, ".4f"))
            for best in report.optima
        ]
        yield "", Table(("#operations|.2e", "#best parameters", "#best tokens", "#bits per byte"), rows, "Optima")
    if report.future:
        columns = ("#fit up to|.2e", "#runs", "#predicted", "#reach", "#mean error|.2%", "#bias|+.2%")
        errors = [
            (one.compute, one.fitted, one.predicted, f"{one.reach:.1f}x", one.error, one.bias,
             f"{one.inside} of {one.predicted}")
            for one in report.future
        ]  # fmt: skip
        sentence = "Fitted to the smaller runs, and compared with the larger"
        yield sentence, Table((*columns, f"#inside {LEVEL:.0%}"), errors, "Errors")


def _forecasts(report: ScalingReport) -> Table:
    columns = ("#parameters", "#tokens", "#compute", "#forecast|.4f", f"#{LEVEL:.0%} interval|.4f", "#came|.4f", "held")
    rows = []
    for one in report.forecasts:
        claim, came = one.forecast, one.check
        held = "inside" if came.inside else f"outside by {came.outside:.2%}"
        interval = claim.loss.value, (claim.loss.low, claim.loss.high)
        rows.append((claim.parameters, claim.tokens, f"{claim.reach:.1f}x", *interval, came.loss, held))
    return Table(columns, rows, "Forecasts")


def _ends(one: Interval, form: str) -> str:
    return f"{one.value:{form}} ({span(one.low, one.high, form)})"


def by_compute(report: ScalingReport) -> Markup:
    """The loss of all runs by compute, the law's smallest loss at each compute, and forecasts with their intervals."""
    most, forecasts = report.compute.max(), report.forecasts
    reach = [one.forecast.reach * most for one in forecasts]
    line = np.geomspace(min([*report.compute, *reach]), max([*report.compute, *reach]) * 1.2, 100)
    best = [optimum(report.fit.law, report.cost, compute).loss for compute in line]
    layers = [
        Layer("dotted", line, best, "soft", "best of the law at each compute"),
        Layer("points", report.compute, [run.loss for run in report.fitted], "part", "runs of the fit"),
    ]
    if out := [run for run in report.runs if run not in report.fitted]:
        layers.append(Layer("points", [run.flops for run in out], [run.loss for run in out], "light", "left out"))
    if forecasts:
        claims = [one.forecast.loss for one in forecasts]
        ends = [each.low for each in claims], [each.high for each in claims]
        layers.append(
            Layer("points", reach, [each.value for each in claims], "orange", f"forecast, {LEVEL:.0%} interval", *ends)
        )
        layers.append(Layer("points", reach, [one.check.loss for one in forecasts], "cut", "measured"))
    return charts.plot("loss by compute", _COMPUTE, _LOSS, *layers)


def isoflop(report: ScalingReport) -> Markup:
    """The law's loss by parameters along runs of equal compute, its optimum on each, and the runs.

    A run has the color of the nearest curve, moved to that curve's compute by the law: its distance from the curve is
    its error.
    """
    law, cost = report.fit.law, report.cost
    computes = np.geomspace(report.compute.min(), report.compute.max(), _CURVES)
    nearest = np.abs(np.log(report.compute[:, None] / computes)).argmin(axis=1)
    sizes = np.array([run.parameters for run in report.fitted], float)
    line = np.geomspace(sizes.min() / 1.5, sizes.max() * 1.5, 100)
    layers = []
    for number, (color, compute) in enumerate(zip(charts.SERIES, computes, strict=False)):
        layers.append(Layer("line", line, law.loss(line, compute / cost.flops(line, 1)), color, f"{compute:.1e}"))
        best = optimum(law, cost, float(compute))
        if line[0] <= best.parameters <= line[-1]:
            layers.append(Layer("line", [best.parameters] * 2, [best.loss, -np.inf], color))
        own = nearest == number
        moved = law.loss(sizes[own], compute / cost.flops(sizes[own], 1)) / (1 + report.fit.errors[own])
        layers.append(Layer("points", sizes[own], moved, color))
    label = "loss by parameters at equal compute; vertical lines: optimum"
    return charts.plot(label, Axis("parameters; vertical lines: optimum", log=True), _LOSS, *layers)


def future(report: ScalingReport) -> Markup:
    """The mean error of the larger runs, and its direction, by the compute that the fit was left."""
    reach = [row.reach for row in report.future]
    return charts.plot(
        "error of the loss by reach",
        Axis("largest predicted compute relative to the largest in the fit"),
        Axis("error of the loss", form=".1%"),
        Layer("line", [-np.inf, np.inf], [0, 0], "soft"),
        Layer("line", reach, [row.error for row in report.future], "part", "mean absolute error"),
        Layer("dotted", reach, [row.bias for row in report.future], "cut", "mean error; above 0: too high"),
    )
