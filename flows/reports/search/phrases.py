"""Find phrases in a corpus: how often they occur, and in which kept and dropped documents.

`find` looks up one phrase. `trace` finds the longest spans of a text that occur verbatim in a document, the rarest
first, as OLMoTrace (arXiv 2504.07096) traces a model's output back to its training text. OLMoTrace ranks spans by the
probability of their tokens; here they are ranked by the number of documents that contain them, which is exact."""

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

# Context shown on either side of a phrase; a character that is cut off there is left out.
CONTEXT_TOKENS = 40
MIN_SPAN_WORDS = 6


@dataclass(frozen=True)
class FoundDocument:
    """A document with a phrase.

    `kept`: whether it is trained on; `step`, `rule`: what dropped it, empty if no ledger has it; `times`: number of
    occurrences of the phrase; `shard`, `token`: the number of its shard, and the position in the shard of the token
    with the phrase's first byte, None if unknown; `match`: the first occurrence, and `before`, `after`: the text around
    it; `record`: its source, its URL and the location of its record.
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
    """`times`: occurrences of a phrase; `documents`: documents that contain it."""

    times: int = 0
    documents: int = 0


@dataclass(frozen=True)
class PhraseMatches:
    """`kept`, `dropped`: counts in kept and in dropped documents; `rules`: how many of the dropped documents each
    `step.rule` dropped; `documents`: the documents to show."""

    phrase: str
    kept: Count
    dropped: Count
    rules: dict[str, int]
    documents: tuple[FoundDocument, ...]

    @property
    def sentence(self) -> str:
        """The counts in kept and in dropped documents."""
        kept, dropped = (f"{one.times:,} times in {one.documents:,} documents" for one in (self.kept, self.dropped))
        return f"{tables.short(self.phrase)!r}: {kept} in kept documents, {dropped} in dropped documents"

    @property
    def table(self) -> Table:
        """A row for each document to show."""
        rows = [(*_origin(one), one.times, f"{one.before}{one.match}{one.after}") for one in self.documents]
        return Table(("document", "status", "#times", "text"), rows)

    def _repr_html_(self) -> str:
        return pages.notebook([self.sentence], [self.table])


def _origin(document: FoundDocument) -> tuple[str, str]:
    """The URL or the id of a document, and "kept" or the rule that dropped it."""
    dropped = f"dropped by {document.step}.{document.rule}" if document.step else "dropped"
    return redact_user(document.record.get("url") or document.id), "kept" if document.kept else dropped


def find(index: PhraseIndex, phrase: str, n: int = 5, dropped: bool = True) -> PhraseMatches:
    """Find every occurrence of a phrase, byte for byte, within documents. `n`: how many kept and how many dropped
    documents to show, the first of the corpus; `dropped`: also search dropped documents.

    Raises ValueError for an empty phrase. Holds twelve bytes for each occurrence in a shard.
    """
    data = phrase.encode()
    if not data:
        raise ValueError("the phrase is empty: give some text")
    with index.workers(1) as workers:
        tallies = phrase_tallies(index, workers, [data], n, dropped)
    [matches] = phrase_matches(index, [data], tallies)
    return matches


def phrase_tallies(
    index: PhraseIndex, workers: Executor, phrases: Sequence[bytes], n: int, dropped: bool
) -> list[tuple[Tally, Tally]]:
    """Count each phrase in kept and in dropped documents, with up to `n` documents of both. Opens each shard once."""
    both = [(Tally(), Tally()) for _ in phrases]
    for kept, tallies in index.each(workers, partial(look_ups.tallies, phrases=phrases, limit=n), dropped):
        for totals, tally in zip(both, tallies, strict=True):
            totals[not kept].add(tally, n)
    return both


def phrase_matches(
    index: PhraseIndex, phrases: Sequence[bytes], tallies: Sequence[tuple[Tally, Tally]]
) -> list[PhraseMatches]:
    """The matches of each phrase, with the context of its first occurrences and the records of their documents, which
    are read once for each shard."""
    wanted: dict[int, list[str]] = defaultdict(list)
    for hit in (hit for both in tallies for tally in both for hit in tally.first):
        wanted[hit.shard].append(hit.row["id"])
    records = {(shard, name): row for shard, ids in wanted.items() for name, row in index.records(shard, ids).items()}
    matches = []
    for phrase, both in zip(phrases, tallies, strict=True):
        kept, dropped = (Count(tally.times, tally.documents) for tally in both)
        rules = dict(sorted(both[1].rules.items(), key=lambda item: (-item[1], item[0])))
        shown = (
            _shown(index, hit, phrase, records.get((hit.shard, hit.row["id"]), {}))
            for tally in both
            for hit in tally.first
        )
        matches.append(PhraseMatches(phrase.decode(), kept, dropped, rules, tuple(shown)))
    return matches


def _shown(index: PhraseIndex, hit: Hit, phrase: bytes, record: dict[str, Any]) -> FoundDocument:
    row, token, shard = hit.row, hit.token, index.places.shard(hit.shard, hit.kept)
    begin, end = row["offset"], row["offset"] + row["length"]
    around = slice(max(begin, token - CONTEXT_TOKENS), min(end, token + len(phrase) + CONTEXT_TOKENS))
    before, match, after = shard.index.pieces.text(shard.index.tokens[around]).partition(phrase)
    assert match, "the context has the first occurrence in the document"
    return FoundDocument(
        row["id"],
        hit.kept,
        row.get("step", ""),
        row.get("rule", ""),
        hit.times,
        hit.shard,
        token,
        before.decode(errors="ignore"),
        match.decode(),
        after[: 6 * CONTEXT_TOKENS].decode(errors="ignore"),
        record,
    )


@dataclass(frozen=True)
class Span:
    """`text[begin:end]`, in code points, with its number of words and its matches."""

    begin: int
    end: int
    words: int
    found: PhraseMatches


@dataclass(frozen=True)
class Trace:
    """`spans`: the spans to show; `all`: the number of all spans; `covered`: the share of words in any of these."""

    text: str
    words: int
    spans: tuple[Span, ...]
    all: int
    covered: float

    @property
    def sentence(self) -> str:
        """The number of spans, and the share of the text that they cover."""
        return f"{self.all:,} spans, which cover {self.covered:.1%} of {self.words:,} words"

    @property
    def table(self) -> Table:
        """A row for each span to show."""
        rows = [(self.text[span.begin : span.end], span.words, span.found.kept.documents) for span in self.spans]
        return Table(("span", "#words", "#documents"), rows)

    def _repr_html_(self) -> str:
        return pages.notebook([self.sentence], [self.table])


def trace(index: PhraseIndex, text: str, spans: int = 10, n: int = 3, words: int = MIN_SPAN_WORDS) -> Trace:
    """Find the maximal spans of at least `words` words that occur in one kept document. Words are split as in the rules
    (`gristmill.tasks.kernels.scan`); in scripts without spaces almost every character is a word. `spans`: how many
    spans to show; `n`: how many documents to show for each.

    Makes two look-ups in each shard for every word. Raises ValueError for a text without words.
    """
    scanned = scan(pa.chunked_array([pa.array([text], pa.large_string())]))
    begins, ends = scanned.word_start.tolist(), scanned.word_stop.tolist()
    if not begins:
        raise ValueError("the text has no words: give some text to trace")
    data = text.encode()

    reached, first_words = np.zeros(len(begins), np.int64), np.arange(len(begins))
    reach = partial(look_ups.reached, data=data, begins=begins, ends=ends)
    with index.workers(2 * len(begins)) as workers:
        for _, shard_reached in index.each(workers, reach, dropped=False):
            reached = np.maximum(reached, shard_reached)
        before = np.append(-1, reached[:-1])
        whole = np.flatnonzero((reached > before) & (reached - first_words >= words)).tolist()
        phrases = [data[begins[first] : ends[reached[first] - 1]] for first in whole]
        tallies = phrase_tallies(index, workers, phrases, n, dropped=False)
    characters = np.cumsum([0, *((byte & 0xC0) != 0x80 for byte in data)])  # code points before each byte
    covered = np.zeros(len(begins), bool)
    for first in whole:
        covered[first : reached[first]] = True
    order = sorted(
        range(len(whole)),
        key=lambda i: (tallies[i][0].documents, whole[i] - reached[whole[i]], whole[i]),
    )[:spans]
    shown = phrase_matches(index, [phrases[i] for i in order], [tallies[i] for i in order])
    traced = []
    for i, matches in zip(order, shown, strict=True):
        first, last = whole[i], int(reached[whole[i]])
        begin, end = int(characters[begins[first]]), int(characters[ends[last - 1]])
        traced.append(Span(begin, end, last - first, matches))
    return Trace(text, len(begins), tuple(traced), len(whole), float(covered.mean()))
