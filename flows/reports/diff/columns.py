"""How the documents that each side keeps are distributed: by the values of columns, by source and by host."""

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.reports.diff.matching import Side
from gristmill.flows.stats.distributions import QUANTILES, Distribution, is_number, is_text
from gristmill.storage import files, parquet
from gristmill.storage.token_shards import index_path
from gristmill.tasks.documents import isolated_duckdb
from gristmill.tasks.documents.expressions import DERIVED_SQL
from gristmill.tasks.documents.selection import gather

_MAX_VALUES = 10  # values shown of either side
# Columns with a different value for each document. Texts are compared separately, URLs by their hosts.
_ONES_OWN = {
    *("id", "url", "date", "ip", "file", "offset", "length", "record_id", "digest"),
    *("title", "canonical_url", "published", "text"),
}


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers on both sides. `quantiles_a`, `quantiles_b`: at QUANTILES, to eleven binary digits."""

    name: str
    documents: tuple[int, int]
    missing: tuple[int, int]
    mean: tuple[float | None, float | None]
    quantiles: dict[str, tuple[float | None, float | None]]


@dataclass(frozen=True)
class ValueColumn:
    """A column of texts or truth values on both sides. `values`: of the most common of either side their documents;
    `full`: there are more than 10,000 different ones on a side, so counts may be too low there."""

    name: str
    documents: tuple[int, int]
    missing: tuple[int, int]
    values: dict[str, tuple[int, int]]
    full: bool


@dataclass(frozen=True)
class Columns:
    """`numbers`, `values`: columns that are distributed otherwise; `same`: the names of those that are not; `only_a`,
    `only_b`: names of columns that only one side has."""

    numbers: list[NumberColumn]
    values: list[ValueColumn]
    same: list[str]
    only_a: list[str]
    only_b: list[str]


def columns(a: Side, b: Side) -> Columns:
    """Compare all columns that both sides have. Holds the columns of a shard, and the counts."""
    kinds = [_are_numbers(side) for side in (a, b)]
    shared = [name for name, numbers in kinds[0].items() if kinds[1].get(name) is numbers]
    one, other = (_distributions(side, shared) for side in (a, b))
    compared = Columns([], [], [], sorted(kinds[0].keys() - shared), sorted(kinds[1].keys() - shared))
    for name in shared:
        left, right = one[name], other[name]
        both = (left.documents, right.documents), (left.missing, right.missing)
        if left.same(right):
            compared.same.append(name)
        elif kinds[0][name]:
            quantiles = {f"{share:g}": (left.quantile(share), right.quantile(share)) for share in QUANTILES}
            compared.numbers.append(NumberColumn(name, *both, (left.mean, right.mean), quantiles))
        else:
            full = bool(left.error or right.error)
            compared.values.append(ValueColumn(name, *both, _most_common(left, right), full))
    return compared


def _are_numbers(side: Side) -> dict[str, bool]:
    """The columns of a side that are compared, and whether they are numbers, not texts."""
    types = {
        each.name: each.type
        for part in (side.parts(0) if side.shards else ())
        for each in parquet.schema(part)
        if each.name not in _ONES_OWN
    }
    return {name: is_number(each) for name, each in types.items() if is_number(each) or is_text(each)}


def _distributions(side: Side, names: list[str]) -> dict[str, Distribution]:
    counted = {name: Distribution() for name in names}
    for shard in side.shards:
        for name, column in _values(side, shard, names):
            counted[name].add(column)
    return counted


def _most_common(one: Distribution, other: Distribution) -> dict[str, tuple[int, int]]:
    counts = [dict(side.most_common()) for side in (one, other)]
    names = {name for side in (one, other) for name, _ in side.most_common(_MAX_VALUES)}
    pairs = {name: (counts[0].get(name, 0), counts[1].get(name, 0)) for name in names}
    return dict(sorted(pairs.items(), key=lambda pair: (-max(pair[1]), pair[0])))


def _values(side: Side, shard: int, names: list[str]) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """The columns of the documents of a shard that are kept. Of each document the last part counts that has a row of
    it; without one, as of a filter's reference, which has no scores, it has no value."""
    ids = parquet.read_table(side.kept.part(shard), ["id"])["id"]
    values: dict[str, pa.ChunkedArray] = {}
    for part in side.parts(shard):
        having = [name for name in names if name in parquet.columns(part)]
        table = parquet.read_table(part, ["id", *having])
        rows = pc.index_in(ids, table["id"].combine_chunks())
        for name in having:
            column = table[name].take(rows)
            values[name] = pc.if_else(pc.is_valid(rows), column, values[name]) if name in values else column
    yield from values.items()


_MAX_HOSTS = 30  # hosts that are kept, those first whose share moved most
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
        f"from groups where {_DIFFER} order by abs(amount_b - amount_a) desc, name limit {_MAX_HOSTS}"
    ).fetchall()
    return Groups([in_a, in_b], differing, [Group(row[0], row[1:3], row[3:5]) for row in most])
