"""The columns that an expression may use at a place in a recipe: of documents, of earlier steps, and derived ones.

Of a source's own columns, only the names are known until the source's files have been read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import wrapt

from gristmill.flows.machine.wrong_values import did_you_mean, listed
from gristmill.flows.recipe.errors import Finding, RecipeError
from gristmill.flows.recipe.recipe import Recipe
from gristmill.tasks.documents.expressions import DERIVED, evaluate, kind_of, parsed, truth
from gristmill.tasks.documents.step import DOCUMENT_COLUMNS, Problem, Step
from gristmill.tasks.documents.where import Where
from gristmill.tasks.tokens.mixture import SOURCE

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.storage import schema as storage_schema
    from gristmill.tasks.documents import measure
else:
    storage_schema = wrapt.lazy_import("gristmill.storage.schema")
    measure = wrapt.lazy_import("gristmill.tasks.documents.measure")
    pa = wrapt.lazy_import("pyarrow")


EVERY = "*"  # in place of the columns of a source whose files say which there are
_MEANINGS = {
    "id": "id of the document: xxh3-128 of source, file, offset, length and record id",
    "source": "name of the source in the recipe",
    "url": "address of the document",
    "date": "time of the crawl",
    "ip": "address of the server",
    "status": "status of the HTTP response; null if there was none",
    "content_type": "type of the record, as sent by the server",
    "charset": "encoding in which the payload was read, as a Python name",
    "charset_declared": "encoding in the HTTP header, else in the page",
    "truncated": "reason why the crawler cut the payload",
    "file": "file of the source with the record",
    "note": "deviation of the record from its format",
    "offset": "position of the record in the file: in bytes in crawls, else the number of its row, line or file from 0",
    "length": "size of the record in the file, in bytes",
    "record_id": "id of the record in its file",
    "digest": "digest of the payload, as written by the crawler",
    "title": "title in the page",
    "canonical_url": "canonical address in the page",
    "published": "date of publication in the page",
    "engine": "extraction engine of the text; data: from JSON in the page",
    "characters": "code points of the text",
    "text": "text of the document; `characters` is `length(text)`",
}
_DERIVED = {
    "host": "host of `url`, in lower case",
    "tld": "last part of the host; null for an IP address",
    "mime": "`content_type` without parameters",
}
_OF_RECORD = ("title", "canonical_url", "published", "engine", "characters", "text")  # what the extraction finds


@dataclass(frozen=True)
class KnownColumn:
    """A column that an expression may use. `kind`: text, number, boolean, time or list; `type`: Arrow's; both None for
    a source's own column whose files are not read yet. `step`: the step that measures it; "" for columns of the
    record."""

    name: str
    kind: str | None
    type: str | None
    meaning: str
    step: str


def schema_behind(steps: Sequence[Step]) -> "pa.Schema":
    """The columns of documents, and those that steps have measured."""
    schema = storage_schema.DOCUMENTS
    for signal in (signal for step in steps for signal in step.signals):
        if signal.name not in schema.names:
            schema = schema.append(measure.field(signal))
    return schema


def steps_before(recipe: Recipe, step_name: str) -> tuple[Step, ...]:
    """The steps before the step `step_name`; all steps for "". Raises LookupError for a missing step, and for one
    before the extraction."""
    if not step_name:
        return recipe.steps
    names = [step.step for step in recipe.steps]
    later = [step.step for step in recipe.after]
    if step_name not in later:
        what = (
            "makes the documents, so there are no columns before it in the recipe"
            if step_name in names
            else "is not a step of the recipe"
        )
        hint = did_you_mean(step_name, later) or f"after extraction, the steps are {listed(later)}"
        raise LookupError(f"--at {step_name}: this step {what} {recipe.name}; {hint}")
    return recipe.steps[: names.index(step_name)]


def known_columns(recipe: Recipe, step_name: str = "", own: "pa.Schema | None" = None) -> list[KnownColumn]:
    """The columns that an expression may use after all steps of a recipe, or instead of the step `step_name`: columns
    of documents, the sources' own columns, derived ones, then signals in the order of the steps. `own`: the sources'
    own columns, if their files were read. Raises as `steps_before`."""
    steps = steps_before(recipe, step_name)
    schema = schema_behind(steps)
    for field in own or ():
        at_index = schema.get_field_index(field.name)
        schema = schema.append(field) if at_index < 0 else schema.set(at_index, field)

    def column(name: str, meaning: str, step: str) -> KnownColumn:
        if name not in schema.names:
            return KnownColumn(name, None, None, meaning, step)
        return KnownColumn(name, kind_of(schema.field(name).type), f"{schema.field(name).type}", meaning, step)

    theirs = _own(recipe, own)
    measured = {signal.name: (step, signal) for step in reversed(steps) for signal in step.signals}
    rows = []
    for field in storage_schema.DOCUMENTS:
        step = "extract" if field.name in _OF_RECORD else ""
        if field.name not in theirs and field.name not in measured:
            rows.append(column(field.name, _MEANINGS[field.name], step))
    rows += [column(name, meaning, "") for name, meaning in theirs.items() if name not in measured]
    derived = [name for name in DERIVED if name not in schema.names and name not in theirs]
    rows += [KnownColumn(name, "text", "string", _DERIVED[name], "") for name in derived]
    for name in dict.fromkeys(signal.name for step in steps for signal in step.signals):
        step_of, signal = measured[name]
        what = signal.description.removesuffix(".")
        rows.append(column(name, f"{what} ({signal.unit})" if signal.unit else what, step_of.step))
    return rows


def unknown(expression: str, recipe: Recipe, steps: Sequence[Step]) -> str:
    """The message for the first column of an expression that does not exist after some steps; empty if there is none,
    or if only the sources' files show which columns exist."""
    theirs = _own(recipe, None)
    signals = [signal.name for step in steps for signal in step.signals]
    there = [*dict.fromkeys([*signals, *theirs, *DOCUMENT_COLUMNS, *DERIVED])]
    for name in parsed(expression).columns:
        if name not in there and EVERY not in theirs:
            hint = did_you_mean(name, there) or f"the columns are {listed(there)}"
            return f"there is no column {name}; {hint}"
    return ""


