"""The whole pipeline as a user runs it: real Dask workers, a real Prefect server, a real MLflow database."""

import copy
import csv
import re
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import mlflow
import pytest
from lxml import html
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.dropped import dropped
from gristmill.flows.reports.finished import verify_stages
from gristmill.flows.reports.mixture_plan import plan_mixture
from gristmill.flows.reports.status import show, status
from gristmill.flows.run.model_run import KEY_TAG
from gristmill.flows.run.tracking import move_artifacts
from gristmill.storage import files, layout, parquet
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.config import TrainingConfig
from gristmill.training.evaluate.sample import sample_text
from gristmill.training.hub.weights import load_model
from gristmill.training.run.tracking import TrackedNames

CORPUS = ["documents", "rules", "signatures", "candidates", "near_duplicates", "edited", "rules"]
SCORED = [
    *("perplexity_model", "perplexity", "perplexity_bucket", "perplexity_cut"),
    *("quality_model", "quality", "quality_cut"),
]
ALL = [
    *CORPUS,
    *SCORED,
    *("group_losses", "heldout", "heldout_documents", "tokenizer", "tokens", "evaluation_tokens", "mixture", "model"),
]


def names(keyed) -> list[str]:
    return sorted(name.rsplit("-", 1)[0] for name in keyed)


def metric_names(folder: Path) -> TrackedNames:
    """What MLflow calls the metrics of a model."""
    data = files.read_json(str(folder / "run.json"))["data"]
    return TrackedNames.of(load_training_manifest(Path(data)), TrainingConfig())


def steps(runs, home: str) -> dict[str, dict]:
    """Counts of each step over all shards, straight from the manifests."""
    totals: dict[str, dict] = {}
    for folder in runs.stages(home).values():
        for step in files.read_json(str(folder / "manifest.json"))["counts"]["steps"]:
            if "edits" not in step:
                total = totals.setdefault(step["step"], {"in": 0, "out": 0, "drops": Counter()})
                total["in"] += step["rows_in"]
                total["out"] += step["rows_out"]
                total["drops"].update(step["drops"])
    return totals


def test_all_stages_are_finished(undisturbed):
    assert names(undisturbed.stages("undisturbed")) == sorted(ALL)


def test_the_funnel_holds_what_was_planted(undisturbed, crawl, recipe):
    funnel = steps(undisturbed, "undisturbed")
    order = [step["step"] for step in recipe["steps"]]
    for before, after in zip(order, order[1:], strict=False):
        assert funnel[before]["out"] == funnel[after]["in"]
    planted = crawl.planted
    assert funnel["extract"]["in"] == sum(planted.values()) + 40
    assert funnel["extract"]["drops"] == {
        "http_status": planted["gone"],
        "content_type": planted["image"],
        "empty_text": planted["empty"],
    }
    assert funnel["minhash"]["drops"]["near_duplicate"] == planted["near"]
    assert 0 < funnel["perplexity"]["drops"]["max_percentile"] <= 0.12 * funnel["perplexity"]["in"]


def test_planted_pages_are_dropped_for_what_is_wrong_with_them(undisturbed, crawl):
    made = undisturbed.stages("undisturbed")
    urls: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for name, folder in made.items():
        if name.startswith("documents"):
            tables = [parquet.read_table(str(part), ["id", "url"]) for part in folder.glob("part-*.parquet")]
            urls = {row["id"]: row["url"] for table in tables for row in table.to_pylist()}
        if name.startswith("heldout"):
            continue
        for part in folder.glob("ledger/*.parquet"):
            reasons |= {row["id"]: row["step"] for row in parquet.read_table(str(part)).to_pylist()}
    by_kind: dict[str, Counter] = {}
    for key, url in urls.items():
        by_kind.setdefault(url.split("/")[2].split(".")[0], Counter())[reasons.get(key, "kept")] += 1
    assert by_kind["french"] == {"language": crawl.planted["french"]}
    for kind in ("short", "symbols"):
        assert by_kind[kind]["language"] + by_kind[kind]["textbook"] == crawl.planted[kind]
    assert by_kind["near"]["minhash"] + by_kind["prose"]["minhash"] == crawl.planted["near"]
    assert by_kind["good"] == {"kept": 40}
    assert by_kind["prose"]["kept"] > 100


