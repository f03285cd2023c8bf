"""A verdict whose inputs were retracted, or have moved, is stale wherever it is shown."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import mlflow
import pytest
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.cli.results import decision_parts
from gristmill.flows.curation import curate
from gristmill.flows.experiments.decisions.report import leaderboard
from gristmill.flows.explore.dependents.affected import affected
from gristmill.flows.machine.runs import released_models
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.dependents.graph import graph_of
from gristmill.flows.reports.dependents.retractions import TAG, Staleness, marked, retractions, stale
from gristmill.flows.run.tracking import PARENT_TAG, TrackedExperiment
from gristmill.storage import checked_json, files
from gristmill.tasks.engine import remakes
from tests.corpora import context
from tests.flows.decisions import report
from tests.flows.dependents.planted import decision, run, stage

REASON = "merged pages by a shared greeting"


def chain(home: str, files: str = "f" * 32, version: int = 1, name: str = "web") -> dict:
    documents = stage(home, "documents", {"files": files}, versions={"extract": version}, says=files + name)
    tokens = stage(home, "tokens", {"documents": documents}, says=files + name)
    return {"documents": documents, "tokens": tokens, "proxy": stage(home, "proxy", {"tokens": tokens}, says=name)}


def invoke(home: str, *words: str) -> str:
    told = CliRunner().invoke(app, ["home", "retract", *words], env={"GRISTMILL_HOME": home}, catch_exceptions=False)
    assert told.exit_code == 0
    return told.stdout


@pytest.fixture
def home(tmp_path) -> str:
    """With a decision on an extraction of version 1, and one on another of version 2."""
    home = str(tmp_path)
    decision(home, "old", chain(home)["proxy"])
    decision(home, "new", chain(home, version=2, name="other")["proxy"])
    return home


def stale_in(home: str) -> dict[str, tuple[str, ...]]:
    return {one.base: one.stale for one in leaderboard(home)}


def page(home: str, base: str) -> str:
    [path] = Path(home, "decisions").glob(f"{base}-*.html")
    return path.read_text()


def test_without_write_nothing_is_changed(home):
    before = sorted(path for path in Path(home).rglob("*") if path.is_file())
    text = invoke(home, "extract@1", "--reason", REASON)
    assert "step extract@1: 3 stages" in text and "nothing was changed. Add --write" in text
    assert sorted(path for path in Path(home).rglob("*") if path.is_file()) == before
    assert stale_in(home) == {"old": (), "new": ()}


def test_a_retraction_makes_verdicts_stale_in_the_list_and_on_the_page_until_it_is_undone(home):
    text = invoke(home, "extract@1", "--reason", REASON, "--write")
    assert "pages of verdicts: 1 changed" in text and "MLflow: 0 runs marked as stale" in text
    [one], gaps = retractions(home)
    assert not gaps and one.reason == REASON and one.when[:2] == "20"
    [sentence] = stale_in(home)["old"]
    assert sentence == f"step extract@1 was retracted on {one.when[:10]}: {REASON}"
    assert stale_in(home)["new"] == ()
    assert sentence in page(home, "old") and "Stale" not in page(home, "new")
    listed = CliRunner().invoke(app, ["decide", "list"], env={"GRISTMILL_HOME": home}).stdout
    assert REASON in listed and "stale" in listed
    # what is made later by the same version is stale, too
    assert stale(home, [chain(home, name="later")["proxy"].key]) == (sentence,)
    with pytest.raises(FileExistsError, match=f"was retracted.*--undo {one.id}"):
        invoke(home, "extract@1", "--reason", "again", "--write")
    assert sentence in invoke(home) and one.id in invoke(home)
    invoke(home, "--undo", one.id)
    assert stale_in(home)["old"]
    invoke(home, "--undo", one.id, "--write")
    assert stale_in(home)["old"] == () and "Stale" not in page(home, "old")
    assert retractions(home) == ([], [])


def test_a_reason_is_needed_and_a_damaged_retraction_is_reported(home):
    with pytest.raises(ValueError, match="needs a reason"):
        invoke(home, "extract@1", "--write")
    files.write_bytes(f"{home}/retractions/damaged.json", b"{}")
    staleness = Staleness(graph_of(home))
    assert len(staleness.gaps) == 1 and "damaged.json" in staleness.gaps[0]
    assert "a retraction cannot be read" in invoke(home)


@pytest.mark.extended
def test_runs_in_mlflow_have_a_tag_as_long_as_they_are_stale(home):
    settings = MachineSettings(home=home)
    paths = Path(home, "decisions").glob("*.json")
    proxies = {path.stem.partition("-")[0]: path.stem.partition("-")[2] for path in paths}
    experiment = TrackedExperiment(settings, "web")
    runs = {}
    for name, key in proxies.items():
        runs[name] = experiment.create(name, {"decision": key})
        child = {"decision": key, PARENT_TAG: runs[name]}
        runs[f"{name} proxy"] = experiment.create(name, child | {"gristmill.proxy": key})
        runs[f"{name} other arm"] = experiment.create(name, child | {"gristmill.proxy": "other"})

    def tags() -> set[str]:
        client = mlflow.MlflowClient(settings.tracking_uri)
        return {name for name, run in runs.items() if TAG in client.get_run(run).data.tags}

    invoke(home, "extract@1", "--reason", REASON, "--write")
    assert tags() == {"old", "old proxy"}
    [one], _ = retractions(home)
    invoke(home, "--undo", one.id, "--write")
    assert tags() == set()


def test_inputs_have_moved_if_a_later_run_reads_other_files(tmp_path):
    home = str(tmp_path)
    before = chain(home)
    run(home, "web", before["documents"], before["tokens"])
    run(home, "web", before["documents"], before["proxy"], flow="ablate")
    decision(home, "web", before["proxy"])
    assert stale_in(home) == {"web": ()}
    # an earlier run on other files, and a later one of another recipe, move nothing
    run(home, "other", chain(home, "a" * 32, name="other")["documents"])
    assert stale_in(home) == {"web": ()}
    later = chain(home, "b" * 32)
    recorder = run(home, "web", later["documents"], later["tokens"])
    _began_later(recorder._path)
    [sentence] = stale_in(home)["web"]
    assert "has moved: the newest run of web" in sentence and later["documents"].label in sentence


def _began_later(path: str) -> None:
    """A run of the future, so that a test need not wait for a second."""
    checked_json.write(path, checked_json.read(path) | {"began": "2999-01-01 00:00:00"})


def test_inputs_have_moved_if_a_stage_was_made_again_with_other_contents(tmp_path):
    home = str(tmp_path)
    before = chain(home)
    decision(home, "web", before["proxy"])
    remakes.begin_again(home, "tokens", before["tokens"].key)
    assert stale_in(home) == {"web": ()}, "it is not finished"
    key = remakes.current(home, "tokens", before["tokens"].key)
    copy = f"{home}/stages/tokens-{key}/manifest.json"
    value = checked_json.read(f"{before['tokens'].folder}/manifest.json")
    checked_json.write(copy, value | {"key": key})
    assert stale_in(home) == {"web": ()}, "it has the same contents"
    checked_json.write(copy, value | {"key": key, "contents": "0" * 32})
    [sentence] = stale_in(home)["web"]
    assert f"{before['tokens'].label} was made again, as tokens-{key}, with other contents" in sentence


@pytest.mark.parametrize("name, key", [("takedowns", "takedowns"), ("site_rights", "hosts")])
def test_inputs_have_moved_if_a_later_run_has_a_newer_list(name, key, tmp_path):
    home = str(tmp_path)
    before = chain(home)
    decision(home, "web", before["proxy"])
    lists = {"checksums": [["gone.txt", "c" * 32]]}
    taken = stage(home, name, {"documents": before["documents"]}, **{key: lists})
    _began_later(run(home, "web", before["documents"], taken)._path)
    [sentence] = stale_in(home)["web"]
    assert sentence.endswith("has 1 list of takedowns or rights that they were made without")
    after = stage(home, "proxy", {"kept": taken}, says="after")
    decision(home, "web", after)
    assert sorted(map(len, (one.stale for one in leaderboard(home)))) == [0, 1]


@pytest.mark.extended
@pytest.mark.parametrize("name, key", [("takedowns", "takedowns"), ("site_rights", "hosts")])
def test_a_model_older_than_a_list_is_stale_in_mlflow_and_where_it_is_shown(name, key, tmp_path):
    """Its run is released by the run with the list, which the model's folder says."""
    home, before = str(tmp_path), chain(str(tmp_path))
    settings = MachineSettings(home=home)
    mixture = stage(home, "mixture", {"tokens": before["tokens"]})
    model = stage(home, "model", {"mixture": mixture})
    other = stage(home, "model", {"mixture": mixture}, says="of another recipe")
    run(home, "web", before["documents"], before["tokens"], mixture, model, flow="pipeline")
    run(home, "books", before["documents"], before["tokens"], mixture, other, flow="pipeline")
    experiment = TrackedExperiment(settings, "web")
    tracked = {one.key: experiment.create("model", {"gristmill.key": one.key}) for one in (model, other)}

    def tags() -> dict[str, str]:
        client = mlflow.MlflowClient(settings.tracking_uri)
        found = {key: client.get_run(each).data.tags.get(TAG, "") for key, each in tracked.items()}
        return {key: value for key, value in found.items() if value}

    invoke(home, "--write")
    assert tags() == {}
    taken = stage(home, name, {"documents": before["documents"]}, **{key: {"checksums": [["gone.txt", "c" * 32]]}})
    _began_later(run(home, "web", before["documents"], taken)._path)
    assert released_models(home) == {model.label}
    invoke(home, "--write")
    [(marked_key, sentence)] = tags().items()
    assert marked_key == model.key and sentence.endswith(
        "has 1 list of takedowns or rights that they were made without"
    )
    stale_models = {
        one.stage: one.stale for one in affected(settings, before["documents"].label).trainings if one.stale
    }
    assert stale_models == {model.label: (sentence,)}
    tokens = stage(home, "tokens", {"documents": taken}, says="after")
    newer = stage(home, "model", {"mixture": stage(home, "mixture", {"tokens": tokens}, says="after")}, says="after")
    assert Staleness(graph_of(home)).of_model(newer.label) == ()


