"""The page of a decision: the effect of each candidate as a picture and a line, then what it rests on."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from markupsafe import Markup

from gristmill.flows.reports import pages
from gristmill.flows.reports.pages import Table, charts
from gristmill.flows.reports.pages.charts import Axis, Layer, bar, interval, span
from gristmill.flows.stats.protocol import Decision
from gristmill.flows.stats.runs import RunRequest
from gristmill.flows.stats.verdict import Verdict

Effect = tuple[float, float, float]  # low, effect, high


class ShownDecision(Protocol):
    """The parts of a `report.DecisionReport` that are shown; the types of sets, runs and steps are in its module."""

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
    @property
    def arms(self) -> Mapping[str, Any]: ...
    @property
    def tasks(self) -> Mapping[str, Sequence[Any]]: ...
    @property
    def task_screen(self) -> Sequence[Any]: ...
    @property
    def steps_of_all(self) -> list[str]: ...
    def task_effect(self, candidate: str, task: str) -> Any: ...


def page(report: ShownDecision) -> str:
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


def notebook(report: ShownDecision) -> str:
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
        return f"screened out: one run of each ranks it {verdict.rank} of {verdict.candidates}; there is no verdict"
    if verdict.outcome == "identical":
        return "; ".join(["no difference: all losses are the same", *judged])
    half = (verdict.high - verdict.low) / 2
    digits = min(max(3, 1 - int(np.floor(np.log10(half)))), 9) if half > 0 else 3
    decided = verdict.outcome in ("better", "worse")
    effect = abs(verdict.effect) if decided else verdict.effect
    said = f"{verdict.outcome} by" if decided else f"{verdict.outcome}:"
    amount = f"{effect:.{digits}f} ± {half:.{digits}f} bits per byte"
    if verdict.worth is not None and verdict.worth.share is not None:
        judged.insert(0, f"as much as {min(abs(verdict.worth.share), 10):.0%} of the tokens")
    return "; ".join([f"{said} {amount}", *judged])


def forest(report: ShownDecision) -> Table:
    """A row for each candidate: its interval as a picture, and a line."""
    shown = [(one.candidate, _effect(one), (line(one),)) for one in report.verdicts]
    return ("candidate", "", "bits per byte, base minus candidate"), _pictures(shown)


def steps(report: ShownDecision) -> Table:
    """What each step is worth that was left out, and what it costs."""
    most_documents = max((abs(each.documents) for each in report.attribution), default=1)
    shown = []
    for each in report.attribution:
        worth = None if each.worth is None else (each.low, each.worth, each.high)
        cost = each.documents, bar(abs(each.documents), most_documents), _form(each.cpu_seconds, ",.1f")
        shown.append((each.step, worth, (_form(each.worth, "+.4f"), _span(worth), each.outcome, *cost)))
    head = ("step", "", "#worth, bits per byte", "#interval", "without it", "#documents it costs", "")
    return (*head, "#CPU seconds it costs"), _pictures(shown)


def tasks(report: ShownDecision) -> Table:
    """The bits per byte of right answers and the accuracy at each task, beside the base's."""
    head = ("candidate", "task", "#bits per byte", "#interval", "#accuracy", f"#of {report.base}", "#difference")
    rows = []
    for name, some in report.tasks.items():
        for one in some:
            bits = report.task_effect(name, one.name)
            effect = None if bits is None else (bits.low, bits.effect, bits.high)
            shares = f"{one.accuracy:.1%}", f"{one.base:.1%}", f"{one.difference:+.1%}"
            ends = span(one.low, one.high, "+.1%"), _form(one.chance, ".1%")
            rows.append((name, one.name, _form(effect and effect[1], "+.4f"), _span(effect), *shares, *ends))
    return (*head, "#interval", "#chance"), rows


def screen(report: ShownDecision) -> Table:
    """What each task says at this size."""
    head = ("task", "by", "#examples", "#above chance, standard errors", "#rises", "#order", "#signal / noise")
    return (*head, "against it"), [
        (one.name, one.measure, one.examples, _form(one.above_chance, "+.1f"), _form(one.rises, "+.1f"),
         _form(one.order, "+.1f"), f"{one.signal / one.noise:.1f}" if one.noise else None, "; ".join(one.fails))
        for one in report.task_screen
    ]  # fmt: skip


