"""The page of a decision: the effect of each candidate as a picture and a line, then what it rests on; its tables."""

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from gristmill.flows.reports import pages
from gristmill.flows.reports.pages import charts
from gristmill.flows.reports.pages.charts import Axis, Layer, bar, interval
from gristmill.flows.reports.tables import Table
from gristmill.flows.stats.verdict import Verdict

if TYPE_CHECKING:
    from gristmill.flows.experiments.decisions.report import DecisionReport, LeaderboardRow

Ends = tuple[Any, Any, Any]  # low, effect, high, all None without runs


def page(report: "DecisionReport") -> str:
    """The decision on one HTML page that needs no server and no network."""
    return pages.render(
        "decision.html",
        report=report,
        forest=forest(report),
        steps=steps(report),
        arms=arms(report),
        funnels=_funnels(report),
        tasks=tasks(report),
        screen=screen(report),
        pairs={one.candidate: by_pair(report, one.candidate) for one in report.verdicts if one.effect is not None},
        rates=_rates(report),
        sets=_sets(report),
        curves=curves(report) if any(run.curve for run in report.runs) else None,
    )


def notebook(report: "DecisionReport") -> str:
    """What a notebook shows: verdicts, tasks, and what the steps are worth."""
    return pages.render(
        "decision_notebook.html", report=report, forest=forest(report), tasks=tasks(report), steps=steps(report)
    )


def line(verdict: Verdict) -> str:
    """What is said of a candidate, in a line: the outcome, the effect with half the width of its interval, its worth
    in tokens, and what it was judged by."""
    judged = [f"{verdict.pairs} pair{'s' * (verdict.pairs != 1)}"]
    if verdict.conditions is not None:
        judged.append(f"judged by {verdict.conditions.judge}")
    if verdict.effect is None or verdict.low is None or verdict.high is None:
        return (
            f"screened out: with one run of each candidate, it ranks {verdict.rank} of "
            f"{verdict.candidates}; there is no verdict"
        )
    if verdict.outcome == "identical":
        return "; ".join(["no difference: all losses are the same", *judged])
    half = (verdict.high - verdict.low) / 2
    digits = min(max(3, 1 - int(np.floor(np.log10(half)))), 9) if half > 0 else 3
    decided = verdict.outcome in ("better", "worse")
    effect = abs(verdict.effect) if decided else verdict.effect
    outcome = f"{verdict.outcome} by" if decided else f"{verdict.outcome}:"
    amount = f"{effect:.{digits}f} ± {half:.{digits}f} bits per byte"
    if verdict.worth is not None and verdict.worth.share is not None:
        judged.insert(0, f"equivalent to {min(abs(verdict.worth.share), 10):.0%} of the tokens")
    return "; ".join([f"{outcome} {amount}", *judged])


def forest(report: "DecisionReport") -> Table:
    """A row for each candidate: its interval as a picture, and a line."""
    rows = [(one.candidate, (one.low, one.effect, one.high), line(one)) for one in report.verdicts]
    return Table(("candidate", "", "bits per byte, base minus candidate"), _pictures(rows))


def tables(report: "DecisionReport") -> Iterator[Table]:
    """What each recipe has and came to; where there are any, its tasks and what the steps are worth."""
    yield arms(report)
    if report.tasks:
        yield tasks(report)
        yield screen(report)
    if report.attribution:
        yield steps(report)


def steps(report: "DecisionReport") -> Table:
    """What each step is worth that was left out, and what it costs."""
    most = max((abs(each.documents) for each in report.attribution), default=1)
    columns = ("step", "", "#worth, bits per byte|+.4f", "#interval|+.4f", "without it", "#documents it removes", "")
    rows = [
        (each.step, (each.low, each.worth, each.high), each.worth, (each.low, each.high), each.outcome, each.documents,
         bar(abs(each.documents), most), each.cpu_seconds)
        for each in report.attribution
    ]  # fmt: skip
    title = f"Contribution of each step: {report.title}"
    return Table((*columns, "#CPU seconds it costs|,.1f"), _pictures(rows), title)


