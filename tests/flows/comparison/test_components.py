"""Variances of runs and documents: closed forms, brute force, and components that were planted."""

import numpy as np
import pytest
from scipy import stats

from gristmill.flows.stats.crossed import Components, document_variance, estimate, fitted, interaction, pooled_degrees
from gristmill.flows.stats.runs import EvaluationSet, RunRequest
from tests.decisions import COMPONENTS, RATES, TOKENS, evaluation, simulator


def equal(documents: int, sets: int = 1) -> EvaluationSet:
    """Documents of one byte."""
    names = tuple(f"set{n}" for n in range(sets))
    return EvaluationSet(names, np.repeat(np.arange(sets), documents), np.ones(documents * sets, dtype=np.int64), names)


def test_the_measure_is_the_mean_over_judged_sets():
    judged = EvaluationSet(("a", "b", "c"), np.array([0, 0, 1, 1, 2]), np.array([1, 3, 5, 5, 9]), ("a", "b"))
    bits = np.array([[2.0, 6, 10, 20, 1000], [1, 1, 0, 0, 0]])
    assert judged.measure(bits) == pytest.approx([(8 / 4 + 30 / 10) / 2, (2 / 4 + 0) / 2])


def test_mean_squares_are_those_of_two_way_analysis_of_variance():
    """Equal documents: the parts are the mean squares of a table of pairs by documents (Searle et al. 1992)."""
    pairs, documents = 5, 30
    x = np.random.default_rng(0).normal(size=(pairs, documents)) + np.linspace(0, 1, documents)
    grand, rows, columns = x.mean(), x.mean(axis=1), x.mean(axis=0)
    of_documents = pairs * ((columns - grand) ** 2).sum() / (documents - 1)
    residual = ((x - rows[:, None] - columns + grand) ** 2).sum() / ((pairs - 1) * (documents - 1))
    judged = equal(documents)
    assert document_variance(columns, judged)[0] == pytest.approx(of_documents / (pairs * documents))
    assert interaction(x, judged) == pytest.approx((residual / documents, (pairs - 1) * (documents - 1)))
    found = estimate(x, judged)
    assert found.effect == pytest.approx(grand)
    assert found.pair_variance == pytest.approx(rows.var(ddof=1))
    assert found.variance == pytest.approx(rows.var(ddof=1) / pairs + (of_documents - residual) / (pairs * documents))


def test_without_documents_effects_it_is_the_paired_t_test():
    values = np.random.default_rng(1).normal(0.2, 1, 6)
    found = estimate(np.repeat(values[:, None], 10, axis=1), equal(10))
    assert found.degrees == pytest.approx(5)
    assert found.effect / np.sqrt(found.variance) == pytest.approx(stats.ttest_1samp(values, 0).statistic)


def test_a_bank_is_pooled_by_degrees_of_freedom():
    values = np.random.default_rng(1).normal(0.2, 1, 4)
    differences = np.repeat(values[:, None], 10, axis=1)
    found = estimate(differences, equal(10), (2.5, 11, 0))
    assert found.pair_variance == pytest.approx((3 * values.var(ddof=1) + 11 * 2.5) / 14)
    assert found.degrees == pytest.approx(14)
    assert estimate(differences, equal(10), (2.5, 11, 4)).degrees == pytest.approx(14**2 / (14 + 1.5))


def test_a_bank_that_varies_less_is_left_out():
    values = np.random.default_rng(1).normal(0.2, 1, 4)
    differences, own = np.repeat(values[:, None], 10, axis=1), values.var(ddof=1)
    edge = own / stats.f.isf(0.1, 3, 11)
    assert estimate(differences, equal(10), (edge * 1.01, 11, 0)).degrees == pytest.approx(14)
    alone = estimate(differences, equal(10), (edge * 0.99, 11, 0))
    assert (alone.degrees, alone.pair_variance) == pytest.approx((3, own))


def test_pooled_degrees_are_those_of_simulated_variances():
    """Degrees of freedom from mean and variance of many pooled variances, of differences that share a base run."""
    base, candidate, sample = np.random.default_rng(2).standard_normal((3, 40_000, 6))
    pooled = (5 * (base - candidate).var(axis=1, ddof=1) + 5 * (base - sample).var(axis=1, ddof=1)) / 10
    assert 2 * pooled.mean() ** 2 / pooled.var() == pytest.approx(pooled_degrees(5, 5, 6), rel=0.03)


