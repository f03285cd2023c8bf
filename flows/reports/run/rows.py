"""Rows of a finished run: what Python, pandas, Arrow and Hugging Face's `datasets` are given of its stages.

They are read part by part when they are asked for, each file against its digest: a corpus is never held as a whole.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.machine.wrong_values import did_you_mean
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports import pages
from gristmill.flows.reports.funnel import pandas
from gristmill.flows.reports.tables import Table
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.export import columns_of
from gristmill.flows.stages.heldout import Data
from gristmill.storage import layout, parquet
from gristmill.storage.home import FinishedStage, open_stage
from gristmill.storage.schema import DOCUMENTS, EDITS, LEDGER, carried
from gristmill.storage.token_shards import index_path
from gristmill.tasks.dedup.near.verify import DECIDED, decided_files
from gristmill.tasks.documents.export import Column, curated, curated_schema
from gristmill.tasks.engine.make import StageResult

if TYPE_CHECKING:
    from datasets import Dataset
    from pandas import DataFrame

Filter = Any  # a `pyarrow.compute.Expression`; pyarrow has no types, and a user's type checker would report that


@dataclass(frozen=True, repr=False)
class Rows:
    """Rows of many parts, as a table that is read when it is asked for. `schema`: the columns.

    What takes Arrow streams takes them as they are: `pyarrow.table(rows)`, `polars.DataFrame(rows)`, DuckDB.

    `parts`: files that have as many rows; `read(number, names)`: those of one part, with some columns; `key`: of all
    that decides them.

    >>> len(run.ledger)
    3
    >>> pyarrow.table(run.ledger).group_by("rule").aggregate([([], "count_all")]).sort_by("rule").to_pylist()
    [{'rule': 'near_duplicate', 'count_all': 1}, {'rule': 'words', 'count_all': 2}]
    """

    schema: pa.Schema
    parts: Sequence[str] = field(compare=False)
    read: Callable[[int, Sequence[str]], Iterable[pa.Table]] = field(compare=False)
    key: str

    def __len__(self) -> int:
        """Reads the ends of the parts."""
        return sum(map(parquet.rows, self.parts))

    def __repr__(self) -> str:
        return f"<Rows of {', '.join(self.schema.names)}>"

    def _repr_html_(self) -> str:
        """The number of rows, and the first five of them."""
        first = next(iter(self.reader()), None)
        rows = [] if first is None else [[*row.values()] for row in first.slice(0, 5).to_pylist()]
        return pages.notebook([f"{len(self):,} rows"], [Table(self.schema.names, rows)])

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.reader().__arrow_c_stream__(requested_schema)

    def reader(self, columns: Sequence[str] | None = None, filter: Filter | None = None) -> pa.RecordBatchReader:
        """The rows as a stream, of the columns that are named; others are not read, unless there is a filter.

        `filter`: an expression of Arrow's about any of the columns. Holds a row group, and of what was measured one
        part. Raises LookupError for a column that there is not, DamagedFileError where a file is not what was written.

        >>> with run.documents.reader(["id", "text"]) as batches:
        ...     sum(batch.num_rows for batch in batches)
        7
        """
        return pa.RecordBatchReader.from_batches(self._of(columns), self._batches(columns, filter))

    def to_pandas(
        self, columns: Sequence[str] | None = None, filter: Filter | None = None, n: int | None = None
    ) -> "DataFrame":
        """The first `n` of the rows as a data frame; default: all of them, which are held. Else as `reader`.

        >>> run.documents.to_pandas(["url", "gopher_quality_words"], pyarrow.compute.field("gopher_quality_words") < 60)
                             url  gopher_quality_words
        0  https://a.example/0/2                    56
        """
        pandas()
        held: list[pa.RecordBatch] = []
        left = n
        for batch in self._batches(columns, filter):
            held.append(batch.slice(0, left))
            if left is not None and (left := left - held[-1].num_rows) == 0:
                break
        return pa.Table.from_batches(held, self._of(columns)).to_pandas()

    def to_datasets(self, columns: Sequence[str] | None = None) -> "Dataset":
        """The rows as a `datasets.Dataset` of Hugging Face, which copies them into its cache; it finds the copy again.

        Raises ImportError with the fix, where `datasets` is missing.

        >>> run.documents.to_datasets(["id", "text"]).features
        {'id': Value('string'), 'text': Value('large_string')}
        """
        try:
            from datasets import Dataset, Features
        except ImportError as error:
            raise ImportError(
                "`to_datasets` needs Hugging Face's datasets, which is not installed: `pip install datasets`"
            ) from error
        schema = self._of(columns)

        def rows() -> Iterator[dict[str, Any]]:
            return chain.from_iterable(batch.to_pylist() for batch in self._batches(columns, None))

        return Dataset.from_generator(
            rows,
            features=Features.from_arrow_schema(schema.remove_metadata()),
            fingerprint=layout.digest_of([self.key, str(schema)]),
        )

    def _batches(self, columns: Sequence[str] | None, filter: Filter | None) -> Iterator[pa.RecordBatch]:
        # an error here is ours: one that comes through a stream of Arrow's is Arrow's, with our words
        schema = self._of(columns)
        names = schema.names if filter is None else self.schema.names
        for number in range(len(self.parts)):
            for table in self.read(number, names):
                found = table if filter is None else table.filter(filter)
                yield from found.select(schema.names).cast(schema).to_batches()

    def _of(self, columns: Sequence[str] | None) -> pa.Schema:
        if columns is None:
            return self.schema
        for name in columns:
            if name not in self.schema.names:
                there = did_you_mean(name, self.schema.names)
                raise LookupError(f"no column {name}; {there} the columns are {', '.join(self.schema.names)}")
        return pa.schema([self.schema.field(name) for name in columns])


def documents(recipe: Recipe, corpus: Corpus) -> Rows:
    """The curated documents, as an export has them."""
    places, columns = corpus.places, columns_of(recipe)

    def read(number: int, names: Sequence[str]) -> Iterator[pa.Table]:
        shard = places.shard(number)
        return curated(shard["documents"], shard["kept"], places.signals[number], columns, names)

    schema = curated_schema(parquet.schema(corpus.documents.part(0)), columns)
    return Rows(schema, places.kept, read, _key("documents", *_contents(corpus)))


_SCORES = pa.schema([DOCUMENTS.field("id"), DOCUMENTS.field("source"), pa.field("kept", pa.bool_(), nullable=False)])


def scores(recipe: Recipe, corpus: Corpus) -> Rows:
    """All documents that were extracted, with all that steps measured of them."""
    places = corpus.places
    extracted = corpus.extracted
    columns = {column.name: column for column in columns_of(recipe) if column.measured}
    there = {name for stage in corpus.measured for name in parquet.columns(stage.part(0))}
    schema = pa.schema([*_SCORES, *(column.field for name, column in columns.items() if name in there)])

    def read(number: int, names: Sequence[str]) -> Iterator[pa.Table]:
        table = parquet.read_table(extracted.part(number), ["id", "source"])
        kept = parquet.read_table(places.kept[number], ["id"])["id"].combine_chunks()
        given = {"id": table["id"], "source": table["source"], "kept": pc.is_in(table["id"], kept)}
        given |= {
            name: _measured(table["id"], places.signals[number], column)
            for name, column in columns.items()
            if name in names
        }
        yield pa.table({name: given[name] for name in names})

    parts = tuple(extracted.part(number) for number in places.shards())
    return Rows(schema, parts, read, _key("scores", extracted.contents, *_contents(corpus)))


def extracted(recipe: Recipe, corpus: Corpus) -> Rows:
    """All documents that were extracted, with their columns except the text, and what `scores` has."""
    stage, measured = corpus.extracted, scores(recipe, corpus)
    there = parquet.schema(stage.part(0))
    own = {name: there.field(name) for name in carried(there) if name not in ("text", "kept")}
    added = [field for field in measured.schema if field.name not in own]

    def read(number: int, names: Sequence[str]) -> Iterator[pa.Table]:
        table = parquet.read_table(stage.part(number), [name for name in names if name in own] or ["id"])
        others = [name for name in names if name not in own]
        [scored] = measured.read(number, ["id", *others]) if others else [table]
        yield pa.table({name: (table if name in own else scored)[name] for name in names})

    return Rows(pa.schema([*own.values(), *added]), measured.parts, read, _key("extracted", measured.key))


def edits(stages: Iterable[StageResult]) -> Rows:
    """What the stages cut out of texts, in their order."""
    cutting = [stage for stage in (open_stage(each.folder) for each in stages) if stage.edits_texts]
    parts = [
        (stage, stage.edits(shard))
        for stage in cutting
        for shard, record in enumerate(stage.part_records)
        if any(step.get("edits") for step in record["steps"])
    ]
    return _by_stage(EDITS, parts, _key("edits", *(stage.contents for stage in cutting)))


def tokens(data: Data) -> Rows:
    """The documents of the token shards that training may see: `id`, `shard`, `offset` and `tokens`, which include the
    end of the sequence."""
    parts = tuple(index_path(data.tokens.folder, shard) for shard in data.split.train.places.shards())
    named = {"id": "id", "offset": "offset", "tokens": "length"}

    def read(number: int, names: Sequence[str]) -> Iterator[pa.Table]:
        table = parquet.read_table(parts[number], [named[name] for name in names if name in named] or ["id"])
        shard = pa.repeat(pa.scalar(number, pa.int64()), len(table))
        yield pa.table({name: shard if name == "shard" else table[named[name]] for name in names})

    return Rows(_TOKENS, parts, read, _key("tokens", data.tokens.contents))


_TOKENS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("shard", pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False, metadata={"what": "tokens from the start of the shard"}),
        pa.field("tokens", pa.int64(), nullable=False, metadata={"what": "with the end of the sequence"}),
    ]
)


def _measured(ids: pa.ChunkedArray, parts: Sequence[str], column: Column) -> pa.ChunkedArray:
    """A column of documents, for each from the last of the parts that has it; null where none has."""
    found = pa.nulls(len(ids), column.field.type)
    for part in parts:
        if column.name in parquet.columns(part):
            table = parquet.read_table(part, ["id", column.name])
            at = pc.index_in(ids, table["id"].combine_chunks())
            found = pc.if_else(pc.is_valid(at), table[column.name].take(at), found)
    return found


def ledger(stages: Iterable[StageResult]) -> Rows:
    """What the stages dropped, in their order."""
    deciding = [open_stage(stage.folder) for stage in stages if stage.step_counts]
    parts = [
        (stage, stage.ledger(shard))
        for stage in deciding
        for shard, record in enumerate(stage.part_records)
        if record["rows_in"] > record["rows_out"]
    ]
    return _by_stage(LEDGER, parts, _key("ledger", *(stage.contents for stage in deciding)))


def _by_stage(columns: pa.Schema, parts: Sequence[tuple[FinishedStage, str]], key: str) -> Rows:
    """Parts of stages that have rows, with the stage's label as the first column."""

    def read(number: int, names: Sequence[str]) -> Iterator[pa.Table]:
        stage, part = parts[number]
        for group in parquet.groups(part, [name for name in names if name != "stage"] or ["id"]):
            label = pa.DictionaryArray.from_arrays(pa.array([0] * len(group), pa.int8()), [stage.label])
            yield pa.table({name: label if name == "stage" else group[name] for name in names})

    schema = pa.schema([pa.field("stage", pa.string(), nullable=False), *columns])
    return Rows(schema, tuple(part for _, part in parts), read, key)


def clusters(recipe: Recipe, corpus: Corpus) -> Rows:
    """All documents of clusters of near-duplicates. Raises LookupError where the recipe does not look for any."""
    made = [stage for stage in corpus.stages if stage.name == "near_duplicates"]
    if not made:
        raise LookupError(f"the recipe {recipe.name} has no step `minhash`, so it does not detect near-duplicates")
    parts = tuple(decided_files(made[-1].folder, made[-1].result["partitions"]).paths())

    def read(number: int, names: Sequence[str]) -> Iterator[pa.Table]:
        return (group.select(names) for group in parquet.groups(parts[number], list(names)))

    schema = pa.schema([field for field in DECIDED if field.name not in ("doc", "kept_doc")])
    return Rows(schema, parts, read, _key("clusters", made[-1].contents))


def _contents(corpus: Corpus) -> list[str]:
    return [stage.contents for stage in (corpus.documents, corpus.kept, *corpus.measured)]


def _key(what: str, *keys: str) -> str:
    return layout.digest_of([what, *keys])
