"""What a slider says is what a new run with that setting does: counts of each step and rule, and which documents enter
and leave. The new run is made in a home of its own."""

import json
import random
from pathlib import Path

import pytest

from gristmill.flows.curation import curate
from gristmill.flows.explore.browse.opened import Opened, open_recipe
from gristmill.flows.explore.browse.pages import Pages
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.whatif import whatif
from gristmill.storage import parquet
from tests.corpora import context
from tests.flows.browse.hostile import finish
from tests.planted.text import pydoc_paragraphs

pytestmark = pytest.mark.slow
STEPS = [
    {"step": "language", "keep": ["en"], "min_score": 0.3},
    {"step": "gopher_quality", "min_words": 40},
    {"step": "gopher_repetition"},
    {"step": "minhash", "unit": "words"},
]
SETTINGS = [
    ("language", "min_score", 0.8),
    ("gopher_quality", "min_words", 15),
    ("gopher_quality", "min_words", 90),
    ("gopher_quality", "min_alpha_words", 0.85),
    ("gopher_repetition", "max_top_2gram", 0.05),
]


@pytest.fixture(scope="module")
def opened(tmp_path_factory) -> Opened:
    draw, prose = random.Random(3), pydoc_paragraphs()
    lines = []
    for number in range(900):
        parts = draw.sample(prose, draw.randint(1, 5))
        if number % 9 == 0:
            parts += parts[:1] * draw.randint(1, 6)
        if number % 11 == 0:
            parts = [lines and json.loads(lines[-1])["text"] or parts[0]]  # a duplicate
        lines.append(json.dumps({"id": f"{number}", "url": f"https://a.example/{number}", "text": "\n".join(parts)}))
    return finish(tmp_path_factory.mktemp("old"), lines, "replayed", STEPS)


def kept(opened: Opened, step: str) -> set[str]:
    """Ids that are kept behind the decisions that a step belongs to."""
    stage = next(each.stage for each in opened.steps if each.row.step == step)
    parts = map(stage.part, range(len(stage.part_records)))
    return {name for part in parts for name in parquet.read_table(part, ["id"])["id"].to_pylist()}


@pytest.mark.parametrize(("step", "setting", "value"), SETTINGS)
def test_a_slider_is_a_new_run(opened, tmp_path, step, setting, value):
    given = json.loads(Path(opened.given).read_text())
    next(each for each in given["steps"] if each["step"] == step)[setting] = value
    (tmp_path / "recipe.yaml").write_text(json.dumps(given))
    home = str(tmp_path / "home")
    for _ in curate(context(home), load(str(tmp_path / "recipe.yaml"))):
        pass
    run = open_recipe(str(tmp_path / "recipe.yaml"), MachineSettings(home=home))

    key = next(each.key for each in opened.steps if each.row.step == step)
    found = Pages(opened).replayed({"step": key, "setting": setting, "value": f"{value}"})
    truth = {each.row.step: each.row for each in run.steps}
    compared = 0
    for row in found.rows:
        if row.replayed is not None:
            new = truth[row.step]
            assert (row.replayed.documents_in, row.replayed.documents_out) == (new.documents_in, new.documents_out)
            assert {rule: n for rule, n in row.replayed.drops.items() if n} == {r: n for r, n in new.drops.items() if n}
            compared += 1
    assert compared >= 2 and not found.unchanged
    before, after = kept(opened, step), kept(run, step)
    assert (found.enter.documents, found.leave.documents) == (len(after - before), len(before - after))
    assert found.enter.documents + found.leave.documents > 0
    assert {one.id for one in found.enter.examples} <= after - before
    assert {one.id for one in found.leave.examples} <= before - after
    replay = whatif(opened.given, {f"{step}.{setting}": value}, opened.settings)
    shards = range(len(opened.corpus.sources))
    assert {name for shard in shards for name in replay.shard(shard).kept.to_pylist()} == after
