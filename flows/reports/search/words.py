"""Documents ranked by the words that they have, of what is kept and of what was dropped."""

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports import pages
from gristmill.flows.reports.lineage import ORIGIN, rows_of
from gristmill.flows.reports.search.opened import code_sent, executor, index_stage, portions_of
from gristmill.flows.reports.tables import Table, short
from gristmill.flows.stages.corpus import Corpus
from gristmill.storage.printable import redact_user
from gristmill.tasks.engine import extras
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.search import word_index
from gristmill.tasks.search.word_index import Ranked, WordQuery, check_query, first

INDEX_PACKAGES = ("tantivy",)
# Shards that are searched in threads of this process; in more by jobs of the machine's executor, which takes seconds
# to start.
FEW = 500
_CONTEXT = 200  # characters on either side of a word that is shown
_WORD = re.compile(r"\w+")
# What of a query is not looked for in texts: other fields, what must not be there, and what joins words.
_ASIDE = re.compile(r'(?:(?<!\S)-|\b(?!text:)\w+:)(?:"[^"]*"|\S+)|\b(?:AND|OR|NOT)\b')


@dataclass(frozen=True)
class WordIndex:
    """The word index of a recipe, and the corpus that it is of. `few`: in how many shards a search is made here."""

    recipe: Recipe
    settings: MachineSettings
    corpus: Corpus
    stage: StageResult
    few: int = FEW


@dataclass(frozen=True)
class RankedDocument:
    """A document. `score`: BM25 by tantivy among the documents of its block of 32 MB; `step`, `rule`: what dropped it;
    `match`: the first of the query's words in its text, and `before`, `after`: the text around."""

    score: float
    id: str
    kept: bool
    step: str
    rule: str
    shard: int
    before: str
    match: str
    after: str
    record: dict[str, Any]


@dataclass(frozen=True)
class WordMatches:
    """`matching`: how many documents match, kept and dropped; `documents`: the best of them first."""

    query: str
    matching: int
    documents: tuple[RankedDocument, ...]

    @property
    def sentence(self) -> str:
        """How many documents match."""
        return f"{short(self.query)!r}: {self.matching:,} documents match"

    @property
    def table(self) -> Table:
        """A row for each document that is shown, the best first."""
        rows = [
            (
                redact_user(one.record.get("url") or one.id),
                "kept" if one.kept else f"dropped by {one.step}.{one.rule}",
                one.score,
                f"{one.before}{one.match}{one.after}",
            )
            for one in self.documents
        ]
        return Table(("document", "status", "#score|.2f", "text"), rows)

    def _repr_html_(self) -> str:
        return pages.notebook([self.sentence], [self.table])


def opened_words(recipe: Recipe, settings: MachineSettings | None = None) -> WordIndex | None:
    """The word index of a recipe; None where it is not made yet, is of another state of recipe, files and code, or
    cannot be read without INDEX_PACKAGES. Makes nothing."""
    if extras.missing(INDEX_PACKAGES):
        return None
    settings = settings or MachineSettings()
    outputs, stage = index_stage(recipe, settings, lambda outputs: outputs.word_index_spec)
    return None if stage is None else WordIndex(outputs.recipe, settings, outputs.corpus, stage)


def find_words(words: WordIndex, query: str, n: int = 5) -> WordMatches:
    """The `n` documents that match a query best, in the language of tantivy: words, all of which a document has;
    "phrases"; `-must not`, AND, OR; `title:`, `url:`, `source:`, `id:`, `step:`, `rule:`, `kept:true`.
    Raises ValueError for what is no query."""
    if not query.strip():
        raise ValueError("the query is empty: give some words")
    check_query(query)
    best: list[Ranked] = []
    matching, shards = 0, range(len(words.corpus.sources))
    with executor(words.settings, len(shards) <= words.few) as workers:
        search = WordQuery(words.stage.folder, query, n, code_sent(workers, word_index.__name__))
        for _, (count, found) in workers.map(search, portions_of(shards)):
            matching += count
            best = first([*best, *found], n)
    return WordMatches(query, matching, tuple(_described(words, best, query)))


def _described(words: WordIndex, best: list[Ranked], query: str) -> list[RankedDocument]:
    wanted: dict[tuple[int, bool], list[str]] = defaultdict(list)
    for one in best:
        wanted[one.shard, one.kept].append(one.id)
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    for (shard, kept), ids in wanted.items():
        part = (words.corpus.documents if kept else words.corpus.extracted).part(shard)
        rows |= {(shard, row["id"]): row for row in rows_of(part, ids, [*ORIGIN, "title", "text"])}
    known = sorted({re.escape(word) for word in _WORD.findall(_ASIDE.sub(" ", query))}, key=len, reverse=True)
    pattern = re.compile(rf"\b({'|'.join(known)})\b" if known else "(?!)", re.IGNORECASE)
    found = []
    for one in best:
        row = dict(rows[one.shard, one.id])
        text = row.pop("text")
        at = pattern.search(text)
        begin, end = at.span() if at else (0, 0)
        around = text[max(0, begin - _CONTEXT) : begin], text[begin:end], text[end : end + _CONTEXT]
        found.append(RankedDocument(one.score, one.id, one.kept, one.step, one.rule, one.shard, *around, row))
    return found
