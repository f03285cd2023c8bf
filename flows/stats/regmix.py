"""RegMix: find the mixture of sources with the lowest loss by regression over many small runs (arXiv 2407.01492).

A run is trained on each of many random mixtures, and a regression of loss on mixture is minimized over the simplex. The
paper uses 512 runs and LightGBM. With tens of runs, trees learn steps: their minimum is a region, never a point between
two runs, and they do not extrapolate a slope toward a corner. So the regression is scikit-learn's Gaussian process,
which is smooth, estimates the noise, and suits tens of runs in a few dimensions. Its features are the square roots of
the shares, since a loss changes fastest where a source is nearly absent.

Random mixtures cover the whole simplex, with few near the optimum, so the optimum would be an extrapolation. Therefore
the last quarter of the mixtures is chosen by a regression over the others: its optimum, and the optima of resampled
runs (Thompson sampling with a bootstrap, arXiv 1410.4009). The final result is the mixture with the smallest upper
bound of its loss, since the smallest prediction may be far from all runs.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.stats import spearmanr
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from threadpoolctl import threadpool_limits

# From the paper's code (mixture_config/synthesize_mixture.py). There the concentration of a draw is the strength times
# the prior, which gives mostly corners with many sources; here it is also multiplied by the number of sources.
TEMPERATURE = 0.5
STRENGTHS = (0.1, 5.0)
MIN_SHARE = 2e-4

RESAMPLES = 100
CANDIDATES = 4096  # mixtures that the search for the lowest loss evaluates first
STARTS = 3  # the best candidates, from which it descends
LEVEL = 0.9
# Below it less than a quarter of the order of losses is predictable from the other runs, and an optimum is noise.
MIN_CORRELATION = 0.5
# Standard deviations that are added to a predicted loss, so the result has a low upper bound (true in 19 of 20 cases).
CAUTION = 1.645


@dataclass(frozen=True)
class Optimum:
    """`shares`: the mixture with the lowest predicted loss, float64 (sources,), sum 1; `low`, `high`: the interval of
    each share at LEVEL, from resampled runs; `loss`: its predicted loss; `rank_correlation`: Spearman's, between losses
    and predictions from the other runs; `resampled`: the optima of resampled runs, float64 (resamples, sources)."""

    shares: np.ndarray
    low: np.ndarray
    high: np.ndarray
    loss: float
    rank_correlation: float
    resampled: np.ndarray


def drawn(prior: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Random mixtures to train on, float64 (count, sources); rows sum to 1.

    `prior`: the shares of the sources by tokens, with the sum 1. A mixture is Dirichlet around the prior at temperature
    TEMPERATURE, with a strength that is uniform on a log scale. Shares below MIN_SHARE are 0.
    """
    draw = np.random.default_rng(seed)
    centre = prior**TEMPERATURE / (prior**TEMPERATURE).sum()
    low, high = np.log(STRENGTHS)
    strengths = np.exp(draw.uniform(low, high, count))
    mixtures = np.stack([draw.dirichlet(centre * len(prior) * strength) for strength in strengths])
    mixtures[mixtures < MIN_SHARE] = 0
    return mixtures / mixtures.sum(1, keepdims=True)


def check_runs(runs: int, sources: int) -> None:
    """Raise ValueError for fewer mixtures than twice the sources."""
    if runs < 2 * sources:
        raise ValueError(f"runs: {runs} runs are too few for {sources} sources; use {2 * sources} or more")


