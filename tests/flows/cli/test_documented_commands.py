"""Commands in the documentation: each has options and arguments that there are."""

import pytest
import typer

from gristmill.flows.cli import app
from tests.documented import commands

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
