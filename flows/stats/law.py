"""Chinchilla's law for the loss of N parameters trained on D tokens, fitted to a grid of runs.

    L(N, D) = E + A N^-alpha + B D^-beta        (Hoffmann et al. 2022, arXiv 2203.15556, equation 10)

The fit uses variable projection (Golub and Pereyra 1973): for given exponents the rest is linear, and the best E, A, B
>= 0 are computed exactly. So only two of the five parameters are searched, and the search avoids the poor local minima
that Besiroglu et al. (2024, arXiv 2404.10102) report.

The objective is the sum over runs of Huber's loss of the relative error L(N, D) / loss - 1. Hoffmann and Besiroglu use
Huber's loss of log L(N, D) - log loss, which is the same to first order, but not linear in E, A and B. Their threshold,
0.001, is far below the noise of a small run: every error would count by its absolute value, and a fit of few runs would
lose a third of its efficiency. Here it is 1.345 times the standard deviation of the errors, estimated from their
median: 95% efficient for normal noise (Holland and Welsch 1977), with little weight for a failed run.

`optimum` is the best split of a compute budget between parameters and tokens. Training on one token costs k N^p
floating-point operations; k and p are fitted to the models of the grid. With k = 6 and p = 1 this is Hoffmann's
C = 6 N D, and the optimum is equation 4 of arXiv 2203.15556. In small models p differs from 1 because of attention and
the embedding lookup.

`forecast` predicts a run before it is trained. `leave_future_out` compares laws that are fitted to the smaller runs of
a grid with its larger runs. This is the only test of a law's form that a grid allows, since errors within the fit do
not show how well the law extrapolates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize, nnls
from scipy.stats import t as student

PARAMETERS = 5
MIN_RUNS = PARAMETERS + 2  # with fewer the interval is useless: the 95% point of t with one degree is 6.3
MIN_VALUES = 3  # sizes, and token budgets: a power and a constant fit two of them exactly
_EXPONENTS = (0.01, 3.0)  # bounds of the search
_STARTS = (0.1, 0.25, 0.5, 0.9)
_HUBER = 1.345
_ROUNDS = 30  # of reweighting; a fit of real runs takes fewer than ten


@dataclass(frozen=True)
class ScalingRuns:
    """Finished runs, each array float64 (runs,): parameters of the model, tokens of training, and the loss, in any
    positive unit."""

    parameters: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray

    def __len__(self) -> int:
        return len(self.loss)

    def take(self, chosen: np.ndarray) -> "ScalingRuns":
        """The runs at an array of indices, or where an array of booleans is true."""
        return ScalingRuns(self.parameters[chosen], self.tokens[chosen], self.loss[chosen])

    @property
    def problem(self) -> str:
        """Why no law can be fitted to these runs; empty if one can."""
        if len(self) < MIN_RUNS:
            return f"{len(self)} runs are too few for a law with {PARAMETERS} parameters; train {MIN_RUNS} or more"
        for name, values in (("sizes", self.parameters), ("token budgets", self.tokens)):
            if (count := len(np.unique(values))) < MIN_VALUES:
                return f"the runs have {count} different {name}; train {MIN_VALUES} or more"
        if not (np.isfinite(self.loss).all() and (self.loss > 0).all()):
            return "some losses are not positive numbers; leave those runs out"
        return ""


@dataclass(frozen=True)
class ScalingLaw:
    """E: the loss of an infinite model on infinite data; A, alpha: the term of size; B, beta: the term of tokens."""

    E: float
    A: float
    alpha: float
    B: float
    beta: float

    def loss(self, parameters: np.ndarray | float, tokens: np.ndarray | float) -> np.ndarray:
        """The predicted loss, in the unit of the runs; arrays broadcast."""
        n, d = np.asarray(parameters, float), np.asarray(tokens, float)
        return self.E + self.A * n**-self.alpha + self.B * d**-self.beta


@dataclass(frozen=True)
class Interval:
    """A value and its interval at the confidence `level`."""

    value: float
    low: float
    high: float
    level: float


@dataclass(frozen=True)
class Fit:
    """A law and its uncertainty.

    `errors`: relative error of each run, float64 (runs,). `deviation`: standard deviation of the noise of one run,
    relative to its loss. `covariance`: of the parameters, per unit of the noise's variance, (5, 5), in the order E, A,
    alpha, B, beta, where A and B are the sizes of the terms at the runs' geometric mean. `threshold`: Huber's.
    """

    law: ScalingLaw
    runs: ScalingRuns
    errors: np.ndarray
    deviation: float
    covariance: np.ndarray
    threshold: float

    @property
    def freedom(self) -> int:
        """Degrees of freedom of `deviation`."""
        return len(self.runs) - PARAMETERS

    def prediction(self, parameters: float, tokens: float, level: float = 0.9) -> Interval:
        """Predict the loss of a future run, with a t interval of nonlinear regression.

        The law is linearized at its parameters (Seber and Wild 1989, section 5.1), and the noise of the new run is
        added to the error of the law. Its relative noise is assumed to equal that of the fitted runs. The bounds are a
        factor above and below the value. `tests/flows/scaling/test_law.py` measures coverage at ten times the compute.
        """
        value = float(self.law.loss(parameters, tokens))
        slope = _slopes(self.law, self.runs, np.array([parameters]), np.array([tokens]))[0] / value
        spread = self.deviation * np.sqrt(1 + slope @ self.covariance @ slope)
        factor = float(np.exp(student.ppf((1 + level) / 2, self.freedom) * spread))
        return Interval(value, value / factor, value * factor, level)

    def mean_error(self, parameters: np.ndarray, tokens: np.ndarray) -> float:
        """Standard deviation of the mean relative error of further runs under the law: from their noise, and from the
        error of the law, which they share. Both arrays float64 (runs,)."""
        slopes = _slopes(self.law, self.runs, parameters, tokens) / self.law.loss(parameters, tokens)[:, None]
        slope = slopes.mean(axis=0)
        return self.deviation * float(np.sqrt(1 / len(parameters) + slope @ self.covariance @ slope))


def fit(runs: ScalingRuns) -> Fit:
    """Fit the law of a grid of runs. Raises ValueError, with the fix, if the runs do not identify it."""
    if problem := runs.problem:
        raise ValueError(problem)
    terms = _Terms(runs)
    start = min(((a, b) for a in _STARTS for b in _STARTS), key=lambda x: terms.best(x, np.ones(len(runs)))[1])
    exponents = terms.search(start, np.ones(len(runs)))
    errors = terms.errors(exponents, np.ones(len(runs)))
    inflation = np.sqrt(len(runs) / (len(runs) - PARAMETERS))  # errors of fitted runs are smaller than their noise
    threshold = _HUBER * float(np.median(np.abs(errors)) / 0.6745 * inflation)  # 0.6745: the normal's third quartile
    exponents, weights = _reweighted(terms, exponents, threshold)
    errors = terms.errors(exponents, weights)
    law = terms.law(exponents, weights)
    slopes = _slopes(law, runs, runs.parameters, runs.tokens) / law.loss(runs.parameters, runs.tokens)[:, None]
    return Fit(law, runs, errors, _deviation(errors, threshold), np.linalg.pinv(slopes.T @ slopes), threshold)


def bootstrap(fitted: Fit, draws: int, seed: int) -> list[ScalingLaw]:
    """Laws of `draws` samples of the runs with replacement.

    A sample with too few different sizes or budgets is drawn again. Threshold and start are taken from the fit.
    """
    generator = np.random.default_rng(seed)
    laws: list[ScalingLaw] = []
    while len(laws) < draws:
        sample = fitted.runs.take(generator.integers(len(fitted.runs), size=len(fitted.runs)))
        if sample.problem:
            continue
        terms = _Terms(sample)
        start = (fitted.law.alpha, fitted.law.beta)
        exponents, weights = _reweighted(terms, start, fitted.threshold)
        laws.append(terms.law(exponents, weights))
    return laws


class _Terms:
    """The three terms of the law for given exponents, scaled to 1 at the geometric mean of the runs, since powers of
    numbers as large as tokens exceed the precision of a float."""

    def __init__(self, runs: ScalingRuns) -> None:
        self.loss = runs.loss
        self.parameters, self.tokens = _centres(runs)
        self.log_parameters = np.log(runs.parameters / self.parameters)
        self.log_tokens = np.log(runs.tokens / self.tokens)

    def best(self, exponents: tuple[float, float], weights: np.ndarray) -> tuple[np.ndarray, float]:
        """E, A, B >= 0 with the smallest weighted sum of squared relative errors, and that sum."""
        relative = self._columns(exponents) * (weights / self.loss)[:, None]
        values, norm = nnls(relative, weights)
        return values, norm**2

    def search(self, start: tuple[float, float], weights: np.ndarray) -> tuple[float, float]:
        """The exponents with the smallest sum, searched from `start`; `weights`: square roots of the runs' weights."""
        low, high = _EXPONENTS
        first = np.clip(start, low, high / 1.2)
        result = minimize(
            lambda x: self.best((x[0], x[1]), weights)[1],
            first,
            method="Nelder-Mead",
            bounds=[_EXPONENTS, _EXPONENTS],
            options={
                "initial_simplex": np.array([first, first * (1.2, 1), first * (1, 1.2)]),
                "xatol": 1e-4,
                "fatol": 1e-12,
            },
        )
        return float(result.x[0]), float(result.x[1])

    def errors(self, exponents: tuple[float, float], weights: np.ndarray) -> np.ndarray:
        """Relative errors of the runs under the best law with these exponents."""
        return self._columns(exponents) @ self.best(exponents, weights)[0] / self.loss - 1

    def law(self, exponents: tuple[float, float], weights: np.ndarray) -> ScalingLaw:
        (constant, size, data), (alpha, beta) = self.best(exponents, weights)[0], exponents
        return ScalingLaw(
            E=float(constant),
            A=float(size * self.parameters**alpha),
            alpha=alpha,
            B=float(data * self.tokens**beta),
            beta=beta,
        )

    def _columns(self, exponents: tuple[float, float]) -> np.ndarray:
        alpha, beta = exponents
        size, data = np.exp(-alpha * self.log_parameters), np.exp(-beta * self.log_tokens)
        return np.stack([np.ones_like(size), size, data], axis=1)


