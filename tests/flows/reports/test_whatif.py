"""Thresholds replayed over stored signals are, row by row, what a real run with these thresholds gives."""

import copy
import os
import shutil
import statistics
import subprocess
import sys

import pyarrow.compute as pc
import pytest

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.whatif import changed, funnel, parsed, whatif
from gristmill.storage import layout, parquet
from gristmill.tasks.engine.make import NotFinishedError


@pytest.fixture(scope="module")
def home(undisturbed, runs) -> str:
    """The finished stages of the recipe, in a home of their own."""
    shutil.copytree(undisturbed.home("undisturbed") / "stages", runs.home("whatif") / "stages")
    return str(runs.home("whatif"))


@pytest.fixture(scope="module")
def settings(home) -> MachineSettings:
    return MachineSettings(home=home)


@pytest.fixture(scope="module")
def changes(recipe, settings) -> dict:
    """For two steps the first threshold from below, of one for a language alone, raised to what a third of the
    documents do not reach."""
    wanted = {}
    for step in load(recipe).steps:
        if step.step in ("textbook", "gopher_quality"):
            replay = whatif(recipe, {f"{step.step}.{lower(step)}": 0}, settings)
            signal = next(bound for bound in step.decisions() if bound.low is not None).signal
            part = replay.passed.arriving.documents.part(0)
            value = pc.quantile(parquet.read_table(part, [signal])[signal], 1 / 3)[0].as_py()
            within = "languages.en." if step.step == "gopher_quality" else ""
            wanted[f"{step.step}.{within}{lower(step)}"] = int(value)
    assert len(wanted) == 2
    return wanted


def lower(step) -> str:
    """The setting of the first threshold from below: the one that makes its bound another."""
    bound = next(bound for bound in step.decisions() if bound.low is not None)
    for name in type(step).model_fields:
        if name.startswith("min_"):
            found = next(b for b in step.model_copy(update={name: bound.low + 1}).decisions() if b.rule == bound.rule)
            if found.low == bound.low + 1:
                return name
    raise AssertionError(f"no setting of {step.step} moves {bound}")


def recorded(folder: str, shard: int) -> tuple[list[str], list[dict]]:
    kept = parquet.read_table(layout.part(folder, shard), ["id"])["id"].to_pylist()
    return kept, parquet.read_table(layout.ledger_part(folder, shard)).to_pylist()


def test_the_recorded_thresholds_give_the_recorded_rows(recipe, settings):
    step = next(step for step in load(recipe).steps if step.step == "gopher_quality")
    replay = whatif(recipe, {f"gopher_quality.{lower(step)}": getattr(step, lower(step))}, settings)
    assert replay.unchanged
    assert [s["step"] for s in replay.replayed] == ["language", "textbook", "gopher_repetition", "gopher_quality", "c4"]
    for old, new in zip(replay.recorded, replay.replayed, strict=True):
        assert {name: new[name] for name in ("step", "rows_in", "rows_out", "drops")} == {
            name: old[name] for name in ("step", "rows_in", "rows_out", "drops")
        }
    for shard in replay.passed.arriving.places.shards():
        found = replay.shard(shard)
        assert (found.kept.to_pylist(), found.dropped.to_pylist()) == recorded(replay.passed.left.kept.folder, shard)
    rows = funnel(replay)
    assert [row.position for row in rows] == ["ahead"] * 2 + ["replayed"] * 5 + ["behind"] * 4
    assert all(row.replayed == row.recorded for row in rows if row.position != "replayed")
    assert all(was == now for row in rows for was, now in row.rules.values())


@pytest.mark.slow
def test_other_thresholds_give_the_rows_of_a_run_with_them(recipe, settings, changes, runs):
    other = copy.deepcopy(recipe)
    for name, value in changes.items():
        step, *path, setting = name.split(".")
        target = next(given for given in other["steps"] if given["step"] == step)
        for key in path:
            target = target.setdefault(key, {})
        target[setting] = value
    before = set(runs.stages("whatif"))
    runs.run("whatif", ("corpus", other), executor="threads")
    new = [f for name, f in runs.stages("whatif").items() if name not in before and name.startswith("rules")]
    [made] = [f for f in new if "gopher_quality" in (f / "manifest.json").read_text()]
    replay = whatif(recipe, changes, settings)
    assert str(made) != replay.passed.left.kept.folder
    dropped = 0
    for shard in replay.passed.arriving.places.shards():
        found = replay.shard(shard)
        assert (found.kept.to_pylist(), found.dropped.to_pylist()) == recorded(str(made), shard)
        dropped += len(found.dropped)
    assert dropped > sum(count["rows_in"] - count["rows_out"] for count in replay.recorded) + 20
    assert not replay.unchanged
    behind = funnel(replay)[-4:]
    assert tuple(row.step for row in behind) == replay.behind == ("minhash", "pii", "perplexity", "quality")
    assert all(row.recorded is not None and row.replayed is None for row in behind)
    assert any(now > was for row in funnel(replay) for was, now in row.rules.values())


