"""The first page that a newcomer sees, the help of each command, and commands by their names before 0.2.0."""

import inspect
import re
import sys

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.cli.app import COMMANDS, GROUPS, KEPT, RENAMED, Listing, renamed

APPLICATION = get_command(app)


def help_of(*words: str, columns: int = 100) -> str:
    return CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": f"{columns}", "TERM": "dumb"}).stdout


def commands(group=APPLICATION, path=()):
    """Path and table entry of every command."""
    for name, command in group.commands.items():
        if isinstance(command, Listing):
            yield (*path, name), command
        else:
            yield from commands(command, (*path, name))


def listed(text: str) -> list[str]:
    """The names in the panels of commands of a page of help, in their order."""
    return re.findall(r"^│ ([a-z][a-z-]*)  ", text, re.MULTILINE)


def test_the_first_page_has_at_most_15_names_and_no_list_of_variables():
    shown = help_of()
    assert listed(shown) == [*COMMANDS[""], *GROUPS] and len(listed(shown)) <= 15
    assert "`gristmill settings` lists" in shown and "GRISTMILL_" not in shown


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_lists_its_commands(group):
    assert listed(help_of(group)) == [*COMMANDS[group]]


def test_a_summary_is_a_short_sentence():
    """Of a group's command it is one line of a terminal of 80 columns."""
    rows = {(group, name): row[2] for group, rows in COMMANDS.items() for name, row in rows.items()}
    rows |= {("", name): summary for name, summary in GROUPS.items()}
    rows.pop(("", "ui"))
    for (_, name), summary in rows.items():
        assert summary[0].isupper() and summary.endswith(".") and len(summary) < 64, name
    for group in ("", *GROUPS):
        pages = (help_of(*[group] * bool(group), columns=columns) for columns in (80, 200))
        narrow, wide = (re.sub(r".*Show this.*|.*MLflow's.*", "", page.partition("Commands")[2]) for page in pages)
        assert narrow.count("\n") <= wide.count("\n") + 1, group


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


@pytest.mark.parametrize(("words", "near"), [(["chek"], "check"), (["export", "modl"], "model"), (["hoem"], "home")])
def test_a_command_that_there_is_not_has_one_like_it_named(words, near):
    result = CliRunner().invoke(app, words, env={"COLUMNS": "100", "TERM": "dumb"})
    assert result.exit_code == 2
    assert f"Did you mean '{near}'" in result.output


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("gristmill re", ["report", "recipe"]),
        ("gristmill what", []),
        ("gristmill pre", []),
        ("gristmill explain du", ["duplicates"]),
        ("gristmill run --l", ["--limit"]),
        ("gristmill whatif --s", ["--set"]),
    ],
)
def test_a_shell_completes_commands_and_their_options(words, completed):
    environment = {"_GRISTMILL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": f"{words.count(' ')}"}
    result = CliRunner().invoke(app, [], prog_name="gristmill", env=environment)
    assert result.stdout.split() == completed
    assert "is now" not in result.stderr


def resolved(words: list[str]) -> tuple[tuple[str, str], list[str]]:
    """Module and name of the function of a command that words run, and the words for it."""
    command, left, context = APPLICATION, words, None
    while hasattr(command, "resolve_command"):
        context = command.make_context(command.name, left, parent=context, resilient_parsing=True)
        _, command, left = command.resolve_command(context, left)
    function = command.callback.__wrapped__
    return (function.__module__, function.__name__), left


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_runs_the_new_command_and_says_so(old):
    new = RENAMED[old].partition(" [")[0].split()
    name = [word for word in new if not word.startswith("-")]
    function, left = resolved([*old.split(), "x"])
    row = KEPT.get(old) or COMMANDS[name[0] if len(name) > 1 else ""][name[-1]]
    assert function == row[:2]
    assert old in KEPT or left[-1:] == ["x"] and [word for word in left if word in new] == new[len(name) :]
    result = CliRunner().invoke(app, [*old.split(), "--help"], env={"COLUMNS": "100", "TERM": "dumb"})
    assert result.exit_code == 0 and result.stderr == f"gristmill {old} is now: gristmill {RENAMED[old]}\n"
    assert f"gristmill {old if old in KEPT else ' '.join(name)} " in result.stdout.replace("root ", "gristmill ")


def test_an_old_argument_is_an_option():
    assert renamed(["harvest", "folder"]) == ("harvest", ["demo", "--crawl-only", "--out", "folder"])
    assert renamed(["harvest"]) == ("harvest", ["demo", "--crawl-only"])
    assert renamed(["harvest", "--help"]) == ("harvest", ["demo", "--crawl-only", "--help"])
    assert renamed(["tokens", "r.yaml", "--limit", "3"]) == (
        "tokens",
        ["run", "--tokens-only", "r.yaml", "--limit", "3"],
    )
    assert renamed(["import", "run", "r"]) == ("import run", ["train", "import", "r"])
    assert renamed(["import"]) is None and renamed(["export", "tokens"]) is None and renamed([]) is None


def test_old_names_are_hidden():
    for shown in (help_of(), *map(help_of, GROUPS)):
        assert not {*listed(shown)} & {"pretrain", "harvest", "dedup-report", "import run"}
    assert not {*listed(help_of())} & {*RENAMED}


def test_run_stops_after_the_tokens_if_told_so(monkeypatch):
    from gristmill.flows.cli import running

    flows = []
    monkeypatch.setattr(running, "recipe_to_run", lambda name, limit: name)
    monkeypatch.setattr(running, "run_flow", lambda flow, name, recipe, remake: flows.append((flow, recipe)))
    for words in (["run", "r"], ["run", "r", "--tokens-only"], ["tokens", "r"], ["pretrain", "r"], ["corpus", "r"]):
        assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert flows == [("pipeline", "r"), ("tokens", "r"), ("tokens", "r"), ("pretrain", "r"), ("corpus", "r")]


def test_the_demos_crawl_can_be_written_without_a_run(monkeypatch, tmp_path):
    from gristmill.flows.cli import running

    written, runs = [], []
    monkeypatch.setattr(running, "_harvest", written.append)
    monkeypatch.setattr(running, "_run", lambda *given: runs.append(given))
    for words in (["demo", "--crawl-only", "--out", str(tmp_path)], ["harvest", str(tmp_path)], ["harvest"], ["demo"]):
        assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert written == [tmp_path, tmp_path, running._default_folder(), running._default_folder()]
    assert runs == [("pipeline", "demo")]
    for words in (["demo", "--crawl-only", "--ablate"], ["demo", "--out", "x"]):
        assert isinstance(CliRunner().invoke(app, words).exception, ValueError)
