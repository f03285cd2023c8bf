"""Documents of one host are alike: variances by hosts, screening by hosts, and what is said of few of them."""

import re
from dataclasses import replace

import numpy as np
import pytest

from gristmill.flows.experiments.decisions.plan import judged_by
from gristmill.flows.stats.crossed import Components, deviations, document_variance, fitted, interaction
from gristmill.flows.stats.protocol import Protocol, decide
from gristmill.flows.stats.runs import EvaluationSet, RunRequest
from tests.decisions import COMPONENTS, RATES, TOKENS, bank, evaluation, of_hosts, rates, simulator

DIFFER = COMPONENTS.model_copy(update={"document": 0.06, "host": 0.04})


def test_hosts_of_one_document_each_are_documents():
    """By the formulas for documents, written out."""
    judged, rng = evaluation(30, 2, seed=1), np.random.default_rng(0)
    alone = replace(judged, cluster_of=rng.permutation(1000)[:60])
    bits = judged.size * rng.normal(0.02, 0.05, (4, 60))
    total = spread = common = 0.0
    for name in judged.judged:
        at = judged.members(name)
        beyond = bits[:, at] - bits[:, at].sum(axis=1, keepdims=True) / judged.size[at].sum() * judged.size[at]
        beyond = beyond / (2 * judged.size[at].sum())
        squares = beyond.mean(axis=0) ** 2
        total += squares.sum() * 30 / 29
        spread += ((squares - squares.mean()) ** 2).sum() * (30 / 29) ** 3
        common += ((beyond - beyond.mean(axis=0)) ** 2).sum() / 3 * 30 / 29
    for each in (judged, alone):
        assert document_variance(bits.mean(axis=0), each) == pytest.approx((total, 2 * total**2 / spread))
        assert interaction(bits, each) == pytest.approx((common, 3 * 58))


def test_hosts_of_equal_documents_are_one_document_each():
    """What all documents of a host repeat is counted once: as if each host had one document of their sums."""
    rng = np.random.default_rng(1)
    size, per_byte = rng.integers(100, 900, 12), rng.normal(0, 1, 12)
    once = EvaluationSet(("a",), np.zeros(12, int), 5 * size, ("a",))
    often = EvaluationSet(("a",), np.zeros(60, int), np.repeat(size, 5), ("a",), np.repeat(np.arange(12), 5))
    bits = per_byte * size
    assert document_variance(np.repeat(bits, 5), often) == pytest.approx(document_variance(5 * bits, once))
    assert often.effective_units == pytest.approx(once.effective_units)


def test_a_host_in_two_sets_is_one_host():
    """The variance of a host's sum over both sets, not the sum of two variances."""
    rng = np.random.default_rng(2)
    host = np.tile(np.arange(40), 2)
    both = EvaluationSet(("a", "b"), np.repeat([0, 1], 40), np.full(80, 100), ("a", "b"), host)
    own = rng.normal(0, 1, 40)
    assert document_variance(np.tile(own, 2), both)[0] == pytest.approx(own.var(ddof=1) / 40 / 100**2)
    apart = replace(both, cluster_of=np.arange(80))
    assert document_variance(np.tile(own, 2), apart)[0] == pytest.approx(own.var(ddof=1) / 80 / 100**2)


@pytest.mark.parametrize("zipf", [False, True])
def test_the_variance_is_that_of_drawn_hosts(zipf):
    """Hosts move all their documents alike: mean estimated variance against that of repeated draws."""
    judged = of_hosts(100, 15, zipf)
    host, rng = judged.cluster_of, np.random.default_rng(3)
    bits = rng.standard_normal((4000, 15))[:, host] * judged.size
    variances = (deviations(bits, judged) ** 2).sum(axis=1)
    assert variances.mean() == pytest.approx(judged.measure(bits).var(), rel=0.12)


def test_screening_and_test_share_no_host():
    for judged in (of_hosts(100, 40, True, 2), of_hosts(60, 9), of_hosts(60, 60)):
        chosen, rest = judged.split(4)
        assert not (chosen & rest).any() and (chosen | rest).all()
        assert not set(judged.cluster_of[chosen]) & set(judged.cluster_of[rest])
        assert 0.15 <= chosen.mean() <= 0.26
    alone = evaluation(50)
    assert np.array_equal(np.flatnonzero(alone.split(4)[0]), [*range(0, 50, 4), *range(50, 100, 4)])


