"""Which documents of two sides are the same, which one side has alone, and why the other does not have them.

Documents are matched by id. An id is a hash of source, file, place and record: where a source has another name, or a
file is in another folder, ids differ; the others are matched by URL and record id, each once, in the order of rows.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from gristmill.flows.reports.diff.sides import Side
from gristmill.storage import parquet
from gristmill.storage.home import FinishedStage
from gristmill.storage.schema import LEDGER
from gristmill.tasks.documents.selection import select_groups, uniform

ROWS = 500_000  # of a file, about
_MOST = 512  # files that are open together


class Spilled:
    """Rows of one schema, in `files` files of a folder. To be filled within a `with`, and read behind it."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema, files: int) -> None:
        self._paths = [folder / f"{name}-{number:04d}.arrow" for number in range(files)]
        self._schema = schema
        self.rows = 0

    def __enter__(self) -> "Spilled":
        self._open = ExitStack()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writers = [
            self._open.enter_context(pa.ipc.new_stream(str(path), self._schema, options=options))
            for path in self._paths
        ]
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def add(self, table: pa.Table, column: str) -> None:
        """Add rows, divided by a column of strings without nulls."""
        table = table.select(self._schema.names).cast(self._schema)
        self.rows += len(table)
        if len(self._paths) == 1:
            self._writers[0].write_table(table)
            return
        at = (uniform(table[column], 0, "diff") * len(self._paths)).astype(np.int64)
        order = np.argsort(at, kind="stable")
        ends = np.searchsorted(at[order], np.arange(len(self._paths) + 1))
        for number in np.unique(at).tolist():
            self._writers[number].write_table(table.take(pa.array(order[ends[number] : ends[number + 1]])))

    def tables(self) -> Iterator[pa.Table]:
        """The rows of each file, one file after the other. Holds one."""
        for path in self._paths:
            with pa.ipc.open_stream(str(path)) as stream:
                yield stream.read_all()


