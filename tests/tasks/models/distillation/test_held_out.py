"""What held-out annotations say of a score: measures, intervals and cuts, against definitions and planted truth."""

import re

import numpy as np
import pyarrow as pa
import pytest
from sklearn import metrics

from gristmill.storage import parquet
from gristmill.tasks.models import heads
from gristmill.tasks.models.distillation import held_out
from gristmill.tasks.models.distillation.held_out import CutError, CutRule, choose, class_measures, grounds, reliability
from gristmill.tasks.models.distillation.learn import HELD_OUT_FILE, MODELS, train_model
from gristmill.tasks.models.distillation.step import Learning
from gristmill.tasks.models.embedders import vector_table
from gristmill.tasks.models.host_intervals import (
    at_cut,
    difference,
    estimate,
    roc_auc,
    roc_auc_estimate,
    roc_auc_of_folds,
)
from tests.recorded import recorded


def planted(rng: np.random.Generator, hosts: int = 60, documents: int = 5, spread: float = 0.6) -> tuple:
    """Whether documents are good, their scores, and their hosts, of unequal sizes, whose documents are alike."""
    groups = np.repeat(np.arange(hosts), rng.geometric(1 / documents, hosts))
    own, wrong = rng.normal(size=(2, hosts)) * spread
    truth = own[groups] + rng.normal(size=len(groups))
    return truth > 0, np.round(truth + wrong[groups] + rng.normal(size=len(groups)) * 0.8, 1), groups


def test_measures_are_those_of_their_definitions():
    good, scores, groups = planted(np.random.default_rng(1))
    area, deviations = roc_auc(good, scores)
    assert area == pytest.approx(metrics.roc_auc_score(good, scores)) and abs(deviations.sum()) < 1e-12
    at = at_cut(good, scores, groups, 0.3)
    assert at["precision"].value == pytest.approx(metrics.precision_score(good, scores >= 0.3))
    assert at["recall"].value == pytest.approx(metrics.recall_score(good, scores >= 0.3))
    assert at["f1"].value == pytest.approx(metrics.f1_score(good, scores >= 0.3))
    # within folds, by all pairs
    folds = groups % 3
    pairs = [
        (a > b) + (a == b) / 2
        for fold in range(3)
        for a in scores[good & (folds == fold)]
        for b in scores[~good & (folds == fold)]
    ]
    assert roc_auc_of_folds(good, scores, folds)[0] == pytest.approx(np.mean(pairs))
    shuffled = np.random.default_rng(2).permutation(len(good))
    same = roc_auc_estimate(good[shuffled], scores[shuffled], groups[shuffled]).dump()
    assert same == pytest.approx(roc_auc_estimate(good, scores, groups).dump())


def test_deviations_are_those_of_leaving_a_host_out():
    """The variance of the linearized measure is near the jackknife's, which takes each host away."""
    good, scores, groups = planted(np.random.default_rng(3), hosts=80)
    left_out = [metrics.roc_auc_score(good[groups != one], scores[groups != one]) for one in range(80)]
    jackknife = 79 / 80 * np.sum((np.array(left_out) - np.mean(left_out)) ** 2)
    sums = np.bincount(groups, roc_auc(good, scores)[1])
    assert np.sum(sums**2) == pytest.approx(jackknife, rel=0.1)


def test_an_interval_has_a_width_where_nothing_is_wrong_and_is_whole_where_one_host_is_all():
    ones, groups = np.ones(40), np.repeat(np.arange(8), 5)
    certain = estimate(1.0, np.zeros(40), ones, groups)
    assert certain.high == 1 and 0.6 < certain.low < 0.8, "eight hosts, not forty documents"
    alone = estimate(0.9, np.zeros(40), ones, np.zeros(40, np.int64))
    assert (alone.low, alone.high) == (0, 1)
    skewed = np.array([0] * 36 + [1, 2, 3, 4])
    assert estimate(1.0, np.zeros(40), ones, skewed).low < certain.low


