"""The regression over mixtures on laws whose best mixture is known."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gristmill.flows.experiments.mixture_plan import check_options, kept_weights
from gristmill.flows.experiments.mixtures import (
    Gain,
    gains,
    refusal,
    run_noise,
    source_groups,
)
from gristmill.flows.experiments.options import Method, MixOptions
from gristmill.flows.recipe.recipe import load
from gristmill.flows.stats import regmix
from gristmill.flows.stats.regmix import MIN_SHARE, Optimum, drawn, optimum

PRIOR = np.array([0.4, 0.3, 0.2, 0.1])
NOISE = 0.003  # of a run's loss, in bits per byte


def linear(shares: np.ndarray) -> np.ndarray:
    return 2 + shares @ np.array([0.3, 0.1, 0.6, 0.25])


def saturating(shares: np.ndarray) -> np.ndarray:
    """Two kinds of text, each with falling returns; the last source is a copy of the first, the third is noise."""
    return 2 + 0.5 * np.exp(-4 * (shares[:, 0] + shares[:, 3])) + 0.5 * np.exp(-6 * shares[:, 1])


def runs(law, count: int) -> tuple[np.ndarray, np.ndarray]:
    shares = drawn(PRIOR, count, seed=1)
    return shares, law(shares) + np.random.default_rng(2).normal(0, NOISE, count)


@pytest.mark.extended
def test_a_linear_law_has_its_best_mixture_in_a_corner():
    found = optimum(*runs(linear, 24), seed=0, resamples=10)
    assert found.shares[1] > 0.95 and found.shares.sum() == pytest.approx(1) and found.shares.min() >= 0
    assert found.low[1] > 0.7 and found.high[2] < 0.1
    assert found.loss == pytest.approx(2.1, abs=5 * NOISE)
    assert found.rank_correlation > 0.9


@pytest.mark.extended
def test_a_law_of_falling_returns_has_it_between_two_kinds():
    found = optimum(*runs(saturating, 32), seed=0, resamples=10)
    # on the line from one kind to the other, by brute force
    line = np.linspace(0, 1, 10_001)
    every = saturating(np.stack([1 - line, line, 0 * line, 0 * line], 1))
    best = line[every.argmin()]
    assert 0.3 < best < 0.7
    assert found.shares[1] == pytest.approx(best, abs=0.06)
    assert found.shares[0] + found.shares[3] == pytest.approx(1 - best, abs=0.06), "two copies get what one deserves"
    assert found.shares[2] < 0.02 and found.high[2] < 0.15
    assert saturating(found.shares[None])[0] - every.min() < NOISE
    assert found.low[1] - 0.02 <= best <= found.high[1] + 0.02
    assert (found.low <= found.high).all()


def test_losses_of_nothing_but_noise_are_not_predicted():
    shares = drawn(PRIOR, 24, seed=1)
    found = optimum(shares, np.random.default_rng(3).normal(2, NOISE, 24), seed=0, resamples=0)
    assert abs(found.rank_correlation) < 0.6


def test_drawn_mixtures_are_mixtures_and_the_same_again():
    shares = drawn(PRIOR, 400, seed=4)
    np.testing.assert_allclose(shares.sum(1), 1)
    assert ((shares == 0) | (shares >= MIN_SHARE)).all()
    root = np.sqrt(PRIOR) / np.sqrt(PRIOR).sum()
    np.testing.assert_allclose(shares.mean(0), root, atol=0.05)
    assert (shares.max(1) > 0.8).mean() > 0.1 and (shares.max(1) < 0.5).mean() > 0.3, "corners and middles"
    assert np.array_equal(shares, drawn(PRIOR, 400, seed=4))


def test_too_few_runs_are_refused():
    with pytest.raises(ValueError, match="^runs: 7 runs are too few for 4 sources; use 8 or more$"):
        optimum(drawn(PRIOR, 7, 0), np.zeros(7), seed=0)


def test_a_search_that_steps_to_no_mixture_at_all_stays_where_it_began(monkeypatch):
    """As L-BFGS-B did from a corner, where the slope is rounding alone."""

    def step_to_zero(loss, start, **_):
        return SimpleNamespace(fun=loss(np.zeros_like(start)), x=np.zeros_like(start))

    monkeypatch.setattr(regmix, "minimize", step_to_zero)
    shares = drawn(np.full(4, 0.25), 12, 3)
    process = regmix.fitted(shares, 3 - 0.4 * shares[:, 2])
    assert regmix.lowest(process, np.eye(4)) == pytest.approx([0, 0, 1, 0])


KNOWN = np.stack([PRIOR, np.full(4, 0.25)])


SEEDS = 2
OF_A_SEED = 0.02  # what a seed adds to the losses of all mixtures


def losses_of(law, mixtures: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Losses of new runs, (mixtures, seeds)."""
    of_runs = draw.normal(0, NOISE, (len(mixtures), SEEDS)) + draw.normal(0, OF_A_SEED, SEEDS)
    return law(mixtures)[:, None] + of_runs


def judged(law, seed: int) -> tuple[Optimum, dict[str, Gain]]:
    """As `by_regmix` does it, with a law in place of proxies."""
    draw = np.random.default_rng(seed)
    shares = np.concatenate([KNOWN, drawn(PRIOR, 22, seed)])
    losses = losses_of(law, shares, draw)
    best = optimum(shares, losses.mean(axis=1), 0, resamples=0)
    again = losses_of(law, np.vstack([best.shares, KNOWN]), draw)
    over = gains(again[0], again[1:], run_noise(losses))
    return best, dict(zip(("by tokens", "uniform"), over, strict=True))


def flat(shares: np.ndarray) -> np.ndarray:
    return np.full(len(shares), 2.0)


