"""Plots of a decision: effects with their intervals, by learning rate and by set, and what steps are worth."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from gristmill.flows.reports.plots.figures import BLUE, GREY, LIGHT, RED, svg
from gristmill.flows.reports.templates import template
from gristmill.flows.stats.protocol import Decision
from gristmill.flows.stats.runs import RunRequest
from gristmill.flows.stats.verdict import Verdict

Row = tuple[str, float | None, float | None, float | None, str]  # name, effect, low, high, colour

_ROW = 0.34  # inches
COLOURS = {"better": BLUE, "worse": RED}
_LEFT = 0.28  # of the width, for names, at least
_CHARACTER = 0.0105  # of the width, for one of a name


class DrawnDecision(Protocol):
    """The parts of a `report.DecisionReport` that are drawn; the types of sets, runs and steps are in its module."""

    @property
    def base(self) -> str: ...
    @property
    def decision(self) -> Decision: ...
    @property
    def verdicts(self) -> tuple[Verdict, ...]: ...
    @property
    def sets(self) -> Mapping[str, Sequence[Any]]: ...
    @property
    def runs(self) -> Sequence[Any]: ...
    @property
    def attribution(self) -> Sequence[Any]: ...


def effects(report: DrawnDecision) -> Callable[[Axes], None]:
    """Draws the effect of each candidate with its interval, and a line at no effect."""
    rows: list[Row] = [(v.candidate, v.effect, v.low, v.high, COLOURS.get(v.outcome, GREY)) for v in report.verdicts]
    return _forest(rows, f"bits per byte, {report.base} minus candidate: right of 0 the candidate is better", report)


def by_learning_rate(report: DrawnDecision) -> Callable[[Axes], None]:
    """Draws the effect of each candidate at each learning rate."""
    rows: list[Row] = [
        (f"{v.candidate}, at {each.learning_rate:g}", each.effect, each.low, each.high, _sign(each.low, each.high))
        for v in report.verdicts
        for each in v.by_learning_rate
    ]
    return _forest(rows, "bits per byte at one learning rate, plain intervals", report)


def by_set(report: DrawnDecision) -> Callable[[Axes], None]:
    """Draws the effect of each candidate on each evaluation set."""
    rows: list[Row] = [
        (f"{name}, on {each.name}", each.effect, each.low, each.high, _sign(each.low, each.high))
        for name, effects in report.sets.items()
        for each in effects
    ]
    return _forest(rows, "bits per byte on one evaluation set, plain intervals", report)


def by_pair(report: DrawnDecision, candidate: str) -> Callable[[Axes], None]:
    """Draws the difference of each pair, a point a learning rate and a line through their means, and the interval."""
    [verdict] = [each for each in report.verdicts if each.candidate == candidate]
    found = {one.request: one.bits_per_byte for one in report.runs}
    pairs, rates = report.decision.protocol.pairs(0, verdict.pairs), verdict.learning_rates

    def measured(arm: str, pair: int, rate: float) -> float:
        return found[RunRequest(arm, pair, rate, report.decision.tokens)]

    def draw(axes: Axes) -> None:
        differences = np.array(
            [[measured(report.base, p, rate) - measured(candidate, p, rate) for rate in rates] for p in pairs]
        )
        if verdict.low is not None and verdict.high is not None:
            axes.axhspan(verdict.low, verdict.high, color=LIGHT, alpha=0.4, label=f"{verdict.level:.0%} interval")
        for number, (column, rate) in enumerate(zip(differences.T, rates, strict=True)):
            axes.plot(pairs, column, "ov^s"[number % 4], color=GREY, markersize=4, label=f"at {rate:g}")
        axes.plot(pairs, differences.mean(axis=1), "-", color=BLUE, label="mean of the rates")
        axes.axhline(0, color=GREY, linewidth=1)
        axes.set_xticks(list(pairs))
        axes.set_xlabel("pair")
        axes.set_ylabel("bits per byte")
        axes.grid(axis="y", color="#dddddd")
        axes.legend(frameon=False, fontsize=8, ncols=2)

    return draw


def curves(report: DrawnDecision) -> Callable[[Axes], None]:
    """Draws the training loss of every run at the largest learning rate, the base's in one colour, each candidate's in
    another, and the mean of each."""
    rate, tokens = report.decision.protocol.learning_rates[-1], report.decision.tokens
    arms = [report.base, *(verdict.candidate for verdict in report.verdicts)]

    def draw(axes: Axes) -> None:
        colours = matplotlib.colormaps["tab10"](np.arange(len(arms)) % 10)
        for arm, colour in zip(arms, colours, strict=True):
            wanted = [
                run.curve
                for run in report.runs
                if (run.request.arm, run.request.learning_rate, run.request.tokens) == (arm, rate, tokens) and run.curve
            ]
            for curve in wanted:
                axes.plot(*zip(*curve, strict=True), color=colour, linewidth=0.6, alpha=0.4)
            if wanted and len({len(curve) for curve in wanted}) == 1:
                steps = [step for step, _ in wanted[0]]
                means = np.mean([[loss for _, loss in curve] for curve in wanted], axis=0)
                axes.plot(steps, means, color=colour, linewidth=1.8, label=arm)
        axes.set_xlabel("step")
        axes.set_ylabel("training loss, nats a token")
        axes.grid(color="#dddddd")
        for text in axes.legend(frameon=False, fontsize=8).get_texts():
            text.set_parse_math(False)

    return draw


def attribution(report: DrawnDecision) -> Callable[[Axes, Axes, Axes], None]:
    """Draws for each step that was left out, beside each other: its worth, the documents and the CPU time it costs."""

    def draw(worth: Axes, documents: Axes, cpu: Axes) -> None:
        rows = report.attribution
        colours = {"worse": BLUE, "better": RED}  # without it the recipe is worse: the step is worth having
        _forest(
            [(each.step, each.worth, each.low, each.high, colours.get(each.outcome, GREY)) for each in rows],
            "bits per byte lost without it",
            report,
        )(worth)
        places = range(len(rows))
        bars = documents.barh(places, [each.documents for each in rows], color=LIGHT)
        documents.bar_label(bars, [f"{each.documents:,}" for each in rows], padding=3, color=GREY, fontsize=8)
        documents.set_xlabel("documents it costs")
        bars = cpu.barh(places, [each.cpu_seconds or 0.0 for each in rows], color=LIGHT)
        cpu.bar_label(bars, [_seconds(each.cpu_seconds) for each in rows], padding=3, color=GREY, fontsize=8)
        cpu.set_xlabel("CPU seconds it costs")
        for axes in (documents, cpu):
            axes.margins(x=0.3)
            axes.axvline(0, color=GREY, linewidth=1)
            axes.tick_params(labelsize=8)

    return draw


def height(rows: int) -> tuple[float]:
    """Inches of a plot with so many rows."""
    return (max(0.8, _ROW * rows),)


def effects_svg(report: DrawnDecision) -> Markup:
    return svg("effects", "effect of each candidate with its interval", effects(report), height(len(report.verdicts)))


def by_learning_rate_svg(report: DrawnDecision) -> Markup:
    rows = sum(len(verdict.by_learning_rate) for verdict in report.verdicts)
    return svg("rates", "effect of each candidate at each learning rate", by_learning_rate(report), height(rows))


def by_set_svg(report: DrawnDecision) -> Markup:
    rows = sum(map(len, report.sets.values()))
    return svg("sets", "effect of each candidate on each evaluation set", by_set(report), height(rows))


def by_pair_svg(report: DrawnDecision, candidate: str) -> Markup:
    return svg(f"pairs {candidate}", f"difference of each pair, {candidate}", by_pair(report, candidate), (2.2,))


def curves_svg(report: DrawnDecision) -> Markup:
    return svg("curves", "training loss of the runs by step", curves(report), (3,))


def attribution_svg(report: DrawnDecision) -> Markup:
    rows = len(report.attribution)
    return svg("attribution", "what each step is worth and costs", attribution(report), height(rows), columns=3)


def _forest(rows: Sequence[Row], label: str, report: DrawnDecision) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        axes.axvline(0, color=GREY, linewidth=1)
        for place, (_, effect, low, high, colour) in enumerate(rows):
            if effect is None or low is None or high is None:
                axes.text(0, place, " no verdict", va="center", color=GREY, fontsize=8)
                continue
            axes.plot([low, high], [place, place], color=colour, linewidth=2, solid_capstyle="butt")
            axes.plot([effect], [place], "o", color=colour, markersize=5)
            axes.annotate(
                f"{effect:+.4f}", (effect, place), (0, 5), textcoords="offset points", ha="center", fontsize=8,
                color=colour,
            )  # fmt: skip
        axes.set_yticks(range(len(rows)), [row[0] for row in rows], parse_math=False)
        axes.set_ylim(len(rows) - 0.4, -0.7)
        axes.set_xlabel(label, parse_math=False)
        if report.decision.conditions is not None:
            axes.figure.text(0.01, 0.005, f"{report.decision.conditions}", fontsize=7, color=GREY, parse_math=False)
        axes.grid(axis="x", color="#dddddd")
        axes.margins(x=0.08)
        longest = max((len(row[0]) for row in rows), default=0)
        axes.figure.subplots_adjust(left=min(max(_LEFT, _CHARACTER * longest), 0.6))

    return draw


def _sign(low: float, high: float) -> str:
    return BLUE if low > 0 else RED if high < 0 else GREY


def _seconds(value: float | None) -> str:
    return "not measured" if value is None else f"{value:,.0f}"


def page(report: DrawnDecision) -> str:
    """The decision on one HTML page that needs no server and no network."""
    return template("decision_page.html").render(
        report=report,
        effects=effects_svg(report),
        rates=by_learning_rate_svg(report),
        sets=by_set_svg(report),
        pairs={one.candidate: by_pair_svg(report, one.candidate) for one in report.verdicts if one.effect is not None},
        curves=curves_svg(report) if any(run.curve for run in report.runs) else None,
        attribution=attribution_svg(report) if report.attribution else None,
    )
