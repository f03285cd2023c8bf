"""The public surface, a line for each name that users may rely on: docs/reference/interfaces.md says how stable each
kind is.

python -m tests.public.surface > tests/public/released.txt    # with a release

A line is the kind, the name, and after ` = ` what the name stands for: a type, a default, the choices.
"""

import importlib
import inspect
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import pyarrow as pa
import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import gristmill
from gristmill.flows.cli.app import app
from gristmill.flows.machine.variables import variables
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.steps import BUILT_IN, document_steps
from gristmill.flows.reports.rules import books
from gristmill.storage import checked_json, layout, parquet, schema, token_shards
from gristmill.storage.training_manifest import TrainingManifest
from gristmill.tasks.documents import export
from tests.corpora import Texts

# What users import beside `gristmill` itself: for steps of their own, and for the samples of a training.
NAMES = {
    "gristmill.samples": ("Sample", "SampleSource", "TokenPlace"),
    "gristmill.samples.torch_batches": ("RankBatches", "collate"),
    "gristmill.tasks.documents.edits": ("Edits", "line_removals", "removals"),
    "gristmill.tasks.documents.step": (
        *("Bound", "Clause", "CorpusStep", "Cut", "DocumentStep", "EditStep", "Member", "Settings", "Signal"),
    ),
    "gristmill.tasks.models.filter": ("LearnedFilter",),
}
# A small finished run, which has all tables that a run can have.
HOME = Path(__file__).parents[1] / "homes/0.1.0-648c4e88.tar.xz"


def surface() -> list[str]:
    """All lines, sorted."""
    return sorted({line for lines in KINDS.values() for line in lines()})


def _commands() -> Iterator[str]:
    for name, group in typer.main.get_command(app).commands.items():
        for command in getattr(group, "commands", {}).values() if hasattr(group, "commands") else (group,):
            if command.hidden:
                continue
            path = f"command {name}" if command is group else f"command {name} {command.name}"
            yield path
            for parameter in command.load().params:
                label = parameter.opts[0] if parameter.param_type_name == "option" else parameter.name.upper()
                choices = _choices(parameter.type_descriptor.annotation)
                yield f"{path} {label} = {' | '.join(choices)}" if choices else f"{path} {label}"


def _choices(annotation: object) -> list[str]:
    """The values of the `Literal` types in an annotation."""
    if get_origin(annotation) is Literal:
        return [str(value) for value in get_args(annotation)]
    return [choice for inner in get_args(annotation) for choice in _choices(inner)]


def _columns() -> Iterator[str]:
    """Of the files that stages write, of an export, and of the tables of `gristmill sql`."""
    tables = {"documents": schema.DOCUMENTS, "ledger": schema.LEDGER, "edits": schema.EDITS}
    tables["tokens"] = token_shards.INDEX
    tables["export"] = pa.schema([schema.DOCUMENTS.field(name) for name in export.CARRIED])
    signals = {signal.name for step in document_steps().values() for signal in step.signals}
    for table, columns in {**tables, **_tables()}.items():
        yield from (f"column {table}.{each.name} = {each.type}" for each in columns if each.name not in signals)


def _tables() -> dict[str, Iterable[pa.Field]]:
    """The tables of a finished run, by `sql` and their name."""
    with TemporaryDirectory() as folder, tarfile.open(HOME) as packed:
        packed.extractall(folder, filter="data")
        recipe = Path(folder, "recipe.yaml")
        tables = gristmill.open(str(recipe), home=f"{folder}/home").tables
        return {f"sql.{name}": [pa.field(*column) for column in view.columns.items()] for name, view in tables.items()}


def _formats() -> Iterator[str]:
    """Keys and marks of the files that other programs read."""
    with TemporaryDirectory() as home:
        stage = Texts([[{"id": "1", "text": "a text"}]]).corpus(home).extracted
        manifest = checked_json.read(f"{stage.folder}/manifest.json")
    yield f"format manifest.json = {layout.FORMAT}"
    yield from (f"format manifest.json.{name}" for name in _keys(manifest, ("result", "record", "inputs", "read")))
    yield from (f"format mixture.json.{name}" for name in dict.fromkeys(_model_keys(TrainingManifest)))
    yield f"format parquet.mark = {parquet.MARK.decode()}"
    yield f"format idx = {token_shards.HEADER.decode().rstrip(chr(0))} {token_shards.VERSION}"


def _keys(value: Mapping[str, Any], own: Sequence[str]) -> Iterator[str]:
    """The keys of JSON, with those in others; of those named `own` a stage decides what is in them."""
    for name, each in value.items():
        yield name
        if isinstance(each, Mapping) and name not in own:
            yield from (f"{name}.{inner}" for inner in _keys(each, own))


def _model_keys(model: type[BaseModel]) -> Iterator[str]:
    for name, each in model.model_fields.items():
        yield name
        for kind in _settings(each.annotation):
            yield from (f"{name}.{inner}" for inner in _model_keys(kind))


def _python() -> Iterator[str]:
    yield from _names(gristmill, gristmill.__all__, "")
    for module, names in NAMES.items():
        yield from _names(importlib.import_module(module), names, f"{module}.")


def _names(module: ModuleType, names: Iterable[str], prefix: str) -> Iterator[str]:
    for name in names:
        value, label = getattr(module, name), prefix + name
        yield f"python {label}"
        if inspect.isclass(value):
            attributes = {*dir(value), *(each.name for each in (fields(value) if is_dataclass(value) else ()))}
            if issubclass(value, BaseModel):
                attributes -= {*dir(BaseModel)}
            yield from (f"python {label}.{each}" for each in attributes if not each.startswith("_"))
        elif callable(value):
            function = getattr(value, "fn", value)  # of a flow
            yield from (f"python {label}({parameter})" for parameter in inspect.signature(function).parameters)


def _recipe() -> Iterator[str]:
    for kind in _settings(Recipe).union(*map(_settings, BUILT_IN.values())):
        for key, field in kind.model_fields.items():
            default = field.default  # that of settings is a class, whose keys have lines of their own
            shown = f"{type(default).__name__}()" if isinstance(default, BaseModel) else repr(default)
            yield f"recipe {kind.__name__}.{key}" + (f" = {shown}" if default is not PydanticUndefined else "")


def _settings(annotation: object) -> set[type[BaseModel]]:
    """The classes of settings that a type may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}.union(*(_settings(field.annotation) for field in annotation.model_fields.values()))
    return set().union(*map(_settings, get_args(annotation)))


def _rules() -> Iterator[str]:
    """The rules of document steps, as the ledger and `--rule` name them."""
    for book in books(""):
        yield from (f"rule {book.step}.{row.rule}" for row in (*book.cuts, *book.rows) if row.rule)


def _signals() -> Iterator[str]:
    """The columns that document steps measure."""
    yield from (f"signal {signal.name}" for step in document_steps().values() for signal in step.signals)


def _variables() -> Iterator[str]:
    yield from (f"variable {each.name}" for each in variables({}))


KINDS: dict[str, Callable[[], Iterator[str]]] = {
    "column": _columns,
    "command": _commands,
    "format": _formats,
    "python": _python,
    "recipe": _recipe,
    "rule": _rules,
    "signal": _signals,
    "variable": _variables,
}

if __name__ == "__main__":
    print(*surface(), sep="\n")
