"""Commands in the documentation, and in messages of the code: each exists, with its options, by its present name."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import typer

from gristmill.flows.cli import app
from gristmill.flows.cli.app import RENAMED, renamed
from tests.documented import ROOT, commands

COMMANDS = commands()
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
    assert len({each.arguments[:2] for each in COMMANDS if each.arguments}) > 60


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_documented_command_is_one_that_there_is(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").touch()
    assert renamed(command.arguments) is None, "an old name"
    with suppress(typer.Exit):
        assert read(command.arguments)


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