def gentle(shares: np.ndarray) -> np.ndarray:
    """Near the optimum, where a regression knows its own error least."""
    return 2 + 0.02 * ((shares - np.array([0.3, 0.3, 0.25, 0.15])) ** 2).sum(1)


@pytest.mark.extended
@pytest.mark.parametrize("law", [saturating, gentle, flat])
def test_the_error_of_a_gain_holds_its_truth(law):
    """In 90 of 100 cases within the error to both sides, as it says; ten draws of two gains each."""
    held = claimed = 0
    for seed in range(10):
        best, over = judged(law, seed)
        truths = law(KNOWN) - law(best.shares[None])
        held += sum(abs(gain.gain - truth) <= gain.least for truth, gain in zip(truths, over.values(), strict=True))
        claimed += refusal(best, over, 24) == ""
    assert held >= 15, "of 20; 18 are expected, and the two of a draw share the runs of the choice"
    assert claimed == 10 if law is saturating else claimed <= 2


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_noise_of_a_run_is_what_neither_mixture_nor_seed_explains_and_not_that_of_corners(seeds):
    draw = np.random.default_rng(5)
    mixtures, of_seeds = np.linspace(1, 3, 400), draw.normal(0, 1, seeds)
    noise = draw.normal(0, 0.1, (400, seeds))
    noise[:40] *= 10
    variance, degrees = run_noise(mixtures[:, None] + of_seeds + noise)
    assert degrees == int(0.37 * 399 * (seeds - 1)) and np.sqrt(variance) == pytest.approx(0.1, rel=0.2)
    assert run_noise(mixtures[:, None] + of_seeds)[0] == pytest.approx(0)
    with pytest.raises(ValueError, match="^seeds: 1 of 400 mixtures do not measure the noise of a run; use 2 or more$"):
        run_noise(mixtures[:, None])


def steep(shares: np.ndarray) -> np.ndarray:
    """As the losses of real runs of two texts, a copy and noise: corners lose several times what the middle does."""
    of_texts = 0.6 * np.exp(-9 * (shares[:, 0] + shares[:, 3])) + 0.9 * np.exp(-12 * shares[:, 1])
    return 2 + of_texts + 2.5 * shares[:, 2] ** 4


@pytest.mark.extended
def test_what_is_taken_is_known_to_be_good():
    """Beside the mixture that is predicted to lose least, of which no run may be near."""
    line = np.linspace(0, 1, 2001)
    best = steep(np.stack([1 - line, line, 0 * line, 0 * line], 1)).min()
    regret: dict[float, list[float]] = {0.0: [], regmix.CAUTION: []}
    for seed in range(4):
        shares = np.concatenate([KNOWN, drawn(PRIOR, 22, seed), drawn(PRIOR, 8, seed + 500)])
        losses = steep(shares) + np.random.default_rng(1000 + seed).normal(0, NOISE, len(shares))
        for caution, each in regret.items():
            taken = optimum(shares, losses, 0, resamples=0, caution=caution)
            each.append(float(steep(taken.shares[None])[0]) - best)
    assert max(regret[regmix.CAUTION]) < 0.01
    assert np.mean(regret[regmix.CAUTION]) < np.mean(regret[0.0])


def test_a_gain_within_noise_is_none():
    best = Optimum(PRIOR, PRIOR, PRIOR, 2.0, 0.9, PRIOR[None])
    over = {"by tokens": Gain(2.01, 0.01, 0.002), "uniform": Gain(2.001, 0.001, 0.0034)}
    said = refusal(best, over, 24)
    assert "gains too little over uniform (+0.0010, 0.0034 is beyond noise)" in said and "by tokens" not in said
    assert refusal(best, {"by tokens": over["by tokens"]}, 24) == ""
    all_equal = replace(best, rank_correlation=float("nan"))
    assert "is noise" in refusal(all_equal, over, 24)


def test_kept_sources_go_together_and_new_ones_alone():
    recipe, before = recipe_of({"web": 1, "books": 1, "code": 1}), recipe_of({"web": 3, "books": 1, "old": 4})
    kept = kept_weights(recipe, before)
    assert kept == {"web": 0.75, "books": 0.25}
    groups = source_groups(["web", "books", "code"], kept)
    assert groups.tolist() == [[0.75, 0.25, 0], [0, 0, 1]]
    assert source_groups(["web", "books"], None).tolist() == np.eye(2).tolist()
    with pytest.raises(ValueError, match="^--keep given: it has no weights for sources of given"):
        kept_weights(recipe, recipe_of({"old": 1}))
    with pytest.raises(ValueError, match="has weights for all sources of given, so there is no weight to find"):
        kept_weights(recipe, recipe_of({"web": 1, "books": 1, "code": 1, "old": 1}))
    part = recipe.model_copy(update={"mixture": recipe_of({"web": 1, "code": 1}).mixture})
    assert kept_weights(part, before) == {"web": 1}, "no run reads books"


def test_doremi_refuses_what_it_would_not_heed():
    with pytest.raises(ValueError, match="^--keep and --judge or --clean: only for regmix"):
        check_options(MixOptions(method=Method.DOREMI, keep=load("demo"), judge=["web"]))
    check_options(MixOptions(method=Method.DOREMI))
    check_options(MixOptions(keep=load("demo"), judge=["web"]))
    with pytest.raises(ValueError, match="^seeds: one run of a mixture does not measure its noise"):
        check_options(MixOptions(judge=["web"], seeds=1))


def recipe_of(weights: dict[str, float]):
    sources = [{"name": name, "jsonl": [f"{name}.jsonl"]} for name in weights]
    return load({"name": "given", "sources": sources, "steps": [{"step": "extract"}], "mixture": {"weights": weights}})
