"""Names of modules in strings, settings, docs and commands: each leads to what is there. So this test finds where a
string still has the old name of a module that moved."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("flows", "tasks", "storage", "training", "gristmill/samples", "tests", "tools", "docker", "examples")
FILES = ("prefect.yaml", "pyproject.toml", "Makefile", "README.md", "CONTRIBUTING.md", "gristmill/__init__.py")
TEXTS = ("*.md", "*.yaml", "*.yml", "*.toml", "*.sh", "Dockerfile*")

# Names that tests make up.
PLANTED = {
    "tests/test_rooms.py": ("gristmill.tasks.one", "gristmill.tasks.two", "gristmill.storage.deep"),
    "tests/tasks/engine/test_executors.py": ("gristmill.tasks.crew",),
    "tests/flows/machine/test_versions.py": (
        "gristmill.storage.held",
        "gristmill.storage.ledger_schema",
        "gristmill.tasks.documents.gopher_quality",
        "gristmill.tasks.models.training_and_scores",
    ),
    "CONTRIBUTING.md": ("gristmill.tasks.x",),
}

# `gristmill.tasks.engine.spec:digest`, `gristmill.storage.files.facts`, `python -m gristmill.training.run.rate`
NAME = re.compile(r"\bgristmill((?:\.(?:flows|tasks|storage|training|samples))(?:\.[A-Za-z_]\w*)*)(?::([A-Za-z_]\w*))?")


def sources() -> Iterator[Path]:
    """All files that may name a module, each once."""
    for room in ROOMS:
        folder = ROOT / room
        yield from sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)
        for pattern in TEXTS:
            yield from sorted(folder.rglob(pattern))
    yield from (ROOT / name for name in FILES)
    yield from sorted((ROOT / "docs").rglob("*.md"))


def names_in(text: str) -> Iterator[tuple[str, str]]:
    """(dotted name, what is behind a colon) of each module that a text names."""
    for match in NAME.finditer(text):
        end = text[match.end() : match.end() + 1]
        if end == "{" or text[match.end() : match.end() + 2] in ("./", ".*"):  # the rest is put in at run time
            continue
        yield f"gristmill{match[1]}", match[2] or ""


def module_path(dotted: str) -> Path | None:
    parts = dotted.split(".")[1:]
    inner = Path("gristmill", *parts) if parts[:1] == ["samples"] else Path(*parts)
    # compiled modules have only types
    for path in (ROOT / inner.with_suffix(".py"), ROOT / inner.with_suffix(".pyi"), ROOT / inner / "__init__.py"):
        if path.is_file():
            return path
    return ROOT / inner if (ROOT / inner).is_dir() else None


def there(dotted: str, attribute: str) -> bool:
    """Whether a dotted name is a module, or names within one, one in the other."""
    parts = dotted.split(".")
    for length in range(len(parts), 1, -1):
        path = module_path(".".join(parts[:length]))
        if path is not None:
            inner = [*parts[length:], *([attribute] if attribute else [])]
            return not inner or (path.is_file() and defines(path, inner))
    return False


def defines(path: Path, names: list[str]) -> bool:
    """Whether a module binds the first name; of a class of its own also the second."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for name in names:
        found = [node for node in body if name in bound(node)]
        if not found:
            return False
        if not isinstance(found[-1], ast.ClassDef):
            return True  # what follows is an attribute of an object
        body = found[-1].body
    return True


def bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.If | ast.Try | ast.With):
        inner = [*node.body, *getattr(node, "orelse", [])]
        return set().union(*map(bound, inner)) if inner else set()
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


@pytest.mark.extended
def test_every_module_that_is_named_is_there():
    missing = [
        f"{path.relative_to(ROOT)}: {dotted}{':' if attribute else ''}{attribute}"
        for path in dict.fromkeys(sources())
        if path != Path(__file__).resolve()
        for dotted, attribute in dict.fromkeys(names_in(path.read_text(encoding="utf-8", errors="replace")))
        if not there(dotted, attribute) and not dotted.startswith(PLANTED.get(str(path.relative_to(ROOT)), "-"))
    ]
    assert not missing, "\n".join(missing)


def test_names_are_not_put_together_from_parts():
    """A name that a string completes at run time would escape the search."""
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for room in ("flows", "tasks", "storage", "training")
        for path in sorted((ROOT / room).rglob("*.py"))
        for match in re.finditer(r"gristmill\.[a-z_.]+\{", path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text, missing",
    [
        ("python -m gristmill.training.run.rate", []),
        ("`gristmill.tasks.engine.spec:digest`", []),
        ("see gristmill.storage.files.facts.", []),
        ("gristmill.tasks.engine.make.StageResult.label", []),
        ("gristmill.flows.nowhere:function", ["gristmill.flows.nowhere"]),
        ("gristmill.storage.files:no_such_name", ["gristmill.storage.files"]),
        ("gristmill.tasks.engine.make.StageResult.no_such", ["gristmill.tasks.engine.make.StageResult.no_such"]),
    ],
)
def test_the_search_itself(text, missing):
    assert [dotted for dotted, attribute in names_in(text) if not there(dotted, attribute)] == missing
