"""The funnel: a row for each step of the stages, in their order."""

from types import SimpleNamespace

from gristmill.flows.reports.funnel import FunnelRow, funnel, funnel_row

COUNT = {"step": "c4", "rows_in": 4, "rows_out": 3, "characters_in": 9, "characters_out": 8, "drops": {"a": 1}}


def test_a_row_is_what_a_step_counted():
    assert funnel_row(COUNT) == FunnelRow("c4", 4, 3, 9, 8, {"a": 1}, None)
    assert funnel_row(COUNT | {"edits": {"b": 2}}).edits == {"b": 2}
    cuts = funnel_row(COUNT | {"edits": {"b": 2, "c": 1}})
    assert (cuts.name, list(cuts.reasons)) == ("c4, cuts", ["b", "a", "c"])
    assert (funnel_row(COUNT).kept, funnel_row(COUNT | {"rows_in": 0}).kept) == (0.75, None)


def test_steps_follow_each_other_over_the_stages():
    counts = [COUNT | {"step": name} for name in ("extract", "c4", "minhash")]
    stages = [SimpleNamespace(step_counts=some) for some in (counts[:2], [], counts[2:])]
    assert [row.step for row in funnel(stages)] == ["extract", "c4", "minhash"]
