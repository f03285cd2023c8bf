"""Steps of users: in a file outside of the package, named by a recipe, refused where the machine does not allow it."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pytest
import yaml

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe import new_step, own_steps
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import Recipe, dump, load
from gristmill.flows.recipe.steps import BUILT_IN, TABLE, builder_of, document_steps, modules_of, thresholds_of
from gristmill.flows.reports.rules import Book, Row, Threshold, books
from gristmill.flows.reports.whatif import whatif
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.measure import measured
from gristmill.tasks.documents.step import StepError
from gristmill.tasks.engine.code_version import releases
from gristmill.tasks.models.perplexity import Perplexity

ROOT = Path(__file__).resolve().parents[3]

STEPS = '''
"""Two steps and a rule set in one file, each told apart by its class."""
from functools import singledispatch
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from gristmill.tasks.documents.edits import Edits
from gristmill.tasks.documents.step import Bound, DocumentStep, EditStep, Signal
from gristmill.tasks.rules.rule import RuleStep, rule, rule_set
from gristmill.tasks.rules.rule import measure as measure_rules


class Profanity(DocumentStep):
    """Drop documents with bad words."""

    step: Literal["profanity"] = "profanity"
    words: tuple[str, ...] = ("damn",)
    max_hits: int | None = 3
    signals: ClassVar = (Signal("profanity_hits", "int64", "words", "own", description="Bad words."),)
    signal_fields: ClassVar = ("words",)

    def decisions(self):
        return [Bound("hits", "profanity_hits", high=self.max_hits)]


class NoHeading(EditStep):
    """Cut the first character."""

    step: Literal["no_heading"] = "no_heading"
    signals: ClassVar = (Signal("no_heading_characters", "int64", "code points", "own", description="What is left."),)

    def decisions(self):
        return [self.not_empty()]


@rule_set("own", (rule("exclamations", "exclamation marks", "Exclamation marks.", high=2),))
class Shouting(RuleStep):
    """Shouting."""

    step: Literal["shouting"] = "shouting"


@singledispatch
def measure(step, documents):
    hits = [sum(word in step.words for word in text.split()) for text in documents["text"].to_pylist()]
    return {"profanity_hits": pa.array(hits, pa.int64())}


@measure.register
def _(step: RuleStep, documents):
    return measure_rules(step, documents)


def exclamations(text):
    return text.sum(text.documents, text.data == ord("!"))


def edit(step, documents):
    n = len(documents)
    zeros = np.zeros(n, np.int64)
    return Edits(np.arange(n), zeros, zeros + 1, zeros.astype(np.int32), ("first",), pa.array([""] * n)), {}
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Name of a module with steps, which lies in a folder on the path; another for each test."""
    name = f"steps_{crc32(str(tmp_path).encode())}"
    (tmp_path / f"{name}.py").write_text(STEPS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("GRISTMILL_STEPS", raising=False)
    yield name
    sys.modules.pop(name, None)


def recipe(*steps: dict) -> dict:
    return {
        "name": "own",
        "sources": [{"name": "web", "jsonl": ["web.jsonl"]}],
        "steps": [{"step": "extract"}, *steps],
        "mixture": {"weights": {"web": 1}},
    }


def test_a_step_is_found_by_its_address_and_by_its_name_where_the_machine_allows_its_module(module, monkeypatch):
    monkeypatch.setenv("GRISTMILL_STEPS", f"other, {module}")
    assert MachineSettings().steps == ("other", module)
    given = recipe({"step": f"{module}:Profanity", "max_hits": 1}, {"step": "c4"}, {"step": f"{module}:NoHeading"})
    loaded = load(given)
    own = loaded.steps[1]
    assert (own.step, own.max_hits, type(own).__module__) == ("profanity", 1, module)
    monkeypatch.setenv("GRISTMILL_STEPS", module)
    assert load(recipe({"step": "profanity", "max_hits": 1})).steps[1] == own
    assert thresholds_of(own) == ("max_hits",)
    assert modules_of(own) == (module,)
    assert set(document_steps()) > {"profanity", "no_heading", "shouting", "c4"}


def test_a_recipe_with_own_steps_comes_back_from_yaml_and_json(module, monkeypatch):
    monkeypatch.setenv("GRISTMILL_STEPS", module)
    loaded = load(recipe({"step": "shouting", "max_exclamations": 7}, {"step": f"{module}:Profanity", "words": ["x"]}))
    assert yaml.safe_load(dump(loaded))["steps"][1]["step"] == f"{module}:Shouting"
    assert load(yaml.safe_load(dump(loaded))) == loaded
    assert Recipe.model_validate_json(loaded.model_dump_json()) == loaded
    assert Recipe.model_validate(dict(loaded)) == loaded


@pytest.mark.parametrize("allowed", ["", "my_steps", "other,steps"])
def test_a_module_that_the_machine_does_not_allow_is_refused_unread(tmp_path, module, monkeypatch, allowed):
    (tmp_path / f"{module}.py").write_text("raise SystemExit('this module was read')")
    monkeypatch.setenv("GRISTMILL_STEPS", allowed)
    with pytest.raises(RecipeError, match=rf"the module {module}, which this machine does not allow.*GRISTMILL_STEPS="):
        load(recipe({"step": f"{module}:Profanity"}))
    assert module not in sys.modules


def test_a_package_allows_its_modules(tmp_path, module, monkeypatch):
    package = tmp_path / f"{module}_package" / "deep"
    package.mkdir(parents=True)
    (package / "own.py").write_text(STEPS)
    monkeypatch.setenv("GRISTMILL_STEPS", f"{module}_package")
    loaded = load(recipe({"step": f"{module}_package.deep.own:Shouting"}))
    assert modules_of(loaded.steps[1]) == (f"{module}_package.deep.own",)
    # a name that only begins alike is another package
    monkeypatch.setenv("GRISTMILL_STEPS", f"{module}_pack")
    with pytest.raises(RecipeError, match="does not allow"):
        load(recipe({"step": f"{module}_package.deep.own:Shouting"}))


def test_what_is_no_step_is_refused_with_the_reason(tmp_path, module, monkeypatch):
    text = STEPS.replace('"no_heading"', '"c4"').replace('"no_heading_characters"', '"c4_characters"')
    (tmp_path / f"{module}.py").write_text(text.replace("def edit(", "def other("))
    monkeypatch.setenv("GRISTMILL_STEPS", module)
    for name, message in {
        f"{module}:NoHeading": "has the name of the built-in step c4",
        f"{module}:Bound": "is not a document step",
        f"{module}:Missing": "has no class Missing",
        f"{module}:Profanity.decisions": "write module:Class",
        f"{module}.inner:Profanity": f"no module {module}.inner",
    }.items():
        with pytest.raises(RecipeError, match=message):
            load(recipe({"step": name}))
    with pytest.raises(RecipeError, match="no_heading|magic"):
        load(recipe({"step": "magic"}))


def test_a_module_without_the_function_of_its_work_is_refused(tmp_path, module, monkeypatch):
    (tmp_path / f"{module}.py").write_text(STEPS.replace("def edit(", "def other("))
    monkeypatch.setenv("GRISTMILL_STEPS", module)
    with pytest.raises(RecipeError, match=rf"{module} has no function edit\(step, documents\)"):
        load(recipe({"step": f"{module}:NoHeading"}))


def test_two_steps_with_a_signal_of_one_name_are_refused(tmp_path, module, monkeypatch):
    for signal in ("c4_sentences", "text"):
        name = f"{module}_{signal}"
        (tmp_path / f"{name}.py").write_text(STEPS.replace('"profanity_hits"', f'"{signal}"'))
        monkeypatch.setenv("GRISTMILL_STEPS", name)
        with pytest.raises(RecipeError, match=f"`profanity` gives the signal {signal}, but there is a column"):
            load(recipe({"step": "c4"}, {"step": f"{name}:Profanity"}))


class Entry:
    def __init__(self, name: str, value: str):
        self.name, self.value = name, value


def test_an_entry_point_needs_no_setting(module, monkeypatch):
    points = [Entry("profanity", f"{module}:Profanity")]
    monkeypatch.setattr(own_steps, "entry_points", lambda group: points if group == "gristmill.steps" else [])
    loaded = load(recipe({"step": "profanity"}))
    assert load(yaml.safe_load(dump(loaded))) == loaded
    with pytest.raises(RecipeError, match="does not allow"):
        load(recipe({"step": f"{module}:Shouting"}))
    points.append(Entry("swearing", f"{module}:Profanity"))
    with pytest.raises(RecipeError, match="the entry point swearing .* whose name is profanity"):
        load(recipe({"step": "profanity"}))
    points[1] = Entry("profanity", "another:Step")
    with pytest.raises(RecipeError, match="two entry points .* have the name profanity"):
        load(recipe({"step": "profanity"}))


def test_the_group_of_entry_points_is_read_from_installed_packages(tmp_path, module, monkeypatch):
    info = tmp_path / "own_steps_1-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-steps-1\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{own_steps.GROUP}]\nshouting = {module}:Shouting\n")
    importlib.invalidate_caches()
    assert load(recipe({"step": "shouting", "max_exclamations": 1})).steps[1].max_exclamations == 1


