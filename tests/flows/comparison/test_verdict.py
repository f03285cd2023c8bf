"""Sentences of verdicts: every number has its interval."""

from dataclasses import replace

import pytest

from gristmill.flows.stats.verdict import AtLearningRate, Verdict, Worth

BETTER = Verdict("A", "B", "better", 0.9, 4, (1e-3, 4e-3), 0.0123, 0.0101, 0.0146, 0.001, 1)
UNSURE = replace(BETTER, outcome="inconclusive", effect=0.0012, low=-0.0008, high=0.0033, look=None)


def test_a_better_recipe_is_said_with_its_worth():
    said = replace(BETTER, worth=Worth(0.11, 0.09, 0.13)).sentence()
    assert said == (
        "A is better than B by 0.0123 bits per byte (90% interval 0.0101 to 0.0146, 4 pairs, 2 learning rates), worth"
        " 11% of the training tokens (90% interval 9% to 13%)"
    )


def test_a_worse_recipe_is_said_with_a_positive_difference():
    worse = replace(BETTER, outcome="worse", effect=-0.0123, low=-0.0146, high=-0.0101, pairs=3, learning_rates=(1e-3,))
    assert worse.sentence() == (
        "A is worse than B by 0.0123 bits per byte (90% interval 0.0101 to 0.0146, 3 pairs, 1 learning rate)"
    )


@pytest.mark.parametrize(
    ("change", "end"),
    [
        (
            {"pairs_needed": 18},
            "; if the true effect is the measured one, 18 new pairs would detect it (--pairs 18 --first-pair 5)",
        ),
        ({"may_be_noise": True}, "; the measured effect may be noise, so no number of new pairs is recommended"),
        ({"limited_by_documents": True}, "; more pairs would not help: the evaluation documents are too few"),
        ({}, "; no reasonable number of pairs would detect a difference as small as this one"),
    ],
)
def test_what_cannot_be_told_says_what_would(change, end):
    said = replace(UNSURE, **change).sentence()
    assert said.startswith(
        "inconclusive: A compared with B, the difference is 0.0012 bits per byte (90% interval -0.0008"
    )
    assert said.endswith(end)


def test_a_withheld_verdict_names_the_learning_rates():
    rates = (AtLearningRate(1e-3, 0.02, 0.01, 0.03), AtLearningRate(4e-3, -0.005, -0.01, 0.0))
    said = replace(BETTER, outcome="withheld", by_learning_rate=rates).sentence()
    assert said.startswith("withheld: ")
    assert said.endswith("(0.0200 at 0.001, -0.0050 at 0.004)")


def test_an_effect_that_depends_on_the_learning_rate_is_said_so():
    """Not that more documents would help, where the rates differ by more than their intervals."""
    apart = (AtLearningRate(1e-3, 0.027, 0.024, 0.030), AtLearningRate(4e-3, -0.028, -0.031, -0.025))
    near = (AtLearningRate(1e-3, 0.027, 0.01, 0.04), AtLearningRate(4e-3, 0.02, 0.00, 0.04))
    found = replace(UNSURE, limited_by_documents=True)
    said = replace(found, by_learning_rate=apart).sentence()
    assert "the effect depends on the learning rate (0.0270 at 0.001, -0.0280 at 0.004)" in said
    assert "too few" not in said and "too few" in replace(found, by_learning_rate=near).sentence()


def test_small_numbers_keep_two_digits_of_their_interval():
    assert "by 0.000123 bits per byte (90% interval 0.000101 to 0.000146" in (
        replace(BETTER, effect=0.000123, low=0.000101, high=0.000146).sentence()
    )


def test_a_candidate_that_was_screened_out_has_a_rank_alone():
    out = Verdict("A", "B", "screened out", 0.9, 1, (1e-3, 4e-3), rank=3, candidates=4)
    assert out.sentence() == (
        "A was screened out: with one run of each candidate at 2 learning rates, it ranks 3 of 4; there is no verdict"
    )
