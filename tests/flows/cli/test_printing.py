"""Commands print results with one function, and JSON is indented the same everywhere."""

import ast
import json

import pytest

from gristmill.flows.cli.terminal import json_text, print_each, print_result
from gristmill.flows.reports.tables import Table
from tests.documented import ROOT

# What is no result: rows of a query as CSV and as lines of JSON, a schema or page as it is, and the version.
OTHERS = {"querying.py": {"typer.echo"}, "preparing.py": {"typer.echo"}, "app.py": {"typer.echo"}}
PRINTING = {"print", "typer.echo", "json.dumps", "to_json", "sys.stdout.write", "orjson.dumps"}


def test_a_result_is_text_tables_or_json(capsys):
    parts = ["a line", Table(("name", "#count"), [("a", 1200)])]
    print_result({"a": 1200, "none": float("inf")}, parts, as_json=False)
    shown = capsys.readouterr().out
    assert shown.startswith("a line\n") and "name" in shown and "1,200" in shown
    print_result({"a": 1200, "none": float("inf")}, parts, as_json=True)
    assert capsys.readouterr().out == '{\n  "a": 1200,\n  "none": null\n}\n'


def test_results_that_come_one_by_one_are_printed_as_they_come(capsys):
    shown = []

    def values():
        for number in range(3):
            shown.append(capsys.readouterr().out)
            yield number

    assert print_each(values(), lambda number: f"number {number}", as_json=False) == [0, 1, 2]
    assert shown == ["", "number 0\n", "number 1\n"]
    assert print_each(values(), str, as_json=True) == [0, 1, 2]
    assert json.loads(capsys.readouterr().out) == [0, 1, 2] == json.loads(json_text([0, 1, 2]))


@pytest.mark.parametrize("path", sorted((ROOT / "flows/cli").glob("*.py")), ids=lambda path: path.name)
def test_no_command_prints_otherwise(path):
    if path.name == "terminal.py":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        to_errors = any(keyword.arg == "err" for keyword in node.keywords)
        if name in PRINTING and not to_errors and name not in OTHERS.get(path.name, ()):
            assert (path.name, name) == ("querying.py", "orjson.dumps"), f"{path.name}:{node.lineno}"