@pytest.mark.parametrize("beta", [0.1, 0.5, 1, 2])
def test_the_cut_has_the_highest_f_measure(beta):
    good, scores, groups = planted(np.random.default_rng(4))
    cut = choose(CutRule(f_beta=beta), good, scores, groups)
    cuts = [one for one in np.unique(scores) if (scores >= one).sum() >= held_out.MIN_KEPT]
    best = max(metrics.fbeta_score(good, scores >= one, beta=beta) for one in cuts)
    assert metrics.fbeta_score(good, scores >= cut, beta=beta) == pytest.approx(best)
    found = grounds(good, scores, groups, cut)
    assert found["kept"] == (scores >= cut).sum() and found["hosts"] == len(np.unique(groups))
    assert found["precision"] == at_cut(good, scores, groups, cut)["precision"].dump()


def test_the_cut_is_the_lowest_whose_precision_is_shown():
    good, scores, groups = planted(np.random.default_rng(5), hosts=150)
    cut = choose(CutRule(min_precision=0.85), good, scores, groups)
    cuts = [one for one in np.unique(scores) if (scores >= one).sum() >= held_out.MIN_KEPT]
    assert cut == min(one for one in cuts if at_cut(good, scores, groups, one)["precision"].low >= 0.85)
    with pytest.raises(CutError, match="no cut is shown to have a precision of 0.99: of .* lower `min_precision`"):
        choose(CutRule(min_precision=0.99), good, scores, groups)


def test_a_cut_that_is_not_identified_is_refused():
    good, scores, groups = planted(np.random.default_rng(6))
    rule = CutRule(f_beta=1)
    for some, message in (
        (np.arange(len(good)) < 30, "and 20 of 10 hosts are needed of each kind"),
        (good, "0 other annotations of 0 hosts"),
        (groups < 8, "annotations of 8 hosts"),
    ):
        with pytest.raises(CutError, match=message):
            choose(rule, good[some], scores[some], groups[some])
    noise = np.random.default_rng(7).normal(size=len(good))
    with pytest.raises(CutError, match="does not separate the held-out annotations"):
        choose(rule, good, noise, groups)


def test_the_length_of_texts_is_the_baseline():
    good, scores, groups = planted(np.random.default_rng(8), hosts=100)
    lengths = 1000 - 100 * scores + np.random.default_rng(9).normal(size=len(good)) * 200  # good texts are shorter
    found = class_measures(good, scores, groups, lengths, 0.0)
    assert found["length_roc_auc"][0] == pytest.approx(metrics.roc_auc_score(good, -lengths))
    assert 0 < found["above_length"] < found["roc_auc"][0] - found["length_roc_auc"][0]
    assert class_measures(good, -lengths, groups, lengths, 0.0)["above_length"] <= 0
    for some, why in ((good, "0 other of 0 hosts"), (good | (groups < 9), "other of [1-9] hosts, and 10")):
        few = class_measures(good[some], scores[some], groups[some], lengths[some], 0.0)
        assert list(few) == ["unknown"] and re.search(why, few["unknown"])
    assert difference(good, scores, scores, groups) == 0


def test_reliability_is_by_bins():
    rng = np.random.default_rng(10)
    scores = rng.random(4000)
    labels = (rng.random(4000) < scores).astype(float)
    groups = np.arange(4000)
    found = reliability(labels, scores, groups)
    assert sum(row["documents"] for row in found["reliability"]) == 4000 and found["calibration_error"] < 0.03
    assert sum(row["low"] <= row["score"] <= row["high"] for row in found["reliability"]) >= 11
    grades = np.round(scores * 5)
    of_grades = reliability(grades, scores * 5, groups)
    assert len(of_grades["reliability"]) == 6 and of_grades["calibration_error"] < 0.1


