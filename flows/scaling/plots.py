"""Plots of a scaling law: loss by compute with forecasts, IsoFLOP curves, errors of leaving the future out."""

from collections.abc import Callable

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from gristmill.flows.reports.plots.figures import BLUE, GREY, LIGHT, RED
from gristmill.flows.scaling.optimum import optimum
from gristmill.flows.scaling.report import ScalingReport

_CURVES = 6  # of equal compute at most: more lie on each other


def by_compute(report: ScalingReport) -> Callable[[Axes], None]:
    """Draws the loss of all runs by compute, the law's smallest loss at each compute, and forecasts with their
    intervals."""

    def draw(axes: Axes) -> None:
        losses = [run.loss for run in report.fitted]
        computes = [*report.compute, *(one.forecast.reach * report.compute.max() for one in report.forecasts)]
        line = np.geomspace(min(computes), max(computes) * 1.2, 100)
        best = [optimum(report.fit.law, report.cost, compute).loss for compute in line]
        axes.plot(line, best, color=GREY, linestyle=":", label="best of the law at each compute")
        axes.plot(report.compute, losses, "o", color=BLUE, markersize=5, label="runs of the fit")
        if out := [run for run in report.runs if run not in report.fitted]:
            axes.plot([run.flops for run in out], [run.loss for run in out], "o", color=LIGHT, markersize=5,
                      label="left out")  # fmt: skip
        for number, one in enumerate(report.forecasts):
            at, claim = one.forecast.reach * report.compute.max(), one.forecast.loss
            axes.plot([at, at], [claim.low, claim.high], color=LIGHT, linewidth=5, solid_capstyle="butt",
                      label=None if number else "forecast, 90% interval")  # fmt: skip
            axes.plot(at, one.check.loss, "D", color=RED, markersize=5, label=None if number else "what came")
        axes.set_xscale("log")
        axes.set_xlabel("floating-point operations of training")
        axes.set_ylabel("bits per byte")
        axes.grid(color="#dddddd")
        axes.legend(loc="upper right", frameon=False)

    return draw


def isoflop(report: ScalingReport) -> Callable[[Axes], None]:
    """Draws the law's loss by parameters along runs of equal compute, its optimum on each, and the runs.

    A run is drawn in the colour of the nearest curve, moved to that curve's compute by the law: its distance from the
    curve is its error.
    """

    def draw(axes: Axes) -> None:
        law, cost = report.fit.law, report.cost
        curves = np.geomspace(report.compute.min(), report.compute.max(), _CURVES)
        nearest = np.abs(np.log(report.compute[:, None] / curves)).argmin(axis=1)
        sizes = np.array([run.parameters for run in report.fitted], float)
        line = np.geomspace(sizes.min() / 1.5, sizes.max() * 1.5, 100)
        shades = np.linspace(0.15, 0.85, _CURVES)

        colours = matplotlib.colormaps["viridis"](shades)
        for number, compute in enumerate(curves):
            along = law.loss(line, compute / cost.flops(line, 1))
            axes.plot(line, along, color=colours[number], linewidth=1, label=f"{compute:.1e}")
            best = optimum(law, cost, float(compute))
            if line[0] <= best.parameters <= line[-1]:
                axes.plot(best.parameters, best.loss, "*", color=colours[number], markersize=11)
            for at in np.flatnonzero(nearest == number):
                moved = float(law.loss(sizes[at], compute / cost.flops(sizes[at], 1))) / (1 + report.fit.errors[at])
                axes.plot(sizes[at], moved, "o", color=colours[number], markersize=4)
        axes.set_xscale("log")
        axes.set_xlabel("parameters")
        axes.set_ylabel("bits per byte")
        axes.grid(color="#dddddd")
        axes.legend(title="operations; stars: optimum", loc="upper right", frameon=False, ncols=2, fontsize=8)

    return draw


def future(report: ScalingReport) -> Callable[[Axes], None]:
    """Draws the mean error of the larger runs, and its direction, by the compute that the fit was left."""

    def draw(axes: Axes) -> None:
        reach = [row.reach for row in report.future]
        axes.plot(reach, [100 * row.error for row in report.future], "o-", color=BLUE, label="mean absolute error")
        axes.plot(
            reach, [100 * row.bias for row in report.future], "o--", color=RED, label="mean error: above 0 too high"
        )
        axes.axhline(0, color=GREY, linewidth=0.8)
        axes.set_xlabel("largest compute that is predicted over the largest in the fit")
        axes.set_ylabel("error of the loss, %")
        axes.grid(color="#dddddd")
        axes.legend(loc="upper left", frameon=False)

    return draw
