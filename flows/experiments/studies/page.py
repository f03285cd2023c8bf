"""The page of a study: its answer, a plot and a table."""

import numpy as np
from markupsafe import Markup

from gristmill.flows.experiments.studies.report import LEVEL, ArmResult, StudyReport
from gristmill.flows.reports import pages
from gristmill.flows.reports.pages import charts
from gristmill.flows.reports.pages.charts import Axis, Layer


def page(report: StudyReport) -> str:
    """The study on one HTML page that needs no server and no network."""
    return pages.render("study.html", report=report, plot=plot(report))


def plot(report: StudyReport) -> Markup | None:
    """The loss of each arm less the base's, with its interval; by the arms' numbers, if they have some. None where no
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
