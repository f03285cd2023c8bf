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
RETURNED = ("StageResult", "Corpus", "StageSpec", "Split")  # Split: two corpora and the stages between them
UNSPECIFIC = ("Record", "Places")  # names that do not tell which stage's


def trees(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def problems(tree: ast.Module) -> list[str]:
    """Declarations of stages in another form than that of docs/architecture.md, a line each: a builder returns the
    finished stage or the corpus that it leaves; `<stage>_spec` returns the declaration."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    lines = []
    for place, builder in enumerate(functions):
        beside = {node.name for node in functions[place + 1 : place + 3] if ast.get_docstring(node)}
        returned = ast.unparse(builder.returns).removesuffix(" | None") if builder.returns else ""
        for node in ast.walk(builder):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "StageSpec":
                found = _wrong_call(node, beside)
                if returned not in RETURNED or (returned == "StageSpec") != builder.name.endswith("_spec"):
                    found.append(f"{builder.name} returns {returned}")
                if not _is_statement(node, builder):
                    found.append("neither `spec = StageSpec(...)` nor `return StageSpec(...)`")
                lines += [f"{node.lineno}: {line}" for line in found]
    return lines


def _wrong_call(call: ast.Call, beside: set[str]) -> list[str]:
    """What is wrong with the arguments. `beside`: the functions with a docstring that follow the builder."""
    names = [keyword.arg or "" for keyword in call.keywords]
    if call.args or "" in names:
        return ["arguments without a keyword"]
    found = []
    if names[: len(REQUIRED)] != REQUIRED or names != sorted(names, key=ORDER.index):
        found.append(f"{', '.join(names)} instead of {', '.join(ORDER)}")
    if len({keyword.lineno for keyword in call.keywords}) < len(names):
        found.append("several arguments on one line")
    bodies = {
        node.id
        for keyword in call.keywords
        if keyword.arg == "body"
        for node in ast.walk(keyword.value)
        if isinstance(node, ast.Name)
    }
    if not bodies & beside:
        found.append("the body does not follow its builder, or has no docstring")
    return found


def _is_statement(call: ast.Call, builder: ast.FunctionDef) -> bool:
    """Whether a call is a statement `spec = ...` or `return ...` of its builder."""
    for node in ast.walk(builder):
        if isinstance(node, ast.Return | ast.Assign) and node.value is call:
            return isinstance(node, ast.Return) or ast.unparse(node.targets[0]) == "spec"
    return False


@pytest.mark.extended
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
def counts() -> StageResult:
    spec = StageSpec(
        name="counts",
        version=1,
        body=_count,
        record=record,
        inputs={},
        places=None,
    )
    return context.build(spec)

def _count(phases, record, places):
    'Count.'
"""


@pytest.mark.parametrize(
    "planted",
    [
        FORM.replace("name=", ""),
        FORM.replace("        version=1,\n", "").replace("inputs={},\n", "inputs={},\n        version=1,\n"),
        FORM.replace("places=None", "**more"),
        FORM.replace("        places=None,\n", ""),
        FORM.replace("record=record,\n        ", "record=record, "),
        FORM.replace("spec =", "built ="),
        FORM.replace("    'Count.'", "    pass"),
        FORM.replace("body=_count", "body=others"),
        FORM.replace("StageResult", "dict"),
        FORM.replace("counts()", "counts_spec()"),
        FORM.replace("StageResult", "StageSpec"),
    ],
)
def test_another_form_is_refused(planted):
    assert problems(ast.parse(FORM)) == []
    assert planted != FORM and len(problems(ast.parse(planted))) == 1
