"""The critical batch: from which batch on do larger ones cost tokens?

McCandlish et al. 2018 (An Empirical Model of Large-Batch Training, arXiv 1812.06162): a run with batches of B
sequences needs 1 + B/C times the tokens of one with very small batches for the same loss, where C is the critical
batch. Where the loss falls by `slope` for each factor e of tokens, runs on equal tokens therefore have the losses

    loss(B) = loss(0) + slope ln(1 + B/C)

C and the slope are fitted by least squares to the differences from the smallest batch. Its interval is a jackknife over
pairs on the logarithm of C. An estimate is refused where the batches that were tried do not identify it.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

_STEPS = 200  # of the grid for each factor e of C
_MARGIN = np.log(16)  # of the grid beyond the batches that were tried


@dataclass(frozen=True)
class CriticalBatch:
    """In sequences; `reason`: why there is none."""

    value: float | None
    low: float | None
    high: float | None
    slope: float | None
    reason: str = ""


def critical_batch(batches: np.ndarray, losses: np.ndarray, level: float = 0.9) -> CriticalBatch:
    """The critical batch by losses of equal tokens.

    batches: sequences, ascending (batches,). losses: bits per byte (pairs, batches). ValueError if there are under
    three batches or pairs.
    """
    pairs = len(losses)
    if pairs < 3 or len(batches) < 3:
        raise ValueError(
            f"critical batch: {pairs} pairs and {len(batches)} batches are too few; use 3 or more of each."
        )
    beyond = losses - losses[:, :1]
    value, slope, is_inside = _fitted(batches, beyond.mean(axis=0))
    if slope <= 0:
        return CriticalBatch(None, None, None, None, "the loss does not rise with the batch")
    if not is_inside:
        return CriticalBatch(None, None, None, None, "the losses fit any critical batch beyond those that were tried")
    each = np.array(
        [np.log(_fitted(batches, np.delete(beyond, pair, axis=0).mean(axis=0))[0]) for pair in range(pairs)]
    )
    pseudo = pairs * np.log(value) - (pairs - 1) * each
    reach = float(stdtrit(pairs - 1, (1 + level) / 2) * pseudo.std(ddof=1) / np.sqrt(pairs))
    low, high = value * np.exp(-reach), value * np.exp(reach)
    if high / low > (batches[-1] / batches[0]) ** 2:
        return CriticalBatch(None, None, None, None, f"its {level:.0%} interval is {low:.2g} to {high:.2g} sequences")
    return CriticalBatch(value, float(low), float(high), slope)


def _fitted(batches: np.ndarray, beyond: np.ndarray) -> tuple[float, float, bool]:
    """The best critical batch of a grid, its slope, and whether it is not at an end of the grid."""
    ends = np.log(batches[0]) - _MARGIN, np.log(batches[-1]) + _MARGIN
    grid = np.exp(np.linspace(*ends, int((ends[1] - ends[0]) * _STEPS)))
    shape = np.log1p(batches / grid[:, None]) - np.log1p(batches[0] / grid[:, None])
    slopes = (shape @ beyond) / (shape**2).sum(axis=1)
    errors = ((beyond - slopes[:, None] * shape) ** 2).sum(axis=1)
    best = int(errors.argmin())
    return float(grid[best]), float(slopes[best]), 0 < best < len(grid) - 1
