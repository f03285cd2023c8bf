"""A recipe's trained model leaves its home, is scored, and begins the training of another recipe."""

import copy
import json
import shutil

import mlflow
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.experiments.models.evaluation import evaluate, trained_model
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.given_files import init_digests, initial_folder
from gristmill.flows.recipe.recipe import load
from gristmill.storage import files
from gristmill.tasks.engine.make import NotFinishedError
from gristmill.training.hub.weight_files import WEIGHTS
from gristmill.training.hub.weights import open_model


@pytest.fixture(scope="module")
def home(undisturbed, runs):
    """A copy of a finished home with its MLflow database."""
    for name in ("stages", "mlflow.db"):
        source, target = undisturbed.home("undisturbed") / name, runs.home("evaluated") / name
        shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target)
    return runs.home("evaluated")


@pytest.fixture(scope="module")
def given(runs, recipe) -> str:
    return str(runs.write(recipe))


@pytest.fixture
def invoke(home, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", str(home))
    return lambda *arguments: CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def exported(home, given, tmp_path_factory):
    to = tmp_path_factory.mktemp("exported") / "model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRISTMILL_HOME", str(home))
        done = CliRunner().invoke(app, ["export", "model", given, "--to", str(to)], catch_exceptions=False)
    assert done.exit_code == 0 and done.output == f"exported: small in {to}\n"
    return to


def test_a_recipe_and_its_folder_are_one_model(exported, home, given, invoke):
    [folder] = home.glob("stages/model-*")
    files_of_model = {(folder / WEIGHTS).read_bytes(), (exported / WEIGHTS).read_bytes()}
    assert len(files_of_model) == 1
    assert "already exported" in invoke("export", "model", folder, "--to", exported).output
    card = (exported / "README.md").read_text()
    result = json.loads((folder / "result.json").read_text())
    assert f"{result['heldout/bits_per_byte']:.4f}" in card and "- step: minhash" in card and "| reference |" in card


def test_an_unfinished_training_is_named(given, tmp_path):
    with pytest.raises(NotFinishedError, match="not finished: run `gristmill run "):
        trained_model(given, MachineSettings(home=str(tmp_path)))


@pytest.mark.extended
def test_figures_are_written_and_logged(home, given, tmp_path, invoke):
    (tmp_path / "pairs.jsonl").write_text('{"context": "The", "choices": ["function", "zzz"], "answer": 0}\n' * 3)
    (tmp_path / "last.jsonl").write_text('{"context": "The module", "target": "is"}\n' * 2)
    (tmp_path / "rest.jsonl").write_text('{"prompt": "p"}\n')
    found = evaluate(given, tmp_path, MachineSettings(home=str(home)))
    [folder] = home.glob("stages/model-*")
    assert found.path == str(folder / "evaluation.json")
    assert files.read_json(found.path)["tasks"] == found.tasks and found.tasks.keys() == {"pairs", "last"}
    result = json.loads((folder / "result.json").read_text())
    for name, value in found.heldout.items():
        assert value == pytest.approx(result[name], rel=1e-5)
    run = mlflow.MlflowClient(f"sqlite:///{home}/mlflow.db").get_run(found.mlflow_run)
    assert run.data.metrics["tasks/pairs/acc"] == found.tasks["pairs"]["acc"]
    assert run.data.metrics["tasks/last/perplexity"] == pytest.approx(found.tasks["last"]["perplexity"])
    # a checkpoint has its own report, and both are shown as they are
    shown = invoke("train", "evaluate", folder / "checkpoints" / "step-00000006", "--tasks", tmp_path)
    assert shown.exit_code == 0 and "chance" in shown.output and "bits per byte" in shown.output
    assert "not scored: rest.jsonl is not a known task: its fields are prompt" in shown.output
    assert files.read_json(str(folder / "evaluation-step-00000006.json"))["heldout"] != found.heldout


def test_an_exported_folder_has_no_held_out_text(exported, tmp_path, invoke):
    with pytest.raises(ValueError, match="has no held-out text: add tasks with --tasks FOLDER"):
        evaluate(str(exported), None)
    (tmp_path / "pairs.jsonl").write_text('{"context": "The", "choices": ["function", "zzz"], "answer": 0}\n')
    found = json.loads(invoke("train", "evaluate", exported, "--tasks", tmp_path, "--json").stdout)
    assert found["heldout"] == {} and found["tasks"]["pairs"]["examples"] == 1


def test_another_recipe_begins_with_the_weights(exported, recipe, runs, tmp_path):
    """Keys follow the content of the weights, not where they lie; what does not fit is found before the run."""
    on = copy.deepcopy(recipe) | {"name": "on"}
    on["training"]["init_from"] = "{home}/model"
    settings = MachineSettings(home=str(tmp_path))
    shutil.copytree(exported, tmp_path / "model")
    path = runs.write(on)
    assert [str(one) for one in check(str(path), settings).findings] == []
    folder = initial_folder(settings, load(str(path)))
    assert folder == tmp_path / "model"
    assert init_digests(settings, folder) == {WEIGHTS: files.checksum(str(exported / WEIGHTS))}

    on["model"]["layers"] = 2
    [finding] = check(str(runs.write(on)), settings).findings
    assert "training.init_from" in str(finding) and "has 1 for model.layers, but the recipe has 2" in str(finding)
    on["training"]["init_from"] = "s3://crawl/model"
    [finding] = check(str(runs.write(on)), settings).findings
    assert "which is not a local folder" in str(finding)


