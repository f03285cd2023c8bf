"""Settings that are written into a recipe's text: the values are the ones asked for, and nothing else has changed."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gristmill.flows.recipe.settings_file import edited

BLOCK = """# on top
name: web # its name
training:
  # why so many
  steps: 100 # of a day
  micro_batch: 4   # fits
mixture: {weights: {web: 1}}
"""
FLOW = "name: web\ntraining: {steps: 100, micro_batch: 4} # short\n"
LAST = "name: web\ntraining:\n    steps: 100"
NONE = "name: web\n"


@pytest.mark.parametrize("text", [BLOCK, FLOW, LAST, NONE])
@given(micro=st.integers(1, 10**6), recompute=st.sampled_from(["none", "full", "selective"]))
def test_values_are_those_asked_for_and_all_else_is_as_before(text, micro, recompute):
    values = {"micro_batch": micro, "recompute": recompute, "parallel": {"replicas": 2}}
    before, after = yaml.safe_load(text), yaml.safe_load(edited(text, "training", values))
    assert after == before | {"training": before.get("training", {}) | values}


def test_comments_and_order_stay():
    made = edited(BLOCK, "training", {"micro_batch": 16, "recompute": "full"})
    assert made == BLOCK.replace("micro_batch: 4   # fits", "micro_batch: 16   # fits\n  recompute: full")


@pytest.mark.parametrize("text", ["[1, 2]", "training: 5\n", "training:\n", "training: {}\n", "{training: {steps: 1}}"])
def test_what_cannot_be_changed_in_place_is_refused(text):
    with pytest.raises(
        ValueError, match="edit it by hand|edit its `training` by hand|delete the line, and it is written again"
    ):
        edited(text, "training", {"micro_batch": 2})
