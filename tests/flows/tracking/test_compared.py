"""Runs of one experiment in a real MLflow database: what they are called, and which of them can be compared."""

import json
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest

from gristmill.flows.curation import Outputs
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.recipe.variants import variant, without
from gristmill.flows.run.compared import (
    COMPARABLE,
    comparable,
    compared_runs,
    describe_experiment,
    evaluated_on,
    provenance,
    run_name,
    shared_view,
)
from gristmill.flows.run.model_run import ModelRun
from gristmill.flows.run.tracking import KIND, TrackedExperiment
from gristmill.flows.stages.heldout import Data
from gristmill.training.config import TrainingConfig
from tests.corpora import context
from tests.planted.text import pydoc_paragraphs

pytestmark = pytest.mark.extended


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ((), "demo"),
        (("minhash.threshold=0.75",), "demo · minhash.threshold .75"),
        (("training.seed=2", "minhash.threshold=0.75"), "demo · minhash.threshold .75 · training.seed 2"),
        (("training.parallel.pipeline=2", "training.parallel.context=2"), "demo"),
        (("mixture.weights.modules=2.5",), "demo · mixture.weights.modules 2.5"),
        (("model.qk_norm=false", "limit=7"), "demo · limit 7 · model.qk_norm false"),
        (
            tuple(
                f"training.{name}={30 + i}"
                for i, name in enumerate(("warmup_steps", "steps", "seed", "batch", "z_loss"))
            ),
            "1 more",
        ),
        (
            ("training.eval_every=7", "training.keep_checkpoints=2", "training.eval_tokens=100"),
            "demo · training.eval_tokens 100",
        ),
    ],
)
def test_a_run_is_called_after_what_differs_in_the_words_of_set(settings, named):
    base = load("demo")
    assert run_name(variant(base, *settings).recipe, base.model_dump(mode="json")).endswith(named)


def test_a_run_is_called_after_steps_and_sources_that_it_has_or_lacks():
    base = load("demo")
    values = base.model_dump(mode="json")
    fewer = without(base, "minhash").recipe
    assert run_name(fewer, values) == "demo · without minhash"
    assert run_name(base, fewer.model_dump(mode="json")) == "demo · with minhash"
    steps = [step["step"] for step in values["steps"]]
    one, other = (steps.index(name) for name in ("gopher_repetition", "gopher_quality"))
    values["steps"][one], values["steps"][other] = values["steps"][other], values["steps"][one]
    assert run_name(load(values), base.model_dump(mode="json")) == "demo · steps in a different order"


@pytest.fixture(scope="module")
def recipes(tmp_path_factory) -> dict[str, Recipe]:
    """The first of an experiment; one that keeps other documents; one that is evaluated on others."""
    folder = tmp_path_factory.mktemp("compared")
    rows = [json.dumps({"text": text}) + "\n" for text in pydoc_paragraphs()[:150]]
    (folder / "web.jsonl").write_text("".join(rows))
    short = {"step": "gopher_quality", "min_words": 30, "min_stop_words": 0, "min_alpha_words": 0.1}
    first = {
        "name": "web",
        "sources": [{"name": "web", "jsonl": [f"{folder}/web.jsonl"]}],
        "steps": [{"step": "extract"}, short],
        "tokenizer": {"vocab_size": 400, "sample_bytes": 20_000},
        "mixture": {"weights": {"web": 1}, "heldout_fraction": 0.1, "max_epochs": 50},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 32},
        "training": {"steps": 4, "batch": 2, "micro_batch": 1, "warmup_steps": 1},
    }
    base = load(first)
    return {
        "first": base,
        "threshold": variant(base, "gopher_quality.min_words=45", "training.seed=2").recipe,
        "fewer": variant(base, "limit=120").recipe,
    }


