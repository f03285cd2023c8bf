"""Annotations of which some kinds of documents have more than their share: with the weights of the documents, measures
are those of the corpus, and their intervals cover them."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn import metrics

from gristmill.tasks.language_model.sample import quotas, strata
from gristmill.tasks.models.distillation.held_out import CutRule, choose, class_measures, grounds, reliability
from gristmill.tasks.models.host_intervals import at_cut, roc_auc, roc_auc_estimate

BOUNDS = {"first": (0.45, 0.55)}


def corpus(rng: np.random.Generator, hosts: int = 4000) -> dict[str, np.ndarray]:
    """Documents of hosts that are alike: scores of a first and of a second model, and whether they are good."""
    groups = np.repeat(np.arange(hosts), rng.geometric(1 / 5, hosts))
    truth = (rng.normal(size=hosts) * 0.7)[groups] + rng.normal(size=len(groups))
    first, second = (1 / (1 + np.exp(-2 * (truth + rng.normal(size=len(groups)) * noise))) for noise in (0.8, 0.5))
    return {"first": first, "second": second, "good": truth > 0.4, "groups": groups}


def drawn(rng: np.random.Generator, labels: np.ndarray, of: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a sample that has as many documents near the cut of the first model as below and above it, and the
    weight of each: documents of its stratum by those in the sample. `labels`: the strata."""
    names, counts = np.unique(labels, return_counts=True)
    assert len(names) == 3
    sizes = quotas(dict(zip(names.tolist(), counts.tolist(), strict=True)), of)
    rows = [rng.choice(np.flatnonzero(labels == name), sizes[name], replace=False) for name in names.tolist()]
    weights = [np.full(sizes[name], count / sizes[name]) for name, count in zip(names.tolist(), counts, strict=True)]
    return np.concatenate(rows), np.concatenate(weights)


def test_whole_weights_are_as_many_documents():
    rng = np.random.default_rng(1)
    whole = corpus(rng, 80)
    weights = rng.integers(1, 5, len(whole["good"]))
    good, scores, groups = whole["good"], np.round(whole["second"], 2), whole["groups"]
    many = [np.repeat(each, weights) for each in (good, scores, groups)]
    assert roc_auc(good, scores, weights)[0] == pytest.approx(metrics.roc_auc_score(*many[:2]))
    assert abs(roc_auc(good, scores, weights)[1].sum()) < 1e-12
    for name, found in at_cut(good, scores, groups, 0.6, weights).items():
        assert found.value == pytest.approx(at_cut(*many, 0.6)[name].value)
    lengths = rng.normal(size=len(good)) + scores
    found = class_measures(good, scores, groups, lengths, 0.6, weights)
    as_many = class_measures(*many, np.repeat(lengths, weights), 0.6)
    assert {name: value[0] for name, value in found.items() if isinstance(value, list)} == pytest.approx(
        {name: value[0] for name, value in as_many.items() if isinstance(value, list)}
    )
    bins = reliability(good.astype(float), scores, groups, weights)
    more = reliability(many[0].astype(float), many[1], many[2])
    assert bins["calibration_error"] == pytest.approx(more["calibration_error"])
    assert [row["label"] for row in bins["reliability"]] == pytest.approx([row["label"] for row in more["reliability"]])


@pytest.mark.parametrize("beta", [0.3, 1])
def test_the_cut_is_that_of_the_weighted_documents(beta):
    rng = np.random.default_rng(2)
    whole = corpus(rng, 150)
    good, scores, groups = whole["good"], np.round(whole["second"], 2), whole["groups"]
    weights = rng.integers(1, 5, len(good))
    cut = choose(CutRule(f_beta=beta), good, scores, groups, weights)
    cuts = [one for one in np.unique(scores) if (scores >= one).sum() >= 10]
    many, of_many = np.repeat(good, weights), np.repeat(scores, weights)
    measures = {one: metrics.fbeta_score(many, of_many >= one, beta=beta) for one in cuts}
    assert measures[cut] == pytest.approx(max(measures.values()))
    strict = choose(CutRule(min_precision=0.8), good, scores, groups, weights)
    shown = [one for one in cuts if at_cut(good, scores, groups, one, weights)["precision"].low >= 0.8]
    assert strict == min(shown)
    assert (
        grounds(good, scores, groups, cut, weights)["recall"]
        == at_cut(good, scores, groups, cut, weights)["recall"].dump()
    )


@pytest.mark.extended
def test_estimates_of_an_uncertain_sample_are_those_of_the_corpus_and_intervals_cover():
    """In 300 samples of one corpus of 20,000 documents. Without weights they are those of the sample."""
    rng = np.random.default_rng(3)
    whole = corpus(rng)
    good, scores, groups = whole["good"], whole["second"], whole["groups"]
    truth = {name: each.value for name, each in at_cut(good, scores, groups, 0.6).items()}
    truth["roc_auc"] = metrics.roc_auc_score(good, scores)
    found: dict[str, list] = {name: [] for name in truth}
    biased: dict[str, list[float]] = {name: [] for name in truth}
    labels = np.array(strata(pa.table({"first": whole["first"]}), ("first",), (), BOUNDS))
    for _ in range(300):
        rows, weights = drawn(rng, labels, 900)
        some = good[rows], scores[rows], groups[rows]
        for name, each in {**at_cut(*some, 0.6, weights), "roc_auc": roc_auc_estimate(*some, weights)}.items():
            found[name].append((each.value, each.low <= truth[name] <= each.high))
        for name, each in {**at_cut(*some, 0.6), "roc_auc": roc_auc_estimate(*some)}.items():
            biased[name].append(each.value)
    for name in truth:
        values, covered = np.array(found[name]).T
        error = values.std() / np.sqrt(300)
        print(
            f"{name}: {truth[name]:.4f}, weighted {values.mean():.4f} ± {error:.4f}, covered {covered.mean():.3f}, "
            f"without weights {np.mean(biased[name]):.4f}"
        )
        assert abs(values.mean() - truth[name]) < 4 * error + 0.002, name
        assert 0.86 <= covered.mean() <= 0.96, name
        if name != "f1":
            assert abs(np.mean(biased[name]) - truth[name]) > 5 * error + 0.002, "the sample is not the corpus"
