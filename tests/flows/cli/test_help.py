"""The first page that a newcomer sees: every command in one of five groups; and the help of each command."""

import inspect
import re
import sys

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.cli.app import Listing

GROUPS = ["Make", "Decide", "Look", "Hand over", "Serve"]
APPLICATION = get_command(app)


def help_of(*words: str) -> str:
    return CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "100", "TERM": "dumb"}).stdout


def commands(group=APPLICATION, path=()):
    """Path and table entry of every command."""
    for name, command in group.commands.items():
        if isinstance(command, Listing):
            yield (*path, name), command
        else:
            yield from commands(command, (*path, name))


def test_every_command_is_in_a_group():
    listed = APPLICATION.commands
    assert len(listed) > 30
    groups = {name: getattr(command, "rich_help_panel", None) for name, command in listed.items()}
    assert {str(group).partition(":")[0] for group in groups.values()} == set(GROUPS), groups


def test_help_shows_the_groups_in_the_order_of_the_work():
    assert re.findall(r"─ (Make|Decide|Look|Hand over|Serve):", help_of()) == GROUPS


@pytest.mark.parametrize(("path", "entry"), [pytest.param(*each, id=" ".join(each[0])) for each in commands()])
def test_a_command_of_the_table_has_a_function_with_the_rest_of_its_help(path, entry):
    command = entry.load()
    assert command.name == path[-1] and command.callback is not None
    assert command.help.startswith(entry.help)
    assert "--help" in help_of(*path)


def test_no_function_of_a_command_is_missing_in_the_table():
    """Functions with parameters of Typer are commands."""
    functions = {entry.load().callback.__wrapped__ for _, entry in commands()}
    modules = {sys.modules[function.__module__] for function in functions}
    assert len(modules) > 10
    for function in (each for module in modules for each in vars(module).values() if inspect.isfunction(each)):
        hints = function.__annotations__.values()
        marks = {type(mark) for hint in hints for mark in getattr(hint, "__metadata__", ())}
        if marks & {typer.models.ArgumentInfo, typer.models.OptionInfo}:
            assert function in functions, function


@pytest.mark.parametrize(("words", "near"), [(["chek"], "check"), (["export", "modl"], "model"), (["serv"], "service")])
def test_a_command_that_there_is_not_has_one_like_it_named(words, near):
    result = CliRunner().invoke(app, words, env={"COLUMNS": "100", "TERM": "dumb"})
    assert result.exit_code == 2
    assert f"Did you mean '{near}'" in result.output


@pytest.mark.parametrize(
    ("words", "completed"),
    [("gristmill dedup", ["dedup-report"]), ("gristmill export m", ["model"]), ("gristmill run --l", ["--limit"])],
)
def test_a_shell_completes_commands_and_their_options(words, completed):
    environment = {"_GRISTMILL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": f"{words.count(' ')}"}
    result = CliRunner().invoke(app, [], prog_name="gristmill", env=environment)
    assert result.stdout.split() == completed
