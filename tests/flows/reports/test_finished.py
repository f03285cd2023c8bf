"""A finished corpus is read in its home: its sources may be elsewhere, and the command in another folder."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import yaml

from gristmill.flows.curation import curate
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.runs import RunRecorder, Seen
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.finished import check_run, finished, verify_stages
from gristmill.flows.reports.lineage import trace
from gristmill.flows.reports.status import show, status
from gristmill.flows.reports.whatif import whatif
from gristmill.storage import layout, parquet
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.engine.make import NotFinishedError
from gristmill.tasks.extraction import shard as extraction
from tests.conftest import Runs
from tests.corpora import build_in, context
from tests.planted.text import prose

pytestmark = pytest.mark.extended

STEPS = ["extract", {"step": "url", "takedowns": ["lists/gone.txt"]}, "gopher_quality", "minhash"]


def project(folder: Path) -> Path:
    """A recipe whose paths begin in its folder."""
    rng = Random(5)
    (folder / "crawl").mkdir(parents=True)
    (folder / "lists").mkdir()
    for shard in range(2):
        rows = [
            {"text": "\n\n".join(prose(rng, "en", 220)), "url": f"https://a.example/{shard}/{i}"} for i in range(40)
        ]
        (folder / f"crawl/{shard}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "lists/gone.txt").write_text("https://a.example/0/3\n")
    recipe = {
        "name": "moved",
        "sources": [{"name": "web", "jsonl": ["crawl/*.jsonl"], "url_column": "url"}],
        "steps": [step if isinstance(step, dict) else {"step": step} for step in STEPS],
        "takedowns": ["lists/gone.txt"],
        "mixture": {"weights": {"web": 1}},
        "tokenizer": {"vocab_size": 400, "sample_bytes": 60_000},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 64},
        "training": {
            "steps": 4,
            "batch": 4,
            "micro_batch": 2,
            "warmup_steps": 2,
            "eval_every": 4,
            "checkpoint_every": 4,
            "eval_tokens": 512,
            "sample_tokens": 4,
        },
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return folder / "recipe.yaml"


@pytest.fixture
def moved(tmp_path, monkeypatch) -> Path:
    """The recipe of a corpus that was made from one folder; now the sources are gone, and we are in another."""
    path = project(tmp_path / "project")
    settings = MachineSettings(home=str(tmp_path / "home"))
    last, build = RunRecorder(settings.home, "moved"), build_in(settings.home)
    making = RunContext(settings, lambda spec: last.add(spec.label(settings.home)) or build(spec), outside=last.outside)
    for _ in curate(making, load(path)):
        pass
    last.finished()
    for name in ("crawl", "lists"):
        (path.parent / name).rename(tmp_path / f"{name}.away")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return path


def first_id(stage: str) -> str:
    return parquet.read_table(layout.part(stage, 0), ["id"])["id"][0].as_py()


def test_what_reads_it_asks_the_home(moved, tmp_path):
    settings = MachineSettings(home=str(tmp_path / "home"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "home/stages").rglob("*")}
    verified = list(verify_stages(str(moved), settings))
    assert len(verified) >= 4 and not any(stage.damages for stage in verified)
    corpus = finished(str(moved), settings).corpus
    assert tuple(corpus.sources) == ("web", "web") and corpus.kept.step_counts[-1]["rows_out"] == 79
    assert list(show(settings.home, "takedowns", 1))
    assert list(trace(settings.home, first_id(corpus.kept.folder), RemoteIOConfig()))
    assert whatif(str(moved), {"gopher_quality.min_words": 60}, settings)
    assert len(status(settings.home)) == len(verified)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "home/stages").rglob("*")} == before


def test_another_recipe_needs_its_sources(moved, tmp_path):
    settings = MachineSettings(home=str(tmp_path / "home"))
    assert not check_run(load(moved), settings), "the corpus of the last run is there"
    values = yaml.safe_load(moved.read_text())
    values["sources"][0]["jsonl"] = ["crawl/1.jsonl"]
    moved.write_text(yaml.safe_dump(values))
    with pytest.raises(RecipeError, match="crawl/1.jsonl does not exist"):
        check_run(load(moved), settings)
    shutil.rmtree(tmp_path / "home/stages")
    with pytest.raises((NotFinishedError, FileNotFoundError)):
        finished(str(moved), settings)


def curated(recipe: Path, home: str, seen: Seen | None = None) -> int:
    """The documents that a run keeps. `seen`: by what the run before saw, where files are gone."""
    settings, build = MachineSettings(home=home), build_in(home)
    last = RunRecorder(home, load(recipe).name, seen)
    context = RunContext(settings, lambda spec: last.add(spec.label(home)) or build(spec), outside=last.outside)
    *_, passed = curate(context, load(recipe))
    last.finished()
    return passed.left.kept.step_counts[-1]["rows_out"]


def test_a_run_without_its_sources_heeds_a_list_that_has_changed(moved, tmp_path):
    """Only what is gone is as the last run saw it: a takedown is not passed over."""
    home = str(tmp_path / "home")
    assert curated(moved, home, Seen(home, "moved")) == 79
    (tmp_path / "lists.away").rename(moved.parent / "lists")
    with open(moved.parent / "lists/gone.txt", "a") as f:
        f.write("https://a.example/1/7\n")
    values = yaml.safe_load(moved.read_text())
    del values["steps"][1]  # which the extraction would have to read the sources for
    moved.write_text(yaml.safe_dump(values))
    (tmp_path / "crawl.away").rename(moved.parent / "crawl")
    assert curated(moved, home) == 78
    (moved.parent / "crawl").rename(tmp_path / "crawl.away")
    with open(moved.parent / "lists/gone.txt", "a") as f:
        f.write("https://a.example/1/8\n")
    assert curated(moved, home, Seen(home, "moved")) == 77


def test_a_run_does_not_take_an_old_source_for_one_that_has_changed(tmp_path):
    """Where the files of another source are gone, all documents cannot be made anew: it says so."""
    home, recipe = str(tmp_path / "home"), tmp_path / "recipe.yaml"
    sources = [{"name": name, "text": [f"{name}.txt"]} for name in ("one", "two")]
    recipe.write_text(yaml.safe_dump({"name": "pair", "sources": sources, "steps": [{"step": "extract"}]}))
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text(f"The text of {name}.")
    assert curated(recipe, home) == 2
    (tmp_path / "one.txt").unlink()
    assert curated(recipe, home, Seen(home, "pair")) == 2
    (tmp_path / "two.txt").write_text("It is another text now.")
    with pytest.raises(FileNotFoundError, match="one.txt does not exist"):
        curated(recipe, home, Seen(home, "pair"))


@pytest.mark.slow
def test_all_reading_commands(tmp_path):
    path, runs = project(tmp_path / "project"), Runs(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert command(runs, tmp_path, "run", str(path)) == 0
    shutil.rmtree(path.parent / "crawl")
    shutil.rmtree(path.parent / "lists")
    [takedowns] = (tmp_path / "home/stages").glob("takedowns-*")
    document = first_id(str(takedowns))
    for given in (
        ["home", "verify", str(path)],
        ["report", str(path)],
        ["decide", "whatif", str(path), "--set", "gopher_quality.min_words=60"],
        ["explain", "show", "takedowns"],
        ["explain", "lineage", document],
        ["export", "documents", str(path), "--to", "documents"],
        ["export", "model", str(path), "--to", "model"],
        ["explain", "duplicates", str(path)],
        ["home", "status"],
    ):
        assert command(runs, elsewhere, *given) == 0, given
    assert len(list(elsewhere.glob("documents/data/*"))) == 2 and (elsewhere / "model/model.safetensors").exists()


def command(runs: Runs, folder: Path, *given: str) -> int:
    """The exit code of a command that runs in a folder."""
    program = [sys.executable, "-c", "from gristmill.flows.cli import main; main()", *given]
    return subprocess.run(program, cwd=folder, env=runs.environment("home", executor="serial"), timeout=600).returncode


def test_a_source_that_is_written_while_it_is_read_ends_the_run(tmp_path, monkeypatch):
    path = project(tmp_path / "project")
    crawl = tmp_path / "project/crawl"
    inner, [first, *_] = extraction._records, sorted(crawl.iterdir())

    def records(*given):
        yield from inner(*given)
        first.write_text(first.read_text().replace("the", "THE", 1))

    monkeypatch.setattr(extraction, "_records", records)
    with pytest.raises(RuntimeError, match="was written while it was read, .*: run the same command again"):
        for _ in curate(context(str(tmp_path / "home")), load(path)):
            pass
    monkeypatch.undo()
    for _ in curate(context(str(tmp_path / "home")), load(path)):
        pass


def test_a_source_of_the_same_size_and_time_with_other_content_is_seen(tmp_path):
    path = project(tmp_path / "project")
    first = sorted((tmp_path / "project/crawl").iterdir())[0]
    *_, before = curate(context(str(tmp_path / "home")), load(path))
    times, text = first.stat(), first.read_text()
    first.write_text(text.replace("a", "e"))
    os.utime(first, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert first.stat().st_size == times.st_size and first.stat().st_mtime_ns == times.st_mtime_ns
    *_, after = curate(context(str(tmp_path / "home")), load(path))
    assert after.left.extracted.key != before.left.extracted.key
