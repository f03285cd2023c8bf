"""Where a phrase is in a corpus: how often, in which documents, and what became of them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from gristmill.flows.reports import pages, tables
from gristmill.flows.reports.search.opened import PhraseIndex
from gristmill.flows.reports.tables import Table
from gristmill.storage.printable import redact_user
from gristmill.tasks.engine.executors import Executor
from gristmill.tasks.kernels.scan import scan
from gristmill.tasks.search import look_ups
from gristmill.tasks.search.look_ups import Hit, Tally

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
class PhraseMatches:
    """`kept`: in what is trained on; `dropped`: in what was dropped, and `rules`: how many of these documents each
    `step.rule` dropped; `documents`: those that are shown."""

    phrase: str
    kept: Count
    dropped: Count
    rules: dict[str, int]
    documents: tuple[FoundDocument, ...]

    @property
    def sentence(self) -> str:
        """How often the phrase is in what is kept and in what was dropped."""
        kept, dropped = (f"{one.times:,} times in {one.documents:,} documents" for one in (self.kept, self.dropped))
        return f"{tables.short(self.phrase)!r}: {kept} in kept documents, {dropped} in dropped documents"

    @property
    def table(self) -> Table:
        """A row for each document that is shown."""
        rows = [(*_origin(one), one.times, f"{one.before}{one.match}{one.after}") for one in self.documents]
        return Table(("document", "status", "#times", "text"), rows)

    def _repr_html_(self) -> str:
        return pages.notebook([self.sentence], [self.table])


def _origin(document: FoundDocument) -> tuple[str, str]:
    """The URL or the id of a document, and whether it is kept, or the rule that dropped it."""
    dropped = f"dropped by {document.step}.{document.rule}" if document.step else "dropped"
    return redact_user(document.record.get("url") or document.id), "kept" if document.kept else dropped


def find(index: PhraseIndex, phrase: str, n: int = 5, dropped: bool = True) -> PhraseMatches:
    """Every place of a phrase, byte for byte, within a document. `n`: how many documents are shown of what is kept and
    of what was dropped, the first of the corpus; `dropped`: whether what was dropped is searched, too.

    Raises ValueError for an empty phrase. Holds twelve bytes a place of a shard.
    """
    wanted = phrase.encode()
    if not wanted:
        raise ValueError("the phrase is empty: give some text")
    with index.workers(1) as workers:
        tallies = tallied(index, workers, [wanted], n, dropped)
    [found] = described(index, [wanted], tallies)
    return found


def tallied(
    index: PhraseIndex, workers: Executor, phrases: Sequence[bytes], n: int, dropped: bool
) -> list[tuple[Tally, Tally]]:
    """Of each phrase what is found in what is trained on, and in what was dropped: with up to `n` documents of both.
    All shards are opened once."""
    found = [(Tally(), Tally()) for _ in phrases]
    for kept, tallies in index.each(workers, partial(look_ups.tallies, phrases=phrases, limit=n), dropped):
        for totals, tally in zip(found, tallies, strict=True):
            totals[not kept].add(tally, n)
    return found


def described(
    index: PhraseIndex, phrases: Sequence[bytes], tallies: Sequence[tuple[Tally, Tally]]
) -> list[PhraseMatches]:
    """What was found of each phrase, with the text around its first places, and where the documents come from. Reads of
    each shard with one of them its documents' records once."""
    wanted: dict[int, list[str]] = defaultdict(list)
    for hit in (hit for both in tallies for tally in both for hit in tally.first):
        wanted[hit.shard].append(hit.row["id"])
    records = {(shard, name): row for shard, ids in wanted.items() for name, row in index.records(shard, ids).items()}
    found = []
    for phrase, both in zip(phrases, tallies, strict=True):
        kept, dropped = (Count(tally.times, tally.documents) for tally in both)
        rules = dict(sorted(both[1].rules.items(), key=lambda item: (-item[1], item[0])))
        shown = (
            _shown(index, hit, phrase, records.get((hit.shard, hit.row["id"]), {}))
            for tally in both
            for hit in tally.first
        )
        found.append(PhraseMatches(phrase.decode(), kept, dropped, rules, tuple(shown)))
    return found


