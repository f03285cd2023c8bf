"""`gristmill export tokens`: the tokens of a finished recipe, as its own training would read them."""

import json

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages.mixture import training_data
from gristmill.samples.order import Order
from gristmill.storage.training_manifest import load_training_manifest
from tests.corpora import context
from tests.planted.text import pydoc_paragraphs

pytestmark = pytest.mark.extended

STEPS, BATCH, SEQ_LEN, SEED = 12, 2, 16, 3


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(recipe's path, home, path of mixture.json) of a recipe whose tokens are finished."""
    folder = tmp_path_factory.mktemp("run")
    prose = pydoc_paragraphs()
    for name, texts in {"web": prose[:80], "books": prose[80:120]}.items():
        rows = [{"text": text} for text in texts]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {
        "name": "handed-over",
        "sources": [{"name": name, "jsonl": [f"{folder}/{name}.jsonl"]} for name in ("web", "books")],
        "steps": [{"step": "extract"}],
        "tokenizer": {"vocab_size": 350, "sample_bytes": 20_000},
        "mixture": {"weights": {"web": 3, "books": 1}, "heldout_fraction": 0.1, "phases": [
            {"share": 0.75}, {"share": 0.25, "weights": {"books": 1}}
        ]},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": SEQ_LEN},
        "training": {"steps": STEPS, "batch": BATCH, "micro_batch": 1, "warmup_steps": 1, "order_seed": SEED},
    }  # fmt: skip
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(given))
    recipe, at = load(str(path)), context(str(folder / "home"))
    *_, last = curate(at, recipe)
    data = training_data(at, recipe, last.left)
    return path, folder / "home", f"{data.mixture.folder}/mixture.json"


def run(made, *arguments: str):
    recipe, home, _ = made
    return CliRunner().invoke(app, ["export", "tokens", str(recipe), *arguments], env={"GRISTMILL_HOME": str(home)})


def test_nanogpt_gets_what_training_would_read(made, tmp_path):
    done = run(made, "--for", "nanogpt", "--to", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    assert f"exported: handed-over for nanogpt in {tmp_path / 'out'}" in " ".join(done.stdout.split())
    order = Order(load_training_manifest(made[2]), seq_len=SEQ_LEN, batch=BATCH, seed=SEED)
    trained = np.concatenate([order.batch(step) for step in range(STEPS)])
    ids = np.fromfile(tmp_path / "out" / "train.bin", "<u2").reshape(-1, SEQ_LEN + 1)
    assert (ids == trained).all()
    card = (tmp_path / "out" / "README.md").read_text()
    key = made[2].split("mixture-")[1].split("/")[0]
    assert f"mixture-{key}" in card and "order_seed: 3" in card and str(made[1]) not in card
    again = run(made, "--for", "nanogpt", "--to", str(tmp_path / "out"))
    assert again.exit_code == 0 and "already exported" in again.stdout


def test_tokens_that_are_not_made_are_asked_for(made, tmp_path):
    recipe, _, _ = made
    environment = {"GRISTMILL_HOME": str(tmp_path / "empty")}
    done = CliRunner().invoke(
        app, ["export", "tokens", str(recipe), "--for", "mosaic", "--to", str(tmp_path / "out")], env=environment
    )
    assert done.exit_code == 1
    assert not (tmp_path / "out").exists()


def test_another_objective_is_refused(made, tmp_path):
    given = yaml.safe_load(made[0].read_text())
    given["training"]["objective"] = "prefix_lm"
    other = tmp_path / "recipe.yaml"
    other.write_text(yaml.safe_dump(given))
    done = run((other, *made[1:]), "--for", "mosaic", "--to", str(tmp_path / "out"))
    assert done.exit_code == 1
    assert "prefix_lm, whose samples are created during training" in f"{done.output} {done.exception}"


def test_the_command_knows_the_trainers_that_there_are():
    from gristmill.flows.cli.exporting import TokenTrainer
    from gristmill.samples.formats.folder import TRAINERS

    assert set(TokenTrainer.__args__) == set(TRAINERS)
