"""Documents joined with what later steps know of them, always by id and never by position; single rows of a shard;
and choices of documents by a keyed hash."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import pairwise
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from pydantic import Field

from gristmill.storage import layout, parquet
from gristmill.storage.parquet import open_checked
from gristmill.tasks.documents.step import Settings


def read_rows(path: str, rows: np.ndarray, columns: list[str]) -> pa.Table:
    """The rows of a shard with these numbers, int64, each once and ascending.

    Holds them, and the chosen columns of one row group. Raises ValueError for other numbers.
    """
    return pa.concat_tables(read_groups(path, rows, columns))


def read_groups(path: str, rows: np.ndarray, columns: list[str]) -> Iterator[pa.Table]:
    """What `read_rows` gives, row group by row group; at first a table without rows."""
    with open_checked(path) as shard:
        sizes = [shard.metadata.row_group(group).num_rows for group in range(shard.metadata.num_row_groups)]
        ends = np.cumsum([0, *sizes])
        if (np.diff(rows, prepend=-1, append=ends[-1]) <= 0).any():
            raise ValueError(f"the rows to read from {path} are not in ascending order, not unique, or not all in it")
        yield pa.schema([shard.schema.field(name) for name in columns]).empty_table()
        begins = np.searchsorted(rows, ends)
        for group, (low, high) in enumerate(pairwise(begins.tolist())):
            if low < high:
                yield shard.read([group], columns).select(columns).take(pa.array(rows[low:high] - ends[group]))


def select(documents: str, kept: str, columns: list[str]) -> pa.Table:
    """The rows of a documents shard whose ids the selection shard `kept` holds, in the documents' order.

    Holds the chosen columns of one shard. Raises LookupError if the selection names a document that the shard
    does not have.
    """
    ids = parquet.read_table(kept, ["id"])["id"]
    table = parquet.read_table(documents, ["id", *(c for c in columns if c != "id")])
    selection = table.filter(pc.is_in(table["id"], ids.combine_chunks()))
    _all_found(len(selection), len(ids), documents, kept)
    return selection


def select_groups(documents: str, kept: str, columns: list[str]) -> Iterator[pa.Table]:
    """What `select` gives, row group by row group: holds the chosen columns of one, and the selection's ids."""
    ids = parquet.read_table(kept, ["id"])["id"].combine_chunks()
    n_rows = 0
    for group in parquet.groups(documents, ["id", *(c for c in columns if c != "id")]):
        group = group.filter(pc.is_in(group["id"], ids))
        n_rows += len(group)
        yield group
    _all_found(n_rows, len(ids), documents, kept)


def _all_found(n_rows: int, n_ids: int, documents: str, kept: str) -> None:
    if n_rows != n_ids:
        raise LookupError(f"{kept} names {n_ids} documents, {documents} holds {n_rows} of them")


def null_columns_shard(folder: str, shard: int, kept: str, columns: Mapping[str, pa.DataType]) -> dict:
    """Write `id` and `columns`, null, for a selection of a source without a step, so that every shard has the
    columns."""
    ids = parquet.read_table(kept, ["id"])["id"]
    nulls = {name: pa.nulls(len(ids), kind) for name, kind in columns.items()}
    parquet.write_table(layout.part(folder, shard), pa.table({"id": ids, **nulls}))
    return {"rows": len(ids)}


def gather(parts: tuple[str, ...], kept: str, columns: list[str]) -> pa.Table:
    """`id` and the chosen columns of the documents in `kept`, each from the last of the parts that has it.

    Rows are in the selection's order. Holds the chosen columns of one shard. Raises LookupError for a column that is in
    no part, or a document that is not in a part.
    """
    with ExitStack() as stack:
        shards: dict[str, parquet.CheckedFile] = {}
        have: dict[str, str] = {}  # by column, the part to read it from
        for part in dict.fromkeys(reversed(parts)):
            if have.keys() >= set(columns):
                break  # each file that is opened is a request to a store
            shards[part] = stack.enter_context(open_checked(part))
            have = dict.fromkeys(shards[part].schema.names, part) | have
        if missing := sorted(set(columns) - set(have)):
            raise LookupError(
                f"the documents have no column {', '.join(missing)} at this step; they have {', '.join(have)}; the "
                "columns of a step exist after it"
            )
        tables = {
            part: shards[part].read(columns=["id", *(name for name in columns if have[name] == part)])
            for part in dict.fromkeys(have[name] for name in columns)
        }
        if kept not in tables:
            if kept not in shards:
                shards[kept] = stack.enter_context(open_checked(kept))
            tables[kept] = shards[kept].read(columns=["id"])
        ids = tables[kept]["id"]
    gathered = {"id": ids}
    for part, table in tables.items():
        if not table["id"].equals(ids):
            indices = pc.index_in(ids, table["id"].combine_chunks())
            if indices.null_count:
                raise LookupError(f"{kept} names {indices.null_count} documents that {part} does not hold")
            table = table.take(indices)
        gathered |= {name: table[name] for name in table.column_names if name != "id"}
    return pa.table({name: gathered[name] for name in ["id", *dict.fromkeys(columns)]})


# Choices made by a keyed hash: the same for any order, number of workers, and after any crash.


def uniform(values: pa.ChunkedArray, seed: int, purpose: str) -> np.ndarray:
    """A number in [0, 1) for each string, float64, shape (n,), that depends only on the seed, the purpose and the
    string."""
    prefix = f"{seed}:{purpose}:".encode()
    hashes = (xxhash.xxh3_64_intdigest(prefix + value.encode()) for value in values.to_pylist())
    return (np.fromiter(hashes, np.uint64, len(values)) >> np.uint64(11)) * 2.0**-53


class Heldout(Settings):
    """The documents that no training may see: neither of the model nor of the tokenizer or a scorer.

    They are sampled only by their ids. So they are the same for every recipe on the same sources, whatever its seeds
    are and whatever its steps do with the texts, and a smaller fraction is a subset of a larger one.
    `gristmill.tasks.evaluation.removal` also removes their near-duplicates.
    """

    fractions: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(description="fractions of documents, by source")

    def mask(self, documents: pa.Table) -> np.ndarray:
        """True for the held-out rows of a table with the columns `id` and `source`. Raises KeyError for a source that
        has no fraction, ValueError without the columns."""
        if missing := {"id", "source"} - set(documents.column_names):
            raise ValueError(
                f"held-out documents are identified by `id` and `source`, but {', '.join(missing)} was not "
                'read: read it, as in select(documents, kept, ["source", "text"])'
            )
        sources = pc.dictionary_encode(documents["source"]).combine_chunks()
        fractions = np.array([self.fractions[name] for name in sources.dictionary.to_pylist()], float)
        return uniform(documents["id"], 0, "heldout") < fractions[sources.indices.to_numpy()]

    def chosen(self, documents: pa.Table) -> pa.Table:
        """The held-out rows."""
        return documents.filter(pa.array(self.mask(documents)))

    def without(self, documents: pa.Table) -> pa.Table:
        """The rows that training may see."""
        return documents.filter(pa.array(~self.mask(documents)))
