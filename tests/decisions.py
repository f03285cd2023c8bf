"""Decisions between simulated recipes, for tests: known components, known effects."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gristmill.flows.stats.crossed import Components
from gristmill.flows.stats.protocol import Bank, Protocol, calibrate, decide
from gristmill.flows.stats.runs import EvaluationSet
from tests.simulated_runs import Simulator, normal

FILE = Path(__file__).parent / "flows" / "comparison" / "components.json"
COMPONENTS = Components.model_validate_json(FILE.read_text())
RATES = (1e-3, 4e-3)
TOKENS = 200_000


def evaluation(documents: int = 200, sets: int = 2, seed: int = 0) -> EvaluationSet:
    """So many documents of each set, lengths as those of web pages."""
    names = tuple(f"set{n}" for n in range(sets))
    size = np.exp(np.random.default_rng(seed).normal(7, 0.8, documents * sets)).astype(np.int64) + 20
    return EvaluationSet(names, np.repeat(np.arange(sets), documents), size, names)


def of_hosts(documents: int, hosts: int, zipf: bool = False, sets: int = 1) -> EvaluationSet:
    """So many documents of each set, of hosts of their own: of equal size, or the n-th of a share of 1/n."""
    judged = evaluation(documents, sets)
    share = 1 / np.arange(1, hosts + 1) if zipf else np.ones(hosts)
    more = np.diff(np.round(np.cumsum(share) / share.sum() * (documents - hosts)).astype(int), prepend=0)
    of_set = np.repeat(np.arange(hosts), 1 + more)
    return replace(judged, cluster_of=np.concatenate([of_set + hosts * number for number in range(sets)]))


def simulator(seed: int, judged: EvaluationSet, effects=None, components=COMPONENTS, draw=normal) -> Simulator:
    return Simulator(components, judged, RATES, TOKENS, seed, effects or {}, draw)


def bank(runs: Simulator, judged: EvaluationSet, pairs: int = 12) -> Bank:
    return calibrate(runs, judged, "base", range(1, 1 + pairs), RATES, TOKENS)


@dataclass(frozen=True)
class Rates:
    """Of many decisions: with a false verdict, of intervals that hold the truth, verdicts by outcome."""

    false: float
    coverage: float
    outcomes: dict[str, float]


def rates(
    decisions: int,
    effects: dict,
    protocol: Protocol,
    judged: EvaluationSet,
    bank_pairs: int = 12,
    components: Components = COMPONENTS,
    in_bank: Components | None = None,
    draw=normal,
) -> Rates:
    """Whole decisions, each with a bank of its own; `in_bank`: components of the bank's runs if they are others."""
    false, covered, outcomes = 0, [], Counter()
    for seed in range(decisions):
        runs = simulator(seed, judged, effects, components, draw)
        of_bank = runs if in_bank is None else simulator(seed, judged, None, in_bank, draw)
        known = bank(of_bank, judged, bank_pairs) if bank_pairs else None
        wrong = False
        for verdict in decide(protocol, judged, "base", list(effects), TOKENS, runs, known).verdicts:
            outcomes[verdict.outcome] += 1
            if verdict.effect is None:
                continue
            truth = float(np.mean(effects[verdict.candidate]))
            covered.append(verdict.low <= truth <= verdict.high)
            wrong |= (verdict.outcome == "better" and truth <= 0) or (verdict.outcome == "worse" and truth >= 0)
        false += wrong
    shares = {outcome: count / decisions for outcome, count in outcomes.items()}
    return Rates(false / decisions, float(np.mean(covered)), shares)
