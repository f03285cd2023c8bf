"""What is said before anything is trained, against what simulated decisions then ask for."""

import pytest

from flows.arms import Arms
from flows.comparison.bank import calibrate, requests
from flows.comparison.protocol import Protocol, decide
from flows.decision_plan import Plan, parameters, protocol_of
from flows.proxy_config import load_proxy
from tests.decisions import RATES, TOKENS, evaluation, simulator
from training.model import Decoder

JUDGED = evaluation()


@pytest.mark.parametrize("candidates", [1, 2, 5])
@pytest.mark.parametrize("bank_pairs", [4, 12])
@pytest.mark.parametrize("effect", [0.0, 0.002, 0.2])
def test_the_runs_that_are_trained_are_within_those_announced(candidates, bank_pairs, effect):
    names = [f"candidate {i}" for i in range(candidates)]
    protocol = Protocol(learning_rates=RATES)
    arms = Arms("base", dict.fromkeys(["base", *names]), {}, {})
    fewest, most = Plan(arms, protocol, load_proxy("small"), bank_pairs, TOKENS, 2).runs
    runs = simulator(5, JUDGED, dict.fromkeys(names, effect))
    numbers = protocol.pairs(0, bank_pairs)
    bank = calibrate(runs, JUDGED, "base", numbers, RATES, TOKENS)
    decision = decide(protocol, JUDGED, "base", names, TOKENS, runs, bank)
    trained = {*decision.runs, *requests("base", numbers, RATES, TOKENS)}
    assert fewest <= len(trained) <= most
    if effect == 0.2:
        assert len(trained) == fewest + protocol.worth_pairs * len(RATES)


def test_the_lines_name_recipes_runs_and_time():
    proxy = load_proxy("small")
    arms = Arms("base", dict.fromkeys(["base", "raw", "a", "b"]), {}, {"language": "it is needed"})
    plan = Plan(arms, protocol_of(proxy, [], False), proxy, 8, proxy.tokens, 2)
    shown = "\n".join(plan.lines())
    assert "base against raw, a, b" in shown and "language cannot be left out: it is needed" in shown
    assert "200,000 tokens at most" in shown and "the best 2 are tested" in shown
    assert f"runs: {plan.runs[0]} to {plan.runs[1]}, 32 of them for the A/A bank" in shown


def test_parameters_are_those_of_the_model_but_for_its_norms():
    proxy = load_proxy("small")
    model = Decoder(proxy.model, proxy.vocab_size)
    counted = sum(weight.numel() for name, weight in model.named_parameters() if "norm" not in name)
    assert parameters(proxy) == counted


def test_attribution_tests_every_step_and_pairs_replace_looks():
    proxy = load_proxy("small")
    assert protocol_of(proxy, [], True).tested(9) == 9
    assert protocol_of(proxy, [2, 5], False).looks == (2, 5) and protocol_of(proxy, [2, 5], False).worth_pairs == 2
    with pytest.raises(ValueError, match="must rise"):
        protocol_of(proxy, [5, 2], False)
