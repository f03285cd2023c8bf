"""An export as jobs: a shard of documents with all that was measured of them, and what the shards hold."""

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import export
from gristmill.storage.schema import DOCUMENTS
from gristmill.tasks.documents import batch
from gristmill.tasks.documents.selection import gather, select_groups
from gristmill.tasks.documents.step import Kind, Settings, Signal

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
) -> dict:
    """Write the kept documents of a shard in their order; returns documents and characters by source and language.

    `signals`: the parts with what steps measured. Holds the measured columns of the shard and a row group of texts.
    Raises LookupError for a document that is not in a part.
    """
    names = [column.name for column in columns if column.measured]
    measured = gather(signals, kept, names) if names else None
    schema = pa.schema([*(DOCUMENTS.field(name) for name in CARRIED), *(column.field for column in columns)])
    counted: Counter[tuple[str, str | None, str]] = Counter()
    with export.create(folder, shard, format, schema) as write:
        for group in select_groups(documents, kept, [*CARRIED, "characters"]):
            given = {name: group[name] for name in CARRIED}
            for column in columns:
                if measured is None or not column.measured:
                    given[column.name] = pa.nulls(len(group), column.field.type)
            if measured is not None:
                at = pc.index_in(group["id"], measured["id"].combine_chunks())
                given |= {name: measured[name].take(at) for name in names}
            table = pa.table({name: given[name] for name in schema.names}).cast(schema)
            _count(counted, table, group["characters"])
            write(table)
    return {"written": _rows(counted)}


def summed(records: Sequence[dict]) -> list[tuple[str, str | None, int, int]]:
    """(source, language, documents, characters) of all shards, by what the jobs returned."""
    counted: Counter[tuple[str, str | None, str]] = Counter()
    for record in records:
        for source, language, documents, characters in record["written"]:
            counted[source, language, "documents"] += documents
            counted[source, language, "characters"] += characters
    return [(row[0], row[1], row[2], row[3]) for row in _rows(counted)]


def _count(counted: Counter[tuple[str, str | None, str]], table: pa.Table, characters: pa.ChunkedArray) -> None:
    keyed = pa.table({"source": table["source"], "language": table["language"], "characters": characters})
    for row in keyed.group_by(["source", "language"]).aggregate([("characters", "sum"), ([], "count_all")]).to_pylist():
        counted[row["source"], row["language"], "documents"] += row["count_all"]
        counted[row["source"], row["language"], "characters"] += row["characters_sum"]


def _rows(counted: Counter[tuple[str, str | None, str]]) -> list[list]:
    keys = sorted({key[:2] for key in counted}, key=lambda key: (key[0], key[1] or ""))
    return [[*key, counted[*key, "documents"], counted[*key, "characters"]] for key in keys]