def test_variance_by_documents_is_that_of_resampled_documents():
    """Two strata, documents of different sizes: against the bootstrap of documents within sets."""
    judged, rng = evaluation(150, 2, seed=3), np.random.default_rng(4)
    bits = judged.size * rng.normal(0.02, 0.05, len(judged.size))
    effects = []
    for _ in range(1500):
        drawn = np.concatenate([rng.choice(judged.members(name), 150) for name in judged.names])
        effects.append(
            EvaluationSet(judged.names, judged.set_of, judged.size[drawn], judged.judged).measure(bits[drawn])
        )
    assert document_variance(bits, judged)[0] == pytest.approx(np.var(effects), rel=0.1)


def test_the_standard_error_is_that_of_repeated_experiments():
    judged = evaluation(60, 2)
    found, variances = [], []
    for seed in range(200):
        runs = simulator(seed, judged)
        bits = {arm: np.array(runs([RunRequest(arm, p, RATES[0], TOKENS) for p in range(4)])) for arm in "AB"}
        one = estimate(bits["A"] - bits["B"], judged)
        found.append(one.effect)
        variances.append(one.variance)
    assert np.mean(variances) == pytest.approx(np.var(found), rel=0.25)
    # The components say the same.
    expected = COMPONENTS.pair_variance(judged) / 4 + COMPONENTS.document_variance(judged)
    assert np.mean(variances) == pytest.approx(expected, rel=0.15)


def test_planted_components_are_found():
    judged = evaluation(100, 2)
    planted = Components(
        pair=0.02,
        sample=0.008,
        run=0.006,
        learning_rate=0.01,
        document=0.08,
        run_document=0.03,
        level=2.0,
        slope=0.1,
    )
    found = []
    for seed in range(20):
        runs = simulator(seed, judged, components=planted)
        requests = [RunRequest(arm, pair, RATES[0], TOKENS) for arm in "ABCDEF" for pair in range(10)]
        found.append(fitted(np.array(runs(requests)).reshape(6, 10, -1), judged))
    # One learning rate cannot separate a run from its sample of text.
    truth = {"pair": 0.02, "run": np.hypot(0.008, 0.006), "document": 0.08, "run_document": 0.03}
    for name, tolerance in {"pair": 0.1, "run": 0.1, "document": 0.05, "run_document": 0.03}.items():
        # Variances are unbiased, their roots are not.
        root = np.sqrt(np.mean([getattr(one, name) ** 2 for one in found]))
        assert root == pytest.approx(truth[name], rel=tolerance), name
    assert np.mean([one.level for one in found]) == pytest.approx(planted.level, rel=0.01)


def test_pairs_vary_about_the_effect_at_their_own_learning_rate():
    """Two groups of pairs: mean squares within groups, as in a table of groups, pairs and documents."""
    x = np.random.default_rng(5).normal(size=(8, 30)) + np.linspace(0, 1, 30)
    rate = np.arange(8) % 2
    x[rate == 1] += 10 + np.linspace(0, 3, 30)
    rows = x.mean(axis=1)
    squares = sum(((rows[rate == one] - rows[rate == one].mean()) ** 2).sum() for one in (0, 1))
    found = estimate(x, equal(30), groups=rate)
    assert found.effect == pytest.approx(rows.mean())
    assert (found.pair_variance, found.pair_degrees) == pytest.approx((squares / 6, 6))
    residual = 0.0
    for one in (0, 1):
        part = x[rate == one]
        beyond = part - part.mean(axis=1, keepdims=True) - part.mean(axis=0) + part.mean()
        residual += (beyond**2).sum()
    assert interaction(x, equal(30), rate) == pytest.approx((residual / (6 * 29) / 30, 6 * 29))


def test_runs_that_cannot_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="1 arms"):
        fitted(np.zeros((1, 4, 400)), evaluation())


def test_runs_may_vary_by_their_sample_alone():
    """As those of a small bank often do: the estimate of what a run adds is then below 0."""
    known = COMPONENTS.model_copy(update={"run": 0.0, "run_document": 0.0})
    assert Components.model_validate(known.model_dump()).pair_variance(evaluation()) == 2 * known.sample**2
    with pytest.raises(ValueError, match="run and sample are 0"):
        Components.model_validate(known.model_dump() | {"sample": 0.0})
