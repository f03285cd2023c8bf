"""The commands that README.md and docs/ show, and the examples of the help of commands."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import typer

from gristmill.flows.cli import app
from gristmill.flows.cli.app import Listing

ROOT = Path(__file__).parents[1]
COMMANDS_PAGE = ROOT / "docs/reference/commands.md"  # which has the examples of `examples`
PAGES = [ROOT / "README.md", *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path != COMMANDS_PAGE)]
_SETTING = re.compile(r"[A-Z][A-Z0-9_]*=\S*$")
_FENCE = re.compile(r"\s*(```+)\s*(\w*)")
# Languages of blocks that a reader types into a shell; output is in a block of `text`.
SHELLS = {"sh", "bash", "console"}
_SHELL = {">", ">>", "|", "&&", "&"}  # what follows is not an argument


@dataclass(frozen=True)
class Documented:
    """A command of ours as a page, or the help of a command, shows it: its environment variables, and the words after
    `gristmill`. `line`: of the page; of a help, the number of the example."""

    page: str
    line: int
    environment: dict[str, str]
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {' '.join(self.arguments)}"


def commands() -> list[Documented]:
    """All commands in blocks of code, lines that end in a backslash joined, without comments."""
    return [each for page in PAGES for each in _commands_of(page)]


def helps() -> dict[tuple[str, ...], Any]:
    """The program, its groups and its commands with their parameters, by the words after `gristmill`; in the order of
    the table."""
    program = typer.main.get_command(app)
    pages: dict[tuple[str, ...], Any] = {(): program}
    for name, command in program.commands.items():
        if not command.hidden:
            pages[name,] = command.load() if isinstance(command, Listing) else command
            pages |= {(name, member): each.load() for member, each in getattr(command, "commands", {}).items()}
    return pages


def examples() -> list[Documented]:
    """The examples of the help of the program, its groups and its commands."""
    documented = []
    for path, command in helps().items():
        for number, example in enumerate(command.examples, 1):
            program, *words = shlex.split(example)
            assert program == "gristmill", example
            documented.append(Documented(f"{' '.join(['gristmill', *path])} --help", number, {}, tuple(words)))
    return documented


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) of each line that a reader may type: of blocks with the language of a shell, and of indented ones
    outside of lists."""
    fence = language = ""
    for number, line in enumerate(text.splitlines(), 1):
        if (mark := _FENCE.match(line)) and (not fence or (mark[1] == fence and not mark[2])):
            fence, language = ("", "") if fence else (mark[1], mark[2])
        elif (fence and language in SHELLS) or (not fence and line.startswith("    ")):
            yield number, line.strip()


def _commands_of(page: Path) -> Iterator[Documented]:
    name = page.relative_to(ROOT).as_posix()
    lines = iter(blocks(page.read_text(encoding="utf-8")))
    for number, line in lines:
        while line.endswith("\\"):
            line = line[:-1] + next(lines)[1]
        try:
            words = shlex.split(line.removeprefix("$ "), comments=True)
        except ValueError:
            continue  # prose, or another language
        words = list(takewhile(lambda word: word not in _SHELL, words))
        environment = {}
        while words and _SETTING.match(words[0]):
            variable, _, value = words.pop(0).partition("=")
            environment[variable] = value
        if words and words[0] in ("gristmill", ".venv/bin/gristmill"):
            yield Documented(name, number, environment, tuple(words[1:]))
