"""Reports of decisions on simulated runs, for tests of what is shown of them."""

from collections.abc import Callable

import numpy as np

from gristmill.flows.experiments.decisions.report import ArmFigures, DecisionReport, TrainedRun, set_effects
from gristmill.flows.experiments.decisions.tasks import task_accuracies
from gristmill.flows.reports.funnel import FunnelRow
from gristmill.flows.stats.protocol import Protocol, decide
from gristmill.flows.stats.runs import EvaluationSet, RunRequest
from gristmill.flows.stats.verdict import Conditions
from tests.decisions import RATES, TOKENS, bank, evaluation, simulator

EVALUATION = evaluation()
CONDITIONS = Conditions("100 documents of 61 hosts of `clean`", 251_904, TOKENS, resampled=False)
Scored = Callable[[RunRequest], dict[str, float]]
STEPS = {"without minhash": "minhash", "without c4": "c4"}


def arm(documents: int, cpu_seconds: float | None) -> ArmFigures:
    row = FunnelRow("c4", 900, documents, 9000, 8000, {"short": 900 - documents})
    return ArmFigures(documents, 1_000_000, {"web": 0.2, "books": 0.5}, (row,), cpu_seconds)


def report(
    effects: dict[str, float], seed: int = 1, protocol: Protocol | None = None, scored: Scored | None = None
) -> DecisionReport:
    """A decision on a base and candidates with planted effects; `scored`: accuracies of a run by task."""
    runs = simulator(seed, EVALUATION, effects)
    protocol = protocol or Protocol(learning_rates=RATES, survivors=None)
    decision = decide(protocol, EVALUATION, "base", list(effects), TOKENS, runs, bank(runs, EVALUATION), CONDITIONS)
    bits = dict(zip(decision.runs, runs(decision.runs), strict=True))
    return DecisionReport(
        id="0123456789abcdef",
        decision=decision,
        arms={"base": arm(500, 40.0)} | {name: arm(600 + i, 30.0 - i) for i, name in enumerate(effects)},
        sets=set_effects(decision, EVALUATION, bits),
        runs=tuple(
            TrainedRun(r, f"{i:016x}", measure(bits[r]), by_set(bits[r]), scored(r) if scored else {})
            for i, r in enumerate(bits)
        ),
        steps={name: step for name, step in STEPS.items() if name in effects},
        fixed={"language": "`gopher_quality` has settings by language"},
        announced="This decision detects an effect.",
        differences={name: ("@@ steps.c4 @@", "-min_words: 3", f"+min_words: {name}") for name in effects},
        tasks=task_accuracies(decision, {r: scored(r) for r in bits}, {"quiz": 0.25}) if scored else {},
    )


def measure(bits: np.ndarray) -> float:
    return float(EVALUATION.measure(bits))


def by_set(bits: np.ndarray) -> dict[str, float]:
    places = {name: EVALUATION.members(name) for name in EVALUATION.names}
    return {name: float(bits[at].sum() / EVALUATION.size[at].sum()) for name, at in places.items()}


__all__ = ["CONDITIONS", "EVALUATION", "RATES", "TOKENS", "EvaluationSet", "RunRequest", "report"]
