"""Trainings that begin with a checkpoint of another model: a longer run of a recipe, and branches of a trunk."""

import copy
import json
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from gristmill.flows.cli.results import mixture_line, training_lines
from gristmill.flows.curation import curate
from gristmill.flows.machine.runs import RunRecorder
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.recipe import load
from gristmill.flows.recipe.trunk import trained_tokens
from gristmill.flows.reports.run import MixedSource
from gristmill.flows.stages import starts
from gristmill.flows.stages.heldout import Data
from gristmill.flows.stages.mixture import training_data
from gristmill.flows.stages.model import ModelPlaces, model_spec
from gristmill.storage import checked_json
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.engine.make import StageResult, find
from gristmill.training.config import RunConfig
from gristmill.training.run import launch
from gristmill.training.run.loop import train
from tests.corpora import context
from tests.planted.text import pydoc_paragraphs

pytestmark = pytest.mark.extended

TRAINING = {
    "steps": 24,
    "batch": 4,
    "micro_batch": 2,
    "warmup_steps": 2,
    "schedule": "wsd",
    "decay_ratio": 0.25,
    "eval_every": 12,
    "checkpoint_every": 10,
    "eval_tokens": 1024,
    "sample_tokens": 4,
}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> dict:
    folder, draw = tmp_path_factory.mktemp("sources"), random.Random(5)
    prose = pydoc_paragraphs()
    for name in ("web", "books"):
        rows = [{"text": " ".join(draw.sample(prose[:600], 2))} for _ in range(120)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "name": "trunk",
        "sources": [{"name": name, "jsonl": [f"{folder}/{name}.jsonl"]} for name in ("web", "books")],
        "steps": [],
        "tokenizer": {"vocab_size": 400, "sample_bytes": 40_000},
        "mixture": {"weights": {"web": 0.7, "books": 0.3}, "heldout_fraction": 0.1},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 32},
        "training": TRAINING,
    }


def changed(recipe: dict, name: str = "trunk", **sections) -> dict:
    given = copy.deepcopy(recipe) | {"name": name}
    for section, values in sections.items():
        given[section] |= values
    return given


class Trained:
    """What a run of a recipe makes, in this process and without MLflow."""

    def __init__(self, given: dict, home: Path) -> None:
        self.recipe, self.settings = load(given), MachineSettings(home=str(home))
        self.run = context(str(home))
        *_, last = curate(self.run, self.recipe)
        self.data: Data = training_data(self.run, self.recipe, last.left)
        self.spec = model_spec(self.settings, self.recipe, self.data)
        self.begins = starts.Beginning()

    def make(self) -> StageResult:
        self.begins = starts.beginning(self.settings, self.recipe, self.data, self.spec)
        folder = self.spec.folder(self.settings.home)
        places = ModelPlaces(
            mixture=f"{self.data.mixture.folder}/mixture.json", out=folder, folder=folder, processes=1,
            nodes=launch.ALONE, tracking_uri="", run_id="none", init_from="", init_digests={}, eval_tasks="",
            max_rollbacks=3, parallel={}, restarts=0, limits=launch.DEFAULT_LIMITS, start=self.begins.start,
            lines=self.begins.lines, note=self.begins.note,
        )  # fmt: skip
        stage = self.run.build(model_spec(self.settings, self.recipe, self.data, lambda: places))
        recorder = RunRecorder(self.settings.home, self.recipe.name, None, "run", self.recipe.model_dump(mode="json"))
        recorder.add(stage.label)
        recorder.finished()
        return stage


def train_here(run_json: Path, *_: object, **__: object) -> int:
    """In place of `launch`: torch is imported already, which takes seconds."""
    train(RunConfig.model_validate(checked_json.read(str(run_json))).model_copy(update={"tracking": None}))
    return 0


@pytest.fixture(scope="module", autouse=True)
def _in_this_process():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "launch", train_here)
        yield


@pytest.fixture(scope="module")
def home(recipe, tmp_path_factory):
    """A home with the finished trunk."""
    home = tmp_path_factory.mktemp("home")
    trunk = Trained(recipe, home)
    stage = trunk.make()
    assert trunk.begins == starts.Beginning()
    assert "trunk" not in stage.manifest["record"]
    return home, stage


