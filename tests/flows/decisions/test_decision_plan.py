"""What is said before anything is trained, against what simulated decisions then ask for."""

import pytest

from gristmill.flows.comparison.bank import calibrate, requests
from gristmill.flows.comparison.power import Noise, smallest_effect
from gristmill.flows.comparison.protocol import Protocol, decide
from gristmill.flows.decisions.noise import read_noise
from gristmill.flows.decisions.plan import Arms, cost, parameters, planned, protocol_of
from gristmill.flows.recipe.proxy import PROXIES, load_proxy
from gristmill.flows.recipe.recipe import load
from gristmill.training.model.decoder import Decoder
from tests.decisions import RATES, TOKENS, evaluation, simulator

JUDGED = evaluation()


@pytest.mark.parametrize("candidates", [1, 2, 5])
@pytest.mark.parametrize("bank_pairs", [4, 12])
@pytest.mark.parametrize("effect", [0.0, 0.002, 0.2])
def test_the_runs_that_are_trained_are_within_those_announced(candidates, bank_pairs, effect):
    names = [f"candidate {i}" for i in range(candidates)]
    protocol = Protocol(learning_rates=RATES)
    said = cost(protocol, candidates, TOKENS, bank_pairs)
    fewest, most = said.runs
    runs = simulator(5, JUDGED, dict.fromkeys(names, effect))
    numbers = protocol.pairs(0, bank_pairs)
    bank = calibrate(runs, JUDGED, "base", numbers, RATES, TOKENS)
    decision = decide(protocol, JUDGED, "base", names, TOKENS, runs, bank)
    trained = {*decision.runs, *requests("base", numbers, RATES, TOKENS)}
    tokens = sum(request.tokens for request in trained)
    assert fewest <= len(trained) <= most and said.tokens[0] <= tokens <= said.tokens[1]
    assert said.bank_runs == len(requests("base", numbers, RATES, TOKENS))
    if effect == 0.2:
        assert len(trained) == fewest + protocol.worth_pairs * len(RATES)
    if effect == 0.0 and candidates == 1 and decision.verdicts[0].outcome == "cannot tell":
        assert len(trained) == most - protocol.worth_pairs * len(RATES)


BASE = load(
    {
        "name": "base",
        "sources": [{"name": "web", "jsonl": ["a"]}, {"name": "books", "jsonl": ["b"]}],
        "steps": [{"step": "extract"}],
    }
)
ARMS = Arms("base", {"base": BASE} | dict.fromkeys(["raw", "a", "b"], BASE), {}, {"language": "it is needed"})
NOTHING = {
    "leave_one_out": False,
    "tokens": None,
    "pairs": [],
    "bank_pairs": 8,
    "first_pair": 1,
    "clean": None,
    "tasks": {},
}


def test_the_lines_name_recipes_runs_time_and_the_smallest_effect():
    plan = planned(ARMS, "small", 2, **NOTHING, judge=["web"])
    shown = "\n".join(plan.lines())
    assert "base against raw, a, b" in shown and "language cannot be left out: it is needed" in shown
    assert "200,000 tokens at most" in shown and "the best 2 are tested" in shown
    fewest, most = plan.cost.runs
    assert f"runs: {fewest} to {most}, 32 of them for the A/A bank" in shown
    assert f"It trains {fewest} to {most} runs: " in shown and "--tokens N fixes them" in shown
    # a quarter of the hundred documents is for screening
    components = read_noise("small", load_proxy("small")).components
    judged = evaluation(75, 1)
    noise = Noise(components.pair_variance(2, judged), 7, components.document_variance(judged))
    effect = smallest_effect(plan.protocol.looks, plan.protocol.limits(3), noise)
    assert f"sees an effect of {effect:.4f} bits per byte" in shown and "75 evaluation documents at most" in shown


def test_a_proxy_without_recorded_noise_says_so_and_an_unknown_set_is_refused(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text((PROXIES / "small.yaml").read_text())
    plan = planned(ARMS, str(own), 2, **NOTHING | {"tokens": 100_000}, judge=[])
    shown = "\n".join(plan.lines())
    assert "no noise was recorded" in shown and f"It trains {plan.cost.runs[0]} to" in shown
    assert "--tokens N" not in shown
    with pytest.raises(ValueError, match="^there is no evaluation set webb to judge by; did you mean `web`?"):
        planned(ARMS, "small", 2, **NOTHING, judge=["webb"])


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
