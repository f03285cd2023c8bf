"""The best split of a compute budget between parameters and tokens.

Training on one token costs k N^p floating-point operations; k and p are fitted to the models of the grid. With k = 6
and p = 1 this is Hoffmann's C = 6 N D, and what follows is equation 4 of arXiv 2203.15556. Attention and the embedding
lookup make p differ from 1 in small models.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gristmill.flows.stats.law import Interval, ScalingLaw


@dataclass(frozen=True)
class TokenCost:
    """Floating-point operations of training on one token: scale * parameters^power."""

    scale: float
    power: float

    def flops(self, parameters: np.ndarray | float, tokens: np.ndarray | float) -> np.ndarray:
        """Operations of a whole run; arrays broadcast."""
        return self.scale * np.asarray(parameters, float) ** self.power * np.asarray(tokens, float)


@dataclass(frozen=True)
class Optimum:
    """The parameters and tokens with the smallest loss for a compute budget, in floating-point operations."""

    compute: float
    parameters: float
    tokens: float
    loss: float


@dataclass(frozen=True)
class OptimumIntervals:
    """Percentile intervals of an optimum over bootstrapped laws. The loss is that of the law, without a run's noise."""

    compute: float
    parameters: Interval
    tokens: Interval
    loss: Interval


def token_cost(parameters: np.ndarray, flops_per_token: np.ndarray) -> TokenCost:
    """Least squares of the logarithms; both arrays float64 (models,). Raises ValueError for models of one size."""
    if len(np.unique(parameters)) < 2:
        raise ValueError("the models have one size, from which the cost of another is unknown; give two sizes or more")
    power, constant = np.polyfit(np.log(parameters), np.log(flops_per_token), 1)
    return TokenCost(float(np.exp(constant)), float(power))


def optimum(law: ScalingLaw, cost: TokenCost, compute: float) -> Optimum:
    """Where the derivative of the loss along runs of equal compute is zero.

    A law without a term for size (A = 0) asks for a model of no parameters on endless tokens, one without a term for
    data (B = 0) for the reverse: 0 and infinity are returned, with the loss E.
    """
    scaled = compute / cost.scale
    if not law.A or not law.B:
        ends = (0.0, np.inf) if not law.A else (np.inf, 0.0)
        return Optimum(compute, *ends, law.E)
    exponent = law.alpha + law.beta * cost.power
    parameters = (law.alpha * law.A / (law.beta * cost.power * law.B) * scaled**law.beta) ** (1 / exponent)
    tokens = scaled / parameters**cost.power
    return Optimum(compute, parameters, tokens, float(law.loss(parameters, tokens)))


def optimum_intervals(
    law: ScalingLaw, laws: Sequence[ScalingLaw], cost: TokenCost, compute: float, level: float = 0.9
) -> OptimumIntervals:
    """The optimum of a law, with intervals from its bootstrapped `laws`."""
    centre, draws = optimum(law, cost, compute), [optimum(one, cost, compute) for one in laws]

    def interval(name: str) -> Interval:
        values = [getattr(one, name) for one in draws]
        # a method without interpolation, as some may be infinite
        low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], method="nearest")
        return Interval(getattr(centre, name), float(low), float(high), level)

    return OptimumIntervals(compute, interval("parameters"), interval("tokens"), interval("loss"))
