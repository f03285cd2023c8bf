"""Which stages of a home have columns of a stage's documents, and the documents that an expression chooses by them."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from gristmill.flows.recipe.errors import did_you_mean
from gristmill.storage import parquet
from gristmill.storage.home import FinishedStage, StageFolder
from gristmill.tasks.documents.where.evaluate import matching
from gristmill.tasks.documents.where.syntax import DERIVED, columns, parsed

_HASHES = "signatures"  # hashes, of which no expression is of use


def with_columns(stage: FinishedStage, run: Iterable[FinishedStage] = ()) -> list[FinishedStage]:
    """The stages that have columns of a stage's documents, the earliest first, the stage itself among them. `run`: the
    other stages of a run, some of which may have measured these very documents."""
    found: dict[str, FinishedStage] = {}
    for one in _chain(stage):
        beside = [one.input(name) for name in one.inputs]
        same = [other for other in beside if other is not None and _of(other) == _of(one)]
        found |= {other.key: other for other in (*one.measured, *same, one)}
    for other in run:
        after = other.reads("kept", stage) or any(other.reads("scores", one) for one in [*found.values()])
        if after and not other.counts_documents and other.parts:
            found.setdefault(other.key, other)
    there = (other for other in found.values() if other.name != _HASHES and other.parts)
    return [other for other in there if "id" in parquet.columns(other.parts[0])]


def chosen(stage: StageFolder, expression: str, run: Iterable[FinishedStage] = ()) -> Iterator[tuple[str, pa.Table]]:
    """Of each part of a stage that there is its path, and `id` with the columns that the expression names of the
    documents for which it is true. Holds these columns of one part. Raises LookupError for a column that is not there,
    with near names, and ExpressionError for an expression that has no meaning."""
    stages = with_columns(stage, run) if isinstance(stage, FinishedStage) else []
    for part in stage.parts:
        name = part.rsplit("/", 1)[-1]
        parts = tuple(dict.fromkeys([*(f"{each.folder}/{name}" for each in stages), part]))
        check_names(expression, [each for path in parts for each in parquet.columns(path)])
        yield part, matching(parts, part, expression)


def parts_of_dropped(stage: FinishedStage, shard: int) -> tuple[str, ...]:
    """The files with columns of the documents of a shard that a stage dropped: its ledger, and what was known of them
    as they reached the stage. Of a column that several have the last counts."""
    name = stage.part(shard).rsplit("/", 1)[-1]
    return (stage.ledger(shard), *(f"{each.folder}/{name}" for each in with_columns(stage) if each.key != stage.key))


def missing(expression: str, there: Iterable[str]) -> list[str]:
    """The columns that an expression names and that are not there."""
    names = {*there, *DERIVED}
    return [name for name in columns(parsed(expression)) if name not in names]


def check_names(expression: str, there: Iterable[str]) -> None:
    """Raise LookupError for a column that an expression names and that is not there."""
    names = [*dict.fromkeys(there), *DERIVED]
    for name in missing(expression, names):
        hint = did_you_mean(name, names) or f"there are {', '.join(names)}"
        raise LookupError(f"--where: these documents have no column {name}; {hint}")


def _chain(stage: FinishedStage) -> list[FinishedStage]:
    """A stage and those that chose documents before it, the earliest first."""
    found: FinishedStage | None = stage
    chain: list[FinishedStage] = []
    while found is not None:
        chain.append(found)
        found = found.selection
    return chain[::-1]


def _of(stage: FinishedStage) -> tuple[str, str] | None:
    """The documents that reached a stage, by the contents of the stages that made and chose them."""
    inputs = stage.digests
    return (inputs["documents"], inputs["kept"]) if {"documents", "kept"} <= {*inputs} else None
