"""Which room may import which, and how modules may be called: the rules that keep the rooms apart."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("flows", "gristmill/samples", "storage", "tasks", "training")
# Beside `gristmill` the rooms themselves: a checkout has them on Python's path, an installation does not.
OURS = ("flows", "storage", "tasks", "training", "tests", "tools", "gristmill")

# The rooms of flows/, from the first to the last: a room imports only those before it, so no two import each other. The
# parts of `experiments` and of `explore` have an order, too.
ORDER = (
    "gristmill.flows.demo",
    "gristmill.flows.machine",
    "gristmill.flows.stats",
    "gristmill.flows.recipe",
    "gristmill.flows.stages",
    "gristmill.flows.curation",
    "gristmill.flows.reports",
    "gristmill.flows.run",
    "gristmill.flows.pipeline",
    "gristmill.flows.experiments.options",
    "gristmill.flows.experiments.models",
    "gristmill.flows.experiments.decisions",
    "gristmill.flows.experiments.mixture_plan",
    "gristmill.flows.experiments.mixtures",
    "gristmill.flows.experiments.scaling",
    "gristmill.flows.experiments.planning",
    "gristmill.flows.experiments.studies",
    "gristmill.flows.explore.search",
    "gristmill.flows.explore.dependents",
    "gristmill.flows.explore.browse",
    "gristmill.flows.cli",
)
BELOW_FLOWS = ("gristmill.samples", "gristmill.storage", "gristmill.tasks", "gristmill.training")

# What a room may import of ours; a room is the longest entry that its modules begin with.
ALLOWED = {
    "gristmill.storage": ("gristmill.storage",),
    "gristmill.tasks.kernels": ("gristmill.tasks.kernels",),
    "gristmill.tasks.engine": ("gristmill.storage", "gristmill.tasks.engine"),
    "gristmill.tasks": ("gristmill.storage", "gristmill.tasks"),
    "gristmill.samples": ("gristmill.storage", "gristmill.samples"),
    "gristmill.training": ("gristmill.storage", "gristmill.samples", "gristmill.training"),
    "gristmill.flows": BELOW_FLOWS,
    "tools": ("gristmill.storage", "gristmill.tasks", "tools"),
    **{room: (*BELOW_FLOWS, *ORDER[: at + 1]) for at, room in enumerate(ORDER)},
    "gristmill.flows.stats": ("gristmill.flows.stats",),
}
# What a room may not import, of ours or of others.
FORBIDDEN = {
    "gristmill.samples": ("dask", "distributed", "prefect", "mlflow"),
    "gristmill.storage": ("dask", "distributed", "prefect", "mlflow", "torch"),
    "gristmill.tasks": ("prefect", "mlflow", "torch"),
    "gristmill.training": ("prefect",),
    "gristmill.flows.stats": ("dask", "prefect", "mlflow", "torch"),
}
# Prefect takes seconds to import: the command line and the reports do without.
PREFECT = (
    "gristmill.flows.experiments.decisions.ablate",
    "gristmill.flows.pipeline",
    "gristmill.flows.run.artifacts",
    "gristmill.flows.run.flow",
    "gristmill.flows.run.runner",
    "gristmill.flows.run.server",
    "gristmill.flows.experiments.scaling.scale",
    "gristmill.flows.experiments.studies.study",
    "gristmill.flows.explore.search.index",
    "gristmill.flows.run.automations",
)
# Kernels follow one loop through many cases, and tables have many rows.
LONG = ("gristmill.tasks.kernels.",)
MOST_LINES = 450
MIN_LINES = 45
MOST_MODULES = 20  # of a folder: more have groups that are folders of their own
MAX_NESTED_IMPORTS = 80  # in functions: for optional packages, and where wrapt is not installed
IMPORTING_CALLS = {"__import__", "import_module", "lazy_import"}


@cache
def tree_of(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def imports_of(text: str) -> tuple[tuple[int, str], ...]:
    return tuple(imports(tree_of(text)))


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
    """The name by which a module of a room, or of `tools`, is imported."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(("gristmill", *parts) if parts[0] in ROOMS else parts).removesuffix(".__init__")


def within(name: str, room: str) -> bool:
    return name == room or name.startswith(f"{room}.")


def room_of(name: str, rooms: dict) -> str | None:
    while name and name not in rooms:
        name = name.rpartition(".")[0]
    return name or None


def forbidden_imports(root: Path, room: str) -> list[str]:
    """Imports that a module of a room may not have, by ALLOWED and FORBIDDEN."""
    found = []
    for path in modules(root, room):
        name = name_of(root, path)
        allowed = ALLOWED[room_of(name, ALLOWED)]
        for line, imported in imports_of(path.read_text(encoding="utf-8")):
            ours = imported.split(".")[0] in OURS and imported != "gristmill"  # which imports nothing of ours by itself
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