def test_duplicates_name_the_document_that_stays(undisturbed):
    [folder] = [f for name, f in undisturbed.stages("undisturbed").items() if name.startswith("near_duplicates")]
    parts = range(len(list(folder.glob("part-*.parquet"))))
    kept = {i for part in parts for i in parquet.read_table(layout.part(str(folder), part))["id"].to_pylist()}
    drops = [r for part in parts for r in parquet.read_table(layout.ledger_part(str(folder), part)).to_pylist()]
    assert drops
    for drop in drops:
        assert drop["representative"] in kept
        assert drop["value"] >= drop["threshold"] == 0.8


@pytest.fixture(scope="module")
def changed(recipe) -> dict:
    changed = copy.deepcopy(recipe)
    next(step for step in changed["steps"] if step["step"] == "minhash")["threshold"] = 0.95
    return changed


@pytest.fixture(scope="module")
def again(undisturbed, recipe, changed) -> list[str]:
    """The logs of three further runs: the same, another threshold, another name. In a copy of the home, for what is
    made here must not be there for other tests."""
    shutil.copytree(undisturbed.home("undisturbed"), undisturbed.home("again"), dirs_exist_ok=True)
    renamed = recipe | {"name": "renamed"}
    flows = [("pipeline", recipe), ("corpus", changed), ("pipeline", renamed)]
    undisturbed.run("again", *flows, executor="threads")
    return undisturbed.log("again").split("=== ")[1:]


@pytest.mark.extended
def test_again_everything_is_reused(again):
    log, _, _ = again
    assert log.count(": reused ") == len(ALL) and log.count(": made ") == 0


@pytest.mark.extended
def test_another_threshold_costs_only_what_lies_behind_it(undisturbed, again):
    _, log, _ = again
    # the same documents are dropped, so that what reads the texts and the selection behind these is not made again
    made = ["near_duplicates", "edited", "rules", "group_losses"]
    assert names(set(undisturbed.stages("again")) - set(undisturbed.stages("undisturbed"))) == sorted(made)
    assert log.count(": made ") == len(made) and log.count(": reused ") == len([*CORPUS, *SCORED]) - 3


def test_prefect_has_every_run_and_its_logs(undisturbed):
    database = sqlite3.connect(undisturbed.home("undisturbed") / "prefect" / "prefect.db")
    [run] = database.execute("select id from flow_run where name = 'pipeline-small' order by created").fetchone()
    flows = database.execute(
        "select f.id, f.name, f.state_type from flow_run f join task_run t on f.parent_task_run_id = t.id "
        "where t.flow_run_id = ?",
        (run,),
    ).fetchall()
    assert sorted(name for _, name, _ in flows) == ["corpus-small", "pretrain-small", "tokens-small"]
    recorded = [
        row
        for flow, _, _ in flows
        for row in database.execute("select name, state_type from task_run where flow_run_id = ?", (flow,))
    ]
    first = {"documents": "-language", "edited": "-pii"}
    named = [f"small-{name}{first.get(name, '')}" for name in ALL if name != "rules"]
    assert names(name for name, _ in recorded) == sorted([*named, "small-rules-language", "small-rules-pii"])
    assert {state for _, state in recorded} == {"COMPLETED"}
    artifacts = {key for (key,) in database.execute("select key from artifact")}
    assert {f"{name.replace('_', '-')}" for name in (*named, "small-rules-language", "small-rules-pii")} <= artifacts
    assert {"small-funnel", "small-training", "progress-small-documents-language"} <= artifacts
    logged = [message for (message,) in database.execute("select message from log")]
    assert any(message.startswith("documents: read, extract and measure every shard") for message in logged)
    assert any(message.startswith("step 12/12") for message in logged)


