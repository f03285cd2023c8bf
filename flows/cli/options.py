"""Options of commands from dataclasses of options. Separate: `gristmill.flows.recipe.options` knows no command line."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from gristmill.flows.recipe.options import Option, with_parameters


def _reader(parser: Callable[[str], Any]) -> Callable[[Any], Any]:
    """A parser of an option as Typer calls it, for words and for the default."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return parser(value)
        except ValueError as error:
            raise typer.BadParameter(f"{error}") from None

    return read


def _typer_option(name: str, kind: Any, option: Option, default: Any) -> Any:
    flag = option.flag or f"--{name.replace('_', '-')}"
    attributes: dict[str, Any] = {"help": option.description, "metavar": option.metavar, "min": option.min}
    if option.parser is not None:
        text = ",".join(map(str, default)) if isinstance(default, list) else ""
        return Annotated[
            str, typer.Option(flag, parser=_reader(option.parser), show_default=text or False, **attributes)
        ]
    return Annotated[option.shell or kind, typer.Option(flag, **attributes)]


# Decorator: a command with an option of Typer for each field of the dataclasses of options among its parameters.
with_options = partial(with_parameters, annotate=_typer_option)
