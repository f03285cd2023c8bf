"""Whether the expressions of a recipe have a meaning on the types that their columns have at their place in it."""

from collections.abc import Iterator, Sequence

from gristmill.flows.check.inputs import Trouble
from gristmill.tasks.documents.step import Signal, Step
from gristmill.tasks.documents.where.syntax import DERIVED, parsed
from gristmill.tasks.documents.where.where import Where


def expressions(steps: Sequence[Step]) -> Iterator[Trouble]:
    """What is wrong with them. One that names a column of a source's own is left out: its type is known when the files
    are read."""
    if not any(isinstance(step, Where) for step in steps):
        return
    from gristmill.storage.schema import DOCUMENTS  # here, since it takes pyarrow
    from gristmill.tasks.documents.batch import field
    from gristmill.tasks.documents.where.evaluate import truth

    signals: list[Signal] = []
    for at, step in enumerate(steps):
        if isinstance(step, Where) and step.expression is not None:
            schema = DOCUMENTS
            for signal in signals:
                if signal.name not in schema.names:
                    schema = schema.append(field(signal))
            if {*step.columns} <= {*schema.names, *DERIVED}:
                try:
                    truth(parsed(step.expression), schema.empty_table())
                except ValueError as error:
                    yield ("steps", at, "drop" if step.keep is None else "keep"), f"{error}"
        signals += step.signals
