"""Commands in the documentation, in the help, and in messages of the code: each exists by its present name, with its
options, and so do the rules, steps, settings and columns that it names."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import typer

from gristmill.flows.cli import app
from gristmill.flows.cli.app import RENAMED, renamed
from gristmill.flows.machine.remaking import STAGES
from gristmill.flows.recipe.steps import BUILT_IN
from gristmill.flows.reports.dropped import matches
from gristmill.flows.reports.rules import Book, books
from gristmill.storage import schema
from gristmill.tasks.documents.expressions import DERIVED, parsed
from gristmill.tasks.documents.step import DOCUMENT_COLUMNS
from gristmill.tasks.models.embedders import Embedder
from gristmill.tasks.models.quality import Classifier
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.tokenizer import Tokenizer
from gristmill.training.config import TrainingConfig
from gristmill.training.model_config import ModelConfig
from tests.documented import ROOT, commands, examples, helps
from tests.reference_pages.columns import signals

COMMANDS = [*commands(), *examples()]
GROUP = typer.main.get_command(app)
# What users read or run: the code, its pages and deployments, and the documentation. The changelog has the old names.
SHIPPED = (
    "README.md",
    "CONTRIBUTING.md",
    "Makefile",
    "prefect.yaml",
    "docs",
    "docker",
    "examples",
    "flows",
    "gristmill",
)
SHIPPED += ("native", "storage", "tasks", "tools", "training")
SUFFIXES = {".md", ".py", ".yaml", ".html", ".js", ".sh", ".sbatch", ".txt", ""}
# `gristmill X` as a sentence, or as the words of a list; not `from gristmill import x`.
_WORDS = re.compile(
    r"""(?<!from )(?<!import )\bgristmill(?:\s+|["'], ["']|, )([a-z][a-z-]*)(?![a-z:-])(?:(?: |["'], ["'])([a-z-]+))?"""
)
# The program that wrote the demo's WARC files, as their records name it.
SOFTWARE = ("flows/demo/packages.py", "tools/harvest/archives.py")


def old_names(text: str) -> Iterator[str]:
    """The commands in a text that are called by an old name."""
    for match in _WORDS.finditer(text):
        if found := renamed([word for word in match.groups() if word]):
            yield f"gristmill {found[0]}"


def read(arguments: tuple[str, ...]) -> typer.Context:
    """Read a command as the command line reads it, up to the point where the work would begin; returns its context.

    `typer.Exit` is what `--help` and `--version` end with.
    """
    command, left, context = GROUP, list(arguments), None
    while True:
        context = command.make_context(command.name, left, parent=context)
        if not hasattr(command, "resolve_command"):
            return context
        _, command, left = command.resolve_command(context, [*context._protected_args, *context.args])


def unknown_names(context: typer.Context) -> Iterator[str]:
    """The rules, steps, stages, settings and columns that a command names, and that do not exist."""
    command = context.command_path
    for parameter, value in context.params.items():
        if check := CHECKS.get((command, parameter)):
            names = [value] if isinstance(value, str) else value or ()
            yield from (f"{command}: {parameter} {name}" for name in names if name and not check(name))


def is_rule(name: str) -> bool:
    """Whether some step has the rule, as `--rule` names it: a step, or `step.rule` for the rules of document steps."""
    step, _, rule = name.partition(".")
    if step in OTHER_RULES:
        return not rule or rule in OTHER_RULES[step]
    return any(matches(book.step, each, name) for book in BOOKS for each in rules_of(book)) or (
        not rule and step in BUILT_IN
    )


def rules_of(book: Book) -> list[str]:
    return [row.rule for row in (*book.cuts, *book.rows) if row.rule]


def is_setting(name: str) -> bool:
    """Whether `step.key=value`, or `section.key=value` of a recipe, names a key that exists."""
    owner, _, key = name.partition("=")[0].partition(".")
    kinds = {"model": ModelConfig, "training": TrainingConfig, "mixture": Mixture, "tokenizer": Tokenizer} | BUILT_IN
    return key.partition(".")[0] in kinds[owner].model_fields if owner in kinds else False


def is_expression(text: str) -> bool:
    """Whether the columns of an expression, and the rules that it compares with, exist."""
    names = {signal.name for kind in BUILT_IN.values() for signal in signals(kind)}
    known = {*DOCUMENT_COLUMNS, *DERIVED, *schema.LEDGER.names, *names}
    rules = {rule for book in BOOKS for rule in rules_of(book)}
    return {*parsed(text).columns} <= known and {*re.findall(r"\brule = '(\w+)'", text)} <= rules


BOOKS = [*books("")]
# Rules of steps that decide about all documents together, and of takedown lists, which no book has.
OTHER_RULES = {
    "minhash": {"near_duplicate", "takedown"},
    "takedowns": {"takedown"},
    "rewrite": {"refusal", "length", "too_short", "too_long", "refusal_phrase", "copies_prompt", "language"},
}
# What the values of a parameter of a command are checked with.
CHECKS = {
    ("decide ablate", "settings"): is_setting,
    ("decide ablate", "without"): BUILT_IN.__contains__,
    ("decide agreement", "settings"): is_setting,
    ("decide agreement", "without"): BUILT_IN.__contains__,
    ("decide whatif", "settings"): is_setting,
    ("explain audit", "step"): BUILT_IN.__contains__,
    ("explain show", "rule"): is_rule,
    ("explain show", "where"): is_expression,
    ("export documents", "where"): is_expression,
    ("recipe columns", "step"): BUILT_IN.__contains__,
    ("recipe rules", "step"): {book.step for book in BOOKS}.__contains__,
    ("run", "remake"): {*BUILT_IN, *STAGES}.__contains__,
    ("corpus", "remake"): {*BUILT_IN, *STAGES}.__contains__,
    ("train classifier", "setting"): lambda text: text.partition("=")[0] in Classifier.model_fields,
    ("train head", "setting"): lambda text: text.partition("=")[0] in Embedder.model_fields,
}


def test_each_name_that_is_checked_is_a_parameter():
    for command, parameter in CHECKS:
        assert parameter in {each.name for each in helps()[tuple(command.split())].params}, (command, parameter)


@pytest.mark.parametrize(
    "wrong",
    [
        ("explain", "show", "dropped", "--rule", "gopher_quality.min_words"),
        ("explain", "show", "dropped", "--rule", "gofer"),
        ("explain", "show", "dropped", "--where", "rule = 'min_words'"),
        ("explain", "show", "documents", "--where", "qualty > 0.9"),
        ("decide", "whatif", "r.yaml", "--set", "gopher_quality.words=3"),
        ("decide", "ablate", "r.yaml", "--without", "gopher"),
        ("run", "r.yaml", "--remake", "min_hash"),
        ("recipe", "rules", "gopher"),
        ("train", "classifier", "q.bin", "--set", "epoch=3"),
    ],
)
def test_a_name_that_there_is_not_is_noticed(wrong):
    assert [*unknown_names(read(wrong))]


def test_they_are_found():
    assert len(COMMANDS) > 80
    assert len({each.arguments[:2] for each in COMMANDS if each.arguments}) > 60


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_documented_command_is_one_that_there_is(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").touch()
    assert renamed(command.arguments) is None, "an old name"
    with suppress(typer.Exit):
        assert not [*unknown_names(read(command.arguments))]


@pytest.mark.parametrize(
    "wrong",
    [
        ("explain", "shew", "documents"),
        ("explain", "show"),
        ("explain", "show", "documents", "--rules", "x"),
        ("explain", "show", "documents", "-n", "0"),
    ],
)
def test_one_that_there_is_not_is_noticed(wrong):
    with pytest.raises(Exception, match="No such|Missing|greater than|not in the range"):
        read(wrong)


def shipped_files() -> Iterator[Path]:
    for name in SHIPPED:
        path = ROOT / name
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file() and file.suffix in SUFFIXES and "__pycache__" not in file.parts:
                yield file


def test_nothing_that_is_shipped_names_a_command_by_an_old_name():
    found, count = [], 0
    for file in shipped_files():
        name, text = file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8", errors="replace")
        count += 1
        found += [f"{name}: {old}" for old in old_names(text) if name not in SOFTWARE or old != "gristmill harvest"]
    assert count > 500 and not found


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_is_noticed(old):
    assert [*old_names(f"see `gristmill {old} RECIPE`")] == [f"gristmill {old}"]
    assert [*old_names(str(["gristmill", *old.split(), "x.yaml"]))] == [f"gristmill {old}"]
    assert renamed([*old.split(), "x.yaml"])
