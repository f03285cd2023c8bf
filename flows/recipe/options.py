"""Options of flows, functions and commands, declared once: fields of a dataclass, as keyword parameters of a function.

    @dataclass(frozen=True)
    class Sums:
        numbers: list[int] = option("what is added", list, metavar="N,N,...", parser=integers)

    @spread
    def add(name: str, sums: Sums) -> int: ...

    add("three", numbers=[1, 2])

The command line has the same function with options of Typer, `--numbers 1,2` (`gristmill.flows.cli.options`).
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, TypeVar

from pydantic import Field

R = TypeVar("R")
_KEY = "option"  # of a field's metadata


@dataclass(frozen=True)
class Option:
    """How an option is shown and parsed. `min`: the smallest number. `flag`, `metavar`, `shell`: the name, the
    placeholder and the type on the command line, if they differ from the field. `parser`: parses one word, and raises
    ValueError."""

    description: str
    min: float | None = None
    flag: str = ""
    metavar: str | None = None
    shell: Any = None
    parser: Callable[[str], Any] | None = None


def option(description: str, default: Any = MISSING, **shown: Any) -> Any:
    """A field of a dataclass of options. `default`: a value, or a factory such as `list`. `shown`: fields of
    `Option`."""
    metadata = {_KEY: Option(description, **shown)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Changes:
    """Changed values of recipe keys for a run. The run is recorded under the recipe's name, with these values."""

    settings: list[str] = option(
        "recipe key to change, such as training.batch=32; repeatable", list, flag="--set", metavar="KEY=VALUE"
    )


def integers(text: str) -> list[int]:
    """Parse integers that are separated by commas. Raises ValueError."""
    try:
        return [int(number) for number in text.split(",") if number.strip()]
    except ValueError:
        raise ValueError(f"{text} is not a list of whole numbers: write it as 3,6,12") from None


def _typed(name: str, kind: Any, option: Option, default: Any) -> Any:
    return Annotated[kind, Field(description=option.description, ge=option.min)]


def spread(function: Callable[..., R]) -> Callable[..., R]:
    """Replace a function's parameters that are dataclasses of options by their fields.

    The docstring gets a line per field below `Args:`, which Prefect shows.
    """
    call = with_parameters(function, _typed)
    text, lines = inspect.getdoc(function) or "", []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if _is_options(parameter.annotation):
            lines += [f"    {each.name}: {each.metadata[_KEY].description}" for each in fields(parameter.annotation)]
    call.__doc__ = "\n".join([text, *([] if "\nArgs:\n" in text else ["", "Args:"]), *lines])
    return call


def with_parameters(function: Callable[..., R], annotate: Callable[[str, Any, Option, Any], Any]) -> Callable[..., R]:
    """Replace a function's parameters that are dataclasses of options by their fields. `annotate` returns the
    annotation for a field's name, type, option and default."""
    signature = inspect.signature(function, eval_str=True)
    groups = {name: one.annotation for name, one in signature.parameters.items() if _is_options(one.annotation)}
    parameters = []
    for name, parameter in signature.parameters.items():
        if name not in groups:
            parameters.append(parameter)
            continue
        kinds = inspect.get_annotations(groups[name].__init__, eval_str=True)
        for each in fields(groups[name]):
            shown: Option = each.metadata[_KEY]
            default = _default(each)
            kind = annotate(each.name, kinds[each.name], shown, default)
            parameters.append(inspect.Parameter(each.name, parameter.kind, default=default, annotation=kind))
    outer = signature.replace(parameters=parameters)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> R:
        bound = outer.bind(*args, **kwargs)
        bound.apply_defaults()
        values = bound.arguments
        for name, group in groups.items():
            values[name] = group(**{each.name: values.pop(each.name) for each in fields(group)})
        return function(**values)

    vars(call)["__signature__"] = outer
    call.__annotations__ = {name: one.annotation for name, one in outer.parameters.items()}
    return call


def _is_options(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) and all(_KEY in each.metadata for each in fields(kind))


def _default(one: dataclasses.Field) -> Any:
    if one.default_factory is not MISSING:
        return one.default_factory()
    return inspect.Parameter.empty if one.default is MISSING else one.default
