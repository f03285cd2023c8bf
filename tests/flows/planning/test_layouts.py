"""Memory by part, traffic, time, checkpoints: against papers, simulated schedules and brute force."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.flows.experiments.planning import layouts, memory, plan
from gristmill.flows.experiments.planning.layouts import Devices, Work
from gristmill.flows.experiments.planning.memory import Kept, Layout, bytes_kept
from gristmill.training.config import TrainingConfig
from gristmill.training.hardware import DEVICE_HOURS, DataSheet, data_sheet
from gristmill.training.model_config import ModelConfig
from tests.flows.planning import published


def training(**given) -> TrainingConfig:
    return TrainingConfig(**({"optimizer": "adamw", "batch": 64, "micro_batch": 1} | given))


def work(model: ModelConfig, vocab_size: int = 1000, **given) -> Work:
    from gristmill.training.decoder import flops_per_token

    parameters = memory.counts(model, vocab_size)
    return Work(model, training(**given), vocab_size, parameters, flops_per_token(model, vocab_size))


def cluster(count: int, name: str = "h100", mfu: float = 0.4, gigabytes: float = 80.0, **given) -> Devices:
    sheet = data_sheet(name)
    assert sheet is not None
    return Devices(
        name, sheet, count, **({"machine": 8, "network": 50e9, "mfu": mfu, "memory": gigabytes * 1e9} | given)
    )


def test_sixteen_bytes_a_parameter_and_what_shards_leave_of_them():
    zero = published.ZERO
    parameters = memory.Counts(0, round(zero["parameters"]), 0)
    given = training(recompute="full", accumulate="sharded")
    config = ModelConfig(dim=2, heads=1, layers=1, seq_len=1, qk_norm=False)
    for shards, printed in ((1, zero["none"]), (zero["devices"], zero["all"])):
        found = memory.peak(config, given, parameters, 1, Layout(shards), 1, 2)
        # ZeRO has 2 bytes of weights and of gradients and 12 of the optimizer with its copy; we have 4, 4, 8
        state = found.weights + found.gradients + found.optimizer
        assert state / 1e9 == pytest.approx(printed, abs=0.05)
        assert state * shards / zero["parameters"] == pytest.approx(zero["bytes"])


def gpt(h: int, a: int, s: int) -> list[Kept]:
    """What Korthikanti et al. count of a layer of GPT, section 4.1, bytes a token."""
    return [
        Kept("two norms", 4 * h, False),
        Kept("input of queries, keys, values", 2 * h, False),
        Kept("queries and keys", 4 * h, True),
        Kept("softmax, its dropout's mask, its dropout", 5 * a * s, True),
        Kept("values", 2 * h, True),
        Kept("input of the projection", 2 * h, True),
        Kept("dropout of the projection", h, False),
        Kept("input of the feed-forward network", 2 * h, False),
        Kept("input of GeLU, and its result", 16 * h, True),
        Kept("dropout of the feed-forward network", h, False),
    ]


@pytest.mark.parametrize("name", published.KORTHIKANTI)
@pytest.mark.parametrize("t", [1, 8])
def test_activations_divide_as_korthikanti_has_it(name, t):
    a, s, h, scores = published.KORTHIKANTI[name]
    assert 5 * a * s / h == pytest.approx(scores)
    layer = gpt(h, a, s)
    assert bytes_kept(layer) / h == pytest.approx(34 + scores)
    assert bytes_kept(layer, t, sequence=False) / h == pytest.approx(10 + 24 / t + scores / t)
    assert bytes_kept(layer, t) / h == pytest.approx((34 + scores) / t)
    assert bytes_kept([one for one in layer if "softmax" not in one.what], t) / h == pytest.approx(34 / t)


def test_full_recomputation_keeps_two_bytes_of_the_width():
    assert bytes_kept(memory.kept_by_block(ModelConfig(), 2, True, "full")) == 2 * ModelConfig().dim


def test_parameters_are_those_of_the_model_by_place():
    from gristmill.training.decoder import Decoder

    for shape in ({}, {"tie_embeddings": False, "qk_norm": False, "kv_heads": 2, "ffn": 352}):
        config = ModelConfig(**shape)
        model, found = Decoder(config, 500), memory.counts(config, 500)
        assert found.whole == sum(p.numel() for p in model.parameters())
        assert found.block == sum(p.numel() for p in model.layers[0].parameters())


@pytest.mark.parametrize(("tokens", "parameters", "devices", "rate", "days"), published.MEGATRON_DAYS)
def test_days_of_megatron(tokens, parameters, devices, rate, days):
    sheet = DataSheet(rate, 80e9, 1e15, 1e15)
    at = Devices("a100", sheet, devices, devices, 1e15, 1.0, 80e9)
    config = ModelConfig(dim=2, heads=1, layers=1, seq_len=1, qk_norm=False)
    counted = memory.Counts(0, 1, 1)
    made = Work(config, training(batch=devices), 1, counted, round(6 * parameters))
    none = memory.Memory("loss", *[0.0] * 7)
    step = layouts.timed(made, at, Layout(devices), "full", 1, 1, none).computing
    assert step * tokens / devices / 86_400 == pytest.approx(days, abs=0.6)


def test_palms_utilisation():
    palm = published.PALM
    peak = palm["devices"] * palm["peak"]
    matrices = 6 * palm["parameters"]
    attention = 12 * palm["layers"] * palm["heads"] * palm["head_dim"] * palm["length"]
    assert palm["tokens_per_second"] * (matrices + attention) / peak == pytest.approx(palm["mfu"], abs=5e-4)
    assert palm["tokens_per_second"] * matrices / peak == pytest.approx(palm["mfu_without"], abs=5e-4)
    # which is how our own model counts, but that it leaves out the lookup of embeddings
    from gristmill.training.decoder import flops_per_token

    config = ModelConfig(dim=256, layers=3, heads=4, seq_len=128, tie_embeddings=False)
    own = flops_per_token(config, 1000)
    parameters = memory.counts(config, 1000)
    vectors = 3 * (2 * 256 + 2 * 64) + 256
    assert own == 6 * (parameters.whole - 1000 * 256 - vectors) + 12 * 3 * 256 * 128


def test_seven_billion_on_two_trillion_tokens():
    llama = published.LLAMA_2_7B
    config = ModelConfig(
        dim=llama["dim"], layers=llama["layers"], heads=llama["heads"], ffn=llama["ffn"], seq_len=llama["length"],
        tie_embeddings=False, qk_norm=False,
    )  # fmt: skip
    made = work(config, llama["vocabulary"], batch=1024)
    assert made.parameters.whole == llama["parameters"]
    assert 6 * made.parameters.whole * llama["tokens"] == pytest.approx(llama["operations_6nd"], rel=0.002)
    published_rate = made.flops * llama["tokens"] / (llama["hours"] * 3600) / 312e12
    assert (
        0.4 < published_rate < 0.5
    )  # the share of an A100's rate that Meta's hours are: the default of .4 is below it
    best = layouts.choices(made, cluster(64, "a100"))[0]
    hours = best.seconds * llama["tokens"] / (1024 * 4096) / 3600 * 64
    assert hours == pytest.approx(llama["hours"] * published_rate / 0.4, rel=0.001)


def test_llamas_three_weeks():
    llama = published.LLAMA_65B
    days = llama["tokens"] / (llama["devices"] * llama["rate"]) / 86_400
    assert days == pytest.approx(llama["days"], abs=0.5)


def simulated_bubble(stages: int, micro_batches: int) -> float:
    """GPipe's schedule, played: stage s can begin micro-batch m when s-1 has ended it and s has ended m-1; forward,
    then backward in the other direction, of equal lengths."""
    ends = np.zeros((stages, micro_batches))
    for m in range(micro_batches):
        for s in range(stages):
            ends[s, m] = 1 + max(ends[s - 1, m] if s else 0, ends[s, m - 1] if m else 0)
    last = ends[-1, -1]
    whole = 2 * last  # the way back is the mirror image
    return 1 - 2 * micro_batches / whole


@pytest.mark.parametrize(("stages", "micro_batches", "share"), published.BUBBLE)
def test_the_bubble_is_gpipes(stages, micro_batches, share):
    assert layouts.bubble(stages, micro_batches) == pytest.approx(share)
    assert simulated_bubble(stages, micro_batches) == pytest.approx(share)


@given(st.integers(1, 16), st.integers(1, 64))
def test_the_bubble_is_that_of_a_schedule_that_is_played(stages, micro_batches):
    assert layouts.bubble(stages, micro_batches) == pytest.approx(simulated_bubble(stages, micro_batches))


@given(st.integers(1, 12))
def test_a_ring_sends_what_a_played_ring_sends(ranks):
    """Each rank has one part of a vector; in each round it hands on the part that it got last."""
    held = [{rank} for rank in range(ranks)]
    newest, sent = list(range(ranks)), 0
    for _ in range(ranks - 1):
        newest = [newest[rank - 1] for rank in range(ranks)]
        for rank in range(ranks):
            held[rank].add(newest[rank])
        sent += 1
    assert all(len(one) == ranks for one in held)
    assert layouts.ring(1.0, ranks) == pytest.approx(sent / ranks)


@pytest.mark.parametrize(("stall", "failures", "interval"), published.YOUNG)
def test_youngs_interval(stall, failures, interval):
    assert plan.young(stall, failures) == pytest.approx(interval, abs=0.01)


@given(st.floats(0.1, 600), st.floats(7200, 1e7))
def test_dalys_interval_wastes_least(stall, failures):
    """By the exact expectation of Daly's model: exponential failures, a restart that costs nothing."""

    def wasted(work: float) -> float:
        return failures * math.expm1((work + stall) / failures) / work

    found = plan.daly(stall, failures)
    tried = np.geomspace(found / 20, found * 20, 4001)
    least = min(wasted(one) for one in tried)
    assert wasted(found) <= least * 1.001
    assert found == pytest.approx(plan.young(stall, failures), rel=0.35)


