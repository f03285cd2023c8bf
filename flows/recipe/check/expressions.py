"""Whether the expressions of a recipe have a meaning on the types that their columns have at their place in it."""

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import wrapt

from gristmill.flows.recipe.check.columns import schema_behind, unknown
from gristmill.flows.recipe.errors import Finding, RecipeError
from gristmill.flows.recipe.recipe import Recipe
from gristmill.tasks.documents.step import Problem, Step
from gristmill.tasks.documents.where.syntax import DERIVED, columns, parsed
from gristmill.tasks.documents.where.where import Where
from gristmill.tasks.tokens.mixture import SOURCE

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.tasks.documents.where import evaluate
else:
    pa = wrapt.lazy_import("pyarrow")
    evaluate = wrapt.lazy_import("gristmill.tasks.documents.where.evaluate")


def expressions(steps: Sequence[Step]) -> Iterator[Problem]:
    """What is wrong with them. One that names a column of a source's own is left out: its type is known when the files
    are read."""
    for at, step in enumerate(steps):
        if isinstance(step, Where) and step.expression is not None:
            trouble = untrue(step.expression, steps[:at])
            if trouble:
                yield ("steps", at, "drop" if step.keep is None else "keep"), trouble


def of_export(recipe: Recipe) -> Iterator[Problem]:
    """What is wrong with the expression of a recipe's export, which may name the columns behind all steps."""
    where = None if recipe.export is None else recipe.export.where
    if where is not None and (what := unknown(where, recipe, recipe.steps) or untrue(where, recipe.steps)):
        yield ("export", "where"), what


def check_export(recipe: Recipe) -> None:
    """Raise RecipeError for what `of_export` finds."""
    if found := [Finding(recipe.name, ".".join(map(str, path)), what) for path, what in of_export(recipe)]:
        raise RecipeError(found)


def of_groups(recipe: Recipe) -> Iterator[Problem]:
    """What is wrong with the types of what `mixture.by` groups documents by."""
    if recipe.mixture is None or recipe.mixture.by_source:
        return
    schema = schema_behind(recipe.steps)
    for column in recipe.mixture.by:
        name, cut = column.column, bool(column.edges or column.quantiles)
        if name == SOURCE or not {*column.reads(schema.names)} <= {*schema.names}:
            continue  # a source's own, whose type is known when its files are read
        try:
            found = evaluate.evaluate(
                ast.Name(name) if name in schema.names else parsed(name), schema.empty_table()
            ).type
        except ValueError as error:
            yield ("mixture",), f"groups documents by {name}: {error}"
            continue
        if what := _ungrouped(found, cut):
            yield ("mixture",), f"groups documents by {name}, {what}"


def _ungrouped(kind: "pa.DataType", cut: bool) -> str:
    """Why values of a type make no groups; `cut`: into ranges of numbers."""
    what = evaluate.kind_of(kind)
    if cut:
        return "" if what == "number" else f"a {what}, which has no ranges: take its edges or quantiles out"
    if pa.types.is_floating(kind):
        return "whose values are numbers: give its edges or quantiles, or write int()"
    return "" if what in ("text", "number", "boolean") else f"a {what}: make it a text or a whole number"


def untrue(expression: str, steps: Sequence[Step]) -> str:
    """Why an expression cannot be true or false behind some steps; empty where it can, or names columns whose types are
    not known."""
    tree, schema = parsed(expression), schema_behind(steps)
    if {*columns(tree)} <= {*schema.names, *DERIVED}:
        try:
            evaluate.truth(tree, schema.empty_table())
        except ValueError as error:
            return f"{error}"
    return ""
