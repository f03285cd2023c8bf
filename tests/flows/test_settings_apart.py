"""A recipe is read without the libraries that do the work: settings import pydantic and the standard library."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from gristmill.flows.recipe.recipe import RECIPES
from gristmill.flows.recipe.steps import TABLE

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("numba", "pyarrow", "aiohttp", "lxml", "phonenumbers", "fsspec", "torch", "prefect", "numpy", "kenlm")
READ = """
import sys
from gristmill.flows.recipe.recipe import dump, load
if len(sys.argv) > 1:
    dump(load(sys.argv[1]))
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def imported(*recipe: str) -> set[str]:
    run = [sys.executable, "-c", READ, *recipe]
    return set(subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())


def test_the_recipe_module_brings_in_no_library_of_the_work():
    found = imported()
    assert {"pydantic", "yaml", "gristmill"} <= found
    assert found & {*HEAVY} == set()


@pytest.mark.parametrize("recipe", sorted(path.stem for path in RECIPES.glob("*.yaml")))
def test_a_shipped_recipe_is_read_without_them(recipe):
    assert imported(recipe) & {*HEAVY} == set()


@pytest.mark.parametrize("module", sorted({row.settings.__module__ for row in TABLE}))
def test_settings_import_pydantic_and_other_settings(module):
    """Seen in the text of the module: an import within a function would be found too."""
    tree = ast.parse((ROOT / f"{module.removeprefix('gristmill.').replace('.', '/')}.py").read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    known = {*sys.stdlib_module_names, "pydantic"}
    strange = {name for name in names if name.partition(".")[0] not in known}
    strange -= {"gristmill.storage.address"}  # a type of pydantic's
    assert not [name for name in strange if not name.startswith("gristmill.tasks.")]
    assert not [name for name in names if name.endswith("_work")]
