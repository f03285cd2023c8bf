"""The columns that an expression may name at a place in a recipe, and their values where a run is finished."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.curation import curate
from gristmill.flows.machine.context import job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.machine.wrong_values import did_you_mean
from gristmill.flows.recipe.columns import KnownColumn, known_columns
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stats.distributions import Distribution
from gristmill.storage import layout, parquet
from gristmill.storage.home import FinishedStage, StageFolder
from gristmill.storage.schema import own_of
from gristmill.tasks.documents import expressions
from gristmill.tasks.documents.expressions import DERIVED, evaluate, matching, parsed, stored
from gristmill.tasks.documents.selection import gather
from gristmill.tasks.engine import options
from gristmill.tasks.engine.make import NotFinishedError

QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)
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
    return [name for name in parsed(expression).columns if name not in names]


def check_names(expression: str, there: Iterable[str]) -> None:
    """Raise LookupError for a column that an expression names and that is not there."""
    names = [*dict.fromkeys(there), *DERIVED]
    for name in missing(expression, names):
        hint = did_you_mean(name, names) or f"the columns are {', '.join(names)}"
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
    the same pass dropped before this place; `before`: these steps."""

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
        named = [DescribedColumn(**vars(one)) for one in known_columns(recipe, at)]
        return Columns(recipe.name, at, None, named, " ".join(f"{error}".split()))
    there = parquet.schema(place.corpus.documents.part(0))
    own = pa.schema([there.field(name) for name in own_of(there)])
    known = known_columns(recipe, at, own)
    documents, found = _values(place, [one.name for one in known if one.name not in _NOT_READ])
    return Columns(recipe.name, at, documents, [_described(one, found.get(one.name)) for one in known])


def _place(recipe: Recipe, at: str, settings: MachineSettings) -> _Place:
    context, recipe = open_run(settings, recipe)
    for passed in curate(context, recipe):
        names = [step.step for step in passed.steps]
        if at and at in names:
            return _Place(passed.arriving, passed.left.kept.folder, tuple(names[: names.index(at)]))
    return _Place(passed.left)


def _values(place: _Place, names: list[str]) -> tuple[int, dict[str, Distribution]]:
    """How many documents there are, and the values of columns. Holds the columns of a shard for each core."""
    totals: dict[str, Distribution] = {}
    documents = 0
    at_once = os.cpu_count() or 1
    shards = place.corpus.places.shards()
    with ThreadPoolExecutor(at_once) as pool:
        for begin in range(0, len(shards), at_once):
            some = shards[begin : begin + at_once]
            for count, found in pool.map(lambda shard: _of_shard(place, shard, names), some):
                documents += count
                for name, values in found.items():
                    totals.setdefault(name, Distribution()).join(values)
    return documents, totals


def _of_shard(place: _Place, shard: int, names: list[str]) -> tuple[int, dict[str, Distribution]]:
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
            found[name] = Distribution()
            column = evaluate(expressions.column(name), table)
            found[name].add(pc.if_else(column, "True", "False") if pa.types.is_boolean(column.type) else column)
    return len(table), found


def _described(column: KnownColumn, values: Distribution | None) -> DescribedColumn:
    whole = values.documents + values.missing if values else 0
    if values is None or not whole:
        return DescribedColumn(**vars(column))
    quantiles = {share: value for share in QUANTILES if (value := values.quantile(share)) is not None}
    common = [] if quantiles else [(text, count / whole) for text, count in values.most_common(COMMON)]
    return DescribedColumn(
        **vars(column), nulls=values.missing / whole, quantiles=quantiles, common=common, error=values.error / whole
    )