def tasks(report: "DecisionReport") -> Table:
    """The bits per byte of right answers and the accuracy at each task, beside the base's."""
    columns = ("recipe", "task", "#bits per byte|+.4f", "#interval|+.4f", "#accuracy|.1%", f"#of {report.base}|.1%")
    rows = []
    for name, some in report.tasks.items():
        for one in some:
            bits = report.task_effect(name, one.name)
            effect = (bits.effect, (bits.low, bits.high)) if bits else (None, None)
            accuracies = one.accuracy, one.base, one.difference, (one.low, one.high), one.chance
            rows.append((name, one.name, *effect, *accuracies))
    return Table((*columns, "#difference|+.1%", "#interval|+.1%", "#chance|.1%"), rows, f"Tasks: {report.title}")


def screen(report: "DecisionReport") -> Table:
    """What FineTasks asks of a task: what each task says at this size."""
    columns = ("task", "by", "#examples", "#above chance, standard errors|+.1f", "#rises|+.1f", "#order|+.1f")
    rows = [
        (one.name, one.measure, one.examples, one.above_chance, one.rises, one.order,
         one.signal / one.noise if one.noise else None, "; ".join(one.fails))
        for one in report.task_screen
    ]  # fmt: skip
    title = f"Informative tasks: {report.title}"
    return Table((*columns, "#signal / noise|.1f", "against it"), rows, title)


def arms(report: "DecisionReport") -> Table:
    """What each recipe has, costs, and came to; what a run costs, where recipes differ in that."""
    most, verdicts = max(arm.documents for arm in report.arms.values()), {one.candidate: one for one in report.verdicts}
    rows, shown = [], _costs_shown(report)
    for name, arm in report.arms.items():
        one, hours = verdicts.get(name), None if arm.cpu_seconds is None else arm.cpu_seconds / 3600
        verdict = (one.outcome, one.effect, (one.low, one.high), one.pairs) if one else ("the base", None, None, None)
        costs = [getattr(arm.cost, field) for field, _ in shown] if arm.cost else []
        rows.append(
            (name, *verdict, arm.documents, bar(arm.documents, most), arm.tokens, arm.most_epochs, hours, *costs)
        )
    level = f"#{report.decision.protocol.level:.0%} interval|+.4f"
    columns = ("recipe", "verdict", "#effect, bits per byte|+.4f", level, "#pairs", "#documents", "", "#tokens")
    of_runs = (column for _, column in shown)
    return Table((*columns, "#epochs|.2f", "#CPU hours|.4f", *of_runs), rows, report.title)


# Fields of `ArmCost` and their columns.
_COSTS = {
    "parameters": "#parameters|,",
    "flops": "#operations of a run|.2e",
    "text_bytes": "#bytes of text of a run|,.0f",
}


def _costs_shown(report: "DecisionReport") -> list[tuple[str, str]]:
    """What runs cost of which recipes have different amounts, with its column."""
    costs = [arm.cost for arm in report.arms.values()]
    if any(cost is None for cost in costs):
        return []
    return [(field, column) for field, column in _COSTS.items() if len({getattr(cost, field) for cost in costs}) > 1]


def leaderboard(rows: Sequence["LeaderboardRow"]) -> Table:
    """A row for each candidate of all decisions; with a column of reasons where a verdict is stale."""
    are_stale = any(one.stale for one in rows)
    last = ("judged by", "model and tokens", *(["stale"] if are_stale else []))
    columns = ("candidate", "base", "verdict", "#effect, bits per byte|+.4f", "#interval|+.4f", "#worth|+.0%")
    shown = [
        (one.candidate, one.base, one.outcome, one.effect, (one.low, one.high), one.worth, one.documents,
         one.cpu_hours, one.judge, f"{one.parameters:,}, {one.tokens:,}",
         *(["; ".join(one.stale)] if are_stale else []))
        for one in rows
    ]  # fmt: skip
    return Table((*columns, "#documents|+,", "#CPU hours|+.4f", *last), shown, "Decisions")