def weights(stage: StageResult) -> dict[str, torch.Tensor]:
    return load_file(f"{stage.folder}/model.safetensors")


def summary(trained: Trained, stage: StageResult) -> list[str]:
    """What is printed at the end of a run, of its mixture and its model."""
    sources = trained.data.mixture.result["sources"]
    mixture = [MixedSource(name, source["share"], source["epochs"]) for name, source in sources.items()]
    report = SimpleNamespace(
        result=stage.result["result"], mixture=mixture, training_losses=[1.0], recipe=trained.recipe, data=trained.data
    )
    return [mixture_line(report), *training_lines(report)]


def assert_same(one: StageResult, other: StageResult) -> None:
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_more_steps_go_on_from_the_peak_as_if_from_scratch(home, recipe, tmp_path):
    folder, trunk = home
    longer = changed(recipe, training={"steps": 36})
    continued, scratch = Trained(longer, folder), Trained(longer, tmp_path)
    one, other = continued.make(), scratch.make()
    assert continued.begins.start.get("step") == 18, continued.begins
    assert "only 18 of 36 are trained" in continued.begins.note
    assert not scratch.begins.note
    assert one.label == other.label and one.contents == other.contents
    assert_same(one, other)
    assert Path(one.folder, "metrics.jsonl").read_bytes() == Path(other.folder, "metrics.jsonl").read_bytes()
    assert (Path(trunk.folder) / "checkpoints" / "step-00000018" / "COMMIT").exists()


def test_what_has_changed_is_said_and_not_continued(home, recipe):
    folder, trunk = home
    linear = Trained(changed(recipe, training={"steps": 40, "schedule": "linear"}), folder)
    found = starts.beginning(linear.settings, linear.recipe, linear.data, linear.spec)
    assert not found.start and "is a finished model of" in found.note
    assert "training.init_from: model-" in found.note and "the schedule linear has another learning rate" in found.note
    other = Trained(changed(recipe, training={"steps": 36, "learning_rate": 0.001}), folder)
    assert starts.beginning(other.settings, other.recipe, other.data, other.spec) == starts.Beginning()
    mixed = Trained(changed(recipe, training={"steps": 48}, mixture={"weights": {"web": 0.6, "books": 0.4}}), folder)
    found = starts.beginning(mixed.settings, mixed.recipe, mixed.data, mixed.spec)
    assert not found.start and "its mixture or its held-out texts are not those of this training" in found.note


def test_a_branch_without_changes_is_its_trunk(home, recipe):
    folder, trunk = home
    point = f"{trunk.label}@step-10"
    branch = Trained(changed(recipe, "same", training={"init_from": point}), folder)
    assert branch.data.mixture.label == trunk.manifest["read"]["mixture"]
    stage = branch.make()
    assert branch.begins.note == f"branching from step 10 of {trunk.label}, with its data from there on"
    assert stage.manifest["record"]["trunk"] == {"key": trunk.key, "step": 10, "samples": 40}
    assert stage.label != trunk.label
    assert_same(stage, trunk)
    lines = [json.loads(line) for line in Path(stage.folder, "metrics.jsonl").read_text().splitlines()]
    assert lines == [json.loads(line) for line in Path(trunk.folder, "metrics.jsonl").read_text().splitlines()][10:]


