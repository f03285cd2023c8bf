"""The tables of docs/reference/shipped-recipes.md against the recipes that ship."""

import re
from pathlib import Path

import pytest
import yaml

from gristmill.flows.recipe.recipe import RECIPES

DOC = Path(__file__).resolve().parents[2] / "docs" / "reference" / "shipped-recipes.md"
PUBLISHED = sorted(path.stem for path in RECIPES.glob("*.yaml") if path.stem != "demo")


def tables(text: str) -> dict[str, list[tuple[str, str]]]:
    """By recipe the first and the last cell of each row: a setting, and what stands for it."""
    found = {}
    for part in re.split(r"^## .*\(`", text, flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("`")
        cells = [re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in body.splitlines() if line.startswith("| `")]
        found[name] = [(row[0].strip("`"), row[-1].strip("`")) for row in cells]
    return found


def differences(name: str, table: list[tuple[str, str]]) -> dict[str, tuple]:
    """Settings for which the table and the recipe do not say the same."""
    steps = yaml.safe_load((RECIPES / f"{name}.yaml").read_text(encoding="utf-8"))["steps"]
    written = {f"{step['step']}.{key}": value for step in steps for key, value in step.items() if key != "step"}
    said = {key: yaml.safe_load(ours) for key, ours in table}
    nothing = object()
    return {
        key: (said.get(key, "not in the table"), written.get(key, "not in the recipe"))
        for key in {**said, **written}
        if said.get(key, nothing) != written.get(key, nothing)
    }


def test_there_is_a_table_for_each_published_recipe():
    assert sorted(tables(DOC.read_text(encoding="utf-8"))) == PUBLISHED


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_table_has_every_setting_of_its_recipe_and_its_value(name):
    table = tables(DOC.read_text(encoding="utf-8"))[name]
    assert len({key for key, _ in table}) == len(table)
    assert differences(name, table) == {}


def test_a_planted_difference_is_found():
    table = tables(DOC.read_text(encoding="utf-8"))["gopher"]
    changed = [(key, "51" if key == "gopher_quality.min_words" else ours) for key, ours in table[:-1]] + [("a.b", "1")]
    assert differences("gopher", changed) == {
        "gopher_quality.min_words": (51, 50),
        "a.b": (1, "not in the recipe"),
        table[-1][0]: ("not in the table", yaml.safe_load(table[-1][1])),
    }
