"""The page of all commands, and what it shares with the man page: how parameters are written."""

import enum
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from gristmill.flows.cli.app import shell_lines
from tests.documented import helps
from tests.reference_pages.markdown import code, fence, page, table

WIDTH = 100  # columns of a block of code
WORDS = {str: "TEXT", int: "N", float: "NUMBER", Path: "PATH"}


def commands_page() -> str:
    """Each command: usage, text, examples, arguments and options with their defaults."""
    parts = [
        "# Commands",
        "This page lists every command of `gristmill`, with its arguments, options and defaults.",
        "In a terminal, `--help` after a command prints the same, and `man gristmill` shows all commands. Install the "
        "completion of commands, options and names of shipped recipes:",
        fence("gristmill --install-completion", "sh"),
    ]
    for path, command in helps().items():
        if path:
            parts += _section(path, command)
    return page(*parts)


def _section(path: tuple[str, ...], command: Any) -> Iterator[str]:
    is_group = hasattr(command, "commands")
    yield f"{'##' if len(path) == 1 else '###'} gristmill {' '.join(path)}"
    yield from (_linked(paragraph) for paragraph in command.help.split("\n\n"))
    if is_group:
        anchor = f"#gristmill-{'-'.join(path)}"
        rows = [(f"[`{name}`]({anchor}-{name})", each.help) for name, each in command.commands.items()]
        yield table(("command", "purpose"), rows)
    else:
        yield fence(usage(path, command), "text")
    yield fence("\n".join(line for each in command.examples for line in shell_lines(each, WIDTH)), "sh")
    if not is_group and (rows := [_row(each) for each in command.params]):
        yield table(("argument or option", "default", "meaning"), rows)


def usage(path: tuple[str, ...], command: Any) -> str:
    """How a command is called, in one line."""
    arguments = [value(each) for each in command.params if each.param_type_name == "argument"]
    required = [each.required for each in command.params if each.param_type_name == "argument"]
    words = [name if must else f"[{name}]" for name, must in zip(arguments, required, strict=True)]
    options = ["[OPTIONS]"] if len(command.params) > len(arguments) else []
    return " ".join(["gristmill", *path, *options, *words])


def value(parameter: Any) -> str:
    """What stands for the value of a parameter; "" for a switch."""
    annotation = parameter.type_descriptor.annotation
    if parameter.metavar:
        return parameter.metavar
    kind = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "|".join(str(each.value) for each in kind)
    return "" if kind is bool else WORDS[kind]


def names(parameter: Any) -> list[str]:
    """An option's names with its value, or an argument."""
    if parameter.param_type_name == "argument":
        return [value(parameter)]
    return [f"{name} {value(parameter)}".strip() for name in (*parameter.opts, *parameter.secondary_opts)]


def default(parameter: Any) -> str:
    """The default of a parameter as a user would type it; "" for none."""
    if parameter.required:
        return "required"
    given = parameter.default
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    if given in (None, "", []) or given is False or parameter.show_default is False:
        return ""
    if isinstance(given, list):
        return " ".join(map(str, given))
    if given is True:
        return parameter.opts[0]
    return f"{given.value}" if isinstance(given, enum.Enum) else f"{given}"


def bounds(parameter: Any) -> str:
    """The smallest and the largest value of a number; "" for none."""
    low, high = getattr(parameter, "min", None), getattr(parameter, "max", None)
    if high is not None:
        return f" ({low:g} to {high:g})"
    return f" (at least {low:g})" if low is not None else ""


def _row(parameter: Any) -> tuple[str, str, str]:
    shown = default(parameter)
    return (
        ", ".join(map(code, names(parameter))),
        shown if shown == "required" else code(shown),
        parameter.help + bounds(parameter),
    )


def _linked(paragraph: str) -> str:
    """A paragraph whose `Guide: docs/...` is a link."""
    return re.sub(r"docs/(\S+?)/(\S+\.md)", _link, paragraph)


def _link(match: re.Match[str]) -> str:
    folder, name = match.groups()
    return f"[{name}]({name if folder == 'reference' else f'../{folder}/{name}'})"