def test_a_branch_with_another_mixture_reads_it_from_its_beginning(home, recipe):
    folder, trunk = home
    given = changed(
        recipe,
        "anneal",
        training={"init_from": f"{trunk.label}@step-18", "steps": 30, "schedule": "linear", "keep_every": 20},
        mixture={"weights": {"web": 0.1, "books": 0.9}},
        tokenizer={"vocab_size": 350},
    )
    branch = Trained(given, folder)
    assert branch.data.tokenizer.label == f"tokenizer-{branch.data.tokenizer.key}"
    mixture = Path(trunk.folder).parent / trunk.manifest["read"]["mixture"]
    manifest = json.loads((mixture / "manifest.json").read_text())
    assert branch.data.tokenizer.label == manifest["read"]["tokenizer"]  # not one of 350 pieces
    assert branch.data.tokens.label == manifest["read"]["tokens"]
    plan = load_training_manifest(Path(branch.data.mixture.folder) / "mixture.json")
    budget = sum(source.epochs * source.tokens for source in plan.sources)
    assert round(budget) == 12 * 4 * 32 == trained_tokens(branch.settings, branch.recipe)
    stage = branch.make()
    assert branch.begins.note.endswith("with another mixture from its beginning")
    assert branch.begins.start["offset"] == 18 * 4 and stage.manifest["record"]["trunk"]["samples"] == 0
    assert stage.result["result"]["steps"] == 30 and stage.result["result"]["tokens"] == 30 * 4 * 32
    mixed, _, begun, *_ = summary(branch, stage)
    assert mixed.startswith("mixture after the trunk: ")
    assert begun == (
        f"branch: steps and tokens include the 18 steps of the trunk, {trunk.label[:14]}; this recipe trained 12 steps "
        "on 1,536 tokens"
    )
    # a branch of a branch reads on where that stopped in its mixture
    deeper = Trained(changed(given, "deeper", training={"init_from": f"{stage.label}@step-20"}), folder)
    assert deeper.data.branch is not None and deeper.data.branch.samples == 2 * 4
    assert deeper.data.mixture.label == branch.data.mixture.label
    assert summary(deeper, stage)[0].startswith("mixture, with 8 samples that the trunk read: ")
    assert_same(deeper.make(), stage)


def test_a_finished_branch_is_found_without_the_checkpoint(home, recipe, tmp_path):
    folder, trunk = home
    branch = Trained(changed(recipe, "found", training={"init_from": f"{trunk.label}@step-24", "steps": 28}), folder)
    stage, kept = branch.make(), Path(trunk.folder) / "checkpoints" / "step-00000024"
    kept.rename(tmp_path / "away")
    try:
        again = Trained(changed(recipe, "found", training={"init_from": f"{trunk.label}@step-24", "steps": 28}), folder)
        assert find(str(folder), again.spec) is not None and again.spec.key == stage.key
        with pytest.raises(ValueError, match="has no checkpoint of step 24; name one that it has: .*@step-10, "):
            starts.beginning(again.settings, again.recipe, again.data, again.spec)
    finally:
        (tmp_path / "away").rename(kept)


def test_check_says_why_a_branch_cannot_begin(home, recipe, tmp_path):
    folder, trunk = home
    settings = MachineSettings(home=str(folder))

    def problem(point: str, name: str = "branch", **sections) -> str:
        training = {"init_from": point, **sections.pop("training", {})}
        return "; ".join(map(str, check(changed(recipe, name, training=training, **sections), settings).findings))

    assert problem(f"{trunk.label}@step-10") == problem("trunk@last", training={"steps": 50}) == ""
    assert problem(f"{trunk.label}@last", training={"steps": 30}) == ""
    assert f"name one that it has: {trunk.label}@step-10" in problem(f"{trunk.label}@step-11")
    assert "is not before the last of training.steps 24" in problem(f"{trunk.label}@last")
    assert "model.dim is 64, but the trunk has 32" in problem(f"{trunk.label}@step-10", model={"dim": 64})
    assert problem(f"{trunk.label}@step-10", model={"seq_len": 64}) == ""
    assert "training.optimizer" in problem(f"{trunk.label}@step-10", training={"optimizer": "adamw"})
    assert "is the name of this recipe, too" in problem("trunk@step-10", "trunk")
    assert "has no training in" in problem("nobody@step-10")
    assert "which has model-" in problem("model-00000000@step-10")
    path = tmp_path / "trunk.json.yaml"
    path.write_text(json.dumps(recipe))
    assert problem(f"{path}@step-10") == ""
    path.write_text(json.dumps(changed(recipe, training={"steps": 999})))
    assert "has no training in" in problem(f"{path}@step-10")
    assert "does not exist" in problem(f"{tmp_path}/none.yaml@step-10")
