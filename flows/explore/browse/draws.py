"""Documents drawn by a seed, each as probable as any other. Which shard has how many is recorded, so that no more
shards are read than documents are drawn."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.explore.browse.opened import Opened, Step
from gristmill.flows.reports.dropped import Dropped, in_rows
from gristmill.storage import parquet
from gristmill.tasks.documents.selection import read_rows

TAKEN = "It was taken down: nothing of it is shown."
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