@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_a_set_of_too_few_hosts_is_split_by_documents(hosts):
    judged = of_hosts(20, hosts)
    assert np.array_equal(np.flatnonzero(judged.split(4)[0]), range(0, 20, 4))


def test_few_hosts_are_said_to_be_few():
    judged = of_hosts(60, 6)
    runs = simulator(1, judged, {"A": 0.3})
    (sentence,) = decide(Protocol(learning_rates=RATES), judged, "base", ["A"], TOKENS, runs).sentences()
    assert "; few hosts judge it: they count as 5 of equal weight" in sentence
    many = evaluation(60)
    (sentence,) = decide(Protocol(learning_rates=RATES), many, "base", ["A"], TOKENS, simulator(1, many)).sentences()
    assert "hosts" not in sentence


def test_a_set_of_one_host_is_judged_on_this_host():
    """Its documents are what is drawn; other hosts are not spoken of. Candidates are screened by some of them."""
    judged = of_hosts(40, 1)
    runs = simulator(1, judged, {"A": 0.3, "B": 0.2, "C": 0.0})
    known = bank(runs, judged)
    decision = decide(Protocol(learning_rates=RATES), judged, "base", ["A", "B", "C"], TOKENS, runs, known)
    first = decision.verdicts[0]
    assert first.outcome == "better" and first.low < 0.3 < first.high
    assert "all documents of `set0` are from one host, so the verdict applies only to this host" in first.sentence()
    alone = replace(judged, cluster_of=np.arange(40))
    again = decide(Protocol(learning_rates=RATES), alone, "base", ["A", "B", "C"], TOKENS, runs, known)
    assert (again.verdicts[0].low, again.verdicts[0].high) == pytest.approx((first.low, first.high))


def test_documents_of_unknown_hosts_are_not_said_to_be_of_one():
    """A source without URLs in one file, and in six."""
    one = replace(of_hosts(15, 1), hostless=("set0",))
    (sentence,) = decide(Protocol(learning_rates=RATES), one, "base", ["A"], TOKENS, simulator(1, one)).sentences()
    assert "the hosts of `set0` are unknown, so each document counts separately" in sentence
    assert re.search(r"few documents judge it: they count as 1\d of equal weight", sentence)
    assert judged_by(one) == "15 documents of `set0`"
    files = replace(of_hosts(60, 6), hostless=("set0",))
    (sentence,) = decide(Protocol(learning_rates=RATES), files, "base", ["A"], TOKENS, simulator(1, files)).sentences()
    assert "few files judge it: they count as 5 of equal weight; the hosts of `set0` are unknown" in sentence
    assert judged_by(files) == "60 documents of 6 files of `set0`"
    assert judged_by(of_hosts(60, 6)) == "60 documents of 6 hosts of `set0`"
    assert judged_by(of_hosts(60, 1)) == "60 documents of `set0`"


def test_what_hosts_add_is_found_in_runs():
    judged = of_hosts(200, 60, sets=2)
    planted = Components(**DIFFER.model_dump() | {"document": 0.08, "host": 0.05, "run_document": 0.03})
    found = []
    for seed in range(12):
        runs = simulator(seed, judged, components=planted)
        requests = [RunRequest(arm, pair, RATES[0], TOKENS) for arm in "ABCDEF" for pair in range(8)]
        found.append(fitted(np.array(runs(requests)).reshape(6, 8, -1), judged))
    for name in ("document", "host", "run_document"):
        root = np.sqrt(np.mean([getattr(one, name) ** 2 for one in found]))
        assert root == pytest.approx(getattr(planted, name), rel=0.12), name
    # the variance of the effect that they add up to, from decisions
    effects = [np.subtract(*judged.measure(np.array(simulator(s, judged, components=planted)(
        [RunRequest(arm, 1, RATES[0], TOKENS) for arm in "AB"])))) for s in range(400)]  # fmt: skip
    of_all = planted.document_variance(judged) + planted.pair_variance(judged) + 2 * planted.learning_rate**2 / 2
    assert np.var(effects) == pytest.approx(of_all, rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(("hosts", "zipf"), [(50, False), (15, False), (15, True), (8, False)])
def test_false_verdicts_and_coverage_by_few_hosts(hosts, zipf):
    judged = of_hosts(100, hosts, zipf)
    found = rates(2000, {"A": 0.0}, Protocol(learning_rates=RATES, worth_pairs=0), judged, 12, DIFFER)
    print(hosts, zipf, found)
    assert found.false <= 0.07
    assert found.coverage >= 0.86
