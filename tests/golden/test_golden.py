"""The golden guard in the test run: rows against the table, the comparison itself, and that every step has its rows."""

import re
from collections import defaultdict
from copy import deepcopy
from pathlib import Path
from typing import Literal

import pytest

from gristmill.flows.machine.remaking import STAGES, Remaking, remake
from gristmill.flows.recipe.steps import BUILT_IN, filter_stages
from gristmill.tasks.models.filter import LearnedFilter
from tests.golden import table as tables
from tests.golden.__main__ import run
from tests.golden.compare import differences
from tests.golden.rows import ROWS, covering

ROOT = Path(__file__).parents[2]
_BY_STEPS = ("quality", "perplexity", "toxicity", "adult_content")
# Names that stand in variables where the stage is made.
_VARIABLES = {
    '"edited" if edits else "signals"': ("edited", "signals"),
    'f"{step.rule}_duplicates"': ("content_duplicates", "url_duplicates"),
    'f"{step.step}_model"': ("quality_model", "perplexity_model"),
    'f"{step.step}_cut"': tuple(f"{name}_cut" for name in (*_BY_STEPS, "distill", "annotate")),
    "name": ("annotate_sample", "rewrites_sample"),
    '"diversified" if diversifies else "semantic_duplicates"': ("semantic_duplicates", "diversified"),
    "INDEX": ("decontamination_index",),
    "HITS": ("decontamination_hits",),
    "STEP": ("group_losses",),
    "step.step": (
        "line_dedup",
        "paragraph_dedup",
        "sentence_dedup",
        "substring_dedup",
        "decontamination",
        "annotate",
        *_BY_STEPS,
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("golden")


def _few() -> set[str]:
    """Of the quick rows, by name, some that cover every step and stage that quick rows cover."""
    covered: set[str] = set()
    chosen = set()
    for row in sorted(ROWS, key=lambda row: -len(row.covers)):
        if not row.slow and not covered.issuperset(row.covers):
            covered.update(row.covers)
            chosen.add(row.name)
    return chosen


def _check(folder: Path, names: set[str]) -> None:
    found, failed = run(folder, [row for row in ROWS if row.name in names])
    assert not failed
    assert not differences(tables.read(), found, {row.name: row.name in names for row in ROWS})


def test_a_row_of_every_stage_gives_what_the_table_has(folder):
    _check(folder, _few())


@pytest.mark.extended
def test_the_other_quick_rows_give_what_the_table_has(folder):
    _check(folder, {row.name for row in ROWS if not row.slow} - _few())


@pytest.mark.slow
def test_slow_rows_give_what_the_table_has(folder):
    _check(folder, {row.name for row in ROWS if row.slow})


@pytest.mark.slow
def test_threads_and_homes_change_nothing(tmp_path):
    found, failed = run(tmp_path, [row for row in ROWS if not row.slow], threads=2)
    assert not failed
    assert not differences(tables.read(), found, {row.name: not row.slow for row in ROWS})


def _stages() -> set[str]:
    """The names of all stages in the code."""
    found: set[str] = set()
    for path in sorted((ROOT / "flows" / "stages").rglob("*.py")):
        for match in re.finditer(r"StageSpec\(\s*name=(.+),\n", path.read_text(encoding="utf-8")):
            plain = re.fullmatch(r'"(\w+)"', match[1])
            found |= {plain[1]} if plain else {*_VARIABLES[match[1]]}
    return found


@pytest.mark.parametrize("name", sorted({*BUILT_IN, *_stages()}))
def test_every_step_and_stage_has_rows_with_different_settings(name):
    rows = covering({name})
    assert len({row.settings or row.name for row in rows}) >= 2, f"{name} has {len(rows)} rows in tests/golden/rows"


def test_every_stage_can_be_made_again_by_its_name():
    names = {*STAGES, *filter_stages(())}
    assert _stages() - {*BUILT_IN, "export"} <= names, "an export is where the user wants it"


def test_every_stage_of_the_table_can_be_named_to_be_made_again(tmp_path):
    stages = {label.split(" ")[0] for row in tables.read().values() for label in row}
    for name in stages - {"export"}:
        with remake([name]):
            Remaking(str(tmp_path), [*BUILT_IN], filter_stages(()))
    with remake(["export"]), pytest.raises(ValueError, match="--remake export: the recipe has no such step"):
        Remaking(str(tmp_path), [*BUILT_IN], filter_stages(()))


def test_the_stages_of_a_learned_filter_follow_from_its_step():
    class Own(LearnedFilter):
        step: Literal["dull"] = "dull"

    assert {f"{name}{part}" for name in _BY_STEPS for part in ("_model", "", "_cut")} <= {*filter_stages(())}
    assert filter_stages([Own(reference=("books",))])[-3:] == ("dull_model", "dull", "dull_cut")
    assert not {"dull", "c4", "minhash", "url"} & {*filter_stages(())}


def test_rows_make_what_they_cover():
    table = tables.read()
    for row in ROWS:
        made = {label.split(" ")[0] for label in table[row.name]}
        missing = {*row.covers} & _stages() - made - {*BUILT_IN}
        assert not missing, f"the row {row.name} covers {missing}, and makes none of it"


def test_names_of_rows_are_their_own():
    names = [row.name for row in ROWS]
    assert len(names) == len({*names})


KNOWN = {
    "one": {
        "documents": {"version": 1, "versions": {"extract": 2}, "contents": "aa", "inputs": []},
        "rules": {"version": 3, "versions": {"c4": 1}, "contents": "bb", "inputs": ["documents"]},
    },
    "other": {"documents": {"version": 1, "versions": {"extract": 2}, "contents": "cc", "inputs": []}},
}
RUN = {"one": True, "other": True}


def changed(**entries: dict) -> dict:
    """The table with changes of the stages of the row `one`."""
    found = deepcopy(KNOWN)
    for label, change in entries.items():
        found["one"][label] |= change
    return found


def test_what_is_equal_has_no_difference():
    assert differences(KNOWN, deepcopy(KNOWN), RUN) == []


def test_contents_that_changed_without_a_version_name_it():
    [line] = differences(KNOWN, changed(rules={"contents": "xx"}), RUN)
    assert "rules of row one: contents changed, version 3 did not" in line
    assert "the stage rules, or of the step c4" in line


def test_what_only_follows_from_its_inputs_is_not_named():
    [line] = differences(KNOWN, changed(documents={"contents": "xx"}, rules={"contents": "yy"}), RUN)
    assert "documents of row one" in line


def test_a_version_that_was_raised_asks_for_the_table():
    [line] = differences(KNOWN, changed(rules={"contents": "xx", "version": 4}), RUN)
    assert "the stage rules was raised" in line and "--update" in line
    [line] = differences(KNOWN, changed(rules={"contents": "xx", "versions": {"c4": 2}}), RUN)
    assert "the step c4 was raised" in line


def test_a_version_that_was_raised_for_nothing_is_named():
    [line] = differences(KNOWN, changed(rules={"version": 4}), RUN)
    assert line == "the version of the stage rules was raised, and nothing of it has changed: take it back"
    found = changed(documents={"versions": {"extract": 3}})
    found["other"]["documents"]["versions"] = {"extract": 3}
    assert "the step extract" in differences(KNOWN, found, RUN)[0]


def test_one_change_of_all_rows_is_enough_for_a_raised_version():
    found = changed(documents={"versions": {"extract": 3}})
    found["other"]["documents"] |= {"versions": {"extract": 3}, "contents": "xx"}
    assert all("nothing of it" not in line for line in differences(KNOWN, found, RUN))
    # where a row that has it was not run, it may have changed there
    del found["other"]
    assert differences(KNOWN, found, {"one": True, "other": False}) == []


def test_a_lower_version_is_named():
    [line] = differences(KNOWN, changed(rules={"version": 2}), RUN)
    assert "lower than in the table" in line


def test_rows_and_stages_that_are_new_or_gone_are_named():
    found = deepcopy(KNOWN) | {"new": {}}
    assert differences(KNOWN, found, {**RUN, "new": True}) == [
        "row new is not in the table: run `python -m tests.golden --update`"
    ]
    [line] = differences(KNOWN, {"one": deepcopy(KNOWN["one"])}, {"one": True})
    assert line.startswith("other is in the table and is no row")
    found = deepcopy(KNOWN)
    del found["one"]["rules"]
    assert "rules of row one is not made any more" in differences(KNOWN, found, RUN)[0]
    assert "rules of row one is not in the table" in differences(found, KNOWN, RUN)[0]


def test_floats_are_compared_within_a_tolerance():
    known = {"one": {"model": {"version": 1, "versions": {}, "numbers": {"loss": [2.0, 0.0]}, "inputs": []}}}
    near, far = deepcopy(known), deepcopy(known)
    near["one"]["model"]["numbers"]["loss"] = [2.001, 1e-9]
    far["one"]["model"]["numbers"]["loss"] = [2.01, 0.0]
    assert differences(known, near, {"one": True}) == []
    assert "model of row one: contents changed" in differences(known, far, {"one": True})[0]
    near["one"]["model"]["rest"] = "other identifiers"
    assert "model of row one: contents changed" in differences(known, near, {"one": True})[0]


def test_the_table_is_written_as_it_is_read(tmp_path):
    tables.write(KNOWN, tmp_path / "table.json")
    assert tables.read(tmp_path / "table.json") == KNOWN
    counts = defaultdict(int)
    for line in (tmp_path / "table.json").read_text().splitlines():
        counts["version" in line] += 1
    assert counts[True] == 3


def test_stages_of_other_releases_and_what_reads_them_are_not_compared():
    made = deepcopy(KNOWN)
    made["one"]["documents"] |= {"contents": "xx", "others": "trafilatura 1.0"}
    made["one"]["rules"]["contents"] = "yy"
    assert not differences(KNOWN, made, {"one": True, "other": True})
    del made["one"]["documents"]["others"]
    assert len(differences(KNOWN, made, {"one": True, "other": True})) == 1
