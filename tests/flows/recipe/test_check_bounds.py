"""The check of a recipe is bounded: in what it reads, what it looks for, what it lists, and the numbers that it lets
through."""

import logging

import pytest

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.errors import MAX_FINDINGS, RecipeError
from gristmill.flows.recipe.recipe import load
from gristmill.flows.recipe.settings_file import MAX_VALUES
from gristmill.tasks.reading import listing

HEAD = "name: k\nsources: [{name: web, jsonl: [web.jsonl]}]\nsteps: []\n"


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """Writes a recipe; returns the lines of its findings."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web.jsonl").write_text('{"text": "The mill."}\n')

    def lines(text: str) -> list[str]:
        (tmp_path / "k.yaml").write_text(text)
        return [str(finding) for finding in check("k.yaml", MachineSettings(home=str(tmp_path / "home"))).findings]

    return lines


def test_the_first_problems_are_listed_and_the_others_counted(checked):
    lines = checked(HEAD + "".join(f"k{n}: 1\n" for n in range(5000)))
    assert len(lines) == MAX_FINDINGS + 1
    assert lines[-1] == f"k.yaml: {5000 - MAX_FINDINGS:,} more problems; correct these first"


@pytest.mark.extended
def test_a_recipe_with_very_many_values_is_refused_before_it_is_read(checked):
    [line] = checked(HEAD + "".join(f"k{n}: 1\n" for n in range(MAX_VALUES)))
    assert f"has more than {MAX_VALUES:,} keys and values; divide it into several recipes" in line


def test_sources_behind_many_problems_are_not_looked_at(checked):
    sources = "".join(f"- {{name: s{n}, jsonl: [w{n}.jsonl]}}\n" for n in range(400))
    *_, left = lines = checked(f"name: k\nsources:\n{sources}steps: []\n")
    assert left == "k.yaml:2: sources: has 351 more that were not checked; correct these first"
    assert len(lines) == MAX_FINDINGS


def test_names_in_a_sentence_are_counted_behind_the_first(checked):
    sources = "".join(f"- {{name: s{n}, jsonl: [web.jsonl]}}\n" for n in range(400))
    lines = checked(f"name: k\nsources:\n{sources}steps: []\nmixture: {{weights: {{grain: 1}}}}\n")
    assert lines[0].endswith("the sources are " + ", ".join(f"s{n}" for n in range(20)) + ", and 380 more")


@pytest.mark.parametrize(
    ("line", "key", "bound"),
    [
        ("seed: 99999999999999999999", "seed", "9,223,372,036,854,775,807"),
        ("training: {steps: 99999999999999999999}", "training.steps", "9,223,372,036,854,775,807"),
        ("training: {steps: 9999999999}", "training.steps", "1,000,000,000"),
        ("tokenizer: {sample_bytes: 9000000000000000000}", "tokenizer.sample_bytes", "1,099,511,627,776"),
        ("model: {layers: 1000000000}", "model.layers", "100,000"),
    ],
)
def test_numbers_beyond_any_use_are_refused_with_the_bound(checked, line, key, bound):
    [finding] = checked(HEAD + line + "\n")
    assert finding.startswith(f"k.yaml:4: {key}: is 9") or finding.startswith(f"k.yaml:4: {key}: is 1")
    assert f"give a number of at most {bound}" in finding


@pytest.mark.parametrize(("value", "tag"), [("!!binary aGVsbG8=", "!!binary"), ("!!set {a, b}", "!!set")])
def test_values_that_are_no_text_number_list_or_mapping_are_refused(checked, value, tag):
    [line] = checked(HEAD.replace("name: k", f"name: {value}"))
    assert line == f"k.yaml:1:7: has a value of the type {tag}; write text, a number, a list or a mapping"


def test_problems_of_a_recipe_in_python_are_limited_too():
    given = {"name": "k", "sources": [{"name": "web", "jsonl": ["web.jsonl"]}], "steps": []}
    with pytest.raises(RecipeError) as refused:
        load(given | {"mixture": {"weights": {f"s{n}": 1 for n in range(300)}}})
    assert len(refused.value.findings) == MAX_FINDINGS + 1
    assert "more problems; correct these first" in str(refused.value)


def test_a_pattern_that_passes_over_very_many_files_is_refused(tmp_path, monkeypatch, caplog):
    for n in range(30):
        (tmp_path / f"{n}").mkdir()
        (tmp_path / f"{n}" / "a.jsonl").write_text("")
    monkeypatch.setattr(listing, "_FIRST_SECONDS", 0.0)
    caplog.set_level(logging.WARNING)
    assert len(listing.bounded_glob(f"{tmp_path}/**/*.jsonl")) == 30
    assert f"{tmp_path}/**/*.jsonl: checked 30 files and folders so far" in caplog.text
    monkeypatch.setattr(listing, "MAX_PASSED", 20)
    with pytest.raises(ValueError, match=r"visits more than 20 files and folders that do not match; begin it"):
        listing.bounded_glob(f"{tmp_path}/**/*.jsonl")
    # the folders, which the pattern names, are not passed over
    assert len(listing.bounded_glob(f"{tmp_path}/**/*")) == 60
