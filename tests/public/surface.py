"""The public surface, a line for each thing that users may rely on: docs/versions.md says for how long.

python -m tests.public.surface > tests/public/released.txt    # with a release
"""

import inspect
from collections.abc import Iterator
from typing import get_args

import typer
from pydantic import BaseModel

import gristmill
from gristmill.flows.cli.app import app
from gristmill.flows.machine.variables import variables
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.steps import BUILT_IN
from gristmill.storage import schema


def surface() -> list[str]:
    """Sorted lines: `command`, `column`, `python`, `recipe` or `variable`, and the name."""
    return sorted({*_commands(), *_columns(), *_python(), *_recipe(), *_variables()})


def _commands() -> Iterator[str]:
    for name, group in typer.main.get_command(app).commands.items():
        for command in getattr(group, "commands", {}).values() if hasattr(group, "commands") else (group,):
            if command.hidden:
                continue
            path = f"command {name}" if command is group else f"command {name} {command.name}"
            yield path
            for parameter in command.load().params:
                yield f"{path} {parameter.opts[0] if parameter.param_type_name == 'option' else parameter.name.upper()}"


def _columns() -> Iterator[str]:
    tables = {"documents": schema.DOCUMENTS, "ledger": schema.LEDGER, "edits": schema.EDITS}
    for table, columns in tables.items():
        yield from (f"column {table}.{field.name} {field.type}" for field in columns)


def _python() -> Iterator[str]:
    for name in gristmill.__all__:
        value = getattr(gristmill, name)
        yield f"python {name}"
        if inspect.isclass(value):
            yield from (f"python {name}.{each}" for each in dir(value) if not each.startswith("_"))
        elif callable(value):
            function = getattr(value, "fn", value)  # of a flow
            yield from (f"python {name}({parameter})" for parameter in inspect.signature(function).parameters)


def _recipe() -> Iterator[str]:
    for kind in _settings(Recipe).union(*map(_settings, BUILT_IN.values())):
        yield from (f"recipe {kind.__name__}.{key}" for key in kind.model_fields)


def _settings(of: object) -> set[type[BaseModel]]:
    """The classes of settings that a type may hold."""
    if isinstance(of, type) and issubclass(of, BaseModel):
        return {of}.union(*(_settings(field.annotation) for field in of.model_fields.values()))
    return set().union(*map(_settings, get_args(of)))


def _variables() -> Iterator[str]:
    yield from (f"variable {each.name}" for each in variables({}))


if __name__ == "__main__":
    print(*surface(), sep="\n")
