"""Proxies that ship, and what is wrong with one, a sentence each."""

import pytest
import yaml

from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.proxy import PROXIES, ProxyConfig, load_proxy

GIVEN = {
    "name": "own",
    "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 64},
    "training": {"batch": 4, "warmup_steps": 20},
    "tokens": 51_200,
    "learning_rates": [0.003, 0.01],
}


def test_the_default_is_small_and_what_it_says():
    from gristmill.training.decoder import parameter_count

    proxy = load_proxy()
    assert parameter_count(proxy.model, proxy.vocab_size) <= 300_000
    assert proxy.steps(proxy.tokens) * proxy.step_tokens <= 200_000
    assert len(proxy.learning_rates) == 2


@pytest.mark.parametrize(
    ("name", "millions"), [("small", 0.25), ("3m", 3.2), ("15m", 15.1), ("60m", 58.7)], ids=lambda given: str(given)
)
def test_proxies_that_ship_have_the_parameters_that_their_names_say(name, millions):
    from gristmill.training.decoder import parameter_count

    proxy = load_proxy(name)
    assert parameter_count(proxy.model, proxy.vocab_size) == pytest.approx(millions * 1e6, rel=0.01)
    if name != "small":  # the rule that the file states
        assert proxy.learning_rates[1] == pytest.approx(0.015 * (48 / proxy.model.dim) ** 0.5, rel=0.01)
        assert proxy.tokens == pytest.approx(20 * millions * 1e6, rel=0.03)


@pytest.mark.parametrize("path", sorted(PROXIES.glob("*.yaml")))
def test_proxies_that_ship_are_read_by_name_and_written_whole(path):
    proxy = load_proxy(path.stem)
    assert proxy.name == path.stem
    assert load_proxy(proxy.model_dump(mode="json")) == proxy


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"learning_rates": [0.01]}, "learning_rates: is [0.01]; give at least 2"),
        (
            {"learning_rates": [0.01, 0.003]},
            "learning_rates: is [0.01, 0.003]; give each rate once, the smallest first",
        ),
        ({"looks": [3, 3]}, "looks: is [3, 3]; give ascending multiples of 2, the number of learning rates"),
        ({"looks": [1, 3]}, "looks: is [1, 3]; give ascending multiples of 2, the number of learning rates, from 4 on"),
        (
            {"training": {"seed": 3}},
            "training.seed: is 3, which a proxy does not support; remove it: each pair of runs sets it",
        ),
        (
            {"training": {"steps": 10, "warmup_steps": 1}},
            "training.steps: is 10, but tokens 51,200 fill 100 steps of 8 x 64 tokens; give one of the two",
        ),
        ({"warmup_ratio": 0.2}, "training.warmup_steps: is 20, and warmup_ratio is 0.2; give one of the two"),
        ({"warmup_ratio": 1.0}, "warmup_ratio: is 1.0; give a number below 1"),
        ({"processes": 0}, "processes: is 0; give a number of at least 1"),
        ({"nodes": 2}, "nodes: is 2, but each proxy run uses one machine"),
        ({"tokens": 5_000}, "tokens: is 5,000, which is 19 steps of 4 x 64 tokens, not more than the 20"),
        ({"learning_rate": [0.1, 0.2]}, "learning_rate: is an unknown key"),
        ({"steps": 100}, "steps: is an unknown key, with the value 100; write `training.steps`"),
        (
            {"training": {"warmup_ratio": 0.1}},
            "training.warmup_ratio: is an unknown key, with the value 0.1; it is a separate key: move it out of "
            "`training`",
        ),
        ({"training": {"tokens": 9}}, "training.tokens: is an unknown key, with the value 9; it is a separate key"),
        ({"training": {"batch": 0}}, "training.batch: is 0; give a number above 0"),
        ({"training": {"steps": 10}}, "training.steps: is 10, but tokens 51,200 fill 100 steps of 8 x 64 tokens"),
        ({"sample_bytes": 3000}, "sample_bytes: is 3,000, too little text for a vocabulary of vocab_size 2,048"),
        ({"model": {"dim": 30, "heads": 4}}, "model: dim 30 is not an even multiple of heads 4"),
    ],
)
def test_what_is_wrong_is_said_with_file_line_and_remedy(tmp_path, change, sentence):
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(GIVEN | change, sort_keys=False))
    with pytest.raises(RecipeError) as error:
        load_proxy(path)
    assert sentence in str(error.value)
    assert all(line.startswith(f"{path}:") for line in str(error.value).splitlines())


def test_a_proxy_that_is_not_there_names_those_that_are():
    with pytest.raises(FileNotFoundError, match=r"no proxy file smal, .*did you mean `small`\?.*shipped: .*small"):
        load_proxy("smal")


@pytest.mark.parametrize(
    ("tokens", "steps", "warmup"), [(51_200, 200, 20), (25_700, 100, 10), (512, 2, 0), (10**6, 3906, 20)]
)
def test_a_shorter_run_warms_up_shorter(tokens, steps, warmup):
    training = ProxyConfig(**GIVEN).run_training(tokens, 0.01, seed=5, order_seed=6)
    assert (training.steps, training.warmup_steps) == (steps, warmup)
    assert (training.learning_rate, training.seed, training.order_seed) == (0.01, 5, 6)
    assert training.batch == 4


def test_a_budget_below_two_steps_is_refused():
    with pytest.raises(ValueError, match="a run of 511 tokens has 1 steps of 4 x 64 tokens, but needs at least two"):
        ProxyConfig(**GIVEN).run_training(511, 0.01, seed=1, order_seed=1)


def test_a_proxy_may_have_more_steps_than_other_trainings_begin_with():
    """240 are the default of a training: warm-up and decay are judged by the steps that the runs have."""
    longer = GIVEN | {"training": {"batch": 4, "warmup_steps": 500, "schedule": "wsd", "decay_ratio": 0.4}}
    for given in ({"tokens": 1000 * 4 * 64}, {"tokens": None, "training": longer["training"] | {"steps": 1000}}):
        proxy = ProxyConfig(**longer | given)
        assert (proxy.training.steps, proxy.tokens) == (1000, 256_000)
        assert ProxyConfig.model_validate(proxy.model_dump(mode="json")) == proxy
        training = proxy.run_training(128_000, 0.01, seed=1, order_seed=1)
        assert (training.steps, training.warmup_steps) == (500, 250)


@pytest.mark.parametrize(("tokens", "steps", "warmup"), [(51_200, 200, 50), (25_600, 100, 25), (102_400, 400, 100)])
def test_a_warm_up_that_is_a_share_is_one_of_every_run(tokens, steps, warmup):
    proxy = ProxyConfig(**GIVEN | {"training": {"batch": 4}, "warmup_ratio": 0.25})
    training = proxy.run_training(tokens, 0.01, seed=5, order_seed=6)
    assert (training.steps, training.warmup_steps) == (steps, warmup)
    assert load_proxy(proxy.model_dump(mode="json")) == proxy