def test_tests_import_the_rooms_by_their_installed_names():
    # to parse all tests takes as long as a hundred of them
    like_one = re.compile(rf"\b(?:from|import|{'|'.join(IMPORTING_CALLS)})\b[\s(\"']*(?:{'|'.join(ROOMS)})\b")
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for path in modules(ROOT, "tests")
        if like_one.search(text := path.read_text(encoding="utf-8"))
        for line, imported in imports_of(text)
        if imported.split(".")[0] in ROOMS
    ]
    assert found == []


def test_prefect_is_imported_by_its_own_modules_alone():
    having = {
        name_of(ROOT, path)
        for path in modules(ROOT, "flows")
        for _, imported in imports_of(path.read_text(encoding="utf-8"))
        if within(imported, "prefect")
    }
    assert having <= set(PREFECT), having - set(PREFECT)


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_is_named_like_one_of_the_standard_library(room):
    assert modules(ROOT, room)
    assert names_of_the_standard_library(ROOT, room) == []


def test_tasks_has_rooms_and_no_modules_beside_them():
    assert [path.name for path in (ROOT / "tasks").glob("*.py")] == ["__init__.py"]


def is_for_annotations(node: ast.stmt) -> bool:
    """`if TYPE_CHECKING:`, whose `else` runs: it has the lazy twins of modules that are imported for annotations."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def circle(root: Path) -> list[str]:
    """Modules that import each other in a circle; empty where there is none. What only annotations need is not run."""
    paths = {name_of(root, path): path for room in ROOMS for path in modules(root, room)}
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        tree = tree_of(path.read_text(encoding="utf-8"))
        body = [part for node in tree.body for part in (node.orelse if is_for_annotations(node) else [node])]
        run = ast.Module(body, [])
        graph[name] = {target for _, imported in imports(run) if (target := room_of(imported, paths))} - {name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle():
    assert circle(ROOT) == []


@pytest.mark.parametrize(
    "statement",
    [
        "from gristmill.tasks.one import made\n",
        "def g():\n    import gristmill.tasks.one\n",
        "if TYPE_CHECKING:\n    import os\nelse:\n    one = wrapt.lazy_import('gristmill.tasks.one')\n",
    ],
)
def test_a_planted_circle_is_found(tmp_path, statement):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "one.py").write_text("from gristmill.tasks.two import made\n")
    (tmp_path / "tasks" / "two.py").write_text("from gristmill.tasks import three\n")
    (tmp_path / "tasks" / "three.py").write_text("import os\n")
    assert circle(tmp_path) == []
    (tmp_path / "tasks" / "three.py").write_text(statement)
    assert set(circle(tmp_path)) == {f"gristmill.tasks.{name}" for name in ("one", "two", "three")}


def test_every_room_of_flows_has_its_place_in_the_order():
    here = {path.stem for path in (ROOT / "flows").iterdir() if path.name[0] not in "_."}
    assert here == {room.split(".")[2] for room in ORDER}
    assert {path.name for path in (ROOT / "flows").glob("*.py")} == {
        "__init__.py",
        "curation.py",
        "pipeline.py",
    }


def test_folders_are_no_lists():
    """But the one of rules, which is."""
    folders = {path.parent.relative_to(ROOT) for room in ROOMS for path in modules(ROOT, room)} - {Path("tasks/rules")}
    counts = {str(folder): len(list((ROOT / folder).glob("*.py"))) for folder in folders}
    assert not {folder: count for folder, count in counts.items() if count > MOST_MODULES}


def nested_imports(root: Path) -> list[str]:
    """Import statements inside functions, each with its file and line."""
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return sorted(
        f"{path.relative_to(root)}:{node.lineno}"
        for room in ROOMS
        for path in modules(root, room)
        for node in {
            node
            for function in ast.walk(tree_of(path.read_text(encoding="utf-8")))
            if isinstance(function, functions)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
    )


def test_few_imports_are_inside_functions():
    places = nested_imports(ROOT)
    assert len(places) < MAX_NESTED_IMPORTS, places


def test_a_planted_import_in_a_function_is_counted_once(tmp_path):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "one.py").write_text("import os\ndef f():\n    def g():\n        import re, ast\n")
    assert nested_imports(tmp_path) == ["tasks/one.py:4"]


def lazy_twins(tree: ast.Module) -> tuple[dict[str, str], dict[str, str]]:
    """By name of the variable: modules that are imported lazily, and those that are imported for annotations."""
    lazy, annotated = {}, {}
    for node in filter(is_for_annotations, tree.body):
        for each in node.orelse:
            if isinstance(each, ast.Assign) and "lazy_import" in ast.dump(each.value):
                lazy[each.targets[0].id] = each.value.args[0].value
        for each in node.body:
            if isinstance(each, ast.Import):
                annotated |= {alias.asname or alias.name: alias.name for alias in each.names}
            elif isinstance(each, ast.ImportFrom):
                annotated |= {alias.asname or alias.name: f"{each.module}.{alias.name}" for alias in each.names}
    return lazy, annotated


@pytest.mark.parametrize("room", ROOMS)
def test_modules_that_are_imported_lazily_exist_and_have_twins_for_annotations(room):
    """The digest of a stage's code follows the twins, and mypy knows the modules by them."""
    for path in modules(ROOT, room):
        text = path.read_text(encoding="utf-8")
        lazy, annotated = lazy_twins(tree_of(text))
        assert len(lazy) == text.count("lazy_import("), path
        for name, module in lazy.items():
            assert annotated.get(name) == module, f"{path}: {name}"
            assert not module.startswith("gristmill.") or find_spec(module), f"{path}: {module}"