def _own(recipe: Recipe, own: "pa.Schema | None") -> dict[str, str]:
    """The sources' own columns, by name. EVERY stands for columns that only files show."""
    types: dict[str, str] = {}
    for source in recipe.sources:
        columns = source.read_columns
        for name, theirs in columns.own:
            types.setdefault(name, f"column `{theirs}` of the files of {source.name}")
        if columns.every and own is None:
            types[EVERY] = f"every column of the files of {source.name}; known after they are read"
    for field in own or ():
        types.setdefault(field.name, "custom columns of the sources")
    return types


# Checks of the expressions of a recipe with the types of their columns at their place.


def expressions(steps: Sequence[Step]) -> Iterator[Problem]:
    """Problems with the expressions of a recipe. Expressions with a source's own column are skipped, because its type
    is known only when the files are read."""
    for index, step in enumerate(steps):
        if isinstance(step, Where) and step.expression is not None:
            trouble = untrue(step.expression, steps[:index])
            if trouble:
                yield ("steps", index, "drop" if step.keep is None else "keep"), trouble


def of_export(recipe: Recipe) -> Iterator[Problem]:
    """Problems with the expression of a recipe's export, which may use the columns after all steps."""
    where = None if recipe.export is None else recipe.export.where
    if where is not None and (what := unknown(where, recipe, recipe.steps) or untrue(where, recipe.steps)):
        yield ("export", "where"), what


def check_export(recipe: Recipe) -> None:
    """Raise RecipeError for the problems of `of_export`."""
    if findings := [Finding(recipe.name, ".".join(map(str, path)), what) for path, what in of_export(recipe)]:
        raise RecipeError(findings)


def of_groups(recipe: Recipe) -> Iterator[Problem]:
    """Problems with the types of the columns of `mixture.by`."""
    if recipe.mixture is None or recipe.mixture.by_source:
        return
    schema = schema_behind(recipe.steps)
    for column in recipe.mixture.by:
        name, cut = column.column, bool(column.edges or column.quantiles)
        if name == SOURCE or not {*column.reads(schema.names)} <= {*schema.names}:
            continue  # a source's own, whose type is known when its files are read
        try:
            known = name in schema.names
            result = schema.field(name).type if known else evaluate(parsed(name), schema.empty_table()).type
        except ValueError as error:
            yield ("mixture",), f"groups documents by {name}: {error}"
            continue
        if what := _ungrouped(result, cut):
            yield ("mixture",), f"groups documents by {name}, {what}"


def _ungrouped(kind: "pa.DataType", cut: bool) -> str:
    """Why values of a type cannot be groups. `cut`: whether they are divided into ranges of numbers."""
    what = kind_of(kind)
    if cut:
        return "" if what == "number" else f"a {what}, which cannot be cut into ranges; remove its edges or quantiles"
    if pa.types.is_floating(kind):
        return "whose values are numbers; add its edges or quantiles, or cast them to whole numbers, as column::bigint"
    return "" if what in ("text", "number", "boolean") else f"a {what}; convert it to text or a whole number"


def untrue(expression: str, steps: Sequence[Step]) -> str:
    """Why an expression is not a condition after some steps; empty if it is, or if the types of its columns are not
    known."""
    tree, schema = parsed(expression), schema_behind(steps)
    if {*tree.columns} <= {*schema.names, *DERIVED}:
        try:
            truth(tree, schema.empty_table())
        except ValueError as error:
            return f"{error}"
    return ""
