"""The man page gristmill(1), in the macros of man(7)."""

import re
from collections.abc import Iterator
from typing import Any

from gristmill.flows.cli.app import shell_lines
from tests.documented import helps
from tests.reference_pages.commands import bounds, default, names, usage

WIDTH = 65  # columns of an example, in a terminal of 80


def man_page() -> str:
    """All commands in one page: synopsis, text, options and examples."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    pages = helps()
    program = pages.pop(())
    summary, *paragraphs = program.help.split("\n\n")
    yield '.\\" Written by python -m tests.reference_pages. Do not edit.'
    yield '.TH GRISTMILL 1 "" "Gristmill" "User Commands"'
    yield from (".SH NAME", f"gristmill \\- {_escaped(summary[0].lower() + summary[1:].rstrip('.'))}")
    yield from (".SH SYNOPSIS", ".B gristmill", "COMMAND [OPTIONS] [ARGUMENTS]")
    yield ".SH DESCRIPTION"
    yield from _paragraphs([summary, *paragraphs])
    yield from _paragraphs(["Each command prints its help with \\fB\\-\\-help\\fR."])
    yield ".SH COMMANDS"
    for path, command in pages.items():
        yield from _command(path, command)
    yield ".SH ENVIRONMENT"
    yield from _paragraphs(
        [
            _escaped(
                "Settings are variables that begin with GRISTMILL_. `gristmill settings` lists them with their values."
            )
        ]
    )
    yield ".SH EXIT STATUS"
    for status, meaning in (
        ("0", "Success."),
        ("1", "An error, printed as one line, or a failed check."),
        ("2", "A command or an option that does not exist, or a wrong value."),
    ):
        yield from (".TP", f".B {status}", meaning)
    yield from (".SH EXAMPLES", *_examples(program.examples))


def _command(path: tuple[str, ...], command: Any) -> Iterator[str]:
    yield f".SS gristmill {' '.join(path)}"
    yield from _paragraphs(map(_escaped, command.help.split("\n\n")))
    if hasattr(command, "commands"):
        return
    yield from (".PP", f"\\fB{_escaped(usage(path, command))}\\fR")
    for parameter in command.params:
        shown = default(parameter)
        end = "" if not shown else " (required)" if shown == "required" else f" [default: {shown}]"
        yield ".TP"
        yield f"\\fB{_escaped(', '.join(names(parameter)))}\\fR"
        yield _escaped(parameter.help + bounds(parameter) + end)
    yield from (".PP", "Examples:", *_examples(command.examples))


def _examples(commands: list[str]) -> Iterator[str]:
    yield from (".PP", ".RS 4", ".nf")
    yield from (_escaped(line) for command in commands for line in shell_lines(command, WIDTH))
    yield from (".fi", ".RE")


def _paragraphs(texts: Any) -> Iterator[str]:
    for text in texts:
        yield from (".PP", text)


def _escaped(text: str) -> str:
    """Text for roff: backslashes, hyphens of options, and lines that would be requests."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")
    text = re.sub(r"[^\x00-\x7f]", lambda match: f"\\[u{ord(match[0]):04X}]", text)
    return f"\\&{text}" if text.startswith(".") else text