@pytest.mark.extended
def test_the_command_prints_the_funnel_and_starts_neither_prefect_nor_dask(recipe, home, changes, runs):
    watched = ("prefect", "mlflow", "torch", "distributed")
    program = (
        f"import sys; from gristmill.flows.cli import app; app(sys.argv[1:], standalone_mode=False); "
        f"print('loaded', [name for name in {watched} if name in sys.modules])"
    )
    given = [word for name, value in changes.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-c", program, "decide", "whatif", str(runs.write(recipe)), *given]
    environment = runs.environment("whatif") | {"GRISTMILL_HOME": home, "COLUMNS": "200"}
    printed = subprocess.run(
        command, env=environment, cwd=os.getcwd(), capture_output=True, text=True, check=True
    ).stdout
    assert "loaded []" in printed
    replay = whatif(recipe, changes, MachineSettings(home=home))
    for step in replay.replayed:
        assert f"{step['rows_in']:,} → {step['rows_out']:,}" in printed
    assert "not replayed" in printed and "Not replayed: minhash, pii, perplexity, quality." in printed


@pytest.mark.parametrize(("step", "setting"), [("quality", "min_score"), ("perplexity", "max_percentile")])
def test_a_cut_by_scores_is_replayed_on_the_scores(recipe, settings, step, setting):
    given = next(s for s in load(recipe).steps if s.step == step)
    same = whatif(recipe, {f"{step}.{setting}": getattr(given, setting)}, settings)
    for shard in same.passed.arriving.places.shards():
        found = same.shard(shard)
        assert (found.kept.to_pylist(), found.dropped.to_pylist()) == recorded(same.passed.left.kept.folder, shard)
    assert same.unchanged and set(same.passed.arriving.places.shards()) > set(same.signals)
    tables = [parquet.read_table(part, ["id", step]).to_pylist() for (part,) in same.signals.values()]
    scores = {row["id"]: row[step] for table in tables for row in table}
    if step == "quality":
        other = end = sorted(set(scores.values()))[len(set(scores.values())) // 2]
        gone = {key for key, value in scores.items() if value < end}
    else:
        other, end = 40, statistics.quantiles(scores.values(), n=100, method="inclusive")[39]
        gone = {key for key, value in scores.items() if value > end}
    replay = whatif(recipe, {f"{step}.{setting}": other}, settings)
    assert {key for shard in same.signals for key in replay.shard(shard).dropped["id"].to_pylist()} == gone
    assert 0 < len(gone) < len(scores)


def test_a_recipe_that_was_not_run_says_what_to_do(recipe, tmp_path):
    with pytest.raises(NotFinishedError, match="run `gristmill run RECIPE`"):
        whatif(recipe, {"textbook.min_characters": 3}, MachineSettings(home=str(tmp_path)))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("gopher.min_words", 3, "no step gopher in the recipe small; its steps are extract, language"),
        ("gopher_quality.min_wrods", 3, "no such setting; its settings are .*min_words"),
        ("gopher_quality", 3, "no such setting"),
        ("language.min_score", "high", "language.min_score=high: min_score: Input should be a valid number"),
        ("language.min_score", 3, "less than or equal to 1"),
        ("language.min_score.deeper", 3, "no nested settings"),
        ("gopher_quality.stop_words", ["und"], "cannot be replayed: it changes measurements"),
        ("language.characters", 90, "cannot be replayed: it changes measurements"),
        ("extract.max_bytes", 90, "decides while documents are extracted"),
        ("minhash.threshold", 0.9, "minhash looks at all documents together"),
        ("perplexity.order", 4, "perplexity looks at all documents together"),
    ],
)
def test_what_cannot_be_replayed_is_said(recipe, name, value, message):
    with pytest.raises(ValueError, match=message):
        changed(load(recipe), {name: value})


def test_rules_by_which_texts_were_chosen_are_not_replayed(recipe):
    united = copy.deepcopy(recipe)
    next(step for step in united["steps"] if step["step"] == "extract")["engine"] = "union"
    with pytest.raises(ValueError, match="the engine union chooses the texts of pages by textbook"):
        changed(load(united), {"textbook.min_characters": 5})


def test_a_setting_within_a_setting(recipe):
    given = {"gopher_quality.languages.fr.min_words": 40, "gopher_quality.min_words": 45}
    [step] = [step for step in changed(load(recipe), given).steps if step.step == "gopher_quality"]
    assert (step.min_words, step.languages) == (45, {"fr": {"min_words": 40}})
    with pytest.raises(ValueError, match="languages.fr.min_wrods=40: languages: .*no threshold min_wrods"):
        changed(load(recipe), {"gopher_quality.languages.fr.min_wrods": 40})


def test_settings_are_read_as_yaml():
    assert parsed(["a.b=80", "a.c= null", "d.keep=[en, fr]", "e.f.g=0.5"]) == {
        "a.b": 80,
        "a.c": None,
        "d.keep": ["en", "fr"],
        "e.f.g": 0.5,
    }
    with pytest.raises(ValueError, match="write step.setting=value"):
        parsed(["a.b"])
    with pytest.raises(ValueError, match="is not valid YAML"):
        parsed(["a.b=[1"])
