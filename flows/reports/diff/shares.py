"""How the tokens of two sides, or their characters, are divided among sources and hosts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import wrapt

from gristmill.flows.reports.diff.sides import Side
from gristmill.storage import files, parquet
from gristmill.storage.token_shards import index_path
from gristmill.tasks.documents.expressions import evaluate, parsed
from gristmill.tasks.documents.selection import gather

if TYPE_CHECKING:
    import duckdb

    from gristmill.storage import isolated_duckdb
else:
    duckdb = wrapt.lazy_import("duckdb")
    isolated_duckdb = wrapt.lazy_import("gristmill.storage.isolated_duckdb")

_MOST = 30  # hosts that are kept, those first whose share moved most
NO_HOST = "no host"
_AMOUNTS = "create table amounts (side int, source text, host text, documents bigint, amount bigint)"
_ADD = "insert into amounts select {side}, source, host, count(*), sum(amount) from part group by all"
_GROUPS = """
create or replace table groups as
select {by} as name, {sums} from amounts group by name
"""
_SUMS = ", ".join(
    f"coalesce(sum({what}) filter (side = {side}), 0)::bigint as {what}_{side}"
    for what in ("documents", "amount")
    for side in (0, 1)
)


@dataclass(frozen=True)
class Group:
    """A source or a host, with documents and tokens, or characters, on both sides."""

    name: str
    documents: tuple[int, int]
    amount: tuple[int, int]


@dataclass(frozen=True)
class Groups:
    """`there`: how many each side has; `differing`: how many are not alike; `most`: those of them that differ most."""

    there: list[int]
    differing: int
    most: list[Group]


@dataclass(frozen=True)
class Shares:
    """`unit`: tokens where both sides have them, else characters; `total`: of either side. Tokens are those of the
    documents that are trained on, without those that are held out; `one_tokenizer`: whether both sides have the same,
    without which the same text may have more tokens on one."""

    unit: str
    one_tokenizer: bool
    total: tuple[int, int]
    sources: Groups
    hosts: Groups


def shares(a: Side, b: Side) -> Shares:
    """By source and by host. Holds a shard's URLs; sums of hosts are DuckDB's, which spills them."""
    unit = "tokens" if a.tokens and b.tokens else "characters"
    connection = isolated_duckdb.connect()
    connection.execute(_AMOUNTS)
    for number, side in enumerate((a, b)):
        for table in _amounts(side, unit):
            connection.register("part", table)
            connection.execute(_ADD.format(side=number))
    sources, hosts = _groups(connection, "source"), _groups(connection, "host")
    [total] = connection.execute("select sum(amount_0)::bigint, sum(amount_1)::bigint from groups").fetchall()
    one_tokenizer = unit == "characters" or _tokenizer(a) == _tokenizer(b)
    return Shares(unit, one_tokenizer, (total[0] or 0, total[1] or 0), sources, hosts)


def _tokenizer(side: Side) -> str:
    return side.tokens.digests["tokenizer"] if side.tokens else ""


def _amounts(side: Side, unit: str) -> Iterator[pa.Table]:
    """Of each shard `host`, `source` and `amount` of its documents."""
    for shard in side.shards:
        if unit == "tokens":
            assert side.tokens is not None, "both sides have tokens"
            index = index_path(side.tokens.folder, shard)
            if not files.exists(index):
                continue
            table = gather((side.documents.part(shard),), index, ["source", "url"])
            amount = parquet.read_table(index, ["length"])["length"]
        else:
            kept = side.kept.part(shard)
            table = gather((side.documents.part(shard),), kept, ["source", "url"])
            amount = parquet.read_table(kept, ["characters"])["characters"]
        host = pc.fill_null(evaluate(parsed("host"), table.select(["url"])), NO_HOST)
        yield pa.table({"host": host, "source": table["source"], "amount": amount.cast(pa.int64())})


def _groups(connection: "duckdb.DuckDBPyConnection", by: str) -> Groups:
    """The table `groups` of sources or hosts, and what differs in it."""
    connection.execute(_GROUPS.format(by=by, sums=_SUMS))
    differ = "documents_0 <> documents_1 or amount_0 <> amount_1"
    counts = ", ".join(f"count(*) filter ({test})" for test in ("documents_0 > 0", "documents_1 > 0", differ))
    [(*there, differing)] = connection.execute(f"select {counts} from groups").fetchall()
    rows = connection.execute(
        f"from groups where {differ} order by abs(amount_1 - amount_0) desc, name limit {_MOST}"
    ).fetchall()
    return Groups(there, differing, [Group(row[0], row[1:3], row[3:5]) for row in rows])