def _shown(index: PhraseIndex, hit: Hit, phrase: bytes, record: dict[str, Any]) -> FoundDocument:
    row, token, shard = hit.row, hit.token, index.places.shard(hit.shard, hit.kept)
    begin, end = row["offset"], row["offset"] + row["length"]
    around = slice(max(begin, token - CONTEXT_TOKENS), min(end, token + len(phrase) + CONTEXT_TOKENS))
    before, found, after = shard.index.pieces.text(shard.index.tokens[around]).partition(phrase)
    assert found, "the first place in a document is the first in what surrounds it"
    return FoundDocument(
        row["id"],
        hit.kept,
        row.get("step", ""),
        row.get("rule", ""),
        hit.times,
        hit.shard,
        token,
        before.decode(errors="ignore"),
        found.decode(),
        after[: 6 * CONTEXT_TOKENS].decode(errors="ignore"),
        record,
    )


# The longest spans of a text that a corpus has word for word, each with its documents; the rarest first.
#
# As OLMoTrace (arXiv 2504.07096) leads a model's output back to its training text. There spans are ranked by the
# probability of their tokens; here by the number of documents that have them, which is known exactly.


LEAST_WORDS = 6


@dataclass(frozen=True)
class Span:
    """`text[begin:end]`, code points, of so many words, and where it is."""

    begin: int
    end: int
    words: int
    found: PhraseMatches


@dataclass(frozen=True)
class Trace:
    """`spans`: those that are shown; `all`: how many there are; `covered`: the share of the words that are in one of
    all."""

    text: str
    words: int
    spans: tuple[Span, ...]
    all: int
    covered: float

    @property
    def sentence(self) -> str:
        """How many spans there are, and how much of the text they cover."""
        return f"{self.all:,} spans, which cover {self.covered:.1%} of {self.words:,} words"

    @property
    def table(self) -> Table:
        """A row for each span that is shown."""
        rows = [(self.text[span.begin : span.end], span.words, span.found.kept.documents) for span in self.spans]
        return Table(("span", "#words", "#documents"), rows)

    def _repr_html_(self) -> str:
        return pages.notebook([self.sentence], [self.table])


def trace(index: PhraseIndex, text: str, spans: int = 10, n: int = 3, words: int = LEAST_WORDS) -> Trace:
    """Spans of at least `words` words that what is trained on has in one document, and that no longer such span of the
    text contains. Words are those of the rules, of `gristmill.tasks.kernels.scan`; in scripts without spaces each
    character is nearly one. `spans`: how many are shown; `n`: how many documents
    of each.

    Each shard is asked twice for every word. Raises ValueError for a text without words.
    """
    scanned = scan(pa.chunked_array([pa.array([text], pa.large_string())]))
    begins, ends = scanned.word_start.tolist(), scanned.word_stop.tolist()
    if not begins:
        raise ValueError("the text has no words: give some text to trace")
    data = text.encode()

    reached, first_words = np.zeros(len(begins), np.int64), np.arange(len(begins))
    reach = partial(look_ups.reached, data=data, begins=begins, ends=ends)
    with index.workers(2 * len(begins)) as workers:
        for _, found in index.each(workers, reach, dropped=False):
            reached = np.maximum(reached, found)
        before = np.append(-1, reached[:-1])
        whole = np.flatnonzero((reached > before) & (reached - first_words >= words)).tolist()
        phrases = [data[begins[first] : ends[reached[first] - 1]] for first in whole]
        tallies = tallied(index, workers, phrases, n, dropped=False)
    characters = np.cumsum([0, *((byte & 0xC0) != 0x80 for byte in data)])  # code points ahead of each byte
    covered = np.zeros(len(begins), bool)
    for first in whole:
        covered[first : reached[first]] = True
    order = sorted(
        range(len(whole)),
        key=lambda at: (tallies[at][0].documents, whole[at] - reached[whole[at]], whole[at]),
    )[:spans]
    shown = described(index, [phrases[at] for at in order], [tallies[at] for at in order])
    made = []
    for at, phrase in zip(order, shown, strict=True):
        first, last = whole[at], int(reached[whole[at]])
        begin, end = int(characters[begins[first]]), int(characters[ends[last - 1]])
        made.append(Span(begin, end, last - first, phrase))
    return Trace(text, len(begins), tuple(made), len(whole), float(covered.mean()))
