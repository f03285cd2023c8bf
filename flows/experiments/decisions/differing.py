"""Documents that one recipe keeps and another drops: what a decision between them is about, to be read."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.stages.corpus import Corpus
from gristmill.storage import files, parquet
from gristmill.tasks.documents.selection import select, uniform

MOST = 10  # of each recipe
_SHARDS = 64  # that are looked at: recipes that hardly differ are not read whole
_CHARACTERS = 600


@dataclass(frozen=True)
class CorpusDiff:
    """`command`: that writes the page of what differs between the base's corpus and a candidate's; `page`: its name
    beside the decision's, empty where it was not made."""

    command: str
    page: str


@dataclass(frozen=True)
class Shown:
    """A document, with the beginning of its text."""

    id: str
    url: str
    text: str


def only_in(corpus: Corpus, other: Corpus, most: int = MOST, seed: int = 0) -> tuple[Shown, ...]:
    """Documents of `corpus` that `other` does not have, by id, drawn by a keyed hash from some of its shards, which are
    drawn likewise; at most so many. Holds the ids of a shard of each, and the texts of one.

    A source has equal shards in both corpora if it has equally many. Else they read it otherwise, and have none of its
    documents in common.
    """
    others = _others(corpus, other)
    found: list[Shown] = []
    for shard in _drawn(len(corpus.sources), seed):
        if len(found) >= most:
            break
        kept = corpus.places.kept[shard]
        ids = parquet.read_table(kept, ["id"])["id"].combine_chunks()
        if shard in others:
            there = parquet.read_table(other.places.kept[others[shard]], ["id"])["id"].combine_chunks()
            ids = ids.filter(pc.invert(pc.is_in(ids, there)))
        order = np.argsort(uniform(ids, seed, "differing"))[: most - len(found)]
        found += _texts(corpus, shard, ids.take(order).to_pylist())
    return tuple(found)


def _others(corpus: Corpus, other: Corpus) -> dict[int, int]:
    """The shard of `other` for each shard of `corpus`, of sources that both have in equally many."""
    found: dict[int, int] = {}
    for source in corpus.places.sources.distinct():
        own, others = ([*each.places.sources.shards([source])] for each in (corpus, other))
        if len(own) == len(others):
            found |= dict(zip(own, others, strict=True))
    return found


def _drawn(shards: int, seed: int) -> Sequence[int]:
    return np.random.default_rng(seed).permutation(shards)[:_SHARDS].tolist()


def _texts(corpus: Corpus, shard: int, ids: list[str]) -> Iterator[Shown]:
    places = corpus.places
    table = select(places.documents[shard], places.kept[shard], ["text", "url"])
    rows = {row["id"]: row for row in table.filter(pc.is_in(table["id"], pa.array(ids, pa.string()))).to_pylist()}
    for one in ids:
        yield Shown(one, rows[one]["url"] or "", rows[one]["text"][:_CHARACTERS])


def diffs(corpora: Mapping[str, Corpus], base: str, name: str) -> dict[str, CorpusDiff]:
    """By candidate, how `gristmill diff` shows all differences, in a page beside the decision's, `<name>.html`."""
    found = {}
    for candidate, corpus in corpora.items():
        if candidate != base:
            sides = [f"{each.kept.name}-{each.kept.key}" for each in (corpora[base], corpus)]
            page = f"{name}-diff-{sides[1]}.html"
            command = shlex.join(["gristmill", "diff", *sides, "--to", page])
            found[candidate] = CorpusDiff(command, page.rpartition("/")[2] if files.exists(page) else "")
    return found
