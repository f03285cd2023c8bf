"""The first page that a newcomer sees, the help of each command, and commands by their names before 0.2.0."""

import inspect
import re
import shlex
import sys
import textwrap

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.cli.app import COMMANDS, GROUPS, KEPT, RENAMED, Listing, renamed, shell_lines
from tests.documented import ROOT, helps

APPLICATION = get_command(app)
NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def help_of(*words: str, columns: int = 100) -> str:
    return CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": f"{columns}", "TERM": "dumb"}).stdout


def commands(group=APPLICATION, path=()):
    """Path and table entry of every command."""
    for name, command in group.commands.items():
        if isinstance(command, Listing):
            yield (*path, name), command
        else:
            yield from commands(command, (*path, name))


# Words that begin the first sentence of a help, and those with which the description of an option would be a clause.
VERBS = (
    "Answer Browse Build Check Compare Compile Estimate Evaluate Find Fit Import Judge List Make Mark Measure Print "
    "Propose Query Remove Replay Run Search Show Test Trace Train Turn Validate Write"
).split()
CLAUSES = (
    "a add an as ask by choose do drop for from give how if in keep leave list make of print read run search "
    "show stop take test that the then this those to train use what when where which who whose write"
).split()
PARAMETERS = [
    pytest.param(" ".join(path), each, id=" ".join([*path, each.name]))
    for path, command in helps().items()
    for each in command.params
    if each.name not in ("install_completion", "show_completion")
]
PAGES = [pytest.param(*each, id=" ".join(each[0]) or "gristmill") for each in helps().items()]


@pytest.mark.parametrize(("path", "command"), PAGES)
def test_a_help_has_a_short_first_line_at_most_three_more_and_a_page_that_exists(path, command):
    first, *paragraphs = command.help.split("\n\n")
    assert len(first) < 70 and first.endswith(".") and first.split()[0] in VERBS
    assert sum(len(textwrap.wrap(paragraph, 78)) for paragraph in paragraphs) <= 3
    for page in re.findall(r"docs/(\S+\.md)", command.help):
        assert page in NAVIGATION, "the site has no such page"


@pytest.mark.parametrize(("path", "command"), PAGES)
def test_a_help_has_two_examples_or_one_if_a_second_would_show_nothing_new(path, command):
    choices = [each for each in command.params if not each.required and each.name not in ("as_json", "help")]
    assert len(command.examples) in ((2,) if choices or hasattr(command, "commands") else (1, 2))
    for example in command.examples:
        assert tuple(example.split()[1 : 1 + len(path)]) == path


@pytest.mark.parametrize(("path", "command"), PAGES)
def test_a_help_shows_its_examples_last_in_80_columns_without_a_break_inside_a_command(path, command):
    shown = help_of(*path, columns=80)
    assert max(map(len, shown.splitlines())) <= 80
    block = shown.rpartition("\n Examples:\n")[2].rstrip()
    assert [shlex.split(line) for line in block.replace("\\\n", "").splitlines()] == [
        shlex.split(example) for example in command.examples
    ]


def test_a_long_example_breaks_before_an_option():
    assert shell_lines("gristmill run recipe.yaml", 40) == ["gristmill run recipe.yaml"]
    lines = shell_lines('gristmill show --where "a > 1" -n 20 --rule "c4.x" --json', 40)
    assert lines == ['gristmill show --where "a > 1" -n 20 \\', '    --rule "c4.x" --json']


@pytest.mark.parametrize(("path", "parameter"), PARAMETERS)
def test_an_option_is_described_by_a_noun_phrase(path, parameter):
    words = parameter.help.split()
    assert words[0].rstrip(",:;") not in CLAUSES, parameter.help
    assert not parameter.help.endswith(".") and len(parameter.help) <= 110


def listed(text: str) -> list[str]:
    """The names in the panels of commands of a page of help, in their order."""
    return re.findall(r"^│ ([a-z][a-z-]*)  ", text, re.MULTILINE)


def test_the_first_page_has_at_most_16_names_and_no_list_of_variables():
    shown = help_of()
    assert listed(shown) == [*COMMANDS[""], *GROUPS] and len(listed(shown)) <= 16
    assert len(COMMANDS[""]) == 10 and len(GROUPS) == 6 and "GRISTMILL_" not in help_of(columns=80)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_lists_its_commands(group):
    assert listed(help_of(group)) == [*COMMANDS[group]]


def test_a_summary_is_a_short_sentence():
    """Of a group's command it is one line of a terminal of 80 columns."""
    rows = {(group, name): row[2] for group, rows in COMMANDS.items() for name, row in rows.items()}
    rows |= {("", name): text.partition("\n")[0] for name, text in GROUPS.items()}
    for (_, name), summary in rows.items():
        assert summary[0].isupper() and summary.endswith(".") and len(summary) < 64, name
    for group in ("", *GROUPS):
        pages = (help_of(*[group] * bool(group), columns=columns) for columns in (80, 200))
        narrow, wide = (page.partition("Commands")[2].partition("Examples:")[0] for page in pages)
        assert narrow.count("\n") <= wide.count("\n") + 1, group


@pytest.mark.parametrize(("path", "entry"), [pytest.param(*each, id=" ".join(each[0])) for each in commands()])
def test_a_command_of_the_table_has_a_function_with_the_rest_of_its_help(path, entry):
    command = entry.load()
    assert command.name == path[-1] and command.callback is not None
    assert command.help.startswith(entry.help)
    assert "--help" in help_of(*path)


@pytest.mark.extended
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
        ("gristmill check ", ["c4", "ccnet", "code", "dclm", "demo", "fineweb", "gopher", "refinedweb", "own.yaml"]),
        ("gristmill run o", ["own.yaml"]),
        ("gristmill train evaluate fine", ["fineweb"]),
        ("gristmill export tokens fineweb --for me", ["megatron"]),
        ("gristmill whatif --s", ["--set"]),
    ],
)
def test_a_shell_completes_commands_recipes_and_options(words, completed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").touch()
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
    monkeypatch.setattr(running, "recipe_to_run", lambda name, limit, settings: " ".join([name, *settings]))
    monkeypatch.setattr(running, "warn_of_unread_urls", lambda name, recipe: None)
    monkeypatch.setattr(running, "run_flow", lambda flow, name, recipe, *given: flows.append((flow, recipe)))
    for words in (["run", "r"], ["run", "r", "--tokens-only"], ["tokens", "r"], ["pretrain", "r"], ["corpus", "r"]):
        assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert flows == [("pipeline", "r"), ("tokens", "r"), ("tokens", "r"), ("pretrain", "r"), ("corpus", "r")]
    del flows[:]
    for command in ("run", "tokens", "pretrain", "corpus"):
        words = [command, "r", "--set", "seed=2", "--set", "minhash.threshold=0.9"]
        assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert flows == [(flow, "r seed=2 minhash.threshold=0.9") for flow in ("pipeline", "tokens", "pretrain", "corpus")]


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