@pytest.mark.extended
def test_a_flow_and_a_run_that_makes_nothing_mark_what_is_stale_since(tmp_path):
    """The flow is called as a deployment of Prefect calls it, without the command."""
    home, crawl, path = str(tmp_path / "home"), tmp_path / "web.jsonl", tmp_path / "recipe.yaml"
    given = {"name": "web", "sources": [{"name": "web", "jsonl": [str(crawl)]}], "steps": [{"step": "extract"}]}
    path.write_text(json.dumps(given))
    crawl.write_text('{"text": "what the decision read"}\n')
    *_, last = curate(context(home), load(given))
    proxy = stage(home, "proxy", {"documents": last.left.documents})
    verdict = decision(home, "web", proxy)
    other = decision(home, "other", stage(home, "proxy", {}, says="other"))
    os.utime(verdict, (0, 0))
    experiment = TrackedExperiment(MachineSettings(home=home), "web")
    keys = [path.rpartition("-")[2].removesuffix(".json") for path in (verdict, other)]
    runs = [experiment.create("decision", {"decision": key}) for key in keys]

    def tags() -> list[str]:
        return [experiment.client.get_run(run).data.tags.get(TAG, "") for run in runs]

    def corpus() -> str:
        command = [sys.executable, "-c", f"import gristmill; gristmill.corpus({str(path)!r})"]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "GRISTMILL_HOME": home})
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert "stale" not in corpus() and tags() == ["", ""]
    crawl.write_text('{"text": "what came later"}\n')
    assert "stale now: 1 pages of verdicts, 1 runs in MLflow" in corpus()
    [sentence, nothing] = tags()
    assert "has moved: the newest run of web" in sentence and not nothing
    assert "has moved: the newest run of web" in page(home, "web") and "Stale" not in page(home, "other")
    experiment.client.delete_tag(runs[0], TAG)
    told = CliRunner().invoke(app, ["corpus", str(path)], env={"GRISTMILL_HOME": home}, catch_exceptions=False)
    assert told.exit_code == 0 and "0 pages of verdicts, 1 runs in MLflow" in told.output and tags() == [sentence, ""]


def test_a_report_prints_first_that_it_is_stale_and_a_page_has_one_note():
    decided = replace(report({"without minhash": 0.1}), stale=("<b> was retracted",))
    assert next(iter(decision_parts(decided, MachineSettings(home="/nowhere")))) == "stale: <b> was retracted"
    once = marked("<h1>A</h1><p>b</p>", ["<b>", "c"])
    assert once == marked(once, ["<b>", "c"]) and "&lt;b&gt;" in once and "<b>" not in once
    assert marked(once, []) == "<h1>A</h1><p>b</p>" and marked("no heading", ["c"]) == "no heading"