def _reweighted(
    terms: _Terms, exponents: tuple[float, float], threshold: float
) -> tuple[tuple[float, float], np.ndarray]:
    """Exponents and square roots of weights at the minimum of Huber's loss, by iteratively reweighted least squares."""
    weights = np.ones(len(terms.loss))
    for _ in range(_ROUNDS):
        exponents = terms.search(exponents, weights)
        size = np.abs(terms.errors(exponents, weights))
        new = np.sqrt(threshold / np.maximum(size, threshold)) if threshold else weights
        if np.allclose(new, weights, atol=1e-3):
            break
        weights = new
    return exponents, weights


def _deviation(errors: np.ndarray, threshold: float) -> float:
    """Standard deviation of the noise of a fit by Huber's loss (Huber 1981, section 7.6): errors count up to the
    threshold, and the share of runs beyond it makes the fit less certain."""
    count = len(errors)
    within = np.mean(np.abs(errors) <= threshold)
    correction = 1 + PARAMETERS / count * (1 - within) / within
    clipped = np.minimum(np.abs(errors), threshold)
    return float(correction * np.sqrt(np.sum(clipped**2) / (count - PARAMETERS)) / within)


def _centres(runs: ScalingRuns) -> tuple[float, float]:
    """Geometric means of parameters and tokens."""
    return float(np.exp(np.log(runs.parameters).mean())), float(np.exp(np.log(runs.tokens).mean()))


