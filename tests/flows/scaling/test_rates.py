"""Sweeps of the learning rate: planted parabolas, edges, and noise."""

import numpy as np
import pytest

from gristmill.flows.experiments.scaling.grid import FACTORS, grid, rate_sweep, swept_cells
from gristmill.flows.recipe.proxy import load_proxy

RATES = [0.01 * factor for factor in FACTORS]


def planted(best: float, bend: float = 0.05) -> list[float]:
    return [2 + bend * float(np.log(rate / best)) ** 2 for rate in RATES]


def test_the_best_rate_and_what_it_is_worth():
    found = rate_sweep(1000, 1000, RATES, planted(0.015), 0.0001)
    assert found.best == pytest.approx(0.015, rel=1e-3) and not found.at_edge
    assert found.worth == pytest.approx(0.05 * np.log(1.5) ** 2 / planted(0.015)[1], rel=1e-3)
    assert "a learning rate of 0.015 instead of 0.01 would lower the loss by" in found.sentence


def test_a_best_rate_beyond_those_tried_is_said_to_be():
    found = rate_sweep(1000, 1000, RATES, planted(0.1), 0.0001)
    assert found.best == pytest.approx(0.02) and found.at_edge and "the last one tried" in found.sentence


def test_differences_of_noise_are_none():
    found = rate_sweep(1000, 1000, RATES, [2.001, 2.0, 1.999], 0.003)
    assert "no learning rate is better than the rule's 0.01 beyond noise" in found.sentence


def test_the_smallest_and_the_largest_size_are_swept():
    cells = grid(load_proxy("small"), [150_000, 250_000, 500_000], [50_000, 100_000, 200_000])
    sweeps = swept_cells(cells, 2)
    sizes = sorted({one.size.parameters for one in cells})
    assert [sweep[0].size.parameters for sweep in sweeps] == [sizes[0], sizes[-1]]
    assert all(sweep[1] in cells and len({one.tokens for one in sweep}) == 1 for sweep in sweeps)
    assert swept_cells(cells, 0) == [] and len(swept_cells(cells, 9)) == len(sizes)
