"""Shapes and rates of a scaling grid, against a search over all shapes."""

import numpy as np
import pytest

from gristmill.flows.experiments.options import number, numbers
from gristmill.flows.experiments.scaling.grid import (
    cell,
    forecast_cell,
    grid,
    plan,
    scaled_from,
    scaled_model,
)
from gristmill.flows.recipe.proxy import load_proxy
from gristmill.training.decoder import flops_per_token, parameter_count
from gristmill.training.model_config import ModelConfig

PROXY = load_proxy(
    {
        "name": "tiny",
        "vocab_size": 512,
        "model": {"dim": 32, "layers": 2, "heads": 4, "seq_len": 64},
        "tokens": 20_480,
        "training": {"batch": 4, "warmup_steps": 5},
        "learning_rates": [0.003, 0.01],
    }
)


@pytest.mark.extended
@pytest.mark.parametrize("asked", [15_000, 42_000, 150_000, 1_000_000])
def test_the_nearest_shape_is_taken(asked):
    found = scaled_model(PROXY, asked)
    shapes = [
        ModelConfig(dim=8 * heads, heads=heads, layers=max(1, int(heads / 2 + 0.5)), seq_len=64)
        for heads in range(1, 40)
    ]
    counts = [parameter_count(shape, 512) for shape in shapes]
    best = int(np.abs(np.log(np.array(counts) / asked)).argmin())
    assert found.model == shapes[best]
    assert found.parameters == counts[best]
    assert found.flops_per_token == flops_per_token(shapes[best], 512)


def test_a_model_at_the_proxys_size_is_the_proxys():
    own = scaled_from(PROXY)
    assert scaled_model(PROXY, own.parameters).model == PROXY.model.model_copy(update={"ffn": None, "kv_heads": None})
    assert cell(PROXY, own, PROXY.tokens).learning_rate == PROXY.learning_rates[-1]


def test_ten_times_the_compute_asks_for_a_quarter_less_rate():
    own = scaled_from(PROXY)
    assert cell(PROXY, own, 10 * PROXY.tokens).learning_rate == pytest.approx(0.01 * 10**-0.125, rel=1e-2)


def test_cells_with_too_much_compute_are_left_out():
    whole = grid(PROXY, [20_000, 40_000, 80_000], [10_000, 20_000])
    assert len(whole) == 6
    assert all(one.tokens % 256 == 0 for one in whole)
    most = sorted(one.flops for one in whole)[2]
    assert len(grid(PROXY, [20_000, 40_000, 80_000], [10_000, 20_000], most)) == 3
    with pytest.raises(ValueError, match="no run"):
        plan(PROXY, grid(PROXY, [20_000], [10_000], 1.0), [], 1)


def test_a_size_below_the_smallest_shape_is_refused():
    with pytest.raises(ValueError, match="smaller vocab_size"):
        scaled_model(PROXY, 1000)


def test_counts_are_read_as_people_write_them():
    assert [number(text) for text in ("250k", "2.5M", "1e6", "200_000", "200,000")] == [
        250_000, 2_500_000, 1_000_000, 200_000, 200_000,
    ]  # fmt: skip
    assert numbers("2M,100k, 100k") == [2_000_000, 100_000, 100_000]
    for wrong in ("", "k", "-3", "many", "1.2.3"):
        with pytest.raises(ValueError, match="is not a count"):
            number(wrong)
    found = forecast_cell(PROXY, "150k:40k")
    assert found.tokens == 39_936
    with pytest.raises(ValueError, match="parameters:tokens"):
        forecast_cell(PROXY, "150k")