def test_they_measure_edit_and_decide_as_the_own_ones_do(module, monkeypatch):
    monkeypatch.setenv("GRISTMILL_STEPS", module)
    steps = load(recipe({"step": "profanity", "max_hits": 0}, {"step": "no_heading"}, {"step": "shouting"})).after
    texts = ["damn it", "#good", "!no!no!no", "x"]
    documents = pa.table({"id": list("abcd"), "text": pa.array(texts, pa.large_string())})
    found = measured(documents, [step.measuring() for step in steps])
    assert found.table["text"].to_pylist() == ["amn it", "good", "no!no!no", ""]
    assert found.table["shouting_exclamations"].to_pylist() == [0, 0, 2, 0]
    dropped = decide(found.table, [(step.step, step.decisions()) for step in steps])
    assert {(name, row["id"], row["rule"]) for name, rows in dropped for row in rows.to_pylist()} == {
        ("profanity", "a", "hits"),
        ("no_heading", "d", "empty_text"),
    }


def test_their_rules_are_shown(module, monkeypatch):
    monkeypatch.setenv("GRISTMILL_STEPS", module)
    [book] = books("shouting")
    most = Threshold("high", 2, "max_exclamations")
    named = ("exclamations", "shouting_exclamations", "exclamation marks", "own", "Exclamation marks.")
    assert book == Book("shouting", (), (Row(*named, (most,)),))
    [book] = books(f"{module}:Profanity")
    most = Threshold("high", 3, "max_hits")
    assert book.rows == (Row("hits", "profanity_hits", "words", "own", "Bad words.", (most,)),)
    assert {"profanity", "shouting"} < {book.step for book in books("")}
    monkeypatch.delenv("GRISTMILL_STEPS")
    with pytest.raises(LookupError, match="unknown document step shouting; the steps are url"):
        list(books("shouting"))
    with pytest.raises(StepError, match="does not allow"):
        list(books(f"{module}:Profanity"))


