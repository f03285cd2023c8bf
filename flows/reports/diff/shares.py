"""How the tokens of two sides, or their characters, are divided among sources and hosts."""

from dataclasses import dataclass

import duckdb

from gristmill.flows.reports.diff.sides import Side
from gristmill.storage import files
from gristmill.storage.token_shards import index_path
from gristmill.tasks.documents import isolated_duckdb
from gristmill.tasks.documents.expressions import DERIVED_SQL
from gristmill.tasks.documents.selection import gather

_MOST = 30  # hosts that are kept, those first whose share moved most
NO_HOST = "no host"
_AMOUNTS = "create table amounts (side int, source text, host text, documents bigint, amount bigint)"
_ADD = f"""
insert into amounts
select {{side}}, source, coalesce({DERIVED_SQL["host"]}, '{NO_HOST}') as host, count(*), sum({{amount}})
from part
group by all
"""
_GROUPS = """
create or replace table groups as select {by} as name,
    coalesce(sum(documents) filter (side = 0), 0)::bigint as documents_a,
    coalesce(sum(documents) filter (side = 1), 0)::bigint as documents_b,
    coalesce(sum(amount) filter (side = 0), 0)::bigint as amount_a,
    coalesce(sum(amount) filter (side = 1), 0)::bigint as amount_b
from amounts group by name
"""
_DIFFER = "(documents_a, amount_a) <> (documents_b, amount_b)"


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
    with_tokens = a.tokens is not None and b.tokens is not None
    connection = isolated_duckdb.connect()
    connection.execute(_AMOUNTS)
    for number, side in enumerate((a, b)):
        for shard in side.shards:
            selection = index_path(side.tokens.folder, shard) if with_tokens and side.tokens else side.kept.part(shard)
            if not with_tokens or files.exists(selection):  # a shard without documents has no tokens
                amount = "length" if with_tokens else "characters"
                parts = (side.documents.part(shard), selection)
                connection.register("part", gather(parts, selection, ["source", "url", amount]))
                connection.execute(_ADD.format(side=number, amount=amount))
    sources, hosts = _groups(connection, "source"), _groups(connection, "host")
    total = "coalesce(sum(amount) filter (side = {}), 0)::bigint"
    [totals] = connection.execute(f"select {total.format(0)}, {total.format(1)} from amounts").fetchall()
    one_tokenizer = not with_tokens or _tokenizer(a) == _tokenizer(b)
    return Shares("tokens" if with_tokens else "characters", one_tokenizer, totals, sources, hosts)


def _tokenizer(side: Side) -> str:
    return side.tokens.digests["tokenizer"] if side.tokens else ""


def _groups(connection: duckdb.DuckDBPyConnection, by: str) -> Groups:
    connection.execute(_GROUPS.format(by=by))
    [(in_a, in_b, differing)] = connection.execute(
        "select count(*) filter (documents_a > 0), count(*) filter (documents_b > 0), "
        f"count(*) filter ({_DIFFER}) from groups"
    ).fetchall()
    most = connection.execute(
        f"from groups where {_DIFFER} order by abs(amount_b - amount_a) desc, name limit {_MOST}"
    ).fetchall()
    return Groups([in_a, in_b], differing, [Group(row[0], row[1:3], row[3:5]) for row in most])