def arms(report: ShownDecision) -> Table:
    """What each recipe has, costs, and came to."""
    most, verdicts = max(arm.documents for arm in report.arms.values()), {one.candidate: one for one in report.verdicts}
    rows = []
    for name, arm in report.arms.items():
        effect = _effect(verdicts[name]) if name in verdicts else None
        hours = _form(None if arm.cpu_seconds is None else arm.cpu_seconds / 3600, ".4f")
        outcome = verdicts[name].outcome if name in verdicts else "the base"
        own = arm.documents, bar(arm.documents, most), arm.tokens, f"{arm.most_epochs:.2f}", hours
        rows.append((name, outcome, _form(effect and effect[1], "+.4f"), _span(effect), *own))
    level = f"#{report.decision.protocol.level:.0%} interval"
    head = ("recipe", "verdict", "#effect", level, "#documents", "", "#tokens", "#epochs", "#CPU hours")
    return head, rows


def _funnels(report: ShownDecision) -> Table:
    def cell(row: Any) -> str:
        return f"{row.documents_out:,} of {row.documents_in:,}" if row else ""

    head = ("step", *(f"#{name}" for name in report.arms))
    return head, [(step, *(cell(arm.row(step)) for arm in report.arms.values())) for step in report.steps_of_all]


def _rates(report: ShownDecision) -> Table:
    shown = [
        (f"{one.candidate}, at {each.learning_rate:g}", (each.low, each.effect, each.high))
        for one in report.verdicts
        for each in one.by_learning_rate
    ]
    return _plain(shown)


def _sets(report: ShownDecision) -> Table:
    shown = [
        (f"{name}, on {each.name}", (each.low, each.effect, each.high))
        for name, effects in report.sets.items()
        for each in effects
    ]
    return _plain(shown)


def _plain(shown: Sequence[tuple[str, Effect]]) -> Table:
    rows = [(name, effect, (f"{effect[1]:+.4f}", _span(effect))) for name, effect in shown]
    return ("", "", "#bits per byte", "#plain interval"), _pictures(rows)


def _pictures(rows: Sequence[tuple[str, Effect | None, tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """Rows with the intervals on one axis, after their names."""
    values = [0.0, *(value for _, effect, _ in rows if effect for value in effect)]
    margin = 0.04 * (max(values) - min(values)) or 1.0
    ends = min(values) - margin, max(values) + margin
    return [(name, interval(*effect, ends) if effect else None, *others) for name, effect, others in rows]


def by_pair(report: ShownDecision, candidate: str) -> Markup:
    """The difference of each pair, a point a learning rate and a line through their means, and the interval."""
    [verdict] = [each for each in report.verdicts if each.candidate == candidate]
    losses = {one.request: one.bits_per_byte for one in report.runs}
    pairs, rates, tokens = (
        report.decision.protocol.pairs(0, verdict.pairs),
        verdict.learning_rates,
        report.decision.tokens,
    )

    def measured(arm: str, pair: int, rate: float) -> float:
        return losses[RunRequest(arm, pair, rate, tokens)]

    differences = np.array(
        [[measured(report.base, p, rate) - measured(candidate, p, rate) for rate in rates] for p in pairs]
    )
    layers = []
    if verdict.low is not None and verdict.high is not None:
        layers.append(Layer("band", [], [], "light", f"{verdict.level:.0%} interval", [verdict.low], [verdict.high]))
    layers += [
        Layer("points", [*range(len(pairs))], column, charts.SERIES[1 + number % 6], f"at {rate:g}")
        for number, (column, rate) in enumerate(zip(differences.T, rates, strict=True))
    ]
    layers += [
        Layer("line", [*range(len(pairs))], differences.mean(axis=1), "part", "mean of the rates"),
        Layer("line", [-np.inf, np.inf], [0, 0], "soft"),
    ]
    x = Axis("pair", names=[f"{pair}" for pair in pairs])
    return charts.plot(f"difference of each pair, {candidate}", x, Axis("bits per byte", show=(0,)), *layers)


def curves(report: ShownDecision) -> Markup:
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
    return charts.plot("training loss of the runs by step", Axis("step"), Axis("training loss, nats a token"), *layers)


def _effect(verdict: Verdict) -> Effect | None:
    if verdict.effect is None or verdict.low is None or verdict.high is None:
        return None
    return verdict.low, verdict.effect, verdict.high


def _span(effect: Effect | None) -> str | None:
    return None if effect is None else span(effect[0], effect[2], "+.4f")


def _form(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)
