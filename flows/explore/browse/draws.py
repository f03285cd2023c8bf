"""Documents of a page: drawn by a seed, each with the same probability, or those for which an expression is true.

Drawing reads no more shards than documents are drawn, since the number of documents of each shard is recorded. A search
reads some shards at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.explore.browse.opened import Opened, Step
from gristmill.flows.machine.wrong_values import did_you_mean
from gristmill.flows.reports.dropped import Dropped, in_rows
from gristmill.flows.stages.export import columns_of
from gristmill.storage import parquet
from gristmill.storage.schema import carried
from gristmill.tasks.documents.export import curated, curated_schema
from gristmill.tasks.documents.expressions import ExpressionError, parsed, stored, truth
from gristmill.tasks.documents.selection import read_rows, uniform

Draw = tuple[float, int, str]  # a number in [0, 1) by which a document is drawn, its shard and its id
TAKEN = "Taken down: its content is not shown."
_KEPT = ["id", "source", "url", "title", "characters", "text"]


@dataclass(frozen=True)
class DrawnDrop:
    """A document that a rule dropped, and its shard."""

    shard: int
    dropped: Dropped


@dataclass(frozen=True)
class DrawnDocument:
    """A document that is kept: its shard, id, source, URL, title, characters, and text."""

    shard: int
    id: str
    source: str
    url: str | None
    title: str | None
    characters: int
    text: str


def dropped(opened: Opened, step: Step, rule: str, n: int, seed: int) -> list[DrawnDrop]:
    """Up to `n` documents that a rule of a step dropped, in an order that the seed decides. Reads of `n` shards the
    ledger, and of their documents ids and the rows that are drawn. Those that were taken down have no text."""
    counts = [_dropped(record["steps"], step.row.step, rule) for record in step.stage.part_records]
    found: dict[tuple[int, int], DrawnDrop] = {}
    places = _places(counts, n, seed)
    for shard in sorted({shard for shard, _ in places}):
        ledger = parquet.read_table(step.stage.ledger(shard), ["step", "rule"])
        chosen = np.flatnonzero(pc.and_(pc.equal(ledger["step"], step.row.step), pc.equal(ledger["rule"], rule)))
        wanted = sorted(nth for where, nth in places if where == shard)
        made = in_rows(step.stage, shard, chosen[wanted].tolist())
        taken = opened.taken_down((one.row["id"], one.row.get("url")) for one in made)
        made = [replace(one, text=None, marks=(), remark=TAKEN) if one.row["id"] in taken else one for one in made]
        found |= {(shard, nth): DrawnDrop(shard, one) for nth, one in zip(wanted, made, strict=True)}
    return [found[place] for place in places]


def kept(opened: Opened, n: int, seed: int) -> list[DrawnDocument]:
    """Up to `n` of the documents that are kept, in an order that the seed decides; reads as `dropped`."""
    found: dict[tuple[int, int], DrawnDocument] = {}
    places = _places(opened.kept_by_shard, n, seed)
    for shard in sorted({shard for shard, _ in places}):
        wanted = sorted(nth for where, nth in places if where == shard)
        ids = read_rows(opened.kept.part(shard), np.array(wanted, np.int64), ["id"])["id"].to_pylist()
        made = {one.id: one for one in documents(opened, shard, ids)}
        found |= {(shard, nth): made[id_] for nth, id_ in zip(wanted, ids, strict=True)}
    return [found[place] for place in places]


def documents(opened: Opened, shard: int, ids: list[str], part: str = "") -> list[DrawnDocument]:
    """Documents of a shard by id, in the order of the shard; `part`: that with their texts, default that of the
    documents that are kept. Those that were taken down have no text."""
    part = part or opened.corpus.documents.part(shard)
    at = np.flatnonzero(pc.is_in(parquet.read_table(part, ["id"])["id"], pa.array(ids, pa.string())))
    rows = read_rows(part, at, _KEPT).to_pylist()
    taken = opened.taken_down((row["id"], row["url"]) for row in rows)
    return [DrawnDocument(shard, **row | ({"text": TAKEN} if row["id"] in taken else {})) for row in rows]


def _dropped(counts: list[dict], step: str, rule: str) -> int:
    return sum(count["drops"].get(rule, 0) for count in counts if count["step"] == step)


def _places(counts: list[int], n: int, seed: int) -> list[tuple[int, int]]:
    """Up to `n` places, each a shard and a number below its count, drawn without return."""
    ends = np.cumsum([0, *counts])
    total = int(ends[-1])
    drawn = np.random.default_rng(seed).choice(total, min(n, total), replace=False) if total else np.empty(0, int)
    shards = np.searchsorted(ends, drawn, side="right") - 1
    return [(int(shard), int(at - ends[shard])) for shard, at in zip(shards, drawn, strict=True)]


# Documents for which an expression is true, some shards at a time.


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

    `everything`: all documents that were extracted, not only those that are kept, with the column `kept`; what was not
    measured of a document is null. Holds of a shard the measured columns that the expression reads, and a row group of
    the others. Raises ExpressionError for an expression that is none, or that names a column that there is not.
    """
    tree = parsed(expression)
    read_from = _Extracted(opened) if everything else _Kept(opened)
    there = read_from.names
    names = list(dict.fromkeys(stored(name, there) for name in tree.columns))
    for name in names:
        if name not in there:
            raise ExpressionError(f"no column {name}; {did_you_mean(name, there)} the columns are {', '.join(there)}")
    order = np.random.default_rng(seed).permutation(len(opened.corpus.sources)).tolist()
    read = matching = 0
    drawn: list[Draw] = []
    at = begin
    while at < len(order) and not (matching and read >= _READ):
        for table in read_from.tables(order[at], list(dict.fromkeys(["id", *names]))):
            ids = table["id"].filter(truth(tree, table).fill_null(False))
            read, matching = read + len(table), matching + len(ids)
            drawn = add_drawn(drawn, order[at], ids, n, seed)
        at += 1
    found: dict[tuple[int, str], DrawnDocument] = {}
    for shard in {shard for _, shard, _ in drawn}:
        some = [id_ for _, where, id_ in drawn if where == shard]
        part = opened.corpus.extracted.part(shard) if everything else ""
        found |= {(shard, one.id): one for one in documents(opened, shard, some, part)}
    return Found([found[shard, id_] for _, shard, id_ in drawn], matching, read, begin, at, len(order))


def add_drawn(drawn: list[Draw], shard: int, ids: pa.ChunkedArray, n: int, seed: int) -> list[Draw]:
    """The first `n` of those drawn so far and of the documents of a shard, ordered by a keyed hash of their ids."""
    numbers = uniform(ids, seed, "browse")
    first = np.argsort(numbers, kind="stable")[:n].tolist()
    return sorted([*drawn, *((float(numbers[i]), shard, ids[i].as_py()) for i in first)])[:n]


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
        # whether a document is kept is ours to say, whatever the files have
        self._own = [name for name in carried(parquet.schema(self._extracted.part(0))) if name != "kept"]
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
