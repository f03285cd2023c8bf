"""A recipe is read without the libraries that take long to import."""

import subprocess
import sys
from pathlib import Path

import pytest

from gristmill.flows.recipe.recipe import RECIPES

ROOT = Path(__file__).resolve().parents[3]
SLOW = {
    "numba",
    "scipy",
    "sklearn",
    "aiohttp",
    "torch",
    "prefect",
    "distributed",
    "mlflow",
    "matplotlib",
    "gristmill.tasks.models.compiled.fasttext_pybind",
    "gristmill.tasks.models.compiled.kenlm",
    "sentencepiece",
    "tokenizers",
}
READ = """
import sys
from gristmill.flows.recipe.recipe import dump, load
dump(load(sys.argv[1]))
print(*sys.modules)
"""


@pytest.mark.extended
@pytest.mark.parametrize("recipe", sorted(path.stem for path in RECIPES.glob("*.yaml")))
def test_a_shipped_recipe_is_read_without_slow_libraries(recipe):
    command = [sys.executable, "-c", READ, recipe]
    imported = set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())
    assert {"pydantic", "pyarrow", "gristmill"} <= imported
    assert imported & SLOW == set()
