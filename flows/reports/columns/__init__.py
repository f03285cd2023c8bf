"""The columns that an expression may name at a place in a recipe, and their values where a run is finished."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.check.columns import KnownColumn, known_columns
from gristmill.flows.curation import curate
from gristmill.flows.machine.context import job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.reports.columns.values import Values
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.stages.corpus import Corpus
from gristmill.storage import layout, parquet
from gristmill.storage.schema import own_of
from gristmill.tasks.documents.selection import gather
from gristmill.tasks.documents.where.evaluate import evaluate
from gristmill.tasks.documents.where.syntax import parsed, stored
from gristmill.tasks.engine import options
from gristmill.tasks.engine.make import NotFinishedError

COMMON = 5  # values of a text column that are shown
_NOT_READ = ("text", "id")  # each document has its own


@dataclass(frozen=True)
class DescribedColumn:
    """A column, and what its values are. `nulls`: the share of documents without a value, in [0, 1], None where no run
    is finished, or the values are not looked at. `quantiles`: of numbers, by share. `common`: the most common texts,
    each with its share of the documents, which may be too low by `error`."""

    name: str
    kind: str | None
    type: str | None
    meaning: str
    step: str
    nulls: float | None = None
    quantiles: dict[float, float] = field(default_factory=dict)
    common: list[tuple[str, float]] = field(default_factory=list)
    error: float = 0.0


@dataclass(frozen=True)
class Columns:
    """`documents`: how many the values are of, None where no run is finished; `remark`: why then."""

    recipe: str
    at: str
    documents: int | None
    columns: list[DescribedColumn]
    remark: str = ""


@dataclass(frozen=True)
class _Place:
    """Documents at a place of a finished run. `ledger`: the folder of the stage whose ledger has those that steps of
    the same pass, ahead of the place, have dropped; `before`: these steps."""

    corpus: Corpus
    ledger: str = ""
    before: tuple[str, ...] = ()


def columns(recipe: Any, at: str = "", settings: MachineSettings | None = None) -> Columns:
    """The columns at the end of a recipe's steps, or in the place of the step `at`, with the values that the documents
    of a finished run have there. Makes nothing; reads the parts a shard at a time, without the texts. Raises
    LookupError for a step that is not there."""
    recipe = load(recipe)
    settings = settings or MachineSettings()
    known_columns(recipe, at)  # whose error comes before any work
    options.configure(job_options(settings))
    try:
        place = _place(recipe, at, settings)
    except (NotFinishedError, OSError, ValueError, RuntimeError) as error:
        named = [DescribedColumn(**vars(one)) for one in known_columns(recipe, at) if _may_be_named(one)]
        return Columns(recipe.name, at, None, named, " ".join(f"{error}".split()))
    there = parquet.schema(place.corpus.documents.part(0))
    own = pa.schema([there.field(name) for name in own_of(there)])
    known = [one for one in known_columns(recipe, at, own) if _may_be_named(one)]
    documents, found = _values(place, [one.name for one in known if one.name not in _NOT_READ])
    return Columns(recipe.name, at, documents, [_described(one, found.get(one.name)) for one in known])


def _may_be_named(column: KnownColumn) -> bool:
    """A source's column may have a name with spaces, which no expression can write."""
    return column.name.isidentifier() or column.name == "*"


def _place(recipe: Recipe, at: str, settings: MachineSettings) -> _Place:
    context, recipe = open_run(settings, recipe)
    for passed in curate(context, recipe):
        names = [step.step for step in passed.steps]
        if at and at in names:
            return _Place(passed.arriving, passed.left.kept.folder, tuple(names[: names.index(at)]))
    return _Place(passed.left)


def _values(place: _Place, names: list[str]) -> tuple[int, dict[str, Values]]:
    """How many documents there are, and the values of columns. Holds the columns of a shard for each core."""
    totals: dict[str, Values] = {}
    documents = 0
    at_once = os.cpu_count() or 1
    shards = place.corpus.places.shards()
    with ThreadPoolExecutor(at_once) as pool:
        for begin in range(0, len(shards), at_once):
            some = shards[begin : begin + at_once]
            for count, found in pool.map(lambda shard: _of_shard(place, shard, names), some):
                documents += count
                for name, values in found.items():
                    totals.setdefault(name, Values()).join(values)
    return documents, totals


def _of_shard(place: _Place, shard: int, names: list[str]) -> tuple[int, dict[str, Values]]:
    places = place.corpus.places
    parts = places.signals[shard]
    there = [name for part in parts for name in parquet.columns(part)]
    wanted = dict.fromkeys(stored(name, there) for name in names)
    table = gather(parts, places.kept[shard], [name for name in wanted if name in there])
    if place.before:
        gone = parquet.read_table(layout.ledger_part(place.ledger, shard), ["id", "step"])
        gone = gone.filter(pc.is_in(gone["step"], pa.array(place.before)))
        table = table.filter(pc.invert(pc.is_in(table["id"], gone["id"].combine_chunks())))
    found = {}
    for name in names:
        if stored(name, table.column_names) in table.column_names:
            found[name] = Values()
            found[name].add(evaluate(parsed(name), table))
    return len(table), found


def _described(column: KnownColumn, values: Values | None) -> DescribedColumn:
    if values is None or not values.documents:
        return DescribedColumn(**vars(column))
    whole = values.documents
    common = [(text, count / whole) for text, count in values.most_common(COMMON)]
    return DescribedColumn(
        **vars(column),
        nulls=values.nulls / whole,
        quantiles=values.quantiles(),
        common=common,
        error=values.error / whole,
    )