def test_a_setting_that_changes_what_is_measured_cannot_be_replayed(module, monkeypatch, tmp_path):
    monkeypatch.setenv("GRISTMILL_STEPS", module)
    given = recipe({"step": "profanity"})
    with pytest.raises(ValueError, match="profanity.words cannot be replayed: it changes measurements"):
        whatif(given, {"profanity.words": ["x"]}, MachineSettings(home=str(tmp_path)))
    with pytest.raises(ValueError, match="profanity has no such setting; its settings are words, max_hits"):
        whatif(given, {"profanity.min_hits": 1}, MachineSettings(home=str(tmp_path)))


def test_the_schema_of_a_recipe_names_the_steps_of_the_table():
    schema = Recipe.model_json_schema()
    refs = [one["$ref"].rpartition("/")[2] for one in schema["properties"]["steps"]["items"]["oneOf"]]
    found = [schema["$defs"][ref]["properties"]["step"]["default"] for ref in refs]
    assert len(found) == len(BUILT_IN)
    assert set(found) == set(BUILT_IN) == {row.settings.model_fields["step"].default for row in TABLE}
    assert schema["$defs"]["GopherQuality"]["properties"]["min_words"]["default"] == 50


# settings without which a step is none
NEEDED = {
    "scores": ("score",),
    "reference": ("web",),
    "lists": {"any": "list"},
    "benchmarks": ({"name": "quiz", "path": "quiz.jsonl", "question": ("question",)},),
}


def needed(kind) -> dict:
    given = {name: value for name, value in NEEDED.items() if name in kind.model_fields}
    required = {name for name, field in kind.model_fields.items() if field.is_required()}
    return (
        given
        | {name: name for name in ("model", "label", "of") if name in required}
        | ({"prompt": "educational"} if "prompt" in required else {})
    )


def test_what_makes_a_step_is_a_function_that_is_there():
    for row in TABLE:
        if row.stages:
            made = row.settings(**needed(row.settings))
            assert callable(builder_of(made))
            assert set(thresholds_of(made)) <= set(row.settings.model_fields)
    percentiles = ("min_percentile", "max_percentile", "head_percentile", "middle_percentile")
    assert thresholds_of(Perplexity(reference=("web",))) == (*percentiles, "min_documents", "keep_buckets", "cutoffs")


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.settings.__name__)
def test_the_libraries_of_a_step_have_a_release(row):
    given = needed(row.settings)
    for change in ({}, {"engine": "trafilatura"}, {"engine": "justext"}, {"mojibake": True}):
        if set(change) <= set(row.settings.model_fields):
            for name in row.settings(**given, **change).libraries:
                assert releases((name,))[name]


@pytest.mark.extended
def test_new_step_writes_a_step_whose_test_passes(tmp_path):
    step, test = new_step.write("lorem_ipsum", tmp_path)
    assert (step.name, test.name) == ("lorem_ipsum_step.py", "test_lorem_ipsum_step.py")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "message"), [("Loud", "is not a valid step name"), ("c4", "c4 is a built-in step")])
def test_new_step_refuses_names_that_no_step_can_have(tmp_path, name, message):
    with pytest.raises(ValueError, match=message):
        new_step.write(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_new_step_overwrites_nothing(tmp_path):
    new_step.write("loud", tmp_path)
    with pytest.raises(FileExistsError, match="loud_step.py"):
        new_step.write("loud", tmp_path)