def test_mlflow_knows_the_run_its_params_and_its_data(undisturbed, recipe):
    home = undisturbed.home("undisturbed")
    client = mlflow.MlflowClient(f"sqlite:///{home}/mlflow.db")
    experiment = client.get_experiment_by_name("small")
    [run] = client.search_runs([experiment.experiment_id])
    keys = {name.rsplit("-", 1)[0]: name.rsplit("-", 1)[1] for name in undisturbed.stages("undisturbed")}
    assert run.info.status == "FINISHED"
    assert run.data.tags[KEY_TAG] == keys["model"]
    assert run.data.params["steps"] == ", ".join(step["step"] for step in recipe["steps"])
    assert run.data.params["training.steps"] == "12" and len(run.data.params) < 20
    digests = {d.dataset.name: d.dataset.digest for d in run.inputs.dataset_inputs}
    for name in ("documents", "tokens", "mixture"):
        assert f"{name}-{digests[name]}" in undisturbed.stages("undisturbed")
    [folder] = [f for name, f in undisturbed.stages("undisturbed").items() if name.startswith("model-")]
    result = files.read_json(str(folder / "result.json"))
    shown = metric_names(folder)
    for name in ("loss", "bits_per_byte", "web/bits_per_byte"):
        metric = shown(f"heldout/{name}")
        assert metric.startswith("heldout-") and run.data.metrics[metric] == pytest.approx(result[f"heldout/{name}"])
    assert len(client.get_metric_history(run.info.run_id, shown("train/loss"))) == 12
    survivors = undisturbed.stages("undisturbed")[f"near_duplicates-{digests['near_duplicates']}"]
    assert run.data.metrics["steps/minhash/documents"] == sum(
        parquet.rows(str(p)) for p in survivors.glob("part-*.parquet")
    )


def test_mlflow_shows_the_run_and_has_a_model_that_writes(undisturbed, recipe, tmp_path, monkeypatch):
    """From a home that was moved, too."""
    home = undisturbed.home("undisturbed").resolve()
    shutil.copy(home / "mlflow.db", tmp_path / "mlflow.db")
    shutil.copytree(home / "mlflow-artifacts", tmp_path / "mlflow-artifacts")
    move_artifacts(tmp_path / "mlflow.db", f"{home}/mlflow-artifacts", f"{tmp_path}/mlflow-artifacts")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    [run] = client.search_runs([client.get_experiment_by_name("small").experiment_id])
    assert run.info.run_name == "small"  # the first of its experiment: nothing differs
    assert run.info.artifact_uri.startswith(str(tmp_path))
    shown = Path(client.download_artifacts(run.info.run_id, ""))
    assert load(shown / "recipe.yaml") == load(recipe)
    funnel = {row["step"]: row for row in csv.DictReader((shown / "funnel.csv").open())}
    made = [f"{one.dataset.name}-{one.dataset.digest}" for one in run.inputs.dataset_inputs]
    manifests = [files.read_json(str(undisturbed.stages("undisturbed")[name] / "manifest.json")) for name in made]
    counted = [step for manifest in manifests for step in manifest["counts"]["steps"] if "edits" not in step]
    assert len(counted) == len(recipe["steps"]) + 1  # and that of the held-out documents
    for step in counted:
        row = funnel[step["step"]]
        assert (int(row["documents_in"]), int(row["documents_out"])) == (step["rows_in"], step["rows_out"])
    table = files.read_json(str(shown / "funnel.json"))
    assert [row[table["columns"].index("step")] for row in table["data"]] == list(funnel)
    for plot in ("funnel.svg", "losses.svg", "classifier.svg"):
        assert (shown / plot).read_bytes().startswith(b"<svg ")
    learned = [f for name, f in undisturbed.stages("undisturbed").items() if name.startswith("quality_model-")]
    measured = [files.read_json(str(f / "manifest.json"))["result"]["model"] for f in learned]
    # the run with another threshold has trained one of its own
    assert files.read_json(str(shown / "classifier.json")) in measured
    [folder] = [f for name, f in undisturbed.stages("undisturbed").items() if name.startswith("model-")]
    result = files.read_json(str(folder / "result.json"))
    assert (shown / "sample.txt").read_text() == result["sample"]
    note = run.data.tags["mlflow.note.content"]
    assert f"{result['heldout/bits_per_byte']:.4f} bits/byte" in note and "| minhash |" in note
    shown = metric_names(folder)
    assert min(run.data.metrics) == shown("heldout/bits_per_byte")
    said = client.get_experiment(run.info.experiment_id).tags["mlflow.note.content"]
    assert shown("heldout/bits_per_byte") in note and shown("heldout/bits_per_byte") in said

    [output] = run.outputs.model_outputs
    measured = {metric.key: metric.value for metric in client.get_logged_model(output.model_id).metrics}
    kinds = ("heldout/", "survivors/", "unigram/")
    assert measured == {shown(name): value for name, value in result.items() if name.startswith(kinds)}
    assert len(client.get_metric_history(run.info.run_id, shown("heldout/loss"))) == 2
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    model = mlflow.pyfunc.load_model(f"models:/{output.model_id}")
    version = mlflow.register_model(f"models:/{output.model_id}", "small")
    assert version.source == f"models:/{output.model_id}"
    tokenizer = next(f for name, f in undisturbed.stages("undisturbed").items() if name.startswith("tokenizer-"))
    given = {"max_tokens": 12, "temperature": 0.7, "top_k": 20, "seed": 5}
    wanted = sample_text(
        load_model(folder), tokenizer / "tokenizer.model", 12, prompt="The ", temperature=0.7, top_k=20, seed=5
    )
    assert model.predict(["The "], params=given) == [wanted]
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".pkl", ".pickle")]