def chosen_of(mixtures: int, sources: int) -> int:
    """How many of the mixtures are chosen by a regression over the others, which needs two for each source."""
    return max(0, min(mixtures // 4, mixtures - 2 * sources))


def chosen(shares: np.ndarray, losses: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The mixtures to train on next, float64 (count, sources); rows sum to 1: the optimum of the finished runs, and the
    optima of resampled runs. Raises the errors of `optimum`."""
    best = optimum(shares, losses, seed, resamples=count - 1, caution=0)
    mixtures = np.vstack([best.shares, *best.resampled])
    mixtures[mixtures < MIN_SHARE] = 0
    return mixtures / mixtures.sum(1, keepdims=True)


@threadpool_limits.wrap(limits=1)  # matrices are small, and the number of threads would change rounding
def optimum(
    shares: np.ndarray,
    losses: np.ndarray,
    seed: int,
    resamples: int = RESAMPLES,
    caution: float = CAUTION,
) -> Optimum:
    """The best mixture by a regression over runs. `shares`: float64 (runs, sources), rows sum to 1; `losses`: (runs,);
    `caution`: standard deviations of the regression that are added to a predicted loss. A mixture far from all runs may
    have the lowest and least certain prediction: the final result must be known to be good, but the next mixture to
    train on need not be (0).

    The interval is the percentile interval over runs drawn with replacement, each time with a kernel fitted again.
    Raises ValueError for fewer runs than twice the sources.
    """
    runs, sources = shares.shape
    check_runs(runs, sources)
    draw = np.random.default_rng(seed)
    candidates = np.concatenate([draw.dirichlet(np.full(sources, 0.5), CANDIDATES), np.eye(sources), shares])
    whole = fitted(shares, losses)
    best = lowest(whole, candidates, caution)
    results = []
    for _ in range(resamples):
        chosen = draw.integers(runs, size=runs)
        results.append(lowest(fitted(shares[chosen], losses[chosen], whole), candidates, caution))
    low, high = np.quantile(results, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0) if results else (best, best)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        left_out = cross_val_predict(_process(whole.kernel_), np.sqrt(shares), losses, cv=LeaveOneOut())
    correlation = float(spearmanr(left_out, losses)[0])
    loss = float(predicted(whole, best[None])[0])
    return Optimum(best, low, high, loss, correlation, np.array(results))


def fitted(
    shares: np.ndarray, losses: np.ndarray, like: GaussianProcessRegressor | None = None
) -> GaussianProcessRegressor:
    """Fit the regression. `like`: an earlier one, whose kernel the fit starts with."""
    start = (
        like.kernel_
        if like
        else ConstantKernel(1.0, (1e-2, 1e3)) * RBF(np.ones(shares.shape[1]), (0.1, 30.0))
        + WhiteKernel(0.01, (1e-6, 1.0))
    )
    with warnings.catch_warnings():
        # parameters may be at a bound: the length of a source without effect, and the noise of losses without noise
        warnings.simplefilter("ignore", ConvergenceWarning)
        return _process(start).fit(np.sqrt(shares), losses)


def predicted(process: GaussianProcessRegressor, shares: np.ndarray) -> np.ndarray:
    """Losses of mixtures: float64 (mixtures,) for (mixtures, sources)."""
    return process.predict(np.sqrt(np.clip(shares, 0, 1)))


def cautious(process: GaussianProcessRegressor, roots: np.ndarray, caution: float) -> np.ndarray:
    """Predicted losses plus `caution` standard deviations, float64 (mixtures,), for the square roots of shares,
    (mixtures, sources)."""
    if not caution:
        return process.predict(roots)
    mean, deviation = process.predict(roots, return_std=True)
    return mean + caution * deviation


def lowest(process: GaussianProcessRegressor, candidates: np.ndarray, caution: float = 0.0) -> np.ndarray:
    """The mixture with the lowest predicted loss plus `caution` standard deviations: a local search on the simplex from
    the best candidates."""
    losses = cautious(process, np.sqrt(candidates), caution)
    scale = 1 / max(float(np.ptp(losses)), 1e-12)  # the search stops at differences that are small compared to 1
    ends = []
    for start in np.sqrt(candidates[np.argsort(losses, kind="stable")[:STARTS]]):

        def loss(root: np.ndarray, start: np.ndarray = start) -> float:
            return float(cautious(process, _on_sphere(root, start)[None], caution)[0]) * scale

        end = minimize(loss, start, method="L-BFGS-B", bounds=[(0, 1)] * candidates.shape[1])
        ends.append((end.fun, _on_sphere(end.x, start)))
    best = min(ends, key=lambda end: end[0])[1] ** 2
    return best / best.sum()


def _on_sphere(root: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Scale `root` to the norm 1, so that its squares are shares. If all entries are 0, which can happen in a corner,
    return `start`."""
    norm = np.linalg.norm(root)
    return root / norm if norm else start


def _process(kernel: object) -> GaussianProcessRegressor:
    return GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
