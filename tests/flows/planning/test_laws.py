"""Laws of scale against the worked examples of their papers, and against brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.flows.experiments.planning import laws
from gristmill.flows.stats.law import optimum
from tests.flows.planning import published

TABLES = (published.CHINCHILLA_1, published.CHINCHILLA_2, published.CHINCHILLA_3)


@pytest.mark.parametrize(
    ("power", "table", "printed"), list(zip(laws.APPROACHES, TABLES, published.CHINCHILLA_POWERS, strict=True))
)
def test_each_approach_gives_the_rows_of_its_table(power, table, printed):
    for parameters, compute, tokens in table:
        # what is printed of 67 billion lies up to 4% from the line of all others; tokens up to 7% from 6 N D
        found = power.parameters(compute)
        assert found == pytest.approx(parameters, rel=0.04 if parameters == 67e9 else 0.01)
        assert compute / 6 / found == pytest.approx(tokens, rel=0.07)
    assert power.power == pytest.approx(printed[0], abs=0.005)
    assert 1 - power.power == pytest.approx(printed[1], abs=0.005)


def test_the_parametric_law_gives_the_table_of_the_third_approach():
    def off(law: laws.ScalingLaw) -> float:
        """The largest relative distance from a row's parameters."""
        found = ((optimum(law, laws.SIX, compute).parameters, n) for n, compute, _ in published.CHINCHILLA_3)
        return max(abs(parameters / n - 1) for parameters, n in found)

    taken, source, text = (
        laws.ScalingLaw(*numbers)
        for numbers in (published.SARDANA_LAW, published.CHINCHILLA_SOURCE, published.CHINCHILLA_LAW)
    )
    assert taken == laws.HOFFMANN
    assert off(taken) < 0.04 < off(source) < 0.08 < 0.25 < off(text)
    for parameters, compute, tokens in published.CHINCHILLA_3:
        assert compute == pytest.approx(6 * parameters * tokens, rel=0.05)


def test_twenty_tokens_a_parameter_are_chinchilla():
    parameters, tokens, compute = published.CHINCHILLA_70B
    simple = next(laws.splits(compute))
    assert simple.parameters == pytest.approx(parameters, rel=0.02)  # 6 N D of 70 billion is 5.88e23
    assert simple.tokens == pytest.approx(tokens, rel=0.02)


def test_the_refit_is_besiroglus():
    law = laws.BESIROGLU
    assert (law.E, law.A, law.alpha, law.B, law.beta) == published.BESIROGLU
    assert law.beta / (law.alpha + law.beta) == pytest.approx(published.BESIROGLU_POWER, abs=5e-5)
    # the refit agrees with 20 tokens a parameter at Chinchilla's compute, Hoffmann's own third approach does not
    found = {one.law: one for one in laws.splits(published.CHINCHILLA_70B[2])}
    assert 15 < found["Besiroglu"].tokens / found["Besiroglu"].parameters < 25
    assert found["Hoffmann, approach 3"].tokens / found["Hoffmann, approach 3"].parameters > 40


def test_kaplans_parameters():
    for days, parameters in published.KAPLAN:
        assert laws.KAPLAN.parameters(days * laws.PF_DAY) == pytest.approx(parameters, rel=2e-3)


@pytest.mark.parametrize(("parameters", "served", "smaller", "more", "saved"), published.SARDANA)
def test_sardanas_table(parameters, served, smaller, more, saved):
    found = laws.inference_aware(parameters, served)
    assert found.parameters == pytest.approx(smaller, rel=0.005)
    tokens = _chinchilla_tokens(parameters)
    if more is not None:
        assert found.tokens / tokens == pytest.approx(more, abs=0.005)
    whole = 6 * parameters * tokens + 2 * parameters * served
    less = whole - 6 * found.parameters * found.tokens - 2 * found.parameters * served
    if saved is not None:
        assert less / whole == pytest.approx(saved, abs=0.005)
    if parameters == 13e9:
        assert less == pytest.approx(published.SARDANA_SAVED, rel=0.005)