def _slopes(law: ScalingLaw, runs: ScalingRuns, parameters: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Derivatives of the loss with respect to E, A, alpha, B, beta, (points, 5), A and B as in `Fit.covariance`."""
    middle_n, middle_d = _centres(runs)
    log_n, log_d = np.log(parameters / middle_n), np.log(tokens / middle_d)
    size, data = np.exp(-law.alpha * log_n), np.exp(-law.beta * log_d)
    a, b = law.A * middle_n**-law.alpha, law.B * middle_d**-law.beta
    return np.stack([np.ones_like(size), size, -a * size * log_n, data, -b * data * log_d], axis=1)


@dataclass(frozen=True)
class TokenCost:
    """Floating-point operations of training on one token: scale * parameters^power."""

    scale: float
    power: float

    def flops(self, parameters: np.ndarray | float, tokens: np.ndarray | float) -> np.ndarray:
        """Operations of a run; arrays broadcast."""
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
    """Percentile intervals of an optimum over bootstrapped laws. The loss does not include a run's noise."""

    compute: float
    parameters: Interval
    tokens: Interval
    loss: Interval


def token_cost(parameters: np.ndarray, flops_per_token: np.ndarray) -> TokenCost:
    """Fit the cost by least squares of logarithms; arrays float64 (models,). Raises ValueError for a single size."""
    if len(np.unique(parameters)) < 2:
        raise ValueError("the models have one size, so the cost of another size is unknown; use two sizes or more")
    power, constant = np.polyfit(np.log(parameters), np.log(flops_per_token), 1)
    return TokenCost(float(np.exp(constant)), float(power))


def optimum(law: ScalingLaw, cost: TokenCost, compute: float) -> Optimum:
    """The minimum of the loss over runs of equal compute, in closed form.

    For a law without a term for size (A = 0) the optimum has no parameters and infinite tokens, without a term for data
    (B = 0) the reverse; the loss is then E.
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


@dataclass(frozen=True)
class Forecast:
    """The predicted loss of a model with `parameters` parameters trained on `tokens` tokens.

    `runs`: the sorted keys of the runs that the law was fitted to; `reach`: the run's compute divided by the largest
    compute of these.
    """

    parameters: int
    tokens: int
    reach: float
    loss: Interval
    runs: tuple[str, ...]


@dataclass(frozen=True)
class ForecastCheck:
    """The measured loss. `error`: the forecast divided by it, minus one. `outside`: how far the loss is beyond the
    nearer bound of the interval, relative to that bound; 0 inside."""

    loss: float
    inside: bool
    error: float
    outside: float


def forecast(fitted: Fit, keys: tuple[str, ...], parameters: int, tokens: int, reach: float, level: float) -> Forecast:
    """Forecast a run from a fit whose runs have these keys."""
    return Forecast(parameters, tokens, reach, fitted.prediction(parameters, tokens, level), tuple(sorted(keys)))


def check(predicted: Interval, loss: float) -> ForecastCheck:
    """Compare the loss of a finished run with its forecast."""
    inside = predicted.low <= loss <= predicted.high
    bound = predicted.low if loss < predicted.low else predicted.high
    return ForecastCheck(loss, inside, predicted.value / loss - 1, 0.0 if inside else abs(loss / bound - 1))


@dataclass(frozen=True)
class FutureErrors:
    """Errors of a law that is fitted to the runs with at most `compute` operations, on the runs with more.

    `reach`: the largest predicted compute divided by the largest in the fit. `error`: mean absolute relative error;
    `bias`: mean relative error, above 0 if predictions are too high. `inside`: how many of the `predicted` runs are
    inside their interval; the predictions of one fit share its error, so these are not independent.
    """

    compute: float
    fitted: int
    predicted: int
    reach: float
    error: float
    bias: float
    inside: int


def leave_future_out(runs: ScalingRuns, compute: np.ndarray, level: float = 0.9) -> list[FutureErrors]:
    """A row for every compute at which a law can be fitted and runs remain; `compute`: float64 (runs,)."""
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