@pytest.mark.slow
def test_training_goes_on_with_the_tokenizer_of_the_weights(exported, recipe, runs, undisturbed):
    on = copy.deepcopy(recipe) | {"name": "on"}
    on["mixture"]["weights"] = {"web": 1}
    on["training"] |= {"init_from": str(exported), "learning_rate": 1e-9, "weight_decay": 0}
    shutil.copytree(undisturbed.home("undisturbed") / "stages", runs.home("on") / "stages")
    runs.run("on", ("pipeline", on))
    [folder] = [path for path in runs.home("on").glob("stages/model-*") if _begun_from(path)]
    run = open_model(folder)
    assert run.tokenizer.digest == files.checksum(str(exported / "tokenizer.model"))
    before, after = open_model(exported).load(), run.load()
    for (name, one), (_, other) in zip(before.named_parameters(), after.named_parameters(), strict=True):
        assert (one - other).abs().max() < 1e-6, name


def _begun_from(folder) -> bool:
    return json.loads((folder / "run.json").read_text())["training"]["init_from"] is not None


@pytest.fixture(scope="module")
def padded(exported, tmp_path_factory):
    """The exported model as a trainer has it that pads the vocabulary: in bfloat16, without a tokenizer."""
    folder = tmp_path_factory.mktemp("padded") / "hf"
    folder.mkdir()
    described = json.loads((exported / "config.json").read_text())
    described["vocab_size"] += 64
    (folder / "config.json").write_text(json.dumps(described))
    weights = load_file(exported / WEIGHTS)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = torch.cat([weights[name], torch.zeros(64, weights[name].shape[1])])
    save_file({name: tensor.bfloat16() for name, tensor in weights.items()}, folder / WEIGHTS)
    return folder


def test_the_recipes_own_model_comes_back_with_its_own_figures(home, given, exported, invoke, tmp_path):
    [folder] = home.glob("stages/model-*")
    result = json.loads((folder / "result.json").read_text())
    losses = tmp_path / "losses.csv"
    losses.write_text("iteration,lm loss,grad norm,note\n10,3.5,0.25,begins\n20,3.25,,\n")
    arguments = ["train", "import", given, "--losses", losses, "--name", "back", "--trainer", "megatron", "--json"]
    found = json.loads(invoke(*arguments, "--model", exported).stdout)
    assert found["points"] == 2 and not found["there"]
    for name, value in found["heldout"].items():
        assert value == pytest.approx(result[name], rel=1e-6), name
    client = mlflow.MlflowClient(f"sqlite:///{home}/mlflow.db")
    run = client.get_run(found["run"])
    [own] = client.search_runs(
        [run.info.experiment_id], f"tags.`gristmill.key` = '{folder.name.removeprefix('model-')}'"
    )
    shared = {name for name in own.data.metrics if name.startswith(("heldout-", "survivors-"))}
    assert shared and shared <= run.data.metrics.keys()
    assert run.data.tags["comparable with"] == own.data.tags["comparable with"]
    [loss] = [name for name in own.data.metrics if name.startswith("train/loss")]
    assert [(point.step, point.value) for point in client.get_metric_history(found["run"], loss)] == [
        (10, 3.5),
        (20, 3.25),
    ]
    assert [point.step for point in client.get_metric_history(found["run"], "megatron/grad norm")] == [10]
    # all bytes of the held-out sets count once: a document's loss has no text before it, so bits differ a little
    table = pq.read_table(f"{found['folder']}/document_losses.parquet").to_pandas()
    for name, of_set in table[table.set.isin(["web", "reference"])].groupby("set"):
        by_windows = found["heldout"][f"heldout/{name}/bits_per_byte"]
        assert of_set.bits.sum() / of_set.bytes.sum() == pytest.approx(by_windows, rel=0.1)
    again = json.loads(invoke(*arguments, "--model", exported).stdout)
    assert again["there"] and again["run"] == found["run"]
    assert "exported folder, which has no held-out text" in str(_raised(evaluate, found["folder"], None))


def test_a_padded_vocabulary_changes_nothing_and_another_tokenizer_is_refused(
    home, given, padded, exported, invoke, tmp_path
):
    losses = tmp_path / "log.jsonl"
    losses.write_text('{"step": 1, "loss": 4.0}\n\n{"step": 2, "loss": 3.0}\n')
    arguments = ["train", "import", given, "--losses", losses, "--name", "padded", "--trainer", "olmo-core", "--json"]
    found = json.loads(invoke(*arguments, "--model", padded).stdout)
    [folder] = home.glob("stages/model-*")
    result = json.loads((folder / "result.json").read_text())
    # rows of zeros take a part of the probability that is as large as that of 64 tokens without any evidence
    assert 1 <= found["heldout"]["heldout/bits_per_byte"] / result["heldout/bits_per_byte"] < 1.1
    other = tmp_path / "other"
    shutil.copytree(exported, other)
    (other / "tokenizer.model").unlink(missing_ok=True)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["model"]["merges"] = tokenizer["model"]["merges"][: len(tokenizer["model"]["merges"]) // 2]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    before = sorted(home.glob("imported/*"))
    with pytest.raises(ValueError, match="other ids|another tokenizer|ids"):
        invoke(*arguments, "--model", other)
    assert sorted(home.glob("imported/*")) == before


def _raised(call, *arguments) -> Exception:
    with pytest.raises(ValueError) as caught:
        call(*arguments)
    return caught.value


def test_a_name_that_leaves_its_folder_is_refused(given, home, tmp_path, invoke):
    losses = tmp_path / "log.jsonl"
    losses.write_text('{"step": 1, "loss": 4.0}\n')
    for name in ("../out", "a/b", ".hidden", ""):
        with pytest.raises(ValueError, match="^--name"):
            invoke("train", "import", given, "--losses", losses, "--name", name, "--trainer", "other")
    assert not (home / "imported").is_dir() or not list(home.glob("imported/.hidden*"))
