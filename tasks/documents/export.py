"""An export: the curated documents as files for others to read, with what was measured of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from backports import zstd
from pydantic import Field, field_validator

from gristmill.storage import files, parquet
from gristmill.storage.address import Address
from gristmill.storage.schema import own_of
from gristmill.tasks.documents import batch
from gristmill.tasks.documents.expressions import matching, parsed
from gristmill.tasks.documents.selection import gather, select_groups
from gristmill.tasks.documents.step import Kind, Settings, Signal

SUFFIXES = {"parquet": "parquet", "jsonl": "jsonl.zst"}
_ZSTD: Mapping[int, int] = {zstd.CompressionParameter.compression_level: 3, zstd.CompressionParameter.checksum_flag: 1}

CARRIED = ("id", "text", "url", "date", "source")


class Column(Settings):
    """A column with what a step measured; `measured`: whether it is in the shards' parts, or null everywhere."""

    name: str
    kind: Kind
    unit: str
    source: str
    description: str
    measured: bool = True

    @property
    def field(self) -> pa.Field:
        return batch.field(Signal(self.name, self.kind, self.unit, self.source, description=self.description))


class OwnColumn(Settings):
    """A column of the sources' own. `type`: Arrow's; `feature`: that of the Hugging Face `datasets`, as its YAML has
    it."""

    name: str
    type: str
    feature: dict[str, Any]


def own_columns(schema: pa.Schema) -> tuple[OwnColumn, ...]:
    """The columns of the sources' own, of the schema of a part with documents."""
    fields = [schema.field(name) for name in own_of(schema)]
    return tuple(OwnColumn(name=f.name, type=str(f.type), feature=_feature(f.type)) for f in fields)


def _feature(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(kind):
        item = _feature(kind.value_type)
        return {"sequence": item.get("dtype", item)} if "dtype" in item else {"list": item.get("struct", item)}
    if pa.types.is_struct(kind):
        return {"struct": [{"name": field.name, **_feature(field.type)} for field in kind]}
    if pa.types.is_timestamp(kind):
        return {"dtype": f"timestamp[{kind.unit}{f', tz={kind.tz}' if kind.tz else ''}]"}
    return {"dtype": _DTYPES.get(str(kind), str(kind))}


_DTYPES = {"double": "float64", "float": "float32", "halffloat": "float16", "date32[day]": "date32"}


def begin(folder: str, number: int, key: str) -> dict:
    """The first job of an export: its record says, in the folder, whose files these will be."""
    return {"key": key}


def export_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    signals: tuple[str, ...],
    columns: tuple[Column, ...],
    format: str,
    where: str | None = None,
) -> dict:
    """Write the kept documents of a shard in their order; returns documents and characters by source and language.

    `where`: those for which an expression is true. Holds as `curated`, and ahead of it the columns that the expression
    names. Raises LookupError for a document that is not in a part.
    """
    ids = None if where is None else matching(signals, kept, where)["id"].combine_chunks()
    there = parquet.schema(documents)
    schema = curated_schema(there, columns)
    totals: Counter[tuple[str, str | None, str]] = Counter()
    with _writing(folder, shard, format, schema) as write:
        for table in curated(documents, kept, signals, columns, [*schema.names, "characters"]):
            if ids is not None:
                table = table.filter(pc.is_in(table["id"], ids))
            _count(totals, table)
            write(table.select(schema.names))
    return {"written": _rows(totals)}


def curated_schema(documents: pa.Schema, columns: Iterable[Column]) -> pa.Schema:
    """The columns of curated documents as they are handed on; `documents`: those of the parts with the texts."""
    carried = [documents.field(name) for name in (*CARRIED, *own_of(documents))]
    return pa.schema([*carried, *(column.field for column in columns)])


def curated(
    documents: str, kept: str, signals: tuple[str, ...], columns: Iterable[Column], names: Sequence[str]
) -> Iterator[pa.Table]:
    """The columns `names` of the kept documents of a shard, in their order, row group by row group.

    `signals`: the parts with what steps measured. Holds the measured columns of the shard that are asked for, and a row
    group of the others. Raises LookupError for a document that is not in a part.
    """
    there = parquet.schema(documents)
    column_of = {column.name: column for column in columns if column.name in names}
    schema = pa.schema([column_of[name].field if name in column_of else there.field(name) for name in names])
    names_measured = [name for name, column in column_of.items() if column.measured]
    signal_table = gather(signals, kept, names_measured) if names_measured else None
    for group in select_groups(documents, kept, [name for name in names if name not in column_of]):
        values = {name: group[name] for name in names if name not in column_of}
        for name, column in column_of.items():
            if signal_table is None or not column.measured:
                values[name] = pa.nulls(len(group), column.field.type)
        if signal_table is not None:
            indices = pc.index_in(group["id"], signal_table["id"].combine_chunks())
            values |= {name: signal_table[name].take(indices) for name in names_measured}
        yield pa.table({name: values[name] for name in names}).cast(schema)


def summed(records: Iterable[dict]) -> list[tuple[str, str | None, int, int]]:
    """(source, language, documents, characters) of all shards, by what the jobs returned."""
    totals: Counter[tuple[str, str | None, str]] = Counter()
    for record in records:
        for source, language, documents, characters in record["written"]:
            totals[source, language, "documents"] += documents
            totals[source, language, "characters"] += characters
    return [(row[0], row[1], row[2], row[3]) for row in _rows(totals)]


def _count(totals: Counter[tuple[str, str | None, str]], table: pa.Table) -> None:
    keyed = table.select(["source", "language", "characters"])
    for row in keyed.group_by(["source", "language"]).aggregate([("characters", "sum"), ([], "count_all")]).to_pylist():
        totals[row["source"], row["language"], "documents"] += row["count_all"]
        totals[row["source"], row["language"], "characters"] += row["characters_sum"]


def _rows(totals: Counter[tuple[str, str | None, str]]) -> list[list]:
    keys = sorted({key[:2] for key in totals}, key=lambda key: (key[0], key[1] or ""))
    return [[*key, totals[*key, "documents"], totals[*key, "characters"]] for key in keys]


def shard_name(shard: int, format: str) -> str:
    """The name of a shard within the folder of an export; `format`: one of SUFFIXES."""
    return f"data/part-{shard:05d}.{SUFFIXES[format]}"


@contextmanager
def _writing(folder: str, shard: int, format: str, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Gives what writes a table of the schema behind the others. The shard appears under its name when the block ends
    without an error. Null is `null` in JSON, and so is a number that is not finite."""
    path = files.join(folder, shard_name(shard, format))
    if format == "parquet":
        with parquet.create(path, schema) as out:
            yield out.write_table
        return
    # not ZstdFile, which makes no frame where nothing is written
    packed = zstd.ZstdCompressor(options=_ZSTD)
    with files.create(path) as f:

        def write(table: pa.Table) -> None:
            for row in table.to_pylist():
                f.write(packed.compress(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)))

        yield write
        f.write(packed.flush())


class Export(Settings):
    """Where the curated documents are written, and how. It decides nothing of the corpus."""

    to: Address = Field(
        min_length=1, description="a folder or an address (s3://bucket/prefix), empty or with this very export in it"
    )
    format: Literal["parquet", "jsonl"] = Field("parquet", description="jsonl: lines of JSON, compressed by zstd")
    where: str | None = Field(
        None,
        description="those documents alone for which an expression is true, as that of the step `where`; null: all",
    )

    @field_validator("where")
    @classmethod
    def _readable(cls, where: str | None) -> str | None:
        if where is not None:
            parsed(where)
        return where
