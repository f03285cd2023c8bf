"""Weights by strategy, fixed budgets and phases, each against a closed form or the published algorithm."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.plan import mean_shares
from gristmill.tasks.tokens.strategies import capped, group_weights, stretches

LANGUAGES = st.lists(st.integers(1, 10**7), min_size=1, max_size=8).map(
    lambda counts: {f"l{n}": count for n, count in enumerate(counts)}
)


def unimax(counts: dict[str, int], budget: float, epochs: float) -> dict[str, float]:
    """Algorithm 1 of arXiv 2304.09151: languages by size, each gets an even part of what is left, or its cap."""
    sampled, left = {}, budget
    for done, (name, count) in enumerate(sorted(counts.items(), key=lambda item: item[1])):
        sampled[name] = min(left / (len(counts) - done), count * epochs)
        left -= sampled[name]
    return {name: tokens / sum(sampled.values()) for name, tokens in sampled.items()}


@given(LANGUAGES, st.floats(0.5, 8), st.floats(0.01, 1))
def test_unimax_is_the_published_algorithm(counts, epochs, filled):
    budget = int(sum(counts.values()) * epochs * filled)
    assume(budget > 0)
    [stretch] = stretches(Mixture(strategy="unimax", max_epochs=epochs), counts, budget)
    assert stretch.shares == pytest.approx(unimax(counts, budget, epochs), rel=1e-6)


@given(LANGUAGES, st.floats(1, 10))
def test_proportional_and_temperature_follow_their_formulas(counts, temperature):
    for settings, power in (
        (Mixture(strategy="proportional", max_epochs=1e6), 1),
        (Mixture(strategy="temperature", temperature=temperature, max_epochs=1e6), 1 / temperature),
    ):
        [stretch] = stretches(settings, counts, 1000)
        total = sum(count**power for count in counts.values())
        assume(all(count**power / total * 1000 <= count * 1e6 for count in counts.values()))
        assert stretch.shares == pytest.approx({name: count**power / total for name, count in counts.items()})


def test_a_name_stands_for_its_groups_but_for_those_with_a_name_of_their_own():
    tokens = {"web/en": 300, "web/de": 100, "web/fr": 50, "books/en": 70, "other/en": 9}
    settings = Mixture(by=("source", "language"), weights={"web": 3, "books": 1, "web/fr": 2})
    assert group_weights(settings, tokens) == pytest.approx(
        {"web/en": 2.25, "web/de": 0.75, "web/fr": 2, "books/en": 1}
    )
    with pytest.raises(ValueError, match="names web/es.*may have books/en"):
        group_weights(settings.model_copy(update={"weights": {"web/es": 1}}), tokens)


def test_documents_count_by_the_size_of_their_cluster():
    """Each epoch over the documents is the epochs of a group over what its clusters count."""
    settings = Mixture(strategy="proportional", rehydrate={1: 1, 2: 3}, max_epochs=10)
    tokens = {"web/x1": 500, "web/x3": 100, "books/x3": 50}
    [stretch] = stretches(settings, tokens, 1000)
    epochs = {name: share * 1000 / tokens[name] for name, share in stretch.shares.items()}
    assert epochs["web/x3"] == pytest.approx(3 * epochs["web/x1"]) == pytest.approx(epochs["books/x3"])


def test_a_strategy_weighs_languages_not_their_parts():
    """Cut into ranges or by cluster sizes, a language has as much as uncut."""
    whole = group_weights(Mixture(by=("language",), strategy="temperature"), {"en": 900, "de": 100})
    cut = group_weights(
        Mixture(by=("language", {"column": "score", "quantiles": 2}), strategy="temperature"),
        {"en/q01": 450, "en/q02": 450, "de/q01": 51, "de/q02": 49},
    )
    assert cut["en/q01"] + cut["en/q02"] == pytest.approx(whole["en"])
    assert cut["de/q01"] + cut["de/q02"] == pytest.approx(whole["de"])


def test_a_fixed_budget_is_met_and_the_others_share_the_rest():
    tokens = {"web": 1000, "books": 100, "code": 400}
    settings = Mixture(strategy="proportional", tokens={"books": 150}, without=("code",))
    [stretch] = stretches(settings, tokens, 1000)
    assert stretch.shares == pytest.approx({"web": 0.85, "books": 0.15})
    with pytest.raises(ValueError, match=r"gives books 500 tokens, but it has 100.* 400"):
        stretches(settings.model_copy(update={"tokens": {"books": 500}}), tokens, 1000)
    with pytest.raises(ValueError, match=r"1,100 in total, but training takes 1,000"):
        stretches(settings.model_copy(update={"tokens": {"web": 1000, "books": 100}}), tokens, 1000)
    with pytest.raises(ValueError, match="900 in total, but training takes 999.*no other group"):
        stretches(settings.model_copy(update={"tokens": {"web": 900}, "without": ("code", "books")}), tokens, 1000 - 1)


def test_a_later_phase_has_what_the_earlier_ones_left():
    settings = Mixture(
        weights={"web": 1, "books": 1}, phases=({"share": 0.8}, {"share": 0.2, "weights": {"books": 1}}), max_epochs=2
    )
    first, last = stretches(settings, {"web": 1000, "books": 300}, 1000)
    assert (first.tokens, first.shares) == (800, {"books": 0.5, "web": 0.5})
    assert last.shares == {"books": 1}
    assert mean_shares([first, last], 1000) == pytest.approx({"web": 0.4, "books": 0.6})
    with pytest.raises(ValueError, match=r"takes 200 tokens.* is at most 100"):
        stretches(settings, {"web": 1000, "books": 250}, 1000)


def test_an_ordered_phase_reads_its_ranges_one_after_the_other():
    by = ("source", {"column": "score", "quantiles": 3})
    phases = ({"share": 0.5, "order": "descending"}, {"share": 0.5})
    tokens = {"web/q01": 100, "web/q02": 100, "web/q03": 100, "books/q01": 50, "books/q03": 50, "books/none": 20}
    plan = stretches(Mixture(by=by, strategy="proportional", phases=phases), tokens, 420)
    assert [sorted(s.shares) for s in plan[:-1]] == [
        ["books/q03", "web/q03"], ["web/q02"], ["books/q01", "web/q01"], ["books/none"],
    ]  # fmt: skip
    assert sum(s.tokens for s in plan) == pytest.approx(420) and all(
        sum(s.shares.values()) == pytest.approx(1) for s in plan
    )
    met = mean_shares(plan, 420)
    assert met == pytest.approx({name: count / 420 for name, count in tokens.items()})


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({}, "has no weights"),
        ({"strategy": "unimax", "weights": {"a": 1}}, "exclude each other"),
        ({"strategy": "unimax", "phases": [{"share": 0.5}]}, "sum to 1"),
        ({"strategy": "unimax", "phases": [{"share": 1, "order": "ascending"}]}, "quantiles"),
        ({"strategy": "unimax", "by": [{"column": "a", "quantiles": 2}, "b"]}, "not its last"),
        ({"strategy": "unimax", "by": [{"column": "a", "edges": [2, 1]}]}, "ascending"),
        ({"strategy": "unimax", "rehydrate": {2: 2}}, "begin with size 1"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong, message):
    with pytest.raises(ValidationError, match=message):
        Mixture(**wrong)


def test_a_temperature_near_zero_takes_the_largest_group():
    settings = Mixture(strategy="temperature", temperature=0.001)
    weights = group_weights(settings, {"large": 10**12, "small": 10**11, "tiny": 5})
    assert weights == {"large": 1.0, "small": 0.0, "tiny": 0.0}
    assert capped(weights, {"large": 4e12, "small": 4e11, "tiny": 20}, 1e9) == {"large": 1e9, "small": 0, "tiny": 0}
