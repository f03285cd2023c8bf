"""What is said before anything is trained, against what simulated decisions then ask for."""

from dataclasses import replace
from functools import partial

import pytest

from gristmill.flows.experiments.decisions.device import Device, known, measured, named, run_flops, time_of
from gristmill.flows.experiments.decisions.expected import expected
from gristmill.flows.experiments.decisions.noise import read_noise
from gristmill.flows.experiments.decisions.plan import Arms, cost, evaluated_tokens, planned, protocol_of
from gristmill.flows.experiments.options import DecisionOptions, OtherDevice
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.proxy import PROXIES, load_proxy
from gristmill.flows.recipe.recipe import load
from gristmill.flows.stats.protocol import Protocol, calibrate, decide, requests
from gristmill.flows.stats.sequential import Noise, smallest_effect
from gristmill.training.config import TrainingConfig
from gristmill.training.decoder import Decoder
from gristmill.training.hardware import RateRequest, data_sheet_flops
from gristmill.training.run import rate
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
        assert len(trained) == fewest + protocol.worth_pairs
    if candidates == 1 and decision.verdicts[0].pairs == protocol.looks[-1] and decision.verdicts[0].worth is None:
        assert len(trained) == most - protocol.worth_pairs
    assert fewest <= min(said.expected) <= max(said.expected) <= most


BASE = load(
    {
        "name": "base",
        "sources": [{"name": "web", "jsonl": ["a"]}, {"name": "books", "jsonl": ["b"]}],
        "steps": [{"step": "extract"}],
    }
)
ARMS = Arms("base", {"base": BASE} | dict.fromkeys(["raw", "a", "b"], BASE), {}, {"language": "it is needed"})
OPTIONS = DecisionOptions(bank_pairs=8)


def here(proxy) -> Device:
    return Device("a core", 17e9, at_once=2)


def unknown(proxy) -> None:
    return None


def test_the_lines_name_recipes_runs_time_and_the_smallest_effect():
    plan = planned(ARMS, replace(OPTIONS, judge=["web"]), here, {})
    shown = "\n".join(plan.lines())
    assert "base against raw, a, b" in shown and "language cannot be removed: it is needed" in shown
    assert "200,000 tokens at most" in shown and "the best 2 are tested" in shown
    fewest, most = plan.cost.runs
    assert f"runs: {fewest} to {most}, 16 of them for the A/A bank, to measure their variance, on average " in shown
    assert f"It trains {fewest} to {most} runs: " in shown and "--tokens N fixes them" in shown
    # a quarter of the hundred documents is for screening
    components = read_noise("small", load_proxy("small")).components
    judged = evaluation(75, 1)
    noise = Noise(components.pair_variance(judged), 7, components.document_variance(judged), 74, 2)
    effect = smallest_effect(plan.protocol.looks, plan.protocol.limits(3), noise)
    assert f"detects an effect of {effect:.4f} bits per byte" in shown and "75 documents of `web` at most" in shown


