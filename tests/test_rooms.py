"""Which room may import which, and how modules may be called: the rules that keep the rooms apart."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("flows", "storage", "tasks", "training")
FORBIDDEN = {
    "storage": {"dask", "distributed", "prefect", "mlflow", "torch", "flows", "tasks", "training"},
    "tasks": {"prefect", "flows", "training", "mlflow"},
    "training": {"prefect", "flows", "tasks"},
}
IMPORTING_CALLS = {"__import__", "import_module"}


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and top-level package of every import, also inside functions and by a literal name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", None))
            literal = getattr(node.args[0], "value", None)
            names = [literal] if called in IMPORTING_CALLS and isinstance(literal, str) else []
        else:
            continue
        for name in names:
            yield node.lineno, name.partition(".")[0]


def modules(root: Path, room: str) -> list[Path]:
    return sorted((root / room).rglob("*.py"))


def forbidden_imports(root: Path, room: str) -> list[str]:
    return [
        f"{path.relative_to(root)}:{line} imports {package}"
        for path in modules(root, room)
        for line, package in imports(ast.parse(path.read_text(encoding="utf-8"), str(path)))
        if package in FORBIDDEN[room]
    ]


def names_of_the_standard_library(root: Path, room: str) -> list[str]:
    """Modules and packages that would shadow Python's own for a child with their folder on its path."""
    paths = {path for path in modules(root, room) if path.stem not in ("__init__", "__main__")}
    paths |= {path.parent for path in modules(root, room)}
    return sorted(str(path.relative_to(root)) for path in paths if path.stem in sys.stdlib_module_names)


@pytest.mark.parametrize("room", FORBIDDEN)
def test_rooms_import_only_what_they_may(room):
    assert modules(ROOT, room)
    assert forbidden_imports(ROOT, room) == []


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_is_named_like_one_of_the_standard_library(room):
    assert modules(ROOT, room)
    assert names_of_the_standard_library(ROOT, room) == []


@pytest.mark.parametrize(
    "statement",
    [
        "import dask.array",
        "import os, torch",
        "def later():\n    from tasks.documents.step import Step",
        "try:\n    from prefect import flow\nexcept ImportError:\n    flow = None",
        "import importlib\nimportlib.import_module('mlflow.tracking')",
    ],
)
def test_a_planted_import_is_found(tmp_path, statement):
    (tmp_path / "storage" / "deep").mkdir(parents=True)
    (tmp_path / "storage" / "fine.py").write_text("import numpy\nfrom storage.deep import planted\n")
    assert forbidden_imports(tmp_path, "storage") == []
    (tmp_path / "storage" / "deep" / "planted.py").write_text(statement + "\n")
    (found,) = forbidden_imports(tmp_path, "storage")
    assert found.startswith(str(Path("storage", "deep", "planted.py")))


def test_a_planted_name_is_found(tmp_path):
    for name in ("storage/shards.py", "storage/queue.py", "storage/types/__init__.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert names_of_the_standard_library(tmp_path, "storage") == ["storage/queue.py", "storage/types"]
