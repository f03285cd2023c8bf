"""The critical batch: the batch size above which larger batches cost tokens.

McCandlish et al. 2018 (An Empirical Model of Large-Batch Training, arXiv 1812.06162): for the same loss, a run
with batches of B sequences needs 1 + B/C times the tokens of a run with very small batches, where C is the critical
batch. If the loss falls by `slope` for each factor e of tokens, runs on the same number of tokens have the losses

    loss(B) = loss(0) + slope ln(1 + B/C)

The slope is measured with runs of the smallest batch on half of the tokens, and C is fitted by least squares to the
differences from the smallest batch. Its interval is a jackknife over pairs on the logarithm of C. There is no estimate
if the batch sizes do not identify it, or if the losses do not follow the law, by an F test of its residuals against the
noise of pairs: runs of a few steps are mostly warm-up and show no critical batch.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import fdtrc, stdtrit

_STEPS = 200  # of the grid for each factor e of C
_MISFIT = 0.01  # level of the test that the losses do not follow the law
_MARGIN = np.log(16)  # of the grid beyond the measured batch sizes


@dataclass(frozen=True)
class CriticalBatch:
    """An estimate in sequences, with its interval. `reason`: why there is no estimate."""

    value: float | None
    low: float | None
    high: float | None
    slope: float | None
    reason: str = ""


def critical_batch(batches: np.ndarray, losses: np.ndarray, gains: np.ndarray, level: float = 0.9) -> CriticalBatch:
    """Estimate the critical batch from the losses of runs on the same number of tokens.

    batches: sequences, ascending (batches,). losses: bits per byte (pairs, batches). gains: for the smallest batch, the
    loss at half of the tokens minus the loss at all tokens, in bits per byte, of the first pairs (n,). Raises
    ValueError for fewer than three pairs, batches or gains.
    """
    pairs = len(losses)
    if min(pairs, len(batches), len(gains)) < 3:
        raise ValueError(
            f"critical batch: {pairs} pairs, {len(batches)} batches and {len(gains)} gains; use 3 or more of each."
        )
    beyond = losses - losses[:, :1]
    if gains.mean() <= 0 or beyond[:, -1].mean() <= 0:
        return _refused("the loss does not fall with tokens, or does not rise with the batch")
    value, is_inside = _fitted(batches, beyond.mean(axis=0), gains.mean())
    if not is_inside:
        return _refused("the losses fit any critical batch beyond those that were tried")
    if _misfit(batches, beyond, value, gains.mean()) < _MISFIT:
        return _refused("the losses of the batches do not follow its law")
    without = []
    for pair in range(pairs):
        others, own = np.delete(beyond, pair, axis=0), gains[np.arange(len(gains)) != pair]
        without.append(_fitted(batches, others.mean(axis=0), own.mean())[0])
    pseudo = pairs * np.log(value) - (pairs - 1) * np.log(without)
    reach = float(stdtrit(pairs - 1, (1 + level) / 2) * pseudo.std(ddof=1) / np.sqrt(pairs))
    low, high = value * np.exp(-reach), value * np.exp(reach)
    if high / low > batches[-1] / batches[0]:
        return _refused(f"its {level:.0%} interval is {low:.2g} to {high:.2g} sequences")
    return CriticalBatch(value, float(low), float(high), float(gains.mean() / np.log(2)))


def _refused(reason: str) -> CriticalBatch:
    return CriticalBatch(None, None, None, None, reason)


def _law(batches: np.ndarray, values: Any, gain: float) -> np.ndarray:
    """Losses minus the loss of the smallest batch, for each critical batch (values, batches)."""
    return gain / np.log(2) * (np.log1p(batches / values) - np.log1p(batches[0] / values))


def _misfit(batches: np.ndarray, beyond: np.ndarray, value: float, gain: float) -> float:
    """Probability of residuals as large as these if the law holds, by an F test of their means."""
    pairs, free = len(beyond), len(batches) - 2
    residuals = (beyond.mean(axis=0) - _law(batches, value, gain))[1:]
    errors = beyond[:, 1:].var(axis=0, ddof=1) / pairs
    return float(fdtrc(free, pairs - 1, float((residuals**2 / errors).sum()) / free))


def _fitted(batches: np.ndarray, beyond: np.ndarray, gain: float) -> tuple[float, bool]:
    """The best critical batch of a grid, and whether it is not at an end of the grid."""
    ends = np.log(batches[0]) - _MARGIN, np.log(batches[-1]) + _MARGIN
    grid = np.exp(np.linspace(*ends, int((ends[1] - ends[0]) * _STEPS)))
    errors = ((beyond - _law(batches, grid[:, None], gain)) ** 2).sum(axis=1)
    best = int(errors.argmin())
    return float(grid[best]), 0 < best < len(grid) - 1