@pytest.fixture(scope="module")
def tracked(recipes, tmp_path_factory) -> tuple[mlflow.MlflowClient, str, dict[str, Data], dict[str, str]]:
    """The runs of three trainings, as they are when training begins: client, experiment, data and ids of the runs."""
    home = tmp_path_factory.mktemp("home")
    settings = MachineSettings(home=str(home))
    data, runs = {}, {}
    for name, recipe in recipes.items():
        outputs = Outputs(context(str(home)), recipe)
        data[name] = outputs.data
        begun = ModelRun(settings, recipe, data[name], outputs.stages, f"key-{name}", str(home / "stages" / name))
        with begun as runs[name]:
            pass
        # found again by its key, not made twice
        with begun as again:
            assert again == runs[name]
    experiment = begun.client.get_experiment_by_name("web")
    assert len(begun.client.search_runs([experiment.experiment_id])) == len(recipes)
    return begun.client, experiment.experiment_id, data, runs


def test_names_params_and_tags_say_what_differs(tracked, recipes):
    client, _, data, ids = tracked
    runs = {name: client.get_run(key) for name, key in ids.items()}
    assert {name: run.info.run_name for name, run in runs.items()} == {
        "first": "web",
        "threshold": "web · gopher_quality.min_words 45 · training.seed 2",
        "fewer": "web · limit 120",
    }
    # what differs is a parameter of both: the comparison of MLflow has no empty cell beside a value
    params = {name: run.data.params for name, run in runs.items()}
    assert [params[name]["steps.gopher_quality.min_words"] for name in runs] == ["30", "45", "30"]
    assert [params[name]["training.seed"] for name in runs] == ["0", "2", "0"]
    assert [params[name]["limit"] for name in runs] == ["None", "None", "120"]
    assert params["first"]["steps"] == "extract, gopher_quality" and params["first"]["sources"] == "web"
    assert all(len(given) < 20 for given in params.values())
    tags = {name: run.data.tags[COMPARABLE] for name, run in runs.items()}
    assert tags["first"] == tags["threshold"] != tags["fewer"]
    assert tags == {name: comparable(each) for name, each in data.items()}
    command = Path(sys.argv[0]).name
    assert all(run.data.tags["mlflow.source.name"].startswith(command) for run in runs.values())
    for name, key in ids.items():
        assert load(Path(client.download_artifacts(key, "recipe.yaml"))) == recipes[name]


def test_descriptions_warn_of_runs_that_were_evaluated_on_something_else(tracked):
    client, experiment, data, ids = tracked
    others = {name: [run for run in compared_runs(client, experiment) if run.info.run_id != ids[name]] for name in ids}
    notes = {name: "\n".join(evaluated_on(data[name], others[name], TrainingConfig())) for name in ids}
    facts = data["first"].evaluated["heldout/web"]
    assert f"(web {facts['documents']}; {facts['bytes']:,} bytes): `{comparable(data['first'])}/" in notes["first"]
    assert "**Not comparable** with `web · limit 120`" in notes["first"]
    assert "gopher_quality.min_words" not in notes["first"]
    assert all(name in notes["fewer"] for name in ("`web` (", "`web · gopher_quality.min_words 45"))
    describe_experiment(client, experiment)
    said = client.get_experiment(experiment).tags["mlflow.note.content"]
    assert "There are 2 groups" in said
    assert f"- `{comparable(data['first'])}/bits_per_byte`, 2 runs: `web`, `web · gopher_quality" in said
    assert f"- `{comparable(data['fewer'])}/bits_per_byte`, 1 run: `web · limit 120`" in said
    # what a person has written stays
    client.set_experiment_tag(experiment, "mlflow.note.content", "mine")
    describe_experiment(client, experiment)
    assert client.get_experiment(experiment).tags["mlflow.note.content"] == "mine"


