"""Commands in the documentation: each has options and arguments that there are."""

import re
from itertools import pairwise

import pytest
import typer

from gristmill.flows.cli import app
from gristmill.flows.recipe.recipe import load
from tests.documented import commands
from tests.readme_funnel import written

COMMANDS = commands()
GROUP = typer.main.get_command(app)


def read(arguments: tuple[str, ...]) -> str:
    """Read a command as the command line reads it, up to the point where the work would begin; returns its name.

    `typer.Exit` is what `--help` and `--version` end with.
    """
    command, left, context = GROUP, list(arguments), None
    while True:
        context = command.make_context(command.name, left, parent=context)
        if not hasattr(command, "resolve_command"):
            return context.command_path
        _, command, left = command.resolve_command(context, [*context._protected_args, *context.args])


def test_they_are_found():
    assert len(COMMANDS) > 80
    assert len({each.arguments[0] for each in COMMANDS if each.arguments}) > 30


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_documented_command_is_one_that_there_is(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").touch()
    assert read(command.arguments)


@pytest.mark.parametrize(
    "wrong", [("shew", "documents"), ("show",), ("show", "documents", "--rules", "x"), ("show", "documents", "-n", "0")]
)
def test_one_that_there_is_not_is_noticed(wrong):
    with pytest.raises(Exception, match="No such|Missing|greater than"):
        read(wrong)


def test_the_readmes_funnel_is_that_of_the_demo():
    """Its steps, each with the documents that the step before it left."""
    readme, begin, end = written()
    rows = [line.split() for line in readme[begin + 1 : end]]
    names = [name.removesuffix(",") for name, *_ in rows]
    steps = [step.step for step in load("demo").steps]
    assert list(dict.fromkeys(names)) == [*steps, "heldout", "tokens"]
    flows = [re.search(r"([\d,]+) → ([\d,]+)", line).groups() for line in readme[begin + 1 : end - 1]]
    assert all(left == arrived for (_, left), (arrived, _) in pairwise(flows))
    assert rows[-1][1] == flows[-1][1]
