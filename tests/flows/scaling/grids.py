"""Simulated grids: a planted law, and runs with noise."""

import numpy as np

from gristmill.flows.stats.law import ScalingLaw, ScalingRuns

# Laws of very different shape, of sizes about 10^5 and tokens about 10^5.5, with losses of 1 to 3.
LAWS = (
    ScalingLaw(E=0.9, A=1.0 * 1e5**0.35, alpha=0.35, B=1.0 * 3e5**0.4, beta=0.4),
    ScalingLaw(E=1.5, A=0.4 * 1e5**0.2, alpha=0.2, B=0.8 * 3e5**0.6, beta=0.6),
    ScalingLaw(E=0.5, A=0.3 * 1e5**0.5, alpha=0.5, B=1.5 * 3e5**0.3, beta=0.3),
)
SIZES = np.array([0.03, 0.06, 0.12, 0.25]) * 1e6
TOKENS = np.array([0.1, 0.2, 0.4, 0.8]) * 1e6
SQUARE = tuple(axis.ravel() for axis in np.meshgrid(SIZES, TOKENS))
# ten times the compute of the largest run, the law's 6 N D: with large models, in between, with many tokens
TARGETS = ((2.5e6, 0.8e6), (0.8e6, 2.5e6), (0.4e6, 5e6))


def simulated(law: ScalingLaw, noise: float, seed: int, where: tuple[np.ndarray, ...] = SQUARE) -> ScalingRuns:
    """Runs at `where`, whose losses are off by a factor with the standard deviation `noise`."""
    parameters, tokens = where
    factor = np.exp(noise * np.random.default_rng(seed).standard_normal(len(parameters)))
    return ScalingRuns(parameters, tokens, law.loss(parameters, tokens) * factor)


def capped(most: float = 2e11) -> tuple[np.ndarray, ...]:
    """A grid of which the corner with most compute is left out, as users have them."""
    sizes = np.array([0.03, 0.06, 0.12, 0.25, 0.5]) * 1e6
    tokens = np.array([0.05, 0.1, 0.2, 0.4, 0.8, 1.6]) * 1e6
    n, d = (axis.ravel() for axis in np.meshgrid(sizes, tokens))
    kept = n * d <= most
    return n[kept], d[kept]