def _funnels(report: "DecisionReport") -> Table:
    def documents(arm: str, step: str) -> str:
        row = report.arms[arm].row(step)
        return f"{row.documents_out:,} of {row.documents_in:,}" if row else ""

    rows = [(step, *(documents(arm, step) for arm in report.arms)) for step in report.steps_of_all]
    return Table(("step", *(f"#{name}|" for name in report.arms)), rows)


def _rates(report: "DecisionReport") -> Table:
    return _effects(
        (f"{one.candidate}, at {each.learning_rate:g}", each)
        for one in report.verdicts
        for each in one.by_learning_rate
    )


def _sets(report: "DecisionReport") -> Table:
    return _effects((f"{name}, on {each.name}", each) for name, effects in report.sets.items() for each in effects)


def _effects(named: Iterator[tuple[str, Any]]) -> Table:
    rows = [(name, (one.low, one.effect, one.high), one.effect, (one.low, one.high)) for name, one in named]
    return Table(("", "", "#bits per byte|+.4f", "#plain interval|+.4f"), _pictures(rows))


def _pictures(rows: Sequence[tuple[str, Ends, *tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """Rows with the intervals, after their names, as pictures on one axis."""
    values = [0.0, *(value for _, ends, *_ in rows for value in ends if value is not None)]
    margin = 0.04 * (max(values) - min(values)) or 1.0
    axis = min(values) - margin, max(values) + margin
    return [(name, None if None in ends else interval(*ends, axis), *others) for name, ends, *others in rows]


def by_pair(report: "DecisionReport", candidate: str) -> Markup:
    """The difference of each pair, with its learning rate, and the interval."""
    [verdict] = [each for each in report.verdicts if each.candidate == candidate]
    losses = {one.request: one.bits_per_byte for one in report.runs}
    decision = report.decision
    pairs = decision.protocol.pairs(0, verdict.pairs)
    differences = np.array(
        [losses[decision.request(report.base, pair)] - losses[decision.request(candidate, pair)] for pair in pairs]
    )
    rate_of = np.array([decision.protocol.rate(pair) for pair in pairs])
    layers = []
    if verdict.low is not None and verdict.high is not None:
        layers.append(Layer("band", [], [], "light", f"{verdict.level:.0%} interval", [verdict.low], [verdict.high]))
    layers += [
        Layer("points", np.flatnonzero(rate_of == rate), differences[rate_of == rate], color, f"at {rate:g}")
        for rate, color in zip(verdict.learning_rates, cycle(charts.SERIES[1:7]), strict=False)
    ]
    layers.append(Layer("line", [-np.inf, np.inf], [0, 0], "soft"))
    x = Axis("pair", names=[f"{pair}" for pair in pairs])
    return charts.plot(f"difference of each pair, {candidate}", x, Axis("bits per byte", show=(0,)), *layers)


def curves(report: "DecisionReport") -> Markup:
    """The training loss of every run at the largest learning rate: of each recipe the mean, where its runs have as many
    points, else each."""
    rate, tokens = report.decision.protocol.learning_rates[-1], report.decision.tokens
    layers = []
    for number, arm in enumerate([report.base, *(verdict.candidate for verdict in report.verdicts)]):
        wanted = [
            np.array(run.curve)
            for run in report.runs
            if (run.request.arm, run.request.learning_rate, run.request.tokens) == (arm, rate, tokens) and run.curve
        ]
        if len({len(curve) for curve in wanted}) == 1:
            wanted = [np.mean(wanted, axis=0)]
        color = charts.SERIES[number % len(charts.SERIES)]
        layers += [Layer("line", curve[:, 0], curve[:, 1], color, "" if at else arm) for at, curve in enumerate(wanted)]
    return charts.plot("training loss of the runs by step", Axis("step"), Axis("loss, nats per token"), *layers)
