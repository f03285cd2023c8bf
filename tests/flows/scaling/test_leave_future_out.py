"""Laws of the past against the future: of a planted law, and of one that changes."""

import numpy as np
import pytest

from gristmill.flows.stats.law import ScalingRuns, fit, leave_future_out
from tests.flows.scaling.grids import LAWS, capped, simulated

WHERE = capped()
COMPUTE = 6 * WHERE[0] * WHERE[1]


def test_a_law_that_holds_predicts_the_larger_runs():
    runs = simulated(LAWS[0], 0.002, 0, WHERE)
    rows = leave_future_out(runs, COMPUTE)
    assert [row.compute for row in rows] == sorted({row.compute for row in rows})
    assert all(row.fitted + row.predicted == len(COMPUTE) for row in rows)
    assert rows[-1].error < 0.01
    assert sum(row.inside for row in rows) > 0.7 * sum(row.predicted for row in rows)
    row = rows[-3]
    law, late = fit(runs.take(COMPUTE <= row.compute)).law, COMPUTE > row.compute
    errors = law.loss(WHERE[0][late], WHERE[1][late]) / runs.loss[late] - 1
    assert [row.error, row.bias] == pytest.approx([np.abs(errors).mean(), errors.mean()])
    assert row.reach == pytest.approx(COMPUTE.max() / row.compute)


def test_a_law_that_changes_is_seen():
    runs = simulated(LAWS[0], 0.002, 0, WHERE)
    broken = ScalingRuns(runs.parameters, runs.tokens, np.where(COMPUTE > 4e11, runs.loss * 1.1, runs.loss))
    row = next(row for row in leave_future_out(broken, COMPUTE) if row.compute > 3e11)
    assert row.bias < -0.05
    assert row.inside < row.predicted / 2
