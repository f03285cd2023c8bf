"""Whether the expressions of a recipe have a meaning on the types that their columns have at their place in it."""

from collections.abc import Iterator, Sequence

from gristmill.flows.check.columns import schema_behind
from gristmill.flows.check.inputs import Trouble
from gristmill.tasks.documents.step import Step
from gristmill.tasks.documents.where.syntax import DERIVED, parsed
from gristmill.tasks.documents.where.where import Where


def expressions(steps: Sequence[Step]) -> Iterator[Trouble]:
    """What is wrong with them. One that names a column of a source's own is left out: its type is known when the files
    are read."""
    for at, step in enumerate(steps):
        if isinstance(step, Where) and step.expression is not None:
            trouble = untrue(step.expression, steps[:at])
            if trouble:
                yield ("steps", at, "drop" if step.keep is None else "keep"), trouble


def untrue(expression: str, steps: Sequence[Step]) -> str:
    """Why an expression cannot be true or false behind some steps; empty where it can, or names columns whose types are
    not known."""
    from gristmill.tasks.documents.where.evaluate import truth  # here, since it takes pyarrow
    from gristmill.tasks.documents.where.syntax import columns

    tree, schema = parsed(expression), schema_behind(steps)
    if {*columns(tree)} <= {*schema.names, *DERIVED}:
        try:
            truth(tree, schema.empty_table())
        except ValueError as error:
            return f"{error}"
    return ""
