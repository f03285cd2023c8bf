"""The one form in which stages are declared."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from gristmill.tasks.engine.spec import StageSpec

FLOWS = Path(__file__).resolve().parents[3] / "flows"
ORDER = [field.name for field in fields(StageSpec)]
REQUIRED = ["name", "version", "body", "record", "inputs", "places"]
UNSPECIFIC = ("Record", "Places")  # names that do not tell which stage's


def trees(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def problems(tree: ast.Module) -> list[str]:
    """Declarations of stages in another form than that of docs/architecture.md, a line each."""
    bodies = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and ast.get_docstring(node)}
    named = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Return) or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "spec")
    }
    lines = []
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "StageSpec"):
            continue
        names = [keyword.arg for keyword in call.keywords]
        if call.args or None in names:
            lines.append(f"{call.lineno}: arguments without a keyword")
            continue
        if names[: len(REQUIRED)] != REQUIRED or names != sorted(names, key=ORDER.index):
            lines.append(f"{call.lineno}: {', '.join(map(str, names))} instead of {', '.join(ORDER)}")
        if len({keyword.lineno for keyword in call.keywords}) < len(names):
            lines.append(f"{call.lineno}: several arguments on one line")
        if id(call) not in named:
            lines.append(f"{call.lineno}: neither `spec = StageSpec(...)` nor `return StageSpec(...)`")
        of_body = {
            node.id for keyword in call.keywords[2:3] for node in ast.walk(keyword.value) if isinstance(node, ast.Name)
        }
        if not of_body & bodies and "body" not in of_body:
            lines.append(f"{call.lineno}: the body is not a function of this module with a docstring")
    return lines


def test_every_stage_is_declared_in_one_form():
    assert {path.name: lines for path, tree in trees(FLOWS) if (lines := problems(tree))} == {}
    assert sum("StageSpec(" in path.read_text(encoding="utf-8") for path, _ in trees(FLOWS)) > 15


def test_records_and_places_are_named_after_their_stage():
    names = [
        f"{path.name}: {node.name}"
        for path, tree in trees(FLOWS / "stages")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name in UNSPECIFIC
    ]
    assert names == []


FORM = """
def count(phases, record, places):
    '''Count.'''

spec = StageSpec(
    name="counts",
    version=1,
    body=count,
    record=record,
    inputs={},
    places=None,
)
"""


@pytest.mark.parametrize(
    "planted",
    [
        FORM.replace("name=", ""),
        FORM.replace("    version=1,\n", "").replace("    inputs={},\n", "    inputs={},\n    version=1,\n"),
        FORM.replace("    places=None,\n", "    **more,\n"),
        FORM.replace("    places=None,\n", ""),
        FORM.replace("record=record,\n    ", "record=record, "),
        FORM.replace("spec =", "built =").replace("'''Count.'''", "'''Count.'''\n"),
        FORM.replace("body=count", "body=others"),
    ],
)
def test_another_form_is_refused(planted):
    assert problems(ast.parse(FORM)) == []
    assert planted != FORM and len(problems(ast.parse(planted))) >= 1