def files_for(rows: int) -> int:
    """How many files so many rows are divided into."""
    return min(max(1, -(-rows // ROWS)), _MOST)


NOT_READ = "not read"
EXAMPLES = 3  # documents shown of each reason
DRAWN = 500  # documents with another text in which the changed characters are counted

# A record that a side has read. `key`: URL and record id, null where neither is known; `reason`: null where it is kept.
_ROW = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("url", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("shard", pa.int64(), nullable=False),
        pa.field("characters", pa.int64()),
        pa.field("text", pa.uint64(), metadata={"what": "a hash of the text; null where texts are not compared"}),
    ]
)
_CHANGED = pa.schema(
    [
        pa.field("id_a", pa.string()),
        pa.field("shard_a", pa.int64()),
        pa.field("id_b", pa.string()),
        pa.field("shard_b", pa.int64()),
        pa.field("url", pa.string()),
        pa.field("characters_a", pa.int64()),
        pa.field("characters_b", pa.int64()),
    ]
)


@dataclass
class Alone:
    """Documents that one side keeps alone, for one reason: the step and rule that dropped them on the other side.

    `examples`: id and URL of some, drawn by a hash of the ids.
    """

    reason: str
    documents: int = 0
    characters: int = 0
    examples: list[tuple[str, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._drawn: list[tuple[float, str, str | None]] = []

    def add(self, rows: pa.Table) -> None:
        self.documents += len(rows)
        self.characters += pc.sum(rows["characters"]).as_py() or 0
        numbers = _draw(rows["id"])
        first = np.argsort(numbers, kind="stable")[:EXAMPLES].tolist()
        new = [(float(numbers[at]), rows["id"][at].as_py(), rows["url"][at].as_py()) for at in first]
        self._drawn = sorted([*self._drawn, *new], key=lambda one: one[:2])[:EXAMPLES]
        self.examples = [(id_, url) for _, id_, url in self._drawn]


@dataclass
class Matched:
    """`alone_a`, `alone_b`: documents that one side keeps alone, by reason; `both`: how many both keep; `by_url`: of
    them those with different ids; `changed`: those with another text, with their characters on both sides; `drawn`: up
    to DRAWN of them, drawn by a hash of the ids."""

    alone_a: dict[str, Alone] = field(default_factory=dict)
    alone_b: dict[str, Alone] = field(default_factory=dict)
    both: int = 0
    by_url: int = 0
    changed: int = 0
    characters_a: int = 0
    characters_b: int = 0
    drawn: pa.Table = field(default_factory=lambda: _CHANGED.empty_table(), repr=False)


def match(a: Side, b: Side, folder: Path) -> Matched:
    """Match the documents of two sides; `folder`: for temporary files. Holds a shard of either, or 500,000 rows, and
    reads texts only where the sides have them from different stages."""
    found = Matched()
    hashed = a.documents.contents != b.documents.contents
    if a.extracted.contents == b.extracted.contents:  # then both have the same documents in shard i
        for shard in a.shards:
            _join(found, rows(a, shard, hashed), rows(b, shard, hashed), "id")
        return found
    files = files_for(max(map(_records, (a, b))))
    with Spilled(folder, "a", _ROW, files) as left, Spilled(folder, "b", _ROW, files) as right:
        for side, spilled in ((a, left), (b, right)):
            for shard in side.shards:
                spilled.add(rows(side, shard, hashed), "id")
    with Spilled(folder, "key-a", _ROW, files) as key_a, Spilled(folder, "key-b", _ROW, files) as key_b:
        for one, other in zip(left.tables(), right.tables(), strict=True):
            unknown = _join(found, one, other, "id")
            for table, spilled, reasons in zip(unknown, (key_a, key_b), (found.alone_a, found.alone_b), strict=True):
                known = pc.is_valid(table["key"])
                spilled.add(table.filter(known), "key")
                _alone(reasons, table.filter(pc.invert(known)), None)
    for one, other in zip(key_a.tables(), key_b.tables(), strict=True):
        unknown = _join(found, one, other, "key")
        for table, reasons in zip(unknown, (found.alone_a, found.alone_b), strict=True):
            _alone(reasons, table, None)
    return found


def _records(side: Side) -> int:
    return sum(record["rows_in"] for record in side.extracted.part_records)


def rows(side: Side, shard: int, hashed: bool) -> pa.Table:
    """The records of a shard that a side has read, with the reason of each that it does not keep; `hashed`: with a hash
    of each text that it keeps. Holds them, and a row group of texts."""
    base = parquet.read_table(side.extracted.part(shard), ["id", "url", "record_id"])
    never, *ledgers = (_ledger(stage, shard) for stage in dict.fromkeys((side.extracted, *side.decided)))
    # a record that was read twice has the id of the document that it is again
    never = never.filter(pc.invert(pc.is_in(never["id"], base["id"].combine_chunks())))
    later = pa.concat_tables([never, *ledgers])
    gone = pa.chunked_array([*base["id"].chunks, *never["id"].chunks], pa.string())
    kept = parquet.read_table(side.kept.part(shard), ["id", "characters"])
    at = pc.index_in(gone, kept["id"].combine_chunks())
    because = pc.index_in(gone, later["id"].combine_chunks())
    reason = pc.binary_join_element_wise(later["step"], later["rule"], ".").take(because)
    url = pa.chunked_array([*base["url"].chunks, *never["url"].chunks], pa.string())
    record = pa.chunked_array([*base["record_id"].chunks, pa.nulls(len(never), pa.string())], pa.string())
    key = pc.binary_join_element_wise(pc.fill_null(url, ""), pc.fill_null(record, ""), "\n")
    texts = _texts(side, shard, kept["id"]) if hashed else pa.nulls(len(kept), pa.uint64())
    return pa.table(
        {
            "id": gone,
            "key": pc.if_else(pc.equal(key, "\n"), None, key),
            "url": url,
            "reason": pc.if_else(pc.is_valid(at), None, pc.fill_null(reason, "not in the ledger")),
            "shard": pa.repeat(pa.scalar(shard, pa.int64()), len(gone)),
            "characters": kept["characters"].take(at),
            "text": texts.take(at),
        },
        _ROW,
    )


def _ledger(stage: FinishedStage, shard: int) -> pa.Table:
    columns = ["id", "step", "rule", "url"]
    if not stage.counts_documents:
        return LEDGER.empty_table().select(columns)
    return parquet.read_table(stage.ledger(shard), columns)


def _texts(side: Side, shard: int, ids: pa.ChunkedArray) -> pa.Array:
    """A hash of the text of each document."""
    names, hashes = [pa.chunked_array([], pa.string())], [np.empty(0, np.uint64)]
    for group in select_groups(side.documents.part(shard), side.kept.part(shard), ["text"]):
        names.append(group["id"])
        texts = (xxhash.xxh3_64_intdigest(text.as_buffer()) for text in _scalars(group["text"]))
        hashes.append(np.fromiter(texts, np.uint64, len(group)))
    found = pa.chunked_array([chunk for each in names for chunk in each.chunks], pa.string())
    return pa.array(np.concatenate(hashes)).take(pc.index_in(ids, found.combine_chunks()).combine_chunks())


def _scalars(column: pa.ChunkedArray) -> Iterator[pa.LargeStringScalar]:
    return (value for chunk in column.chunks for value in chunk)


def _join(found: Matched, one: pa.Table, other: pa.Table, by: str) -> tuple[pa.Table, pa.Table]:
    """Count what two tables of rows say of each other; returns the rows of either that the other does not know."""
    one, again_a = _once(one, by)
    other, again_b = _once(other, by)
    at = pc.index_in(one[by], other[by].combine_chunks())
    met = one.filter(pc.is_valid(at))
    them = other.take(pc.drop_null(at))
    keeps, kept_there = pc.is_null(met["reason"]), pc.is_null(them["reason"])
    here, there = pc.and_not(keeps, kept_there), pc.and_not(kept_there, keeps)
    _alone(found.alone_a, met.filter(here), them.filter(here)["reason"])
    _alone(found.alone_b, them.filter(there), met.filter(there)["reason"])
    together = pc.and_(keeps, kept_there)
    _both(found, met.filter(together), them.filter(together))
    left = one.filter(pc.is_null(at))
    right = other.filter(pc.invert(pc.is_in(other[by], one[by].combine_chunks())))
    return pa.concat_tables([left, again_a]), pa.concat_tables([right, again_b])


def _once(table: pa.Table, by: str) -> tuple[pa.Table, pa.Table]:
    """The first row with each value of a column, and the others."""
    firsts = pc.index_in(table[by], table[by].combine_chunks())
    first = np.asarray(firsts) == np.arange(len(table))
    if first.all():
        return table, table.slice(0, 0)
    return table.filter(pa.array(first)), table.filter(pa.array(~first))


def _alone(found: dict[str, Alone], rows: pa.Table, reasons: pa.ChunkedArray | None) -> None:
    """Count rows that are kept on one side alone, by the reason of the other side; without reasons it never read them.
    Rows that are not kept count nowhere."""
    if reasons is None:
        rows = rows.filter(pc.is_null(rows["reason"]))
        if len(rows):
            found.setdefault(NOT_READ, Alone(NOT_READ)).add(rows)
        return
    for reason in sorted(pc.unique(reasons).to_pylist()):
        found.setdefault(reason, Alone(reason)).add(rows.filter(pc.equal(reasons, reason)))


def _both(found: Matched, one: pa.Table, other: pa.Table) -> None:
    found.both += len(one)
    found.by_url += pc.sum(pc.not_equal(one["id"], other["id"])).as_py() or 0
    changed = pc.fill_null(pc.not_equal(one["text"], other["text"]), False)
    one, other = one.filter(changed), other.filter(changed)
    found.changed += len(one)
    found.characters_a += pc.sum(one["characters"]).as_py() or 0
    found.characters_b += pc.sum(other["characters"]).as_py() or 0
    new = pa.table(
        {
            "id_a": one["id"],
            "shard_a": one["shard"],
            "id_b": other["id"],
            "shard_b": other["shard"],
            "url": one["url"],
            "characters_a": one["characters"],
            "characters_b": other["characters"],
        },
        _CHANGED,
    )
    drawn = pa.concat_tables([found.drawn, new])
    first = np.argsort(_draw(drawn["id_a"]), kind="stable")[:DRAWN]
    found.drawn = drawn.take(pa.array(first))


def _draw(ids: pa.ChunkedArray) -> np.ndarray:
    return uniform(ids, 1, "diff")
