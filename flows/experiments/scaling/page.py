"""The page of a scaling law: its plots, then optima of budgets, forecasts, and what leaving the future out says."""

from collections.abc import Iterator

import numpy as np
from markupsafe import Markup

from gristmill.flows.experiments.scaling.report import LEVEL, ScalingReport
from gristmill.flows.reports import pages
from gristmill.flows.reports.pages import charts
from gristmill.flows.reports.pages.charts import Axis, Layer
from gristmill.flows.reports.tables import Table, span
from gristmill.flows.stats.law import Interval, optimum

_CURVES = 6  # of equal compute at most: more lie on each other
_COMPUTE = Axis("floating-point operations of training", log=True)
_LOSS = Axis("bits per byte")


def page(report: ScalingReport) -> str:
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
        tables=list(tables(report)),
    )


def tables(report: ScalingReport) -> Iterator[tuple[str, Table]]:
    """A sentence and a table for what there is: forecasts, optima, and errors of the future."""
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
