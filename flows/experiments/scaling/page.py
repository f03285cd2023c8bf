"""The page of a scaling law: its plots, then optima of budgets, forecasts, and what leaving the future out says."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from markupsafe import Markup

from gristmill.flows.experiments.scaling.report import LEVEL, ScalingReport
from gristmill.flows.reports import pages
from gristmill.flows.reports.pages import Table, charts
from gristmill.flows.reports.pages.charts import Axis, Layer, span
from gristmill.flows.stats.law import optimum

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


def tables(report: ScalingReport) -> Iterator[tuple[str, str, Table]]:
    """A heading, a sentence, and a table, for what there is: forecasts, optima, and errors of the future."""
    level, head = f"{LEVEL:.0%} interval", tuple[str, ...]()
    if report.forecasts:
        head = ("#parameters", "#tokens", "#compute", "#forecast", f"#{level}", "#came")
        rows: list[tuple[Any, ...]] = []
        for one in report.forecasts:
            claim, came = one.forecast, one.check
            size = claim.parameters, claim.tokens, f"{claim.reach:.1f} times"
            loss = f"{came.loss:.4f}{'' if came.inside else ' (outside)'}"
            rows.append((*size, f"{claim.loss.value:.4f}", span(claim.loss.low, claim.loss.high, ".4f"), loss))
        yield "Forecasts", report.forecast_sentence, (head, rows)
    if report.optima:
        head = ("#operations", "#best parameters", "#best tokens", "#bits per byte")
        rows = []
        for best in report.optima:
            cells = [f"{one.value:,.0f} ({span(one.low, one.high, ',.0f')})" for one in (best.parameters, best.tokens)]
            loss = f"{best.loss.value:.4f} ({span(best.loss.low, best.loss.high, '.4f')})"
            rows.append((f"{best.compute:.2e}", *cells, loss))
        yield "Optima", "", (head, rows)
    head = ("#operations up to", "#runs", "#predicted", "#reach", "#mean error", "#bias", f"#inside {LEVEL:.0%}")
    rows = [
        (f"{one.compute:.2e}", one.fitted, one.predicted, f"{one.reach:.1f} times", f"{one.error:.2%}",
         f"{one.bias:+.2%}", one.inside)
        for one in report.future
    ]  # fmt: skip
    yield "Errors", "Fitted to the smaller runs, and held against the larger", (head, rows)


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
        layers.append(Layer("points", reach, [one.check.loss for one in forecasts], "cut", "what came"))
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
    label = "loss by parameters along equal compute; upright lines: the optimum"
    return charts.plot(label, Axis("parameters; upright: the optimum", log=True), _LOSS, *layers)


def future(report: ScalingReport) -> Markup:
    """The mean error of the larger runs, and its direction, by the compute that the fit was left."""
    reach = [row.reach for row in report.future]
    return charts.plot(
        "error of the loss by reach",
        Axis("largest compute that is predicted over the largest in the fit"),
        Axis("error of the loss", form=".1%"),
        Layer("line", [-np.inf, np.inf], [0, 0], "soft"),
        Layer("line", reach, [row.error for row in report.future], "part", "mean absolute error"),
        Layer("dotted", reach, [row.bias for row in report.future], "cut", "mean error: above 0 too high"),
    )
