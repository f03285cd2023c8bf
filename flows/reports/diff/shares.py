"""How the tokens of two sides, or their characters, are divided among sources and hosts."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.reports.diff.matching import Spilled, files_for
from gristmill.flows.reports.diff.sides import Side
from gristmill.storage import files, parquet
from gristmill.storage.token_shards import index_path
from gristmill.tasks.documents.expressions import evaluate, parsed
from gristmill.tasks.documents.selection import gather

_MOST = 30  # hosts that are kept, those first whose share moved most
NO_HOST = "no host"
_GROUP = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("side", pa.int8()),
        pa.field("documents", pa.int64()),
        pa.field("amount", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Group:
    """A source or a host, with documents and tokens, or characters, on both sides."""

    name: str
    documents: tuple[int, int]
    amount: tuple[int, int]


@dataclass
class Groups:
    """`there`: how many each side has; `differing`: how many are not alike; `most`: those of them that differ most."""

    there: list[int] = field(default_factory=lambda: [0, 0])
    differing: int = 0
    most: list[Group] = field(default_factory=list)


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


def shares(a: Side, b: Side, folder: Path) -> Shares:
    """By source and by host. Holds a shard's URLs, and the sums of up to 500,000 hosts."""
    unit = "tokens" if a.tokens and b.tokens else "characters"
    sources: list[pa.Table] = []
    total = [0, 0]
    documents = sum(side.kept.step_counts[-1]["rows_out"] if side.kept.step_counts else 0 for side in (a, b))
    with Spilled(folder, "hosts", _GROUP, files_for(documents)) as hosts:
        for number, side in enumerate((a, b)):
            for table in _amounts(side, unit):
                total[number] += pc.sum(table["amount"]).as_py() or 0
                hosts.add(_grouped(table, "host", number), "name")
                sources = [_summed([*sources, _grouped(table, "source", number)])]
    of_sources, of_hosts = Groups(), Groups()
    for found, tables in ((of_sources, sources), (of_hosts, hosts.tables())):
        for table in tables:
            _compare(found, _summed([table]))
    one_tokenizer = unit == "characters" or _tokenizer(a) == _tokenizer(b)
    return Shares(unit, one_tokenizer, (total[0], total[1]), of_sources, of_hosts)


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


def _grouped(table: pa.Table, by: str, side: int) -> pa.Table:
    found = table.group_by(by).aggregate([([], "count_all"), ("amount", "sum")])
    sides = pa.repeat(pa.scalar(side, pa.int8()), len(found))
    columns = [found[by].cast(pa.string()), sides, found["count_all"], found["amount_sum"]]
    return pa.table(columns, schema=_GROUP)


def _summed(tables: list[pa.Table]) -> pa.Table:
    found = pa.concat_tables(tables).group_by(["name", "side"]).aggregate([("documents", "sum"), ("amount", "sum")])
    return pa.table([found["name"], found["side"], found["documents_sum"], found["amount_sum"]], schema=_GROUP)


def _compare(found: Groups, summed: pa.Table) -> None:
    sides = [summed.filter(pc.equal(summed["side"], number)) for number in (0, 1)]
    names = pc.unique(summed["name"])
    documents, amounts = [], []
    for number, side in enumerate(sides):
        found.there[number] += len(side)
        at = pc.index_in(names, side["name"].combine_chunks())
        documents.append(pc.fill_null(side["documents"].take(at), 0))
        amounts.append(pc.fill_null(side["amount"].take(at), 0))
    differ = pc.or_(pc.not_equal(*documents), pc.not_equal(*amounts))
    found.differing += pc.sum(differ).as_py() or 0
    moved = pc.abs(pc.subtract(amounts[1], amounts[0]))
    table = pa.table(
        {"name": names, "a": documents[0], "b": documents[1], "c": amounts[0], "d": amounts[1], "moved": moved}
    ).filter(differ)
    table = table.sort_by([("moved", "descending"), ("name", "ascending")]).slice(0, _MOST)
    new = [Group(row["name"], (row["a"], row["b"]), (row["c"], row["d"])) for row in table.to_pylist()]
    found.most = sorted([*found.most, *new], key=lambda one: (-abs(one.amount[1] - one.amount[0]), one.name))[:_MOST]