def test_the_command_has_no_password_and_the_commit_is_that_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/opt/bin/gristmill", "run", "https://user:secret@host.example/a b.yaml?sig=x"])
    monkeypatch.chdir(tmp_path)
    tags = provenance()
    assert tags["mlflow.source.name"].startswith("gristmill run 'https://host.example/a")
    assert "secret" not in str(tags) and "sig" not in str(tags) and "mlflow.source.git.commit" not in tags
    (tmp_path / "a").write_text("1")
    author = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    for command in (["init", "-q"], ["add", "a"], [*author, "commit", "-q", "-m", "a"]):
        subprocess.run(["git", *command], check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert provenance()["mlflow.source.git.commit"] == head and provenance()["uncommitted changes"] == "no"
    (tmp_path / "a").write_text("2")
    assert provenance()["uncommitted changes"] == "yes"


def test_experiments_are_of_model_training_unless_a_person_says_otherwise(tmp_path):
    settings = MachineSettings(home=str(tmp_path))
    experiment = TrackedExperiment(settings, "web")
    client, number = experiment.client, experiment.id()
    assert KIND.items() <= client.get_experiment(number).tags.items()
    client.set_experiment_tag(number, "mlflow.experimentKind", "genai_development")
    assert TrackedExperiment(settings, "web").id() == number
    assert client.get_experiment(number).tags["mlflow.experimentKind"] == "genai_development"
    # one of an earlier release has none
    earlier = client.create_experiment("earlier", artifact_location=f"{tmp_path}/mlflow-artifacts")
    assert TrackedExperiment(settings, "earlier").id() == earlier
    assert KIND.items() <= client.get_experiment(earlier).tags.items()
    client.delete_experiment(earlier)
    assert TrackedExperiment(settings, "earlier").find().lifecycle_stage == "deleted"


def test_the_shared_view_has_the_columns_that_compare_recipes(tmp_path):
    experiment = TrackedExperiment(MachineSettings(home=str(tmp_path)), "web")
    client = experiment.client
    for seed, steps in (("0", "extract, pii"), ("1", "extract, pii"), ("2", "extract")):
        run = experiment.create(f"web {seed}", {})
        for name, value in {"training.seed": seed, "model.dim": "32", "steps": steps}.items():
            client.log_param(run, name, value)
        for name in ("heldout-1a2b3c/bits_per_byte", "heldout-1a2b3c/web/bits_per_byte", "train/tokens", "train/loss",
                     "steps/extract/documents", *(["steps/pii/documents"] * ("pii" in steps)),
                     "resources/training_hours", "evaluation-4d5e6f/books/bits_per_byte"):  # fmt: skip
            client.log_metric(run, name, 1)
    path = shared_view(client, experiment.id())
    number = experiment.id()
    assert path == f"/#/experiments/{number}/runs?viewStateShareKey=gristmill&workflowType=machine_learning"
    view = json.loads(client.get_experiment(number).tags["mlflow.sharedViewState.gristmill"])
    metrics = ("heldout-1a2b3c/bits_per_byte", "evaluation-4d5e6f/books/bits_per_byte", "train/tokens",
               "resources/training_hours", "steps/extract/documents", "steps/pii/documents")  # fmt: skip
    shown = [f"metrics.`{name}`" for name in metrics]
    assert view["selectedColumns"][: len(shown)] == shown == view["columnOrder"][: len(shown)]
    # parameters that differ, and only these
    assert set(view["selectedColumns"][len(shown) :]) == {"params.`training.seed`", "params.`steps`"}
    # stored again in its place, and short where there are many columns
    for count in range(150):
        client.log_metric(run, f"evaluation-{count:06x}/{'w' * 60}/bits_per_byte", 1)
    assert shared_view(client, number) == path
    tags = client.get_experiment(number).tags
    assert len([name for name in tags if name.startswith("mlflow.sharedViewState.")]) == 1
    value = tags["mlflow.sharedViewState.gristmill"]
    assert 3000 < len(value) <= 5000 and json.loads(value)["selectedColumns"][0] == shown[0]


def test_an_experiment_without_runs_has_an_empty_view(tmp_path):
    experiment = TrackedExperiment(MachineSettings(home=str(tmp_path)), "web")
    number = experiment.id()
    shared_view(experiment.client, number)
    tags = experiment.client.get_experiment(number).tags
    assert json.loads(tags["mlflow.sharedViewState.gristmill"])["selectedColumns"] == []
