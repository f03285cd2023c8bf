"""What an effect is worth in training tokens, by the base's own learning curve.

Near its number of tokens T the base's loss falls by a slope for each factor e of tokens; runs at T/2 and at T measure
it. An effect is then worth a factor exp(effect / slope) of tokens. The range of the ratio comes from the intervals of
both by the method of variance estimates recovery (Donner and Zou 2012, Closed-form confidence intervals for functions
of the normal mean and standard deviation), which keeps an asymmetric interval as it is.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit


@dataclass(frozen=True)
class Worth:
    """Shares of the base's training tokens: at .11 it needs 11% more for the same loss, at -.11 11% fewer.

    None, with a reason, where the learning curve does not say.
    """

    share: float | None
    low: float | None
    high: float | None
    reason: str = ""

    def sentence(self, level: float) -> str:
        if self.share is None or self.low is None or self.high is None:
            return f"its worth in training tokens is unknown: {self.reason}"
        gained = self.share >= 0
        low, high = (self.low, self.high) if gained else (-self.high, -self.low)
        interval = f"{level:.0%} interval {_percent(low)} to {_percent(high)}"
        if gained and self.share > 1:
            return f"worth more than twice the training tokens ({interval} more)"
        if not gained and self.share < -0.5:
            return f"costing more than half of the training tokens ({interval})"
        return f"{'worth' if gained else 'costing'} {abs(self.share):.0%} of the training tokens ({interval})"


def _percent(share: float) -> str:
    return "over 1000%" if share > 10 else f"{share:.0%}"


def worth(effect: tuple[float, float, float], half: np.ndarray, full: np.ndarray, level: float) -> Worth:
    """Worth of an effect (low, effect, high), in bits per byte.

    half, full: the base's bits per byte, float64 (pairs,), at half and at all tokens, pair by pair.
    """
    slopes = (half - full) / np.log(2)
    if len(slopes) < 2:
        return Worth(None, None, None, f"the base has {len(slopes)} pairs at half of the tokens, and it takes 2")
    slope = float(slopes.mean())
    reach = float(stdtrit(len(slopes) - 1, (1 + level) / 2) * slopes.std(ddof=1) / np.sqrt(len(slopes)))
    if slope - reach <= 0:
        gap, noise = slope * np.log(2), reach * np.log(2)
        return Worth(
            None,
            None,
            None,
            f"from half to all tokens the base gains {gap:.4f} bits per byte, give or take {noise:.4f}",
        )
    low, middle, high = ratio(effect, (slope - reach, slope, slope + reach))
    with np.errstate(over="ignore"):
        return Worth(float(np.expm1(middle)), float(np.expm1(low)), float(np.expm1(high)))


def ratio(above: tuple[float, float, float], below: tuple[float, float, float]) -> tuple[float, float, float]:
    """Interval (low, estimate, high) of a ratio of two independent estimates; that of the denominator is above 0."""
    (l1, a, u1), (l2, b, u2) = above, below

    def end(of: float, denominator: float, sign: int) -> float:
        product = a * b
        root = np.sqrt(max(product**2 - of * denominator * (2 * a - of) * (2 * b - denominator), 0.0))
        return float((product + sign * root) / (denominator * (2 * b - denominator)))

    return end(l1, u2, -1), a / b, end(u1, l2, 1)