@pytest.mark.parametrize("room", ["gristmill/samples", "storage", "training"])
def test_rooms_that_other_environments_run_do_without_wrapt(room):
    """docs/guides/other-trainers.md names what they need."""
    for path in modules(ROOT, room):
        assert "wrapt" not in path.read_text(encoding="utf-8"), path


def test_modules_are_short():
    long = {
        name_of(ROOT, path): lines
        for room in ROOMS
        for path in modules(ROOT, room)
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MOST_LINES
    }
    assert not {name: lines for name, lines in long.items() if not name.startswith(LONG)}


def test_numba_is_imported_from_one_module():
    """It keeps compiled kernels in a folder named by the sources of all packages that import numba from there. Of the
    others one takes numba's types besides, and one only its events."""
    importing = {
        name_of(ROOT, path)
        for path in modules(ROOT, "tasks")
        for _, imported in imports_of(path.read_text(encoding="utf-8"))
        if within(imported, "numba")
    }
    assert importing == {
        f"gristmill.tasks.{name}"
        for name in ("kernels.compiled", "kernels.packed", "kernels.buffers", "engine.job_costs")
    }


def test_a_short_module_says_why_it_is_separate():
    for room in ROOMS:
        for path in modules(ROOT, room):
            text = path.read_text(encoding="utf-8")
            if path.name != "__init__.py" and len(text.splitlines()) < MIN_LINES:
                assert "Separate: " in text.partition("\n")[0], path


@pytest.mark.parametrize(
    "statement",
    [
        "import dask.array",
        "import os, torch",
        "def later():\n    from gristmill.tasks.documents.step import Step",
        "try:\n    from prefect import flow\nexcept ImportError:\n    flow = None",
        "import importlib\nimportlib.import_module('mlflow.tracking')",
        "import wrapt\ntracking = wrapt.lazy_import('mlflow.tracking')",
        "from gristmill.flows import recipe",
        "from storage import files",
    ],
)
def test_a_planted_import_is_found(tmp_path, statement):
    (tmp_path / "storage" / "deep").mkdir(parents=True)
    (tmp_path / "storage" / "fine.py").write_text("import numpy\nfrom gristmill.storage.deep import planted\n")
    assert forbidden_imports(tmp_path, "storage") == []
    (tmp_path / "storage" / "deep" / "planted.py").write_text(statement + "\n")
    (found,) = forbidden_imports(tmp_path, "storage")
    assert found.startswith(str(Path("storage", "deep", "planted.py")))


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("tasks/kernels/folding.py", "from gristmill.tasks.documents import step"),
        ("tasks/engine/make.py", "from gristmill.tasks.kernels import scan"),
        ("flows/stages/signals.py", "from gristmill.flows.reports import funnel"),
        ("flows/reports/status.py", "import gristmill.flows.pipeline"),
        ("training/run/loop.py", "import gristmill.tasks.engine"),
        ("flows/stats/protocol.py", "from gristmill.storage import files"),
    ],
)
def test_a_planted_arrow_within_a_room_is_found(tmp_path, path, statement):
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(statement + "\n")
    assert len(forbidden_imports(tmp_path, path.split("/")[0])) == 1


def test_a_planted_name_is_found(tmp_path):
    for name in ("storage/ledger.py", "storage/queue.py", "storage/types/__init__.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert names_of_the_standard_library(tmp_path, "storage") == ["storage/queue.py", "storage/types"]
