"""What is claimed of a run before it is trained, and what became of the claim."""

from dataclasses import dataclass

from flows.scaling.law import Fit, Interval


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
