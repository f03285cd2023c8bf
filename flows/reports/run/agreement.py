"""How far annotators agree on the documents that all of them annotated: several steps `annotate`, or any columns.

The columns are read at the first place in the recipe at which all of them are there, so documents that later steps
dropped by their grades still count.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.curation import curate
from gristmill.flows.machine.context import job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.machine.wrong_values import did_you_mean, listed
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.reports.tables import Table
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stats.agreement import (
    MAX_GROUP_SHARE,
    Agreement,
    Kappa,
    UnidentifiedError,
    agreement,
    classes_of,
)
from gristmill.storage import parquet
from gristmill.tasks.documents.selection import gather, select
from gristmill.tasks.engine import options
from gristmill.tasks.language_model.annotate import Annotate
from gristmill.tasks.models.host_intervals import group_numbers
from gristmill.tasks.url.canonical import host_columns, known_hosts

HOST, DOCUMENTS = " host", " documents"  # no column of a user's has such a name
_MIN_ROWS = 10_000  # that are summed at once
_KINDS = {"number", "bool", "string"}


@dataclass(frozen=True)
class ColumnAgreement:
    """`value`: what the columns are about; `annotated`: by column its documents with an annotation; `agreement`: None
    where these do not identify it, for the `reason`."""

    value: str
    annotated: dict[str, int]
    agreement: Agreement | None
    reason: str = ""

    @property
    def summary(self) -> str:
        """A line for people."""
        found = self.agreement
        if found is None:
            return f"{self.value}: the agreement of {', '.join(self.annotated)} is unknown: {self.reason}"
        kappa, largest = found.kappa, found.largest_group
        narrow = f"; {largest:.0%} of them are of one host, so the intervals are too narrow"
        return (
            f"{self.value}: {found.method} of {', '.join(self.annotated)} is {kappa.value:.3f} ({kappa.low:.3f} to "
            f"{kappa.high:.3f}), on {found.documents:,} documents of {found.groups:,} hosts that all annotated"
            f"{narrow if largest > MAX_GROUP_SHARE else ''}"
        )

    @property
    def table(self) -> Table:
        """A row for all classes, and one for each."""
        columns = ("class", "#documents", "#agreement|.1%", "#kappa|.3f", "#90% interval|.3f")
        found = self.agreement
        if found is None:
            return Table(columns, [], self.value)
        rows = [("all", found.kappa), *found.classes.items()]
        return Table(columns, [_row(name, kappa) for name, kappa in rows], self.value)

    def parts(self) -> Iterator[Table | str]:
        """For a terminal."""
        if self.agreement is not None:
            yield self.table
        yield self.summary

    def metrics(self) -> dict[str, float]:
        """As MLflow has them."""
        if self.agreement is None:
            return {}
        found, kappa = self.agreement, self.agreement.kappa
        values = {"kappa": kappa.value, "kappa_low": kappa.low, "kappa_high": kappa.high, "observed": kappa.observed}
        values["documents"] = float(found.documents)
        return {f"agreement/{self.value}/{name}": value for name, value in values.items()}


def _row(name: str, kappa: Kappa | None) -> tuple[Any, ...]:
    if kappa is None:
        return name, None, None, None, "too few documents"
    return name, kappa.documents, kappa.observed, kappa.value, (kappa.low, kappa.high)


def annotator_agreement(
    recipe: Any, columns: Sequence[str] = (), settings: MachineSettings | None = None
) -> list[ColumnAgreement]:
    """The agreement of columns of a finished run. Without columns: of each value that several steps `annotate` have.

    Holds the number of documents by host and annotations. Raises NotFinishedError; ValueError without two columns,
    LookupError for one that is not there.
    """
    settings = settings or MachineSettings()
    options.configure(job_options(settings))
    if len(columns) == 1 or len(set(columns)) < len(columns):
        raise ValueError(f"agreement needs two different columns. Give --columns {columns[0]},OTHER")
    recipe = load(recipe)
    if columns:
        return [_compared("columns", tuple(columns), recipe, settings)]
    if found := annotators_of_run(recipe, settings):
        return found
    raise ValueError(
        f"the recipe {recipe.name} has no value that two steps `annotate` have. Add a second one, or give --columns"
    )


def annotators_of_run(recipe: Recipe, settings: MachineSettings) -> list[ColumnAgreement]:
    """The agreement on each value that several steps `annotate` of a finished run have; none without such steps."""
    return [_compared(name, columns, recipe, settings) for name, columns in shared_values(recipe).items()]


def shared_values(recipe: Recipe) -> dict[str, tuple[str, ...]]:
    """The columns of each value that several steps `annotate` of a recipe have with one type. Free texts are left out,
    since there are no classes in them."""
    found: dict[tuple[str, str], list[str]] = {}
    for step in recipe.steps:
        if isinstance(step, Annotate):
            for name, each in step.declared.answer.items():
                if each.type != "string" or each.enum:
                    found.setdefault((name, each.type), []).append(step.column(name))
    return {name: tuple(columns) for (name, _), columns in found.items() if len(columns) > 1}


def _compared(name: str, columns: tuple[str, ...], recipe: Recipe, settings: MachineSettings) -> ColumnAgreement:
    counts = dict.fromkeys(columns, 0)
    kinds: set[str] = set()

    def annotated_by_all() -> Iterator[pa.Table]:
        for table in _annotations(_place(recipe, columns, settings), columns):
            for column in columns:
                counts[column] += len(table) - table[column].null_count
                kinds.add(_kind(table[column].type))
            if kinds - _KINDS or len(kinds) > 1:
                raise ValueError(
                    f"the columns {', '.join(columns)} have values of different types, or of one without classes; "
                    "compare columns of numbers, of booleans, or of strings"
                )
            yield table.drop_null()

    whole = counted_by(annotated_by_all(), (*columns, HOST))
    try:
        codes, names, grades = classes_of([whole[column].to_pylist() for column in columns])
        hosts = group_numbers(whole[HOST].to_numpy())
        return ColumnAgreement(name, counts, agreement(codes, names, hosts, grades, whole[DOCUMENTS].to_numpy()))
    except UnidentifiedError as error:
        return ColumnAgreement(name, counts, None, str(error))


def counted_by(tables: Iterable[pa.Table], columns: Sequence[str]) -> pa.Table:
    """How many rows of all tables have which values in `columns`, in the column DOCUMENTS. Holds a few times as many
    rows as there are different values, and one table."""
    parts: list[pa.Table] = []
    distinct = 0
    for table in tables:
        some = table.group_by(list(columns), use_threads=False).aggregate([([], "count_all")])
        parts.append(some.rename_columns([*columns, DOCUMENTS]))
        if sum(map(len, parts)) > 2 * distinct + _MIN_ROWS:
            parts = [_summed(parts, columns)]
            distinct = len(parts[0])
    return _summed(parts, columns)


def _summed(parts: Sequence[pa.Table], columns: Sequence[str]) -> pa.Table:
    whole = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    found = whole.group_by(list(columns), use_threads=False).aggregate([(DOCUMENTS, "sum")])
    return found.rename_columns([*columns, DOCUMENTS])


def _kind(type_: pa.DataType) -> str:
    """What values of a type are: `number`, `bool` or `string`; "" for another."""
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return "number"
    if pa.types.is_boolean(type_):
        return "bool"
    return "string" if pa.types.is_string(type_) or pa.types.is_large_string(type_) else ""


def _place(recipe: Recipe, columns: Sequence[str], settings: MachineSettings) -> Corpus:
    """The corpus at the first place at which all columns are there."""
    context, recipe = open_run(settings, recipe)
    there: dict[str, None] = {}
    for passed in curate(context, recipe):
        places = passed.left.places
        for source in places.sources.distinct():  # whose shards have the same columns
            first = places.sources.shards([source])[0]
            names = dict.fromkeys(_columns((places.documents[first], *places.signals[first])))
            there |= names
            if names.keys() >= {*columns}:
                return passed.left
    missing = next(column for column in columns if column not in there)
    hint = did_you_mean(missing, there) or f"the columns are {listed(there)}"
    raise LookupError(f"the documents have no column {missing}; {hint}")


def _columns(parts: Iterable[str]) -> Iterator[str]:
    return (name for part in parts for name in parquet.columns(part))


def _annotations(corpus: Corpus, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    """Of each shard the columns, as they are, and HOST. A document without a host is its own. Shards of sources
    without one of the columns have no rows."""
    places = corpus.places
    for shard in places.shards():
        documents, kept = places.documents[shard], places.kept[shard]
        parts = (documents, *places.signals[shard])
        if not {*_columns(parts)} >= {*columns}:
            continue
        table = gather(parts, kept, list(columns))
        for column in columns:
            if pa.types.is_floating(table[column].type):
                finite = pc.if_else(pc.is_finite(table[column]), table[column], None)
                table = table.set_column(table.column_names.index(column), column, finite)
        some = select(documents, kept, ["source", *host_columns(documents)])
        some = some.take(pc.index_in(table["id"], some["id"].combine_chunks()))
        own = pc.binary_join_element_wise(some["source"].cast(pa.string()), some["id"], "\n")
        yield table.select(list(columns)).append_column(HOST, pc.coalesce(known_hosts(some), own))
