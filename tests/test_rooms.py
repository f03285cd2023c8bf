"""Which room may import which, and how modules may be called: the rules that keep the rooms apart."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("flows", "storage", "tasks", "training")
OURS = (*ROOMS, "tests", "tools", "gristmill")

# What a room may import of ours; a room is the longest entry that its modules begin with.
ALLOWED = {
    "storage": ("storage",),
    "tasks.kernels": ("tasks.kernels",),
    "tasks.engine": ("storage", "tasks.engine"),
    "tasks": ("storage", "tasks"),
    "training": ("storage", "training"),
    "flows.comparison": ("flows.comparison",),
    "flows.scaling": ("flows.scaling",),
    "flows.stages": ("storage", "tasks", "training", "flows"),
    "flows.reports": ("storage", "tasks", "training", "flows"),
    "flows": ("storage", "tasks", "training", "flows"),
    "tools": ("storage", "tasks", "tools"),
}
# What a room may not import, of ours or of others.
FORBIDDEN = {
    "storage": ("dask", "distributed", "prefect", "mlflow", "torch"),
    "tasks": ("prefect", "mlflow", "torch"),
    "training": ("prefect",),
    "flows.comparison": ("dask", "prefect", "mlflow", "torch"),
    "flows.scaling": ("dask", "prefect", "mlflow", "torch"),
    "flows.stages": ("prefect", "flows.reports", "flows.prefect_runner", "flows.pipeline", "flows.cli"),
    "flows.reports": ("prefect", "flows.prefect_runner", "flows.pipeline", "flows.cli"),
    "flows": (),
}
# Prefect takes seconds to import: the command line and the reports do without.
PREFECT = (
    "flows.ablate",
    "flows.pipeline",
    "flows.prefect_artifacts",
    "flows.prefect_automations",
    "flows.prefect_batch",
    "flows.prefect_env",
    "flows.prefect_flow",
    "flows.prefect_names",
    "flows.prefect_runner",
    "flows.prefect_server",
    "flows.scale",
)
# Kernels follow one loop through many cases, and tables have many rows.
LONG = ("tasks.kernels.",)
MOST_LINES = 400
IMPORTING_CALLS = {"__import__", "import_module"}


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and module of every import, also inside functions and by a literal name; `from a import b` gives `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", None))
            literal = getattr(node.args[0], "value", None)
            names = [literal] if called in IMPORTING_CALLS and isinstance(literal, str) else []
        else:
            continue
        for name in names:
            yield node.lineno, name


def modules(root: Path, room: str) -> list[Path]:
    return sorted((root / room.replace(".", "/")).rglob("*.py"))


def name_of(root: Path, path: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def within(name: str, room: str) -> bool:
    return name == room or name.startswith(f"{room}.")


def room_of(name: str, rooms: dict) -> str | None:
    return max((room for room in rooms if within(name, room)), key=len, default=None)


def forbidden_imports(root: Path, room: str) -> list[str]:
    """Imports that a module of a room may not have, by ALLOWED and FORBIDDEN."""
    found = []
    for path in modules(root, room):
        name = name_of(root, path)
        allowed = ALLOWED[room_of(name, ALLOWED)]
        for line, imported in imports(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            ours = imported.split(".")[0] in OURS
            strange = ours and not any(within(imported, one) for one in allowed)
            refused = any(within(imported, no) for one in FORBIDDEN if within(name, one) for no in FORBIDDEN[one])
            if strange or refused:
                found.append(f"{path.relative_to(root)}:{line} imports {imported}")
    return found


def names_of_the_standard_library(root: Path, room: str) -> list[str]:
    """Modules and packages that would shadow Python's own for a child with their folder on its path."""
    paths = {path for path in modules(root, room) if path.stem not in ("__init__", "__main__")}
    paths |= {path.parent for path in modules(root, room)}
    return sorted(str(path.relative_to(root)) for path in paths if path.stem in sys.stdlib_module_names)


@pytest.mark.parametrize("room", [*ROOMS, "tools"])
def test_rooms_import_only_what_they_may(room):
    assert modules(ROOT, room)
    assert forbidden_imports(ROOT, room) == []


def test_prefect_is_imported_by_its_own_modules_alone():
    having = {
        name_of(ROOT, path)
        for path in modules(ROOT, "flows")
        for _, imported in imports(ast.parse(path.read_text(encoding="utf-8")))
        if within(imported, "prefect")
    }
    assert having <= set(PREFECT), having - set(PREFECT)


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_is_named_like_one_of_the_standard_library(room):
    assert modules(ROOT, room)
    assert names_of_the_standard_library(ROOT, room) == []


def test_tasks_has_rooms_and_no_modules_beside_them():
    assert [path.name for path in (ROOT / "tasks").glob("*.py")] == ["__init__.py"]


def test_modules_are_short():
    long = {
        name_of(ROOT, path): lines
        for room in ROOMS
        for path in modules(ROOT, room)
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MOST_LINES
    }
    assert not {name: lines for name, lines in long.items() if not name.startswith(LONG)}


@pytest.mark.parametrize(
    "statement",
    [
        "import dask.array",
        "import os, torch",
        "def later():\n    from tasks.documents.step import Step",
        "try:\n    from prefect import flow\nexcept ImportError:\n    flow = None",
        "import importlib\nimportlib.import_module('mlflow.tracking')",
        "from flows import recipe",
    ],
)
def test_a_planted_import_is_found(tmp_path, statement):
    (tmp_path / "storage" / "deep").mkdir(parents=True)
    (tmp_path / "storage" / "fine.py").write_text("import numpy\nfrom storage.deep import planted\n")
    assert forbidden_imports(tmp_path, "storage") == []
    (tmp_path / "storage" / "deep" / "planted.py").write_text(statement + "\n")
    (found,) = forbidden_imports(tmp_path, "storage")
    assert found.startswith(str(Path("storage", "deep", "planted.py")))


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("tasks/kernels/words.py", "from tasks.documents import step"),
        ("tasks/engine/make.py", "from tasks.kernels import scan"),
        ("flows/stages/rules.py", "from flows.reports import funnel"),
        ("flows/reports/status.py", "import flows.pipeline"),
        ("training/loop.py", "import tasks.engine"),
        ("flows/comparison/protocol.py", "from storage import files"),
    ],
)
def test_a_planted_arrow_within_a_room_is_found(tmp_path, path, statement):
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(statement + "\n")
    assert len(forbidden_imports(tmp_path, path.split("/")[0])) == 1


def test_a_planted_name_is_found(tmp_path):
    for name in ("storage/shards.py", "storage/queue.py", "storage/types/__init__.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert names_of_the_standard_library(tmp_path, "storage") == ["storage/queue.py", "storage/types"]
