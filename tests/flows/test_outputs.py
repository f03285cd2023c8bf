"""What a run makes is listed in one place; a run that has nothing to make does without Prefect."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import yaml
from typer.testing import CliRunner

import gristmill
from gristmill.flows.cli.app import app
from gristmill.flows.curation import Outputs
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.runs import RunRecorder, is_finished, runs_of
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.recipe.variants import changed
from gristmill.flows.reports.finished import verify_stages
from gristmill.flows.reports.recorded import open_run, would_make
from gristmill.flows.run.reuse import reuse
from gristmill.storage import layout
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.spec import StageSpec
from tests.corpora import build_in
from tests.planted.text import prose

pytestmark = pytest.mark.extended

HEAVY = ("prefect", "distributed", "dask", "mlflow", "torch")
COMMAND = f"""
import sys
from gristmill.flows.cli import main
sys.argv[0] = "gristmill"
try:
    main()
finally:
    print("MODULES", *(name for name in {HEAVY} if name in sys.modules), file=sys.stderr)
"""


def noting(build: Callable[[StageSpec], StageResult], labels: list[str]) -> Callable[[StageSpec], StageResult]:
    """The function, whose stages are noted."""

    def one(spec: StageSpec) -> StageResult:
        stage = build(spec)
        if stage.label not in labels:
            labels.append(stage.label)
        return stage

    return one


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, list[str]]:
    """A folder with a recipe and with a home where its flow `tokens` is finished, and the stages that it built."""
    folder, rng = tmp_path_factory.mktemp("made"), Random(5)
    (folder / "crawl").mkdir()
    for shard in range(2):
        texts = ["\n\n".join(prose(rng, "en", 220)) for _ in range(40)]
        rows = [{"text": text, "url": f"https://a.example/{shard}/{i}"} for i, text in enumerate(texts)]
        (folder / f"crawl/{shard}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "gone.txt").write_text("https://a.example/0/3\n")
    recipe = {
        "name": "listed",
        "sources": [{"name": "web", "jsonl": ["crawl/*.jsonl"], "url_column": "url"}],
        "steps": [{"step": "extract"}, {"step": "gopher_quality"}, {"step": "minhash"}],
        "takedowns": ["gone.txt"],
        "group_losses": {"then": "stop"},
        "word_index": True,
        "index": True,
        "mixture": {"weights": {"web": 1}},
        "tokenizer": {"vocab_size": 400, "sample_bytes": 60_000},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 64},
        "training": {"steps": 4, "batch": 4, "micro_batch": 2, "warmup_steps": 2},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    settings, labels = MachineSettings(home=str(folder / "home")), list[str]()
    loaded = load(str(folder / "recipe.yaml"))
    recorder = RunRecorder(settings.home, loaded.name, None, "tokens", loaded.model_dump(mode="json"))
    build = noting(build_in(settings.home), labels)
    Outputs(RunContext(settings, build, outside=recorder.outside), loaded).make("tokens")
    recorder.add(*labels)
    recorder.finished()
    return folder, labels


@pytest.fixture
def finished(made, tmp_path) -> tuple[Path, MachineSettings]:
    """A recipe, and a copy of the home where its flow `tokens` is finished."""
    folder, _ = made
    shutil.copytree(folder / "home", tmp_path / "home")
    return folder / "recipe.yaml", MachineSettings(home=str(tmp_path / "home"))


def names(labels) -> set[str]:
    return {label.rpartition("-")[0] for label in labels}


def folder_of(settings: MachineSettings, name: str) -> Path:
    folder, *_ = Path(settings.home, "stages").glob(f"{name}-*")
    return folder


def test_a_reader_walks_through_exactly_what_a_run_has_built(made):
    folder, labels = made
    settings = MachineSettings(home=str(folder / "home"))
    context, recipe = open_run(settings, load(str(folder / "recipe.yaml")))
    looked_up: list[str] = []
    find = noting(context.build, looked_up)
    Outputs(replace(context, build=find, look_up=find), recipe).make("tokens")
    assert looked_up == labels
    assert {"group_losses", "word_index", "takedowns", "search_index", "mixture"} <= names(labels)
    assert [Path(one.folder).name for one in verify_stages(recipe, settings)] == labels
    after = would_make(recipe, settings)
    assert (after.reused, [one.label.partition("-")[0] for one in after.certain]) == (len(labels), ["model"])


def test_check_says_that_all_is_finished_and_estimates_nothing(made, tmp_path, monkeypatch):
    folder, _ = made
    written = yaml.safe_load((folder / "recipe.yaml").read_text())
    trained = ("mixture", "tokenizer", "model", "training", "index")
    written = {key: value for key, value in written.items() if key not in trained} | {"name": "curated"}
    path, home = folder / "curated.yaml", str(tmp_path / "home")
    path.write_text(yaml.safe_dump(written))
    monkeypatch.setenv("GRISTMILL_HOME", home)

    def checked() -> str:
        shown = CliRunner().invoke(app, ["check", str(path)])
        assert shown.exit_code == 0
        return shown.output

    assert "estimate:" in checked() and "stages" not in checked()
    recipe, labels = load(str(path)), list[str]()
    recorder = RunRecorder(home, recipe.name, None, "corpus", recipe.model_dump(mode="json"))
    build = noting(build_in(home), labels)
    Outputs(RunContext(MachineSettings(home=home), build, outside=recorder.outside), recipe).make("corpus")
    recorder.add(*labels)
    recorder.finished()
    finished = checked()
    assert "estimate:" not in finished
    assert f"all {len(labels)} stages are finished, so a run would make nothing" in finished
    path.write_text(yaml.safe_dump(written | {"limit": 30}))
    assert "estimate:" in checked()


def test_a_run_with_other_values_is_opened_by_them_and_the_other_run_without(finished):
    path, settings = finished
    values = ["minhash.threshold=0.9", "limit=30"]
    other, labels = changed(load(str(path)), values), list[str]()
    recorder = RunRecorder(settings.home, other.name, None, "corpus", other.model_dump(mode="json"))
    build = noting(build_in(settings.home), labels)
    Outputs(RunContext(settings, build, outside=recorder.outside), other).make("corpus")
    recorder.add(*labels)
    recorder.finished()
    assert [run.name for run in runs_of(settings.home, "listed")] == ["listed", "listed"], "both are of one name"
    opened = gristmill.open(str(path), settings.home, values)
    assert opened.recipe == other and opened.corpus.kept.label in labels
    before = gristmill.open(str(path), settings.home)
    assert before.recipe == load(str(path)) and before.corpus.kept.label not in labels
    kept = [sum(count["rows_out"] for count in one.corpus.kept.step_counts) for one in (before, opened)]
    assert kept[0] > kept[1] > 0


def test_a_finished_run_is_recorded_and_logged_as_a_flow_does_it(made, finished):
    _, labels = made
    path, settings = finished
    report, lines = reuse("tokens", load(str(path)), settings)
    assert report.data is not None and report.trained is None and all(stage.reused for stage in report.stages)
    assert [label for label in labels if any(f": reused {settings.home}/stages/{label}" in line for line in lines)] == (
        labels
    )
    [run] = runs_of(settings.home, "listed")  # the one before is not needed any more
    assert (run.flow, run.ended != "", run.stages) == ("tokens", True, tuple(labels))
    assert run.outside.keys()


@pytest.mark.parametrize("flow", ["pretrain", "pipeline"])
def test_a_flow_that_makes_more_is_not_finished(finished, flow):
    path, settings = finished
    [before] = runs_of(settings.home, "listed")
    assert reuse(flow, load(str(path)), settings) is None
    assert runs_of(settings.home, "listed") == [before]


@pytest.mark.parametrize("name", ["near_duplicates", "group_losses", "word_index", "search_index", "mixture"])
def test_a_run_without_one_of_its_stages_is_not_finished(finished, name):
    path, settings = finished
    shutil.rmtree(folder_of(settings, name))
    assert reuse("tokens", load(str(path)), settings) is None


@pytest.mark.parametrize("name", ["documents", "tokens"])
def test_a_run_whose_files_were_removed_is_not_finished(finished, name):
    path, settings = finished
    layout.collect(str(folder_of(settings, name)))
    assert reuse("tokens", load(str(path)), settings) is None


def test_other_settings_are_not_finished(finished):
    path, settings = finished
    recipe = load(str(path))
    limited = recipe.model_copy(update={"limit": 10})
    assert reuse("corpus", limited, settings) is None
    values = [one.model_dump(mode="json") for one in (recipe, limited)]
    assert [is_finished(settings.home, "listed", each) for each in values] == [True, False]
    assert reuse("corpus", recipe, settings) is not None


def test_changed_files_are_not_finished(made, finished):
    folder, _ = made
    path, settings = finished
    lists = folder / "gone.txt"
    before = lists.read_text()
    lists.write_text(before + "https://a.example/1/7\n")
    assert reuse("corpus", load(str(path)), settings) is None
    lists.write_text(before)
    assert reuse("corpus", load(str(path)), settings) is not None


def command(settings: MachineSettings, *arguments: str, **environment: str) -> tuple[str, list[str], set[str]]:
    """What a command prints, its log, and the heavy libraries that it imported."""
    theirs = ("PREFECT_", "GRISTMILL_", "MLFLOW_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    own |= {"PYTHONPATH": os.getcwd(), "GRISTMILL_HOME": settings.home, "GRISTMILL_EXECUTOR": "serial", **environment}
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        cwd=Path(settings.home).parent,
        env=own,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *log, last = done.stderr.splitlines()
    return done.stdout, log, {*last.split()[1:]}


def test_a_command_prints_a_finished_run_without_prefect_and_makes_what_is_missing_with_it(finished):
    path, settings = finished
    printed, log, heavy = command(settings, "run", "--tokens-only", str(path))
    assert heavy == set() and not Path(settings.prefect_home).exists()
    assert log[0] == f"tokens of listed, in {settings.home}" and all(": reused " in line for line in log[1:])
    shutil.rmtree(folder_of(settings, "mixture"))
    again, log, heavy = command(settings, "run", "--tokens-only", str(path))
    assert "prefect" in heavy and Path(settings.prefect_home, "prefect.db").exists()
    assert [line.split()[2] for line in log if ": made in " in line] == ["mixture:"]
    assert again == printed and "/stages/" not in printed
    assert printed.splitlines()[-4:] == [
        "next:",
        f"  gristmill browse {path}",
        f"  gristmill report {path}",
        f"  gristmill run {path}",
    ]


@pytest.mark.slow
def test_a_command_makes_a_finished_stage_again_with_prefect(finished):
    path, settings = finished
    _, log, heavy = command(settings, "run", "--tokens-only", str(path), "--remake", "mixture")
    assert "prefect" in heavy
    assert [line.split()[2] for line in log if ": made in " in line] == ["mixture:"]


def test_a_finished_model_is_printed_unless_mlflow_does_not_have_it(undisturbed, runs, recipe):
    home = runs.home("printed")
    shutil.copytree(undisturbed.home("undisturbed"), home)
    path = runs.write(recipe)
    [run] = runs_of(str(home), "small")
    # which notes name, beside the model
    mlflow_uri = f"sqlite:///{undisturbed.home('undisturbed').resolve()}/mlflow.db"
    settings = MachineSettings(home=str(home), mlflow_uri=mlflow_uri)
    printed, _, heavy = command(settings, "run", str(path), GRISTMILL_MLFLOW_URI=mlflow_uri)
    assert heavy == set()
    assert "trained model: " in printed and printed.endswith(f"  gristmill export model {path} --to small-model\n")
    [again] = runs_of(str(home), "small")
    assert again.id != run.id and (again.flow, again.stages) == ("pipeline", run.stages)
    shutil.rmtree(home / "mlflow-runs")
    assert reuse("pipeline", load(str(path)), settings) is None


@pytest.mark.parametrize(
    ("environment", "files", "named"),
    [
        ({}, {}, False),
        ({"PREFECT_API_URL": "http://127.0.0.1:4200/api"}, {}, True),
        ({"PREFECT_PROFILE": "team"}, {}, True),
        ({}, {"prefect.toml": '[api]\nurl = "http://127.0.0.1:4200/api"\n'}, True),
        ({}, {"pyproject.toml": '[tool.prefect.api]\nurl = "http://127.0.0.1:4200/api"\n'}, True),
        ({}, {"pyproject.toml": '[project]\nname = "mine"\n', ".env": "TOKEN=1\n"}, False),
        ({}, {".env": "PREFECT_API_URL=http://127.0.0.1:4200/api\n"}, True),
        ({}, {".prefect/profiles.toml": '[profiles.a]\nPREFECT_API_URL = "http://127.0.0.1:4200/api"\n'}, True),
        ({}, {".prefect/profiles.toml": '[profiles.a]\nPREFECT_LOGGING_LEVEL = "DEBUG"\n'}, False),
    ],
)
def test_a_named_server_is_known_without_prefect(tmp_path, environment, files, named):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    program = (
        "import sys; from gristmill.flows.run.server import may_be_named; "
        "print(may_be_named(), 'prefect' in sys.modules)"
    )
    given = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": os.getcwd(), **environment}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=given, capture_output=True, text=True)
    assert done.stdout.split() == [str(named), "False"], done.stderr