def test_a_proxy_without_recorded_noise_says_so_and_an_unknown_set_is_refused(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text((PROXIES / "small.yaml").read_text())
    plan = planned(ARMS, replace(OPTIONS, proxy=str(own), tokens=100_000, judge=["extracted"]), unknown, {})
    shown = "\n".join(plan.lines())
    assert "is unknown until `--plan` has measured it" in shown
    assert "no noise was recorded" in shown and f"It trains {plan.cost.runs[0]} to" in shown
    assert "--tokens N" not in shown
    with pytest.raises(ValueError, match="^unknown evaluation set webb; did you mean `web`?"):
        planned(ARMS, replace(OPTIONS, judge=["webb"]), here, {})
    with pytest.raises(
        ValueError, match="^no evaluation set to judge by. Extracted documents of books, web are available"
    ):
        planned(ARMS, OPTIONS, here, {})


def test_parameters_are_those_of_the_model_but_for_its_norms():
    proxy = load_proxy("small")
    model = Decoder(proxy.model, proxy.vocab_size)
    counted = sum(weight.numel() for name, weight in model.named_parameters() if "norm" not in name)
    assert proxy.model.parameters(proxy.vocab_size) == counted


def test_attribution_tests_every_step_and_pairs_replace_looks():
    proxy = load_proxy("small")
    assert protocol_of(proxy, DecisionOptions(leave_one_out=True)).tested(9) == 9
    protocol = protocol_of(proxy, DecisionOptions(pairs=[4, 10]))
    assert protocol.looks == (4, 10) and protocol.worth_pairs == 4
    with pytest.raises(ValueError, match="must be ascending"):
        protocol_of(proxy, DecisionOptions(pairs=[10, 4]))


LARGE = {
    "name": "large",
    "vocab_size": 32_768,
    "model": {"dim": 2048, "layers": 24, "heads": 16, "seq_len": 2048},
    "training": {"batch": 512, "micro_batch": 8, "precision": "bf16"},
    "warmup_ratio": 0.01,
    "tokens": 28_000_000_000,
    "learning_rates": [1e-4, 3e-4],
    "processes": 8,
}


@pytest.mark.parametrize("processes", [1, 8])
def test_the_hours_of_a_large_proxy_are_those_of_6nd_at_its_mfu(processes):
    """Kaplan et al. 2020: 6 operations a parameter and token; attention comes on top."""
    proxy = load_proxy(LARGE | {"processes": processes})
    device = partial(named, OtherDevice("h100", 8, 0.4, 2.5))
    plan = planned(ARMS, replace(OPTIONS, proxy=proxy, judge=["web"]), device, {})
    time = time_of(plan.device, proxy, plan.tokens, plan.cost.runs, evaluated_tokens(plan.evaluation))
    for runs, hours, money in zip(plan.cost.runs, time.hours, time.money, strict=True):
        truth = runs * 6 * 1.3e9 * 28e9 / (8 * 0.4 * 989.5e12) / 3600
        assert truth / 2 < hours < 2 * truth
        assert money == pytest.approx(hours * 8 * 2.5)
    shown = "\n".join(plan.lines())
    assert "8 h100 at 40% of the 989.5 TFLOP/s of its data sheet" in shown and f"for {time.money[0]:,.2f} to" in shown
    assert f"{8 // processes} at once" in shown


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"device": "tpu"}, "--device tpu: no data sheet is known of it; give one of a100, "),
        ({"device": "h100", "mfu": 1.2}, "--mfu 1.2 is not a fraction"),
        ({"device": "h100", "devices": 4}, "--devices 4: a run of the proxy large has 8 processes"),
    ],
)
def test_a_device_that_cannot_be_is_refused_with_a_remedy(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        named(OtherDevice(**given), load_proxy(LARGE))


@pytest.mark.parametrize(
    ("device", "proxy", "words"),
    [
        ("h100", "3m", ["40% of", "which is assumed", "small models reach far less", "a start of 45 s"]),
        ("h200", LARGE, ["54% of", "as measured with a model of about this size"]),
        ("a100", LARGE, ["40% of", "which is assumed"]),
    ],
)
def test_a_device_that_is_not_here_says_what_is_assumed(device, proxy, words):
    proxy = load_proxy(proxy)
    known = named(OtherDevice(device, 8), proxy)
    assert all(word in known.description for word in words)
    assert known.bound == (proxy.name == "3m") and known.start == 45
    given = named(OtherDevice(device, 8, 0.2), proxy)
    assert "at 20% of" in given.description and given.flops == pytest.approx(0.2 * data_sheet_flops(device))


def test_a_run_takes_its_start_and_two_evaluations_beside_its_steps():
    """By the rates of a device, of 8 processes and of one."""
    for processes in (1, 8):
        proxy = load_proxy(LARGE | {"processes": processes})
        device = Device("x", 1e14, at_once=3, start=20.0, evaluated=5000.0)
        time = time_of(device, proxy, 1_000_000, (7, 7), evaluated=100_000)
        steps = run_flops(proxy, 1_000_000) / 1e14 / processes
        assert time.besides == pytest.approx(20 + 200_000 / 5000 / processes)
        assert time.run == pytest.approx(time.besides + steps) and time.hours[0] == pytest.approx(3 * time.run / 3600)
        forward = time_of(replace(device, evaluated=0.0), proxy, 1_000_000, (7, 7), evaluated=150_000)
        assert forward.besides == pytest.approx(20 + 0.1 * steps)


def of_files(folder, sizes: dict[str, int]) -> dict:
    """A recipe with a file of so many bytes for each source; a name that ends with gz is that of a compressed one."""
    sources = []
    for name, size in sizes.items():
        path = folder / f"{name}.jsonl{'.gz' if name.endswith('gz') else ''}"
        path.write_bytes(b"x" * size)
        sources.append({"name": name, "jsonl": [str(path)]})
    return {"name": "-".join(sizes), "sources": sources, "steps": [{"step": "extract"}]}


def test_tokens_are_at_most_those_of_the_smallest_recipes_files(tmp_path):
    """One for a byte, two for a compressed one; whole steps of half a run."""
    few, many = (load(of_files(tmp_path, sizes)) for sizes in ({"a": 10_000, "gz": 3_000}, {"b": 90_000}))
    compared = Arms(few.name, {few.name: few, many.name: many}, {}, {})
    options = replace(OPTIONS, judge=["a"])
    settings = MachineSettings(home=str(tmp_path / "home"))
    plan = planned(compared, options, here, {})
    step = 2 * plan.proxy.step_tokens
    known = expected(settings, plan, options, None)
    assert known.tokens == 16_000 // step * step and plan.tokens == 200_000
    assert "at most, by the size of the sources' files" in "\n".join(known.lines())
    fixed = replace(options, tokens=100_000)
    assert expected(settings, planned(compared, fixed, here, {}), fixed, None).tokens == 100_000


def test_a_clean_text_of_few_documents_is_what_judges(tmp_path):
    (tmp_path / "clean.jsonl").write_text('{"text": "a"}\n' * 30)
    recipe = load(of_files(tmp_path, {"a": 10_000}))
    other = load(
        of_files(tmp_path, {"a": 10_000}) | {"name": "b", "steps": [{"step": "extract"}, {"step": "gopher_quality"}]}
    )
    options = replace(OPTIONS, clean=str(tmp_path / "clean.jsonl"))
    plan = planned(Arms("a", {"a": recipe, "b": other}, {}, {}), options, here, {})
    known = expected(MachineSettings(home=str(tmp_path / "home")), plan, options, None)
    assert len(plan.evaluation.members("clean")) == 100
    assert {name: len(known.evaluation.members(name)) for name in known.evaluation.names} == {"a": 100, "clean": 30}


TINY = {
    "name": "tiny",
    "vocab_size": 300,
    "model": {"dim": 16, "layers": 1, "heads": 2, "seq_len": 32},
    "learning_rates": [0.003, 0.01],
}


@pytest.mark.slow
def test_this_machine_is_measured_when_it_is_asked_for_and_then_known(tmp_path):
    proxy, settings = load_proxy(TINY), MachineSettings(home=str(tmp_path), proxy_runs=3)
    assert known(settings, proxy) is None
    found = measured(settings, proxy)
    assert 1e6 < found.flops < 1e15 and not found.bound and found.at_once == 3
    assert found.start > 0 and found.evaluated > 0
    [kept] = (tmp_path / "rates").iterdir()
    before = kept.read_bytes()
    assert known(settings, proxy) == found == measured(settings, proxy) and kept.read_bytes() == before
    assert known(settings, load_proxy(TINY | {"vocab_size": 301})) is None
    seconds = time_of(found, proxy, 64_000, (4, 4)).run - time_of(found, proxy, 32_000, (4, 4)).run
    assert seconds == pytest.approx(run_flops(proxy, 32_000) / found.flops)


def test_what_would_take_too_long_to_measure_is_bounded_by_products_of_matrices():
    """No step of a model of a billion parameters is taken on a machine that needs minutes for it."""
    request = RateRequest(model=LARGE["model"], training=TrainingConfig(), vocab_size=32_768, most_seconds=1e-3)
    found = rate.measured(request)
    assert found.bound and found.flops > 1e8
