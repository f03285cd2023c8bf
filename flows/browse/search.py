"""Kept documents for which an expression is true, some shards at a time."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gristmill.flows.browse.draws import DrawnDocument, documents
from gristmill.flows.browse.opened import Opened
from gristmill.flows.recipe.errors import did_you_mean
from gristmill.flows.stages.export import columns_of
from gristmill.storage import parquet
from gristmill.tasks.documents.export_work import curated, curated_schema
from gristmill.tasks.documents.sampling import uniform
from gristmill.tasks.documents.where.evaluate import truth
from gristmill.tasks.documents.where.syntax import ExpressionError, columns, parsed, stored

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


def search(opened: Opened, expression: str, n: int, seed: int, begin: int = 0) -> Found:
    """Look for documents in shards from number `begin` on, until some match and 200,000 were read.

    Holds of a shard the measured columns that the expression reads, and a row group of the others. Raises
    ExpressionError for an expression that is none, or that names a column that there is not.
    """
    tree = parsed(expression)
    measured = columns_of(opened.recipe)
    places = opened.corpus.places
    schema = parquet.schema(places.documents[0])
    there = list(dict.fromkeys([*schema.names, *curated_schema(schema, measured).names]))
    names = list(dict.fromkeys(stored(name, there) for name in columns(tree)))
    for name in names:
        if name not in there:
            raise ExpressionError(f"no column {name}; {did_you_mean(name, there)} there are: {', '.join(there)}")
    order = np.random.default_rng(seed).permutation(len(places.sources)).tolist()
    read = matching = 0
    drawn: list[tuple[float, int, str]] = []
    at = begin
    while at < len(order) and not (matching and read >= _READ):
        shard = order[at]
        where = places.shard(shard)
        for table in curated(
            where["documents"], where["kept"], places.signals[shard], measured, list(dict.fromkeys(["id", *names]))
        ):
            true = truth(tree, table).fill_null(False)
            ids = table["id"].filter(true)
            read, matching = read + len(table), matching + len(ids)
            numbers = uniform(ids, seed, "browse")
            first = np.argsort(numbers, kind="stable")[:n].tolist()
            drawn = sorted([*drawn, *((float(numbers[i]), shard, ids[i].as_py()) for i in first)])[:n]
        at += 1
    found: dict[tuple[int, str], DrawnDocument] = {}
    for shard in {shard for _, shard, _ in drawn}:
        ids_ = [id_ for _, where_, id_ in drawn if where_ == shard]
        found |= {(shard, one.id): one for one in documents(opened, shard, ids_)}
    return Found([found[shard, id_] for _, shard, id_ in drawn], matching, read, begin, at, len(order))


def shard_of(opened: Opened, prefix: str) -> tuple[int, str] | None:
    """The shard and the whole id of the first record whose id begins so, kept or not. Holds the ids of a shard."""
    import pyarrow.compute as pc

    for shard in range(len(opened.extracted.part_records)):
        for path in (opened.extracted.part(shard), opened.extracted.ledger(shard)):
            ids = parquet.read_table(path, ["id"])["id"]
            met: pa.ChunkedArray = ids.filter(pc.starts_with(ids, prefix))
            if len(met):
                return shard, met[0].as_py()
    return None
