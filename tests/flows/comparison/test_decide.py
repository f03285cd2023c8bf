"""Whole decisions on simulated runs: what is asked for, what is said, what is refused."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.special import ndtri, stdtr

from gristmill.flows.experiments.decisions.plan import detectable_effect
from gristmill.flows.stats.protocol import Bank, Protocol, calibrate, decide, requests
from gristmill.flows.stats.runs import RunRequest
from gristmill.flows.stats.sequential import Noise, declared, pairs_needed, power, smallest_effect
from tests.decisions import COMPONENTS, RATES, TOKENS, bank, evaluation, simulator

PROTOCOL = Protocol(learning_rates=RATES)
JUDGED = evaluation()


class Counted:
    """Remembers what a `Run` was asked for."""

    def __init__(self, run):
        self.run, self.batches = run, list[list[RunRequest]]()

    def __call__(self, wanted: Sequence[RunRequest]):
        self.batches.append(list(wanted))
        return self.run(wanted)


def test_a_large_effect_ends_at_the_first_look():
    runs = Counted(simulator(1, JUDGED, {"A": 0.1}))
    decision = decide(PROTOCOL, JUDGED, "base", ["A"], TOKENS, runs, bank(runs.run, JUDGED))
    (verdict,) = decision.verdicts
    assert (verdict.outcome, verdict.look, verdict.pairs) == ("better", 1, 4)
    assert verdict.low < 0.1 < verdict.high
    assert verdict.p_value < 0.001
    first, half = runs.batches
    assert {(r.arm, r.pair, r.learning_rate) for r in first} == {
        (arm, pair, RATES[pair % 2]) for arm in ("base", "A") for pair in (1, 2, 3, 4)
    }
    assert {(r.arm, r.tokens) for r in half} == {("base", TOKENS // 2)}
    # The planted curve loses `slope` for each factor e of tokens; a tenth is far beyond a doubling's worth.
    assert verdict.worth.low < np.expm1(0.1 / COMPONENTS.slope) < verdict.worth.high
    assert decision.runs == tuple(first + half)


def test_a_harmful_candidate_is_worse():
    runs = simulator(2, JUDGED, {"A": -0.1})
    (sentence,) = decide(PROTOCOL, JUDGED, "base", ["A"], TOKENS, runs, bank(runs, JUDGED)).sentences()
    assert sentence.startswith("A is worse than base by 0.")
    assert "costing" in sentence


def test_each_candidate_stops_by_itself_and_no_run_is_asked_for_twice():
    runs = Counted(simulator(3, JUDGED, {"A": 0.2, "B": 0.0}))
    patient = Protocol(learning_rates=RATES, looks=(4, 8, 12), futility=0)
    decision = decide(patient, JUDGED, "base", ["B", "A"], TOKENS, runs, bank(runs.run, JUDGED))
    assert [verdict.candidate for verdict in decision.verdicts] == ["B", "A"]
    assert [verdict.pairs for verdict in decision.verdicts] == [12, 4]
    asked = [request for batch in runs.batches for request in batch]
    assert len(asked) == len(set(asked)) == 4 * 3 + 8 * 2 + 4
    assert [{r.arm for r in batch} for batch in runs.batches] == [
        {"base", "A", "B"},
        {"base", "B"},
        {"base", "B"},
        {"base"},
    ]


def test_screening_uses_neither_pairs_nor_documents_of_the_test():
    effects = {"A": 0.0, "B": 0.2, "C": 0.1, "D": -0.1}
    runs = Counted(simulator(4, JUDGED, effects))
    known = bank(runs.run, JUDGED)
    decision = decide(PROTOCOL, JUDGED, "base", list(effects), TOKENS, runs, known)
    assert [v.outcome for v in decision.verdicts] == ["screened out", "better", "better", "screened out"]
    assert [v.rank for v in decision.verdicts] == [3, None, None, 4]
    screened = runs.batches[0]
    assert {(r.arm, r.pair) for r in screened} == {(arm, 0) for arm in effects}
    assert all(r.pair > 0 for batch in runs.batches[1:] for r in batch)
    # Losses on the documents of screening may be anything afterwards.
    mask, rest = JUDGED.split(4)
    assert not (mask & rest).any() and (mask | rest).all() and mask.sum() == len(mask) / 4

    def disturbed(wanted):
        return [bits + 1e6 * mask * (request.pair > 0) for request, bits in zip(wanted, runs.run(wanted), strict=True)]

    assert decide(PROTOCOL, JUDGED, "base", list(effects), TOKENS, disturbed, known).verdicts == decision.verdicts


def test_learning_rates_that_disagree_withhold_the_verdict():
    runs = simulator(5, JUDGED, {"A": (0.2, -0.1)})
    (verdict,) = decide(PROTOCOL, JUDGED, "base", ["A"], TOKENS, runs, bank(runs, JUDGED)).verdicts
    assert (verdict.outcome, verdict.worth) == ("withheld", None)
    assert [one.effect for one in verdict.by_learning_rate] == pytest.approx([0.2, -0.1], abs=0.03)


def test_a_decision_without_an_effect_stops_early_and_says_so():
    runs = Counted(simulator(3, JUDGED))
    (verdict,) = decide(PROTOCOL, JUDGED, "base", ["A"], TOKENS, runs).verdicts
    assert verdict.outcome == "inconclusive" and verdict.pairs < PROTOCOL.looks[-1]
    assert verdict.chance < PROTOCOL.futility and verdict.low < 0 < verdict.high
    early = f"; it stopped early, after {verdict.pairs} of at most 20 pairs, because a verdict had become unlikely"
    assert f"{early} (probability {verdict.chance:.2f}); " in verdict.sentence()
    assert {request.pair for batch in runs.batches for request in batch} == {*range(1, verdict.pairs + 1)}
    patient = PROTOCOL.model_copy(update={"futility": 0.0})
    (whole,) = decide(patient, JUDGED, "base", ["A"], TOKENS, runs.run).verdicts
    assert (whole.pairs, whole.chance) == (20, None) and "stopped early" not in whole.sentence()


def test_equal_runs_are_said_to_be_equal():
    """A step that drops nothing leaves the same tokens: there is no noise to measure."""
    runs = simulator(6, JUDGED)

    def same(wanted):
        return runs([RunRequest("base", r.pair, r.learning_rate, r.tokens) for r in wanted])

    (verdict,) = decide(PROTOCOL, JUDGED, "base", ["A"], TOKENS, same, bank(runs, JUDGED)).verdicts
    assert (verdict.outcome, verdict.pairs, verdict.effect) == ("identical", 4, 0.0)
    assert verdict.sentence() == "A does not differ from base: all losses are the same (4 pairs, 2 learning rates)"


def test_more_pairs_are_advised_from_the_observed_variance():
    alike = COMPONENTS.model_copy(update={"document": 0.0})
    runs = simulator(11, JUDGED, {"A": 0.007}, alike)
    short = Protocol(learning_rates=RATES, looks=(4,))
    (verdict,) = decide(short, JUDGED, "base", ["A"], TOKENS, runs, bank(runs, JUDGED)).verdicts
    assert verdict.outcome == "inconclusive"
    noise = Noise(bank(runs, JUDGED).variance(len(JUDGED.size)), 11, rates=2)
    assert verdict.pairs_needed == pytest.approx(pairs_needed(verdict.effect, 0.05, noise), rel=0.4)
    assert f"--pairs {verdict.pairs_needed} --first-pair {1 + verdict.pairs})" in verdict.sentence()


def test_pairs_needed_see_the_effect_in_simulated_t_tests():
    noise, rng = Noise(1.0), np.random.default_rng(0)
    n = pairs_needed(1.2, 0.05, noise)
    seen = []
    for pairs in (n - 1, n):
        x = rng.normal(1.2, 1, (20_000, pairs))
        t = x.mean(axis=1) / (x.std(axis=1, ddof=1) / np.sqrt(pairs))
        reach = {7: 2.4469, 8: 2.3646}[pairs]
        seen.append((t > reach).mean())
    assert seen[0] < 0.8 <= seen[1] + 0.01
    assert pairs_needed(1.2, 0.05, Noise(1.0, 0, shared_variance=1.0)) is None


@pytest.mark.parametrize("bank_pairs", [4, 12])
def test_announced_power_is_that_of_simulated_decisions(bank_pairs):
    """Pairs alone, and a bank that shares their base runs: fifty thousand decisions at once."""
    looks, limits = (3, 6, 12), declared((3, 6, 12), 0.05)
    noise = Noise(2.0, bank_pairs - 1)
    effect = smallest_effect(looks, limits, noise)
    assert power(effect, looks, limits, noise) == pytest.approx(0.8, abs=1e-3)
    base, candidate, sample = np.random.default_rng(0).standard_normal((3, 50_000, 12))
    x, of_bank = base - candidate + effect, (base - sample)[:, :bank_pairs].var(axis=1, ddof=1)
    crossed = np.zeros(len(x), dtype=bool)
    for n, limit in zip(looks, limits, strict=True):
        variance = ((bank_pairs - 1) * of_bank + (n - 1) * x[:, :n].var(axis=1, ddof=1)) / (bank_pairs + n - 2)
        t = x[:, :n].mean(axis=1) / np.sqrt(variance / n)
        crossed |= -ndtri(stdtr(noise.freedom(n), -t)) >= limit
    assert crossed.mean() == pytest.approx(0.8, abs=0.015)


def test_what_a_decision_sees_by_components_is_what_it_sees_by_a_bank_of_them():
    runs = simulator(8, JUDGED)
    large = calibrate(runs, JUDGED, "base", range(1, 200), RATES, TOKENS)
    alike = COMPONENTS.model_copy(update={"document": 0.0})
    by_components = detectable_effect(PROTOCOL, JUDGED, 3, alike, 199)
    assert by_components == pytest.approx(detectable_effect(PROTOCOL, JUDGED, 3, large), rel=0.1)
    # documents on which candidates differ hide more, and so does a small bank
    assert detectable_effect(PROTOCOL, JUDGED, 3, COMPONENTS, 199) > by_components
    assert (
        detectable_effect(PROTOCOL, JUDGED, 3, alike, 3)
        > detectable_effect(PROTOCOL, JUDGED, 3, alike, 12)
        > by_components
    )


def test_a_bank_measures_the_noise_and_survives_json():
    runs = Counted(simulator(13, JUDGED))
    known = calibrate(runs, JUDGED, "base", range(1, 200), RATES, TOKENS)
    assert known.variance(len(JUDGED.size)) == pytest.approx(COMPONENTS.pair_variance(JUDGED), rel=0.2)
    small = evaluation(20)
    assert known.variance(len(small.size)) == pytest.approx(COMPONENTS.pair_variance(small), rel=0.2)
    assert runs.batches == [requests("base", range(1, 200), RATES, TOKENS)]
    assert Bank.model_validate(json.loads(json.dumps(known.model_dump(mode="json")))) == known


def test_runs_of_a_bank_are_runs_of_a_later_decision():
    shared = {request for request in requests("base", range(1, 5), RATES, TOKENS) if request.salt == 0}
    runs = Counted(simulator(1, JUDGED, {"A": 0.1}))
    decide(PROTOCOL, JUDGED, "base", ["A"], TOKENS, runs)
    assert shared <= set(runs.batches[0])


def test_the_same_runs_give_the_same_decision():
    runs = simulator(11, JUDGED, {"A": 0.01})
    known = bank(runs, JUDGED)
    first, again = (
        decide(PROTOCOL, JUDGED, "base", ["A"], TOKENS, one, known)
        for one in (runs, simulator(11, JUDGED, {"A": 0.01}))
    )
    assert first == again


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"looks": (6, 3)}, "looks"),
        ({"looks": (2, 4)}, "begin with 4 or more"),
        ({"looks": (5, 7, 12)}, r"multiples of 2, .* use \[4, 8, 12\]"),
        ({"futility": 1}, "futility"),
        ({"learning_rates": (1e-3, 1e-3)}, "learning_rates"),
        ({"worth_pairs": 5}, "worth_pairs"),
        ({"alpha": 0}, "alpha"),
    ],
)
def test_a_protocol_that_cannot_be_is_refused(change, message):
    with pytest.raises(ValidationError, match=message):
        Protocol(**{"learning_rates": RATES, **change})


def test_a_bank_of_other_runs_is_refused():
    runs = simulator(12, JUDGED)
    with pytest.raises(ValueError, match="calibrate"):
        decide(PROTOCOL, JUDGED, "base", ["A"], TOKENS * 2, runs, bank(runs, JUDGED))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda losses: losses[:-1], "requests"),
        (lambda losses: [bits[:-1] for bits in losses], "shape"),
        (lambda losses: [bits * np.nan for bits in losses], "not finite"),
    ],
)
def test_losses_that_cannot_be_compared_are_refused(spoil, message):
    runs = simulator(13, JUDGED)
    with pytest.raises(ValueError, match=message):
        decide(PROTOCOL, JUDGED, "base", ["A"], TOKENS, lambda wanted: spoil(runs(wanted)))


def test_arms_of_one_name_are_refused():
    with pytest.raises(ValueError, match="with different names"):
        decide(PROTOCOL, JUDGED, "base", ["base"], TOKENS, simulator(14, JUDGED))
