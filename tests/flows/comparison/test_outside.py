"""Error rates by a simulator that shares nothing with the analysis: standard errors .5% at 5%, .7% at 90%."""

import numpy as np
import pytest

from tests.flows.comparison.outside_simulator import Row, World, differences

DECISIONS = 2000
NONE = {"document": 0.0, "run_document": 0.0, "run": 0.0, "sample": 0.0, "documents": 4, "hosts": 4}
CLUSTERED = World(hosts=15, correlation=0.3)
ROWS = {
    "100 documents of 100 hosts": World(),
    "of 50 hosts, correlation .3": World(hosts=50, correlation=0.3),
    "of 15 hosts, correlation .3": CLUSTERED,
    "of 15 hosts, correlation .3, Zipf": World(hosts=15, correlation=0.3, zipf=True),
    "100 hosts, t with 3 degrees": World(heavy=True),
    "100 hosts, 8 A/A pairs": World(bank=8),
    "100 hosts, 4 A/A pairs": World(bank=4),
    "100 hosts, no bank": World(bank=0),
    "documents alike": World(document=0.0),
    "100 hosts, effect .03": World(effect=0.03),
    "of 15 hosts, correlation .3, effect .03": World(hosts=15, correlation=0.3, effect=0.03),
    "halves of 40 training hosts": World(pool=40),
    "halves of 40 training hosts, effect .05": World(pool=40, effect=0.05),
}


@pytest.mark.extended
def test_the_simulator_draws_what_it_says():
    many = 200
    assert np.allclose(differences(World(effect=0.02, **NONE), 3), 0.02)
    exact = {"document": 0.0, "run_document": 0.0, "run": 0.0, "pair": 0.5, "documents": 4, "hosts": 4}
    drawn = differences(World(sample=0.01, **exact), many)[:, 0]
    assert abs(drawn.std() / (0.01 * np.sqrt(2)) - 1) < 0.25
    halves = differences(World(pool=40, pool_effect=0.1, **NONE), many)[:, 0]
    # a half's mean varies around the pool's by a host's variance, over 20, times 1 - 20/40: that of the pool's own mean
    assert 0.6 < halves.std() / (0.1 / np.sqrt(40)) < 1.5
    pools = [differences(World(pool=40, pool_effect=0.1, **NONE), 10, seed)[:, 0].mean() for seed in range(100)]
    assert abs(np.std(pools) / (0.1 * np.sqrt(1.1 / 40)) - 1) < 0.35
    assert sorted(np.bincount(World(hosts=15, zipf=True).host_of()))[-2:] == [13, 27]


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_many_decisions(name):
    world = ROWS[name]
    found = Row.of(world, DECISIONS, list(ROWS).index(name), follow=not world.effect and not world.pool)
    print(f"\n{name}: {found}")
    assert found.false <= 0.07
    # of two pages of a site, and of which pages were crawled, an interval of 90% covers 86% at least
    assert found.coverage >= 0.86