def test_the_report_page_has_the_figures_of_the_run(undisturbed, runs, recipe):
    """Written by the command, which starts neither Prefect nor MLflow nor torch."""
    shutil.copytree(undisturbed.home("undisturbed") / "stages", runs.home("report") / "stages")
    program = (
        "import sys; from gristmill.flows.cli import app; app(sys.argv[1:], standalone_mode=False);"
        "print([name for name in ('prefect', 'mlflow', 'torch', 'distributed') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program, "report", str(runs.write(recipe))]
    environment = runs.environment("report")
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    path, loaded, _ = finished.stdout.split("\n")
    assert loaded == "[]"
    [folder] = [f for name, f in undisturbed.stages("undisturbed").items() if name.startswith("model-")]
    assert Path(path) == runs.home("report") / "reports" / f"small-{folder.name.removeprefix('model-')}.html"
    page = Path(path).read_text()
    assert len(page) < 5_000_000
    shown = "".join(html.fromstring(page).itertext())
    result = files.read_json(str(folder / "result.json"))
    assert f"{result['heldout/bits_per_byte']:.4f}" in shown and f"{result['parameters']:,} parameters" in shown
    pictures = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"}
    assert " ".join(result["sample"].translate(pictures).split()) in " ".join(shown.split())
    [signals] = re.findall(r"<h2>Signals.*?<h2>", page, re.DOTALL)
    others = page.replace(signals, "")
    assert signals.count("<svg") > 20
    assert (
        others.count("<svg") - others.count('<svg class="bar"') == 5
    )  # lengths, two of the classifier, clusters, losses


@pytest.mark.extended
def test_the_same_model_under_another_name_is_tracked_there_too(undisturbed, again):
    """What is reused is recorded from the model's own files, point by point."""
    client = mlflow.MlflowClient(f"sqlite:///{undisturbed.home('again')}/mlflow.db")
    [run], [twin] = (client.search_runs([client.get_experiment_by_name(n).experiment_id]) for n in ("small", "renamed"))
    assert twin.info.status == "FINISHED"
    assert twin.data.metrics == run.data.metrics
    assert twin.data.params == run.data.params and twin.info.run_name == "renamed"
    [heldout] = [name for name in run.data.metrics if name.startswith("heldout-") and "/loss-by-tokenizer-" in name]
    [train] = [name for name in run.data.metrics if name.startswith("train/loss-by-tokenizer-")]
    for metric in (train, heldout):
        histories = [client.get_metric_history(r.info.run_id, metric) for r in (run, twin)]
        assert [(p.step, p.value) for p in histories[0]] == [(p.step, p.value) for p in histories[1]]


def test_a_finished_run_is_verified_and_a_ledger_row_that_is_gone_is_found(undisturbed, runs, recipe):
    shutil.copytree(undisturbed.home("undisturbed") / "stages", runs.home("tampered") / "stages")
    settings = MachineSettings(home=str(runs.home("tampered")))
    sound = list(verify_stages(recipe, settings))
    is_checkpoint = [Path(one.folder).parent.name == "checkpoints" for one in sound]
    assert names(Path(one.folder).name for one, of in zip(sound, is_checkpoint, strict=True) if not of) == sorted(ALL)
    assert any(is_checkpoint) and all(one.files and not one.damages for one in sound)
    folders = [folder for name, folder in runs.stages("tampered").items() if name.startswith("rules")]
    path = next(p for folder in folders for p in sorted(folder.glob("ledger/*.parquet")) if parquet.rows(str(p)))
    parquet.write_table(str(path), parquet.read_table(str(path)).slice(1))
    [damage] = [damage for one in verify_stages(recipe, settings) for damage in one.damages]
    assert (damage.path, damage.trouble) == (str(path), "is not what was written")
    shown = CliRunner().invoke(app, ["home", "verify", "rules"], env={"GRISTMILL_HOME": str(runs.home("tampered"))})
    assert shown.exit_code == 1 and "damaged. Delete the stage's folder" in shown.stdout


def test_status_and_show_give_what_is_there(undisturbed):
    home = str(undisturbed.home("undisturbed"))
    rows = {row.stage: row for row in status(home)}
    assert set(rows) == set(undisturbed.stages("undisturbed")) and {row.state for row in rows.values()} == {"finished"}
    funnel = steps(undisturbed, "undisturbed")
    [documents] = [row for row in rows.values() if row.stage.startswith("documents-")]
    assert (documents.documents_in, documents.documents_out) == (funnel["extract"]["in"], funnel["extract"]["out"])
    assert documents.drops == {f"extract.{rule}": n for rule, n in funnel["extract"]["drops"].items()}
    shown = list(show(home, "rules", 2))
    rules = [name for name in undisturbed.stages("undisturbed") if name.startswith("rules-")]
    assert [len(kept.documents) for kept in shown] == [2] * len(rules)
    assert all("https://" in one.row["url"] and len(one.text) > 400 for kept in shown for one in kept.documents)
    shown = list(show(home, "documents", 3))  # of each recipe's last run
    assert shown and all(len(curated.documents) == 3 for curated in shown)
    assert all("https://" in one.row["url"] for curated in shown for one in curated.documents)
    found = list(dropped(home, "rules", "textbook.characters", 2))
    assert len(found) == 2 and {one.row["rule"] for one in found} == {"characters"}
    assert "A line of" in found[0].text
    with pytest.raises(FileNotFoundError, match="no stage nothing"):
        list(show(home, "nothing", 1))
    with pytest.raises(LookupError, match="rules that dropped some: .*textbook.characters"):
        list(dropped(home, "dropped", "textbook.nothing", 1))


def test_the_plan_of_a_mixture_is_what_training_took(undisturbed, recipe, tmp_path):
    settings = MachineSettings(home=str(undisturbed.home("undisturbed")))
    [folder] = [path for name, path in undisturbed.stages("undisturbed").items() if name.startswith("mixture-")]
    result = layout.manifest(str(folder))["result"]["sources"]
    rows = {row.name: row for row in plan_mixture(recipe, settings=settings, packing=True)}
    for row in rows.values():
        assert row.packing and 0 < row.packing.best_fit_cut <= row.packing.concatenated_cut <= 1
        assert 0 <= row.packing.best_fit_padding < 1
    assert {name: (row.share, row.has, row.epochs) for name, row in rows.items()} == {
        name: (source["share"], source["tokens"], source["epochs"]) for name, source in result.items()
    }
    one, *others = sorted(rows)
    path = tmp_path / "ours.yaml"
    path.write_text(f"weights: {{{one}: 1}}\nmax_epochs: 20")
    [row] = plan_mixture(recipe, str(path), 6 * rows[one].has, settings)
    assert (row.takes, row.epochs, row.share) == (6 * rows[one].has, 6, 1) and "more than 4 epochs" in row.remark
    with pytest.raises(ValueError, match="the mixture names arxiv"):
        plan_mixture(recipe, "redpajama", settings=settings)