def _case(folder, rng, spread: float, noise: float, hosts: int = 120, size: int = 8) -> dict:
    """A head learned from a planted grader's grades, what was measured, and what is true of fresh hosts."""
    weight = np.ones(size) / np.sqrt(size)  # grades have the variance 1, besides hosts and noise

    def draw(hosts: int) -> tuple:
        groups = np.repeat(np.arange(hosts), rng.geometric(1 / 5, hosts))
        vectors = rng.normal(size=(len(groups), size)).astype(np.float16)
        truth = vectors.astype(np.float64) @ weight
        return (
            groups,
            vectors,
            truth,
            truth + (rng.normal(size=hosts) * spread)[groups] + noise * rng.normal(size=len(groups)),
        )

    groups, vectors, _, grades = draw(hosts)
    ids = pa.chunked_array([[f"d{number}" for number in range(len(groups))]])
    table = vector_table(ids, vectors).append_column("label", pa.array(grades))
    table = table.append_column("host", pa.array([f"h{group}" for group in groups]))
    table = table.append_column("length", pa.array(np.full(len(groups), 7)))
    parquet.write_table(f"{folder}/gathered.parquet", table)
    settings = Learning(of="grade", positive=0.5, kind="head", held_out=0.4, penalty=1e-3)
    found = train_model(str(folder), 0, [f"{folder}/gathered.parquet"], settings, "number", {})
    head = heads.load(recorded(f"{folder}/{MODELS['head']}"))
    _, fresh, truth, fresh_grades = draw(4000)
    unseen = parquet.read_table(f"{folder}/{HELD_OUT_FILE}")
    return {"found": found, "scores": heads.scores(head, fresh), "truth": truth, "grades": fresh_grades, "held": unseen}


@pytest.mark.slow
def test_the_model_agrees_with_the_truth_as_theory_says(tmp_path):
    """A regression on d numbers learned from n grades with noise of variance 1 has weights with an error of variance
    1 / (n - d - 2) in each direction (the mean of inverse Wishart matrices). The d - 1 directions besides that of the
    truth lower the correlation."""
    rng, squared, expected = np.random.default_rng(1), [], []
    for number in range(100):
        case = _case(tmp_path / f"{number}", rng, spread=0.0, noise=1.0)
        squared.append(np.corrcoef(case["scores"], case["truth"])[0, 1] ** 2)
        expected.append(1 / (1 + 7 / (case["found"]["training"] - 10)))
    error = np.std(np.array(squared) - expected) / 10
    assert abs(np.mean(squared) - np.mean(expected)) < 3 * error + 0.001
    assert 0.97 < np.mean(squared) < 0.985


@pytest.mark.slow
def test_intervals_hold_on_fresh_hosts_and_so_do_cuts(tmp_path):
    """100 planted cases: 90 of 100 intervals cover; fewer than 82 have a probability of .3%."""
    rng = np.random.default_rng(2)
    inside: dict[str, list[bool]] = {}
    below: list[bool] = []
    for number in range(100):
        case = _case(tmp_path / f"{number}", rng, spread=0.5, noise=0.4)
        good, scores = case["grades"] >= 0.5, case["scores"]
        true = {"roc_auc": metrics.roc_auc_score(good, scores)}
        true |= {name: each.value for name, each in at_cut(good, scores, np.arange(len(good)), 0.5).items()}
        for name, value in true.items():
            _, low, high = case["found"][name]
            inside.setdefault(name, []).append(low <= value <= high)
        held = case["held"].sort_by("id")
        groups = np.unique(held["host"].to_numpy(), return_inverse=True)[1]
        annotations = held["good"].to_numpy() == 1, held["score"].to_numpy(), groups
        cut = choose(CutRule(f_beta=0.5), *annotations)
        _, low, high = grounds(*annotations, cut)["precision"]
        inside.setdefault("f_beta", []).append(low <= good[scores >= cut].mean() <= high)
        try:
            cut = choose(CutRule(min_precision=0.7), *annotations)
        except CutError:
            continue
        below.append(good[scores >= cut].mean() < 0.7)
    counts = {name: sum(each) for name, each in inside.items()}
    assert all(82 <= count <= 98 for name, count in counts.items() if name != "f_beta"), counts
    assert counts["f_beta"] >= 78, "a cut is chosen by what it is judged by"
    assert len(below) > 60 and sum(below) <= 0.15 * len(below), (sum(below), len(below))