def _chinchilla_tokens(parameters: float) -> float:
    """By bisection over compute: another way than that of the function."""
    low, high = 1e15, 1e30
    for _ in range(200):
        middle = (low * high) ** 0.5
        low, high = (
            (middle, high) if optimum(laws.HOFFMANN, laws.SIX, middle).parameters < parameters else (low, middle)
        )
    return low / 6 / parameters


@given(st.floats(1e8, 1e12), st.floats(1e9, 1e15))
def test_the_inference_aware_model_is_as_good_and_no_neighbour_is_cheaper(parameters, served):
    found = laws.inference_aware(parameters, served)
    law = laws.HOFFMANN
    assert float(law.loss(found.parameters, found.tokens)) == pytest.approx(found.loss, rel=1e-9)
    assert found.parameters <= parameters * (1 + 1e-9)

    def cost(n: float) -> float:
        left = (found.loss - law.E - law.A * n**-law.alpha) / law.B
        return np.inf if left <= 0 else n * (6 * left ** (-1 / law.beta) + 2 * served)

    for factor in (0.9, 0.99, 1.01, 1.1):
        assert cost(found.parameters) <= cost(found.parameters * factor) * (1 + 1e-6)


def test_repeated_data_as_muennighoff_has_it():
    unique, (parameters, tokens) = published.MUENNIGHOFF["unique"], published.MUENNIGHOFF["chinchilla"]
    fewer, more, epochs = published.MUENNIGHOFF["best"]
    best = laws.repeated_split(6 * parameters * tokens, unique)
    # the minimum is flat: what they print is 7% from it, and their loss there within a thousandth of the least
    assert best.parameters == pytest.approx(fewer, rel=0.08)
    assert best.tokens / unique == pytest.approx(epochs, rel=0.08)
    assert laws.repeated_loss(fewer, more, unique) < best.loss * 1.001
    assert best.loss < laws.repeated_loss(parameters, tokens, unique)
    assert laws._matching(1.0) == pytest.approx(0.051, abs=5e-4)
    assert laws.worth(1e30, 1.0) == pytest.approx(published.MUENNIGHOFF_LIMIT)
    once = 1 + laws.REPEATED_TOKENS
    assert laws.worth(once, 1.0) - 1 == pytest.approx(laws.REPEATED_TOKENS * (1 - 1 / np.e))


@given(st.floats(1e6, 1e12), st.floats(1, 200))
def test_repeated_tokens_are_worth_less_than_new_ones_and_more_than_none(unique, epochs):
    found = laws.worth(unique * epochs, unique)
    assert unique * (1 - 1e-9) <= found <= unique * epochs * (1 + 1e-9)
    assert found <= laws.worth(unique * epochs * 1.1, unique)
    # a unit of new text is worth more than a repetition of it
    assert laws.worth(unique * epochs, unique * 1.1) >= found * (1 - 1e-9)


def test_without_repetition_the_law_is_the_plain_one():
    compute = 1e21
    plain = optimum(laws.MUENNIGHOFF, laws.SIX, compute)
    assert laws.repeated_split(compute, plain.tokens * 1.01).parameters == pytest.approx(plain.parameters)
    assert laws.repeated_loss(plain.parameters, plain.tokens, 1e15) == pytest.approx(plain.loss, rel=1e-6)


def test_ones_own_law_is_in_the_table():
    law, cost = laws.ScalingLaw(0.5, 300, 0.4, 500, 0.3), laws.TokenCost(8.0, 0.98)
    *_, own = laws.splits(1e20, (law, cost))
    sizes = np.geomspace(1e6, 1e13, 4000)
    losses = law.loss(sizes, 1e20 / cost.flops(sizes, 1))
    assert own.law == "own runs"
    assert own.parameters == pytest.approx(sizes[np.argmin(losses)], rel=0.01)
