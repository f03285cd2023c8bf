"""Documents for which an expression is true, some shards at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.explore.browse.draws import DrawnDocument, documents
from gristmill.flows.explore.browse.opened import Opened
from gristmill.flows.recipe.errors import did_you_mean
from gristmill.flows.stages.export import columns_of
from gristmill.storage import parquet
from gristmill.storage.schema import carried
from gristmill.tasks.documents.export import curated, curated_schema
from gristmill.tasks.documents.expressions import ExpressionError, parsed, stored, truth
from gristmill.tasks.documents.selection import uniform

_READ = 200_000  # documents that are looked at before an answer is given


@dataclass(frozen=True)
class Found:
    """`documents`: some of the `matching` ones among the `read`, drawn by the seed. `begin`, `end`: which shards were
    read, in an order that the seed decides, of `shards`."""

    documents: list[DrawnDocument]
    matching: int
    read: int
    begin: int
    end: int
    shards: int


def search(opened: Opened, expression: str, n: int, seed: int, begin: int = 0, everything: bool = False) -> Found:
    """Look for documents in shards from number `begin` on, until some match and 200,000 were read.

    `everything`: not those that are kept alone, but all that were extracted, with the column `kept`; what was not
    measured of a document is null. Holds of a shard the measured columns that the expression reads, and a row group of
    the others. Raises ExpressionError for an expression that is none, or that names a column that there is not.
    """
    tree = parsed(expression)
    read_from = _Extracted(opened) if everything else _Kept(opened)
    there = read_from.names
    names = list(dict.fromkeys(stored(name, there) for name in tree.columns))
    for name in names:
        if name not in there:
            raise ExpressionError(f"no column {name}; {did_you_mean(name, there)} there are: {', '.join(there)}")
    order = np.random.default_rng(seed).permutation(len(opened.corpus.sources)).tolist()
    read = matching = 0
    drawn: list[tuple[float, int, str]] = []
    at = begin
    while at < len(order) and not (matching and read >= _READ):
        for table in read_from.tables(order[at], list(dict.fromkeys(["id", *names]))):
            ids = table["id"].filter(truth(tree, table).fill_null(False))
            read, matching = read + len(table), matching + len(ids)
            numbers = uniform(ids, seed, "browse")
            first = np.argsort(numbers, kind="stable")[:n].tolist()
            drawn = sorted([*drawn, *((float(numbers[i]), order[at], ids[i].as_py()) for i in first)])[:n]
        at += 1
    found: dict[tuple[int, str], DrawnDocument] = {}
    for shard in {shard for _, shard, _ in drawn}:
        some = [id_ for _, where, id_ in drawn if where == shard]
        part = opened.corpus.extracted.part(shard) if everything else ""
        found |= {(shard, one.id): one for one in documents(opened, shard, some, part)}
    return Found([found[shard, id_] for _, shard, id_ in drawn], matching, read, begin, at, len(order))


class _Kept:
    """The documents that are kept, with their columns and all that was measured."""

    def __init__(self, opened: Opened) -> None:
        self._places, self._measured = opened.corpus.places, columns_of(opened.recipe)
        schema = parquet.schema(self._places.documents[0])
        self.names = list(dict.fromkeys([*schema.names, *curated_schema(schema, self._measured).names]))

    def tables(self, shard: int, names: list[str]) -> Iterator[pa.Table]:
        where = self._places.shard(shard)
        return curated(where["documents"], where["kept"], self._places.signals[shard], self._measured, names)


class _Extracted:
    """The documents that were extracted, with their columns, all that was measured, and whether they are kept."""

    def __init__(self, opened: Opened) -> None:
        self._extracted, self._scores = opened.corpus.extracted, opened.report.scores
        self._own = carried(parquet.schema(self._extracted.part(0)))
        self.names = list(dict.fromkeys([*self._own, *self._scores.schema.names]))

    def tables(self, shard: int, names: list[str]) -> Iterator[pa.Table]:
        own = [name for name in names if name in self._own]
        [scores] = self._scores.read(shard, ["id", *(name for name in names if name not in self._own)])
        at = 0
        for group in parquet.groups(self._extracted.part(shard), own):
            some = scores.slice(at, len(group))  # which has the part's rows, in its order
            at += len(group)
            yield pa.table({name: group[name] if name in own else some[name] for name in names})


def shard_of(opened: Opened, prefix: str) -> tuple[int, str] | None:
    """The shard and the whole id of the first record whose id begins so, kept or not. Holds the ids of a shard."""
    for shard in range(len(opened.extracted.part_records)):
        for path in (opened.extracted.part(shard), opened.extracted.ledger(shard)):
            ids = parquet.read_table(path, ["id"])["id"]
            met: pa.ChunkedArray = ids.filter(pc.starts_with(ids, prefix))
            if len(met):
                return shard, met[0].as_py()
    return None
