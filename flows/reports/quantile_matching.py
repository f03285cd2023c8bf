"""A threshold of one language carried over to another: the value that drops the same share of its documents.

One of the ways that FineWeb-2 compares of fitting filters to a language (Penedo et al. 2025, arXiv 2506.20920): the
quantile of the reference language's threshold is looked up in the other language's own distribution.
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Literal, NamedTuple

import numpy as np

End = Literal["low", "high"]


class Matched(NamedTuple):
    """A threshold, and the share of the documents that it drops, in [0, 1]."""

    threshold: float
    drops: float


def share(values: np.ndarray, threshold: float, end: End) -> float:
    """The share of the values that a threshold drops: those below a `low` one, above a `high` one."""
    lost = values < threshold if end == "low" else values > threshold
    return float(np.count_nonzero(lost) / len(values))


def match(values: np.ndarray, wanted: float, end: End) -> Matched:
    """The threshold on `values`, of at least one, that drops a share as near to `wanted` as ties allow.

    Of two shares that are as near, the smaller. Among the thresholds that drop the same documents it is the one with
    the fewest digits; of integers, an integer. Holds the values sorted, and one entry for each different one.
    """
    # a high threshold is a low one on the mirrored values
    sign = 1 if end == "low" else -1
    different, counts = np.unique(sign * values, return_counts=True)
    dropped = np.append(0, np.cumsum(counts)[:-1])
    # in documents, of which halves are exact, and rounded: a share is not
    at = int(np.argmin(np.abs(dropped - round(wanted * len(values), 6))))
    inner = float(different[at])
    outer = float(different[at - 1]) if at else -math.inf
    return Matched(
        _shortest(inner, outer, sign, np.issubdtype(values.dtype, np.integer)), float(dropped[at] / len(values))
    )


def _shortest(inner: float, outer: float, sign: int, whole: bool) -> float:
    """The number of the fewest significant digits in (outer, inner], times the sign: `inner` rounded down as far as it
    stays above `outer`."""
    number = Decimal(repr(inner * sign))
    direction = ROUND_FLOOR if sign > 0 else ROUND_CEILING
    last = number.as_tuple().exponent
    assert isinstance(last, int), "the number is finite"
    for place in range(number.adjusted() + 1, last - 1, -1):
        if whole and place < 0:
            break
        rounded = number.quantize(Decimal(1).scaleb(place), rounding=direction)
        if outer < float(rounded) * sign <= inner and (math.isfinite(outer) or place < number.adjusted()):
            return float(rounded) + 0.0
    return inner * sign
