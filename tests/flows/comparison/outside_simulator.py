"""Whole decisions between recipes whose truth is known, written without sight of the analysis.

It knows what a decision asks and answers (`runs.py`, `decide`), and no variance component of the package. A document's
bits are its bytes times a rate, which is the sum of

- the document's own level, alike for all runs;
- of a pair, for all arms alike: `pair`;
- of an arm's text, a sample for each pair and salt: `sample`;
- of a run beyond that, for each learning rate: `run`, and for each document of it `run_document`;
- of an arm on a document: its effect, and a deviation of variance `document`**2 of which the share `correlation` is the
  host's;
- with `pool` hosts of training text: the mean of what the hosts in a pair's half do, `pool_effect` from host to host.

All standard deviations are bits per byte. The truth is the effect of the population that documents, hosts and pool were
drawn from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from math import sqrt

import numpy as np

from gristmill.flows.stats.protocol import LOOKS, Protocol, calibrate, decide
from gristmill.flows.stats.runs import EvaluationSet, RunRequest

RATES = (0.005, 0.015)
TOKENS = 198_656
NAMES = ("base", "A")


@dataclass(frozen=True)
class World:
    """What is so. Standard deviations of pair, sample and run are near those of the demo's recorded runs."""

    documents: int = 100
    hosts: int = 100
    zipf: bool = False
    correlation: float = 0.0
    heavy: bool = False
    effect: float = 0.0
    bank: int = 12
    pool: int = 0
    pool_effect: float = 0.07
    pair: float = 0.005
    sample: float = 0.0075
    run: float = 0.002
    document: float = 0.08
    run_document: float = 0.05

    def draw(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> np.ndarray:
        """Of variance 1: normal, or t with 3 degrees."""
        return rng.standard_t(3, shape) / sqrt(3) if self.heavy else rng.standard_normal(shape)

    def host_of(self) -> np.ndarray:
        """int64 (documents,): each host has one document at least, the rest by equal or Zipf's shares."""
        share = 1 / np.arange(1, self.hosts + 1) if self.zipf else np.ones(self.hosts)
        ends = np.cumsum(share) / share.sum() * (self.documents - self.hosts)
        sizes = 1 + np.diff(np.round(ends).astype(np.int64), prepend=0)
        return np.repeat(np.arange(self.hosts), sizes)


@dataclass
class Runs:
    """Answers requests: what is drawn for a request depends on the seed and the request alone."""

    world: World
    seed: int
    evaluation: EvaluationSet = field(init=False)

    def __post_init__(self) -> None:
        world, rng = self.world, np.random.default_rng([self.seed, 0])
        host = world.host_of()
        size = np.exp(rng.normal(7, 0.7, world.documents)).astype(np.int64) + 20
        self.level = 2.7 + 0.2 * rng.standard_normal(world.documents)
        by_host = sqrt(world.correlation) * world.draw(rng, (2, world.hosts))[:, host]
        alone = sqrt(1 - world.correlation) * world.draw(rng, (2, world.documents))
        # each arm's own: their difference has variance document**2
        self.deviation = world.document / sqrt(2) * (by_host + alone)
        self.deviation[1] -= world.effect
        self.pool = world.pool_effect / sqrt(2) * rng.standard_normal((2, world.pool))
        given = {"names": ("text",), "set_of": np.zeros(world.documents, np.int64), "size": size, "judged": ("text",)}
        if "cluster_of" in {each.name for each in fields(EvaluationSet)}:
            given["cluster_of"] = host
        self.evaluation = EvaluationSet(**given)

    def _normal(self, *numbers: int, count: int = 1) -> np.ndarray:
        return self.world.draw(np.random.default_rng([self.seed, *numbers]), count)

    def __call__(self, requests: Sequence[RunRequest]) -> list[np.ndarray]:
        return list(map(self._bits, requests))

    def _bits(self, asked: RunRequest) -> np.ndarray:
        world, arm, rate = self.world, NAMES.index(asked.arm), RATES.index(asked.learning_rate)
        text = (arm, asked.pair, asked.salt)
        level = world.pair * self._normal(1, asked.pair) + world.sample * self._normal(2, *text)
        noise = self._normal(3, *text, rate, count=world.documents + 1)
        level = level + 0.01 * rate + world.run * noise[0]
        if world.pool:
            half = np.random.default_rng([self.seed, 4, asked.pair]).permutation(world.pool)[: world.pool // 2]
            level = level + self.pool[arm, half].mean()
        return self.evaluation.size * (self.level + self.deviation[arm] + level + world.run_document * noise[1:])


@dataclass(frozen=True)
class Found:
    """One decision: its verdict, and that of the new decision which the verdict advised, if it did."""

    outcome: str
    covered: bool
    advised: int | None
    then: str | None


def protocol(world: World, looks: tuple[int, ...] = LOOKS, first_pair: int = 1) -> Protocol:
    given = {"learning_rates": RATES, "looks": looks, "worth_pairs": 0, "first_pair": first_pair}
    if world.pool and "resample" in Protocol.model_fields:
        given["resample"] = True
    return Protocol(**given)


def decided(world: World, seed: int, follow: bool = False) -> Found:
    """One whole decision with its A/A bank, and with `follow` the one that it advises."""
    runs = Runs(world, seed)
    bank = None
    if world.bank:
        bank = calibrate(runs, runs.evaluation, "base", range(1, 1 + world.bank), RATES, TOKENS)

    def verdict(settings: Protocol):
        return decide(settings, runs.evaluation, "base", ["A"], TOKENS, runs, bank).verdicts[0]

    first = verdict(protocol(world))
    advised, then = first.pairs_needed, None
    if follow and advised is not None:
        then = verdict(protocol(world, (advised,), first.first_pair)).outcome
    return Found(first.outcome, first.low <= world.effect <= first.high, advised, then)


@dataclass(frozen=True)
class Row:
    """Shares of many decisions. false: a verdict with the wrong sign, any verdict where there is no effect.

    told: of those that advised a number of pairs and followed it, which then had a verdict.
    """

    decisions: int
    false: float
    coverage: float
    better: float
    advised: float
    told: float | None

    @classmethod
    def of(cls, world: World, decisions: int, seed: int = 0, follow: bool = False) -> "Row":
        found = [decided(world, seed * 1_000_003 + number, follow) for number in range(decisions)]
        wrong = ("worse",) if world.effect > 0 else ("better", "worse")
        followed = [each.then in ("better", "worse") for each in found if each.then]
        return cls(
            decisions,
            float(np.mean([each.outcome in wrong for each in found])),
            float(np.mean([each.covered for each in found])),
            float(np.mean([each.outcome == "better" for each in found])),
            float(np.mean([each.advised is not None for each in found])),
            float(np.mean(followed)) if followed else None,
        )


def differences(world: World, pairs: int, seed: int = 0) -> np.ndarray:
    """Bits per byte of the base minus the candidate's, (pairs, learning rates): what the simulator is tested by."""
    runs = Runs(world, seed)
    size = runs.evaluation.size.sum()

    def total(arm: str, pair: int, rate: float) -> float:
        return runs([RunRequest(arm, pair, rate, TOKENS)])[0].sum() / size

    return np.array([[total("base", pair, rate) - total("A", pair, rate) for rate in RATES] for pair in range(pairs)])
