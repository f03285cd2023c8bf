"""Which documents of two sides are the same, which one side has alone, and why the other does not have them.

Documents are matched by id. An id is a hash of source, file, place and record: where a source has another name, or a
file is in another folder, ids differ; the others are matched by URL and record id, each once, in the order of rows.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import wrapt

from gristmill.flows.reports.diff.sides import Side
from gristmill.storage import parquet
from gristmill.storage.schema import LEDGER
from gristmill.tasks.documents.selection import select_groups

if TYPE_CHECKING:
    import duckdb

    from gristmill.storage import isolated_duckdb
else:
    duckdb = wrapt.lazy_import("duckdb")
    isolated_duckdb = wrapt.lazy_import("gristmill.storage.isolated_duckdb")

NOT_READ = "not read"
EXAMPLES = 3  # documents shown of each reason
DRAWN = 500  # documents with another text in which the changed characters are counted

_TABLES = """
create table both_keep (documents bigint, by_url bigint);
create table alone (side text, reason text, id text, url text, characters bigint);
create table changed (
    id_a text, shard_a int, id_b text, shard_b int, url text, characters_a bigint, characters_b bigint
);
"""
# The records that a side has read. `key`: URL and record id, null where neither is known; `reason`: of the first stage
# that dropped the record, null where it is kept; `text`: a hash of the text, null where texts are not compared.
_RECORDS = """
create or replace table {side} (
    id text, key text, url text, reason text, shard int, characters bigint, text ubigint
)
"""
_READ = """
insert into {side}
select
    id, nullif(concat(url, chr(10), record_id), chr(10)), url,
    if(kept.id is null, coalesce(reason, 'not in the ledger'), null), {shard}, characters, text
from (
    select coalesce(read.id, gone.id) as id, if(read.id is null, gone.url, read.url) as url, record_id, reason
    from read
    full join (select id, first(url) as url, first(step || '.' || rule) as reason from gone group by id) gone using (id)
) records
left join kept using (id)
left join texts using (id)
"""
# Rows of either side that are the same document: the first with each id, and of the others the first with each key.
_MET = "create or replace table met (a bigint, b bigint)"
_MEET = """
insert into met
select a, b
from (select {by}, min(rowid) as a from a where rowid not in (select a from met) and {by} is not null group by {by})
join (select {by}, min(rowid) as b from b where rowid not in (select b from met) and {by} is not null group by {by})
using ({by})
"""
_ALONE = """
insert into alone
select '{one}', if({other}.id is null, '{not_read}', {other}.reason), {one}.id, {one}.url, {one}.characters
from {one} left join met on met.{one} = {one}.rowid left join {other} on met.{other} = {other}.rowid
where {one}.reason is null and ({other}.id is null or {other}.reason is not null)
"""
_BOTH = """
insert into {into}
from met join a on met.a = a.rowid join b on met.b = b.rowid
where a.reason is null and b.reason is null
"""
_CHANGED = "select a.id, a.shard, b.id, b.shard, a.url, a.characters, b.characters"


@dataclass(frozen=True)
class Alone:
    """Documents that one side keeps alone, for one reason: the step and rule that dropped them on the other side.

    `examples`: id and URL of some, drawn by a hash of the ids.
    """

    reason: str
    documents: int
    characters: int
    examples: list[tuple[str, str | None]]


@dataclass(frozen=True)
class Matched:
    """`alone_a`, `alone_b`: documents that one side keeps alone, by reason, most first; `both`: how many both keep;
    `by_url`: of them those with different ids; `changed`: those with another text, with their characters on both sides;
    `drawn`: up to DRAWN of them, drawn by a hash of the ids."""

    alone_a: list[Alone]
    alone_b: list[Alone]
    both: int
    by_url: int
    changed: int
    characters_a: int
    characters_b: int
    drawn: pa.Table


def match(a: Side, b: Side) -> Matched:
    """Match the documents of two sides. Holds a shard of either if both have read the same records, else the records
    of all, which DuckDB spills. Reads texts only where the sides have them from different stages."""
    connection = isolated_duckdb.connect()
    connection.execute(_TABLES)
    hashed = a.documents.contents != b.documents.contents
    same = a.extracted.contents == b.extracted.contents  # then both have the same documents in shard i
    for shards in [(shard, shard + 1) for shard in a.shards] if same else [(0, None)]:
        for name, side in (("a", a), ("b", b)):
            connection.execute(_RECORDS.format(side=name))
            for shard in side.shards[slice(*shards)]:
                _read(connection, name, side, shard, hashed)
        connection.execute(_MET)
        for by in ("id", "key"):
            connection.execute(_MEET.format(by=by))
        for one, other in (("a", "b"), ("b", "a")):
            connection.execute(_ALONE.format(one=one, other=other, not_read=NOT_READ))
        connection.execute(_BOTH.format(into="both_keep select count(*), count(*) filter (a.id <> b.id)"))
        connection.execute(_BOTH.format(into=f"changed {_CHANGED}") + "and a.text <> b.text")
    both, by_url = _numbers(connection, "sum(documents), sum(by_url) from both_keep")
    changed, characters_a, characters_b = _numbers(
        connection, "count(*), sum(characters_a), sum(characters_b) from changed"
    )
    drawn = connection.sql(f"from changed order by md5_number_lower(id_a) limit {DRAWN}").to_arrow_table()
    alone_a, alone_b = (_alone(connection, name) for name in "ab")
    return Matched(alone_a, alone_b, both, by_url, changed, characters_a, characters_b, drawn)


def _read(connection: "duckdb.DuckDBPyConnection", name: str, side: Side, shard: int, hashed: bool) -> None:
    """Add the records of a shard to the table of a side. Holds them, and a row group of texts."""
    kept = side.kept.part(shard)
    connection.execute("create or replace table texts (id text, text ubigint)")
    for group in select_groups(side.documents.part(shard), kept, ["text"]) if hashed else ():
        connection.register("texts_read", group)
        connection.execute("insert into texts select id, hash(text) from texts_read")
    # a record that was read twice has the id of the document that it is again, so the extraction comes last
    deciding = [stage for stage in dict.fromkeys((*side.decided, side.extracted)) if stage.counts_documents]
    deciding.sort(key=lambda stage: stage == side.extracted)
    ledgers = [parquet.read_table(each.ledger(shard), ["id", "step", "rule", "url"]) for each in deciding]
    connection.register(
        "gone", pa.concat_tables([LEDGER.empty_table().select(["id", "step", "rule", "url"]), *ledgers])
    )
    connection.register("read", parquet.read_table(side.extracted.part(shard), ["id", "url", "record_id"]))
    connection.register("kept", parquet.read_table(kept, ["id", "characters"]))
    connection.execute(_READ.format(side=name, shard=shard))


def _alone(connection: "duckdb.DuckDBPyConnection", side: str) -> list[Alone]:
    found = connection.execute(
        "select reason, count(*), coalesce(sum(characters), 0)::bigint, "
        f"arg_min({{'id': id, 'url': url}}, md5_number_lower(id), {EXAMPLES}) "
        f"from alone where side = '{side}' group by reason order by count(*) desc, reason"
    ).fetchall()
    return [
        Alone(reason, documents, characters, [(one["id"], one["url"]) for one in examples])
        for reason, documents, characters, examples in found
    ]


def _numbers(connection: "duckdb.DuckDBPyConnection", query: str) -> list[int]:
    [row] = connection.execute(f"select {query}").fetchall()
    return [int(number or 0) for number in row]