def test_failures_of_llama_3():
    llama = published.LLAMA_3_FAILURES
    assert DEVICE_HOURS / llama["devices"] == pytest.approx(llama["hours"], abs=0.05)


MODEL = ModelConfig(dim=512, layers=8, heads=8, seq_len=512)


def test_all_layouts_are_found_once_and_use_all_devices():
    at = cluster(16)
    found = list(layouts.layouts(MODEL, at, tensor=8, pipeline=4))
    by_hand = {
        (s, r, t, p)
        for s in range(1, 17) for r in range(1, 17) for t in range(1, 17) for p in range(1, 17)
        if s * r * t * p == 16 and t <= 8 and p <= 4 and 8 % t == 0 and MODEL.ffn_dim % t == 0 and 8 % p == 0
    }  # fmt: skip
    assert sorted((one.shards, one.replicas, one.tensor, one.pipeline) for one in found) == sorted(by_hand)


def test_matrices_and_blocks_are_divided_only_when_asked_for():
    assert all(one.layout.tensor == one.layout.pipeline == 1 for one in layouts.choices(work(MODEL), cluster(8)))


def test_a_pipeline_has_at_least_as_many_micro_batches_as_stages():
    found = layouts.choices(work(MODEL, 32_000, batch=24), cluster(8), tensor=2, pipeline=8)
    assert {2, 4, 8} <= {one.layout.pipeline for one in found}
    for one in found:
        rows = -(-24 // one.layout.data)
        assert -(-rows // one.micro_batch) == one.micro_batches >= one.layout.pipeline


def test_layouts_that_training_refuses_are_left_out():
    def tensors(vocab_size: int, **given) -> set[int]:
        return {one.layout.tensor for one in layouts.choices(work(MODEL, vocab_size, **given), cluster(8), tensor=8)}

    assert tensors(32_000) == {1, 2, 4, 8}
    assert tensors(32_002) == {1, 2} and tensors(32_000, fp8_min_dim=256) == {1}


def test_the_micro_batch_is_the_largest_that_fits():
    made, at = work(MODEL, 32_000, batch=512), cluster(2, gigabytes=6)
    for one in layouts.choices(made, at):
        rows = 512 // one.layout.data
        assert one.memory.total <= at.usable
        fewer = one.micro_batches - 1
        if fewer:  # fewer micro-batches would be larger, and do not fit
            given = made.training.model_copy(update={"recompute": one.recompute})
            larger = memory.peak(MODEL, given, made.parameters, 32_000, one.layout, -(-rows // fewer), fewer)
            assert larger.total > at.usable


def test_the_first_layout_is_the_fastest_and_a_slow_network_is_kept_within_machines():
    made = work(MODEL, 32_000, batch=32)
    found = layouts.choices(made, cluster(32, network=1e8))
    assert [one.seconds for one in found] == sorted(one.seconds for one in found)
    assert found[0].layout.shards <= 8  # weights are gathered within a machine
    slow = next(one for one in found if one.layout.shards == 32)
    assert slow.seconds > 2 * found[0].seconds


def test_nothing_that_fits_is_an_error_with_the_least():
    with pytest.raises(ValueError, match=r"no layout fits 2 h100 of 0 GB: the smallest needs .* GB per device, with"):
        layouts.choices(work(MODEL, 32_000), cluster(2, gigabytes=0.1))


def test_bytes_of_a_step_add_up():
    """The whole of what moves, counted apart: two gathers of blocks and one of the rest a micro-batch, one scatter."""
    made = work(MODEL, 32_000, accumulate="sharded")
    counted, shards, times = made.parameters, 8, 4
    sent = layouts.traffic(made, Layout(shards), 2, times, "none")
    blocks = counted.layers * counted.block
    whole = times * (2 * (2 * blocks + counted.root) + 4 * counted.whole)
    assert sent.gather == pytest.approx(whole * (shards - 1) / shards)
    assert sent.replicas == sent.tensor == sent.pipeline == 0
