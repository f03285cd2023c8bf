"""The sides of a comparison, and which documents both have, only one has, and why the other does not have them.

Documents are matched by id. An id is a hash of source, file, place and record: where a source has another name, or a
file is in another folder, ids differ; the others are matched by URL and record id, each once, in the order of rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from gristmill.flows.stages.corpus import Corpus
from gristmill.storage import files, parquet
from gristmill.storage.home import FinishedStage, open_stage
from gristmill.storage.schema import LEDGER
from gristmill.tasks.documents import isolated_duckdb
from gristmill.tasks.documents.selection import select_groups
from gristmill.tasks.engine.make import StageResult


@dataclass(frozen=True)
class Side:
    """Shard i of all its stages has the same documents.

    `extracted`: the stage that read the sources; `documents`: the one with the texts; `kept`: the one whose parts name
    the documents that are kept; `measured`: those with columns of documents, the last of which holds; `decided`: those
    with a ledger, in order; `tokens`: that of the token shards, if there is one.
    """

    label: str
    extracted: FinishedStage
    documents: FinishedStage
    kept: FinishedStage
    measured: tuple[FinishedStage, ...]
    decided: tuple[FinishedStage, ...]
    tokens: FinishedStage | None = None

    @property
    def shards(self) -> range:
        return range(len(self.extracted.part_records))

    def parts(self, shard: int) -> tuple[str, ...]:
        """The parts with columns of a shard's documents, those that are there; the last one with a column holds."""
        stages = dict.fromkeys(
            stage.part(shard) for stage in (self.extracted, self.documents, *self.measured, self.kept)
        )
        return tuple(part for part in stages if files.exists(part))


def side_of_corpus(label: str, corpus: Corpus, tokens: StageResult | None = None) -> Side:
    """The side of a corpus that is made."""
    stages = [corpus.extracted, corpus.documents, corpus.kept, *corpus.measured, *corpus.stages]
    opened = {stage.folder: open_stage(stage.folder) for stage in stages}
    return Side(
        label,
        opened[corpus.extracted.folder],
        opened[corpus.documents.folder],
        opened[corpus.kept.folder],
        tuple(opened[stage.folder] for stage in corpus.measured),
        _deciding(opened[stage.folder] for stage in corpus.stages),
        open_stage(tokens.folder) if tokens else None,
    )


def side_of_stage(stage: FinishedStage) -> Side:
    """The side of a finished stage: the documents that it keeps. Raises ValueError if it keeps none, or if the stages
    from which it was made are not in the home."""
    chain = [stage]
    while (before := chain[0].selection) is not None:
        chain.insert(0, before)
    extracted = chain[0]
    if not stage.counts_documents or extracted.name != "documents":
        raise ValueError(
            f"{stage.label} keeps no documents, or the stages that it was made from are not in the home: "
            "give a recipe, or a stage with documents in and out, as `gristmill home status` prints it"
        )
    measured = [each for one in chain for each in (*one.measured, *_scores(one))]
    texts = stage if "text" in parquet.columns(stage.part(0)) else stage.documents or extracted
    return Side(stage.label, extracted, texts, stage, tuple(dict.fromkeys(measured)), _deciding(chain))


def _scores(cut: FinishedStage) -> Iterable[FinishedStage]:
    """The scores of the learned filter that a stage cuts by."""
    found = (cut.input(name) for name in cut.inputs)
    return (stage for stage in found if stage is not None and cut.name == f"{stage.name}_cut")


def _deciding(stages: Iterable[FinishedStage]) -> tuple[FinishedStage, ...]:
    return tuple(dict.fromkeys(stage for stage in stages if stage.counts_documents))


NOT_READ = "not read"
EXAMPLES = 3  # documents shown of each reason
DRAWN = 500  # documents with another text in which the changed characters are counted

