"""The plan of a recipe by the command: sentences, JSON, page, and what is written into the recipe's file."""

import json
from dataclasses import replace

import pytest
import yaml
from typer.testing import CliRunner

import gristmill
from gristmill.flows.cli import app
from gristmill.flows.experiments.planning import page
from gristmill.flows.experiments.planning.laws import Ramp
from gristmill.flows.experiments.planning.phase_costs import Range

RECIPE = """# kept
name: small
sources: [{name: web, text: [web]}]
steps: [{step: extract}]
mixture: {weights: {web: 1}}
tokenizer: {vocab_size: 1000}
model: {dim: 64, layers: 2, heads: 2, seq_len: 64} # tiny
training:
  steps: 100 # of 4,096 tokens
  batch: 64
  micro_batch: 1
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path / "home"))
    (tmp_path / "web").mkdir()
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    return path


def command(*given):
    return CliRunner().invoke(app, ["decide", "plan", *map(str, given)], catch_exceptions=False)


def test_a_plan_as_json_from_python_and_its_page(recipe, tmp_path):
    made = gristmill.plan(str(recipe), "a100", 4, price=2.0, corpus_tokens=100_000.0, served=1e12)
    assert made.tokens == 100 * 64 * 64
    assert made.repetition.epochs == pytest.approx(4.096)
    assert made.bill.price == pytest.approx(made.bill.device_hours * 2)
    assert made.bill.total == Range(made.bill.price, made.bill.price)
    assert {one.layout.devices for one in made.choices} == {4}
    assert made.serving.parameters < made.parameters
    assert any("no finished run" in remark for remark in made.remarks)
    found = json.loads(command(recipe, "--device", "a100", "--devices", 4, "--price", 2, "--json").stdout)
    assert (found["parameters"], found["flops"]) == (made.parameters, made.flops)
    assert found["choices"][0]["memory"]["total"] == made.best.memory.total

    from gristmill.flows.experiments.planning import page

    one, two = page.page(made), page.page(made)
    assert one == two
    assert one.count("<svg") >= 3
    assert page.write(made, str(tmp_path / "home")).endswith(".html")


def test_the_best_layout_is_written_and_comments_stay(recipe):
    said = command(recipe, "--devices", 2, "--write", "--page").stdout
    text = recipe.read_text()
    made = gristmill.plan(str(recipe), "h100", 2)
    assert yaml.safe_load(text)["training"] == {"steps": 100, "batch": 64} | made.settings()
    assert all(comment in text for comment in ("# kept", "# tiny", "# of 4,096 tokens"))
    assert "wrote into" in said
    assert "micro_batch: 32" in said  # all of a rank's rows at once


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        (((704, 2), (1984, 4)), "batch_ramp: [{tokens: 704, times: 2}, {tokens: 1984, times: 4}] keeps batches"),
        ((), "so batch_ramp is not useful"),
    ],
)
def test_the_noise_of_a_finished_run_gives_a_ramp(recipe, stages, said):
    made = replace(gristmill.plan(str(recipe), "h100", 2), ramp=Ramp(stages, 29, 60, 20.0, 70.0))
    text = "\n".join(page.lines(made))
    assert said in text
    assert "20.0 sequences after the warm-up and 70.0 at its end" in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"device": "abacus"}, "no data sheet is known of it; give one of a100"),
        ({"mfu": 1.5}, "is not a fraction of the data sheet's rate"),
        ({"device_memory": 1e-6}, "no layout fits 8 h100"),
        ({"failure_hours": 1e-9}, "larger --failure-hours"),
    ],
)
def test_what_cannot_be_planned_says_what_to_give(recipe, given, said):
    with pytest.raises(ValueError, match=said):
        gristmill.plan(str(recipe), **given)
