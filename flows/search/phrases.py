"""Where a phrase is in a corpus: how often, in which documents, and what became of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gristmill.flows.search.opened import OpenedIndex, SearchedShard

# On either side of a phrase that is shown; a character that is cut there is left out.
CONTEXT_TOKENS = 40


@dataclass(frozen=True)
class FoundDocument:
    """A document with a phrase.

    `kept`: whether it is trained on; `step`, `rule`: what dropped it, empty where no ledger says; `times`: how often it
    has the phrase; `shard`, `token`: the number of its shard, and there of the token with the phrase's first byte, None
    where that is not known; `match`: the phrase's first place, and `before`, `after`: the text around; `record`: its
    source, its URL and where its record is.
    """

    id: str
    kept: bool
    step: str
    rule: str
    times: int
    shard: int
    token: int | None
    before: str
    match: str
    after: str
    record: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Count:
    """`times`: how often a phrase is there; `documents`: in how many of them."""

    times: int = 0
    documents: int = 0


@dataclass(frozen=True)
class FoundPhrase:
    """`kept`: in what is trained on; `dropped`: in what was dropped, and `rules`: how many of these documents each
    `step.rule` dropped; `documents`: those that are shown."""

    phrase: str
    kept: Count
    dropped: Count
    rules: dict[str, int]
    documents: tuple[FoundDocument, ...]


def find(index: OpenedIndex, phrase: str, n: int, dropped: bool = True) -> FoundPhrase:
    """Every place of a phrase, byte for byte, within a document. `n`: how many documents are shown of what is kept and
    of what was dropped, the first of the corpus; `dropped`: whether what was dropped is searched, too.

    Raises ValueError for an empty phrase. Holds twelve bytes a place of a shard.
    """
    wanted = phrase.encode()
    if not wanted:
        raise ValueError("an empty phrase is everywhere: give some text")
    counts = {True: Count(), False: Count()}
    rules: Counter[str] = Counter()
    shown: dict[bool, list[FoundDocument]] = {True: [], False: []}
    for shard, documents, places, firsts in index.each(lambda each: _in_shard(each, wanted), dropped):
        known = counts[shard.kept]
        counts[shard.kept] = Count(known.times + int(places.sum()), known.documents + len(documents))
        if not len(documents):
            continue
        rows = shard.rows.take(documents)
        if not shard.kept:
            rules.update(
                f"{step}.{rule}".strip(".") or "no ledger"
                for step, rule in zip(rows["step"].to_pylist(), rows["rule"].to_pylist(), strict=True)
            )
        left = n - len(shown[shard.kept])
        if left > 0:
            shown[shard.kept] += _shown(index, shard, rows.slice(0, left).to_pylist(), places, firsts, wanted)
    by_count = dict(sorted(rules.items(), key=lambda item: (-item[1], item[0])))
    return FoundPhrase(phrase, counts[True], counts[False], by_count, (*shown[True], *shown[False]))


def _in_shard(shard: SearchedShard, phrase: bytes) -> tuple[SearchedShard, np.ndarray, np.ndarray, np.ndarray]:
    """(shard, documents, how often each has the phrase, the token of each with its first place)."""
    places = shard.index.places(phrase)
    if not len(places):
        return shard, *(np.empty(0, np.int64),) * 3
    documents, first, times = np.unique(shard.documents_of(places.token), return_index=True, return_counts=True)
    return shard, documents, times, places.token[first]


def _shown(
    index: OpenedIndex,
    shard: SearchedShard,
    rows: Sequence[dict[str, Any]],
    times: np.ndarray,
    firsts: np.ndarray,
    phrase: bytes,
) -> Iterator[FoundDocument]:
    records = index.records(shard.number, [row["id"] for row in rows])
    for row, count, token in zip(rows, times.tolist(), firsts.tolist(), strict=False):
        begin, end = row["offset"], row["offset"] + row["length"]
        around = slice(max(begin, token - CONTEXT_TOKENS), min(end, token + len(phrase) + CONTEXT_TOKENS))
        before, found, after = shard.index.pieces.text(shard.index.tokens[around]).partition(phrase)
        assert found, "the first place in a document is the first in what surrounds it"
        yield FoundDocument(
            row["id"],
            shard.kept,
            row.get("step", ""),
            row.get("rule", ""),
            count,
            shard.number,
            token,
            before.decode(errors="ignore"),
            found.decode(),
            after[: 6 * CONTEXT_TOKENS].decode(errors="ignore"),
            records.get(row["id"], {}),
        )