# The records that a side has read. `reason`: of the first stage that dropped the record, null where it is kept;
# `characters`: null where it is not; `text`: a hash of the text, null where texts are not compared.
_RECORDS = """
create or replace table {side} (
    id text, url text, record_id text, reason text, shard int, characters bigint, text ubigint
)
"""
_READ = """
insert into {side}
select
    id, url, record_id, if(kept.id is null, coalesce(reason, 'not in the ledger'), null), {shard}, characters, text
from (
    select coalesce(read.id, gone.id) as id, if(read.id is null, gone.url, read.url) as url, record_id, reason, position
    from (select *, row_number() over () as position from read) read
    full join (select id, first(url) as url, first(step || '.' || rule) as reason from gone group by id) gone using (id)
) records
left join kept using (id)
left join texts using (id)
order by position, id
"""
# Rows of either side that are the same document: the first with each id, and of the others the first with each URL and
# record id, unless neither is known.
_MET = "create or replace table met (a bigint, b bigint)"
_KEYS = ("id", "nullif(concat(url, chr(10), record_id), chr(10))")
_MEET = """
insert into met
select a, b
from (select {key} as key, min(rowid) as a from a where rowid not in (select a from met) group by key)
join (select {key} as key, min(rowid) as b from b where rowid not in (select b from met) group by key)
using (key)
"""
# Documents that are not the same on both sides. `reason`: null where both keep one, else that of the side without it.
_PAIRS = """
create table pairs (
    id_a text, id_b text, shard_a int, shard_b int, url text, characters_a bigint, characters_b bigint, reason text,
    changed bool
)
"""
_COMPARE = f"""
insert into pairs
select
    a.id, b.id, a.shard, b.shard, coalesce(a.url, b.url), a.characters, b.characters,
    if(a.characters + b.characters is null, coalesce(a.reason, b.reason, '{NOT_READ}'), null), a.text <> b.text
from a left join met on met.a = a.rowid full join b on met.b = b.rowid
where coalesce(a.characters, b.characters) is not null
    and (a.id, a.text, a.characters is null) is distinct from (b.id, b.text, b.characters is null)
"""
_ALONE = """
select
    reason, count(*), sum(characters_{one})::bigint,
    arg_min({{'id': id_{one}, 'url': url}}, md5_number_lower(id_{one}), {examples})
from pairs
where characters_{other} is null
group by reason
order by count(*) desc, reason
"""
_COUNTS = """
select
    count(*) filter (reason is null and id_a <> id_b), count(*) filter (changed),
    coalesce(sum(characters_a) filter (changed), 0)::bigint, coalesce(sum(characters_b) filter (changed), 0)::bigint
from pairs
"""


@dataclass(frozen=True)
class Alone:
    """Documents that only one side keeps, for one reason: the step and rule that dropped them on the other side.

    `examples`: id and URL of some, drawn by a hash of the ids.
    """

    reason: str
    documents: int
    characters: int
    examples: list[tuple[str, str | None]]


@dataclass(frozen=True)
class Matched:
    """`alone_a`, `alone_b`: documents that only one side keeps, by reason, most first; `by_url`: of those that both
    keep, the ones with different ids; `changed`: those with another text, with their characters on both sides; `drawn`:
    up to DRAWN of them, drawn by a hash of the ids."""

    alone_a: list[Alone]
    alone_b: list[Alone]
    by_url: int
    changed: int
    characters_a: int
    characters_b: int
    drawn: pa.Table


def match(a: Side, b: Side) -> Matched:
    """Match the documents of two sides. Holds a shard of either if both have read the same records, else the records
    of all, which DuckDB spills. Reads texts only where the sides have them from different stages."""
    connection = isolated_duckdb.connect()
    connection.execute(_PAIRS)
    hashed = a.documents.contents != b.documents.contents
    same = a.extracted.contents == b.extracted.contents  # then both have the same documents in shard i
    for portion in [slice(shard, shard + 1) for shard in a.shards] if same else [slice(None)]:
        for name, side in (("a", a), ("b", b)):
            connection.execute(_RECORDS.format(side=name))
            for shard in side.shards[portion]:
                _read(connection, name, side, shard, hashed)
        connection.execute(_MET)
        for key in _KEYS:
            connection.execute(_MEET.format(key=key))
        connection.execute(_COMPARE)
    alone_a, alone_b = (
        [
            Alone(reason, documents, characters, [(each["id"], each["url"]) for each in examples])
            for reason, documents, characters, examples in connection.execute(query).fetchall()
        ]
        for query in (_ALONE.format(one=one, other=other, examples=EXAMPLES) for one, other in ("ab", "ba"))
    )
    [(by_url, changed, characters_a, characters_b)] = connection.execute(_COUNTS).fetchall()
    drawn = connection.sql(f"from pairs where changed order by md5_number_lower(id_a) limit {DRAWN}").to_arrow_table()
    return Matched(alone_a, alone_b, by_url, changed, characters_a, characters_b, drawn)


def _read(connection: duckdb.DuckDBPyConnection, name: str, side: Side, shard: int, hashed: bool) -> None:
    """Add the records of a shard to the table of a side. Holds them, and a row group of texts."""
    kept = side.kept.part(shard)
    connection.execute("create or replace table texts (id text, text ubigint)")
    for group in select_groups(side.documents.part(shard), kept, ["text"]) if hashed else ():
        connection.register("texts_read", group)
        connection.execute("insert into texts select id, hash(text) from texts_read")
    # a record that was read twice has the id of the document that it is again, so the extraction comes last
    stages = [*(stage for stage in side.decided if stage != side.extracted), side.extracted]
    columns = ["id", "step", "rule", "url"]
    ledgers = [parquet.read_table(stage.ledger(shard), columns) for stage in stages if stage.counts_documents]
    connection.register("gone", pa.concat_tables([LEDGER.empty_table().select(columns), *ledgers]))
    connection.register("read", parquet.read_table(side.extracted.part(shard), ["id", "url", "record_id"]))
    connection.register("kept", parquet.read_table(kept, ["id", "characters"]))
    connection.execute(_READ.format(side=name, shard=shard))
