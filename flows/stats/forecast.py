"""What is claimed of a run before it is trained, and how well such claims hold for the larger runs of a grid.

Laws that were fitted to the smaller runs of a grid are compared with its larger ones. It is the only test of a law's
form that a grid itself offers: errors within the fit say nothing of what lies beyond.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gristmill.flows.stats.law import Fit, Interval, ScalingRuns, fit


@dataclass(frozen=True)
class Forecast:
    """The loss of a run of `tokens` tokens of a model of so many `parameters`.

    `runs`: the keys of the runs that the law was fitted to, sorted; `reach`: the run's compute over the largest of
    theirs.
    """

    parameters: int
    tokens: int
    reach: float
    loss: Interval
    runs: tuple[str, ...]


@dataclass(frozen=True)
class ForecastCheck:
    """The loss that came. `error`: the forecast over it, less one. `outside`: how far the loss is beyond the nearer
    bound of the interval, relative to that bound; 0 inside."""

    loss: float
    inside: bool
    error: float
    outside: float


def forecast(fitted: Fit, keys: tuple[str, ...], parameters: int, tokens: int, reach: float, level: float) -> Forecast:
    """Forecast a run from a fit whose runs have these keys."""
    return Forecast(parameters, tokens, reach, fitted.prediction(parameters, tokens, level), tuple(sorted(keys)))


def check(claimed: Interval, loss: float) -> ForecastCheck:
    """Compare the loss of a finished run with what was claimed of it."""
    inside = claimed.low <= loss <= claimed.high
    bound = claimed.low if loss < claimed.low else claimed.high
    return ForecastCheck(loss, inside, claimed.value / loss - 1, 0.0 if inside else abs(loss / bound - 1))


@dataclass(frozen=True)
class FutureErrors:
    """A law of the runs with at most `compute` operations, and the runs with more.

    `reach`: the largest compute that is predicted over the largest in the fit. `error`: mean of the relative errors'
    absolute values; `bias`: their mean, above 0 where the loss is predicted too high. `inside`: how many of the
    `predicted` runs lie within their own interval; the runs of one fit share its error, so these are not independent.
    """

    compute: float
    fitted: int
    predicted: int
    reach: float
    error: float
    bias: float
    inside: int


def leave_future_out(runs: ScalingRuns, compute: np.ndarray, level: float = 0.9) -> list[FutureErrors]:
    """A row for every compute from which on a law can be fitted and a run is left; `compute`: float64 (runs,)."""
    return list(_rows(runs, compute, level))


def _rows(runs: ScalingRuns, compute: np.ndarray, level: float) -> Iterator[FutureErrors]:
    for most in np.unique(compute)[:-1]:
        past = runs.take(compute <= most)
        if past.problem:
            continue
        future = runs.take(compute > most)
        fitted = fit(past)
        intervals = [fitted.prediction(n, d, level) for n, d in zip(future.parameters, future.tokens, strict=True)]
        errors = np.array([one.value for one in intervals]) / future.loss - 1
        inside = sum(one.low <= loss <= one.high for one, loss in zip(intervals, future.loss, strict=True))
        yield FutureErrors(
            compute=float(most),
            fitted=len(past),
            predicted=len(future),
            reach=float(compute.max() / most),
            error=float(np.abs(errors).mean()),
            bias=float(errors.mean()),
            inside=int(inside),
        )
