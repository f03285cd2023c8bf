"""A finished run of a recipe: the funnel, kept and dropped documents, the training, and the stages."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import orjson
import wrapt

from gristmill.flows.curation import BuiltStage, Outputs
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports import pages
from gristmill.flows.reports.funnel import FunnelRow, count_by_source, date_lines, funnel, total_counts
from gristmill.flows.reports.run import frames, rows
from gristmill.flows.reports.run.rows import Rows
from gristmill.flows.reports.run.source_losses import SourceLoss, losses_by_step
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.heldout import Data
from gristmill.storage.printable import redact_url
from gristmill.tasks.engine.make import NotFinishedError, StageResult
from gristmill.tasks.extraction.engines import DATA
from gristmill.training.run.tracking import METRICS

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from pandas import DataFrame

    from gristmill.flows.reports.diff import difference as differences
    from gristmill.flows.reports.diff import matching
    from gristmill.flows.reports.diff.difference import Difference
    from gristmill.flows.reports.lineage import Lineage
    from gristmill.flows.reports.run import hints as hints_report
    from gristmill.flows.reports.run import sql as sql_queries
    from gristmill.flows.reports.run.hints import Hint
    from gristmill.flows.reports.run.sql import View
    from gristmill.flows.reports.search import opened as searches
    from gristmill.flows.reports.search import phrases
    from gristmill.flows.reports.search import words as word_searches
    from gristmill.flows.reports.search.opened import PhraseIndex
    from gristmill.flows.reports.search.phrases import PhraseMatches, Trace
    from gristmill.flows.reports.search.words import WordMatches
    from gristmill.flows.stages.model import Trained
else:
    differences = wrapt.lazy_import("gristmill.flows.reports.diff.difference")
    matching = wrapt.lazy_import("gristmill.flows.reports.diff.matching")
    searches = wrapt.lazy_import("gristmill.flows.reports.search.opened")
    phrases = wrapt.lazy_import("gristmill.flows.reports.search.phrases")
    word_searches = wrapt.lazy_import("gristmill.flows.reports.search.words")
    hints_report = wrapt.lazy_import("gristmill.flows.reports.run.hints")
    sql_queries = wrapt.lazy_import("gristmill.flows.reports.run.sql")

R = TypeVar("R")


@dataclass(frozen=True)
class MixedSource:
    """The share of the training data from a source, in [0, 1], and how often each of its tokens is read."""

    name: str
    share: float
    epochs: float


@dataclass(frozen=True)
class RunStage:
    """A stage of the run: its folder, and whether it was reused."""

    folder: str
    reused: bool


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run of a recipe, read from the stages in its home, `built`. Outputs that it did not make are None.

    >>> run = gristmill.open("recipe.yaml")
    >>> run
    <Run of planted in ...: 7 of 10 documents kept>

    `documents`, `scores`, `ledger` and `clusters` are rows, which are read lazily. `funnel`, `show`,
    `dropped`, `decisions`, `similar` and `whatif` return data frames, `sql` returns a relation, `lineage` the history
    of a document. `find`, `trace` and `find_words` search the texts, `hints` looks for thresholds to reconsider, `diff`
    compares two runs, and `export` writes the documents.
    """

    recipe: Recipe
    settings: MachineSettings
    corpus: Corpus
    built: tuple[BuiltStage, ...]
    data: Data | None = None
    trained: "Trained | None" = None
    exported: StageResult | None = None
    group_losses: StageResult | None = None

    @classmethod
    def of(cls, outputs: Outputs) -> "Run":
        """The run, with the outputs that are built."""
        values = map(outputs.built, ("data", "training", "export", "group_losses"))
        # some stages of an unfinished output may be finished
        stages = tuple(each for each in outputs.stages if outputs.built(each.output) is not None)
        return cls(outputs.recipe, outputs.context.settings, outputs.corpus, stages, *values)

    def __repr__(self) -> str:
        return f"<Run of {self.recipe.name} in {redact_url(self.settings.home)}: {'; '.join(self.summary)}>"

    def _repr_html_(self) -> str:
        """The summary and the funnel as HTML, every text escaped."""
        return pages.render("notebook.html", report=self, home=redact_url(self.settings.home))

    @cached_property
    def summary(self) -> list[str]:
        """The results, in a sentence each: documents, tokens, held-out loss."""
        rows = funnel(self.corpus.stages)
        lines = [f"{rows[-1].documents_out:,} of {rows[0].documents_in:,} documents kept"]
        if self.tokens is not None:
            lines.append(f"{self.tokens:,} training tokens")
        if result := self.result:
            lines.append(
                f"{result['heldout/bits_per_byte']:.4f} bits/byte on held-out text (unigram model: "
                f"{result['unigram/bits_per_byte']:.4f})"
            )
            named = {name.split("/")[1]: value for name, value in result.items() if name.startswith("evaluation/")}
            lines += [f"{value:.4f} bits/byte on {name}" for name, value in named.items()]
        return lines

    @cached_property
    def steps(self) -> list[FunnelRow]:
        """The funnel: a row for each step, in the order of the recipe, and if there are tokens, a row for the held-out
        documents and one for the texts of `evaluation`."""
        return funnel(self.document_stages)

    @property
    def document_stages(self) -> tuple[StageResult, ...]:
        """The stages that the documents went through, in order, up to the training data if there is any."""
        return self.data.split.train.stages if self.data else self.corpus.stages

    @cached_property
    def types(self) -> dict[str, int]:
        """The number of records of each unsupported type, such as `application/pdf`, the most frequent first."""
        return total_counts(self.corpus, "types")

    @cached_property
    def engines(self) -> dict[str, int]:
        """Documents by extraction engine, most frequent first, if there are several engines, or data were read."""
        counts = total_counts(self.corpus, "engines")
        return counts if self.recipe.choosing or DATA in counts else {}

    @cached_property
    def relabeled(self) -> dict[str, int]:
        """Documents that were read in another encoding than declared, `cp1252 as utf-8`, most frequent first."""
        return total_counts(self.corpus, "relabeled")

    @cached_property
    def date_lines(self) -> list[str]:
        """Sentences about dates that cannot be parsed, and about steps that keep the newest of undated documents."""
        return [*date_lines(self.recipe, self.corpus)]

    @cached_property
    def empty_files(self) -> list[str]:
        """The names of files without records, the first three of each source."""
        return [name for names in count_by_source(self.corpus, "empty_files").values() for name in names]

    @property
    def lost_groups(self) -> list[dict[str, Any]]:
        """The groups that lost far more than comparable groups, the largest loss first: `by`, `group`, `documents`,
        `lost`, `like` (the number of comparable groups), `like_lost` (the share that these lost), `step` (that dropped
        most of them), `step_lost`."""
        return self.group_losses.result["groups"] if self.group_losses else []

    @cached_property
    def source_losses(self) -> list[SourceLoss]:
        """The sources that lost far more to one step than comparable sources, the largest loss first: `step`, `source`,
        `documents`, `dropped`, `low`, `high`, `others`, `median`, `fix`."""
        return losses_by_step(self.recipe, self.corpus, self.group_losses)

    @property
    def funnel(self) -> "DataFrame":
        """The funnel as a data frame; `tokens` are the tokens after a step, estimated from characters."""
        return frames.funnel(self.steps, self.estimated_tokens)

    @property
    def documents(self) -> Rows:
        """The curated documents with their texts, the sources' own columns, and all measured columns, as written by
        `gristmill export documents`.

        >>> run.documents
        <Rows of id, text, url, date, source, license, language, cluster_size, gopher_quality_words, ...>
        """
        return rows.documents(self.recipe, self.corpus)

    @property
    def scores(self) -> Rows:
        """All extracted documents: `id`, `source`, whether it is `kept`, and the signals and scores of the recipe's
        steps, null for documents that were dropped before the step.

        >>> run.scores.to_pandas(["kept", "gopher_quality_words"]).groupby("kept").max()
               gopher_quality_words
        kept
        False                   194
        True                    200
        """
        return rows.scores(self.recipe, self.corpus)

    @property
    def ledger(self) -> Rows:
        """The dropped documents with `stage`, `step` and `rule`, the value and the threshold; if there are tokens, also
        the held-out documents.

        >>> run.ledger.to_pandas(["step", "rule", "value", "threshold"], n=1)
                     step   rule  value  threshold
        0  gopher_quality  words   20.0       50.0
        """
        return rows.ledger(self.document_stages)

    @property
    def clusters(self) -> Rows:
        """The documents of all clusters of near-duplicates: `id`, `representative`, the similarity to it (`jaccard`),
        `cluster_size`. Raises LookupError if the recipe has no step `minhash`.

        >>> run.clusters.to_pandas(["jaccard", "cluster_size"])
           jaccard  cluster_size
        0      ...             2
        1      ...             2
        """
        return rows.clusters(self.recipe, self.corpus)

    def show(self, n: int = 5, stage: str = "") -> "DataFrame":
        """The first `n` documents that a stage of the run kept, with their texts; default: of the curated corpus.

        `stage`: a name (`rules`), for the last stage of this name, or a label (`rules-KEY`). Raises LookupError, which
        lists the stages.

        >>> run.show(2, stage="rules")["url"].tolist()
        ['https://a.example/0/2', 'https://a.example/0/3']
        """
        label = self._labelled(stage)[-1] if stage else self.corpus.kept.label
        return frames.kept_documents(self.settings.home, label, n)

    def dropped(self, rule: str = "", n: int = 20, stage: str = "", where: str = "") -> "DataFrame":
        """Up to `n` documents of each stage that a rule dropped, with their texts as they reached it.

        `rule`: `step.rule`, or a step (`gopher_quality.stop_words`, `minhash`); default: any. The column `marked` has
        the offending parts of the text. `where`: an expression over the columns of documents when they reached the
        stage, and over the ledger's columns; only documents for which it is true are returned. Raises LookupError,
        which lists the valid names.

        >>> run.dropped("gopher_quality.words")["value"].tolist()
        [20.0, 20.0]
        """
        labels = {*self._labelled(stage)} if stage else self._deciding
        return frames.dropped_documents(self.settings.home, labels, rule, n, where)

    def lineage(self, document: str) -> "Lineage":
        """The history of a document through all stages of the run: its record, read again from the source's file if
        that still exists, its columns, scores and decisions.

        `document`: an id or the beginning of one. Raises LookupError if it matches no document, or several. Holds the
        ids of a shard.

        >>> found = run.lineage(run.ledger.to_pandas(["id"], n=1)["id"][0])
        >>> found.columns["url"], len(found.raw.split())
        ('https://a.example/0/0', 20)
        """
        return frames.lineage(self.settings, document, self.corpus, self._labelled(""), self._deciding)

    def decisions(self, document: str) -> "DataFrame":
        """The decision of each stage of the run about a document, in order: `stage`, `kept`, and for a drop its row of
        the ledger. Raises the errors of `lineage`.

        >>> run.decisions(run.documents.to_pandas(["id"], n=1)["id"][0])[["kept", "rule"]]
           kept  rule
        0  True  None
        1  True  None
        """
        return frames.decisions(self.lineage(document))

    def similar(self, document: str, threshold: float = 0.5, n: int = 10) -> "DataFrame":
        """The documents most similar to a document of the run, or to a text file, the most similar first: `id`,
        `jaccard`, `kept`, `source`, `url`, `text`. Includes dropped documents.

        `document`: an id, the beginning of one, or a file's path; `threshold`: minimum similarity of the shingles. Each
        call builds an index of all documents with signatures, 12,000 per second. Raises LookupError if the recipe has
        no step `minhash`.

        >>> run.similar(run.ledger.to_pandas(["id", "rule"])["id"].iloc[-1])[["kept", "jaccard"]].round(1)
           kept  jaccard
        0  True      0.9
        """
        return frames.similar(self.recipe, self.settings, self.corpus, self._deciding, document, threshold, n)

    def whatif(self, changes: Mapping[str, Any]) -> "DataFrame":
        """The funnel with other thresholds, `{"step.setting": value}`, from the stored signals, compared with the run.

        `documents_out` is the run's; `whatif` is the replayed number, or `<NA>` for steps after the changed one that
        compare all documents, if other documents would reach them. `rules`: for a changed step the documents that each
        rule drops, in the run and in the replay. Raises ValueError for a key that is not a threshold, and
        NotFinishedError.

        >>> run.whatif({"gopher_quality.min_words": 10})[["step", "documents_out", "whatif"]]
                     step  documents_out  whatif
        0         extract             10      10
        1  gopher_quality              8      10
        2         minhash              7    <NA>
        """
        return frames.whatif(self.recipe, changes, self.settings)

    def hints(self) -> "list[Hint]":
        """Up to three thresholds with many documents just beyond them, and what a looser threshold would have kept.

        Replays the decisions with the stored signals of all documents, so the counts are exact. The list is empty if
        few documents are near a threshold.

        >>> run.hints()
        []
        """
        return hints_report.hints(self.recipe, self.corpus)

    def sql(self, query: str) -> "DuckDBPyRelation":
        """The result of an SQL query over the run, as a relation of DuckDB: `.df()`, `.pl()`, `.to_arrow_table()`.

        Tables: `documents`, `extracted`, `ledger`, `edits`, `clusters`, `sources`, `tokens`, `training`, `funnel`.
        Raises QueryError, a ValueError, for anything but one SELECT.

        >>> run.sql("select rule, count(*) as documents from ledger group by rule order by rule").fetchall()
        [('near_duplicate', 1), ('words', 2)]
        """
        return sql_queries.query(self.tables, query)

    def index(self) -> "PhraseIndex":
        """The index of phrases that `find` and `trace` search. Raises NotFinishedError, with the command that builds
        it, if the run has none."""
        return self._required(searches.opened(self.recipe, self.settings), "index", "explain index RECIPE")

    def find(self, phrase: str, n: int = 5, dropped: bool = True) -> "PhraseMatches":
        """Find every occurrence of a phrase, byte for byte. `n`: how many kept and how many dropped documents to show;
        `dropped`: also search dropped documents. Raises ValueError for an empty phrase, and the errors of `index`."""
        return phrases.find(self.index(), phrase, n, dropped)

    def trace(self, text: str, spans: int = 10, n: int = 3, words: int = 6) -> "Trace":
        """Find the longest spans of a text that occur in kept documents, the rarest first. `spans`: how many to show;
        `n`: how many documents of each; `words`: minimum length. Raises ValueError for a text without words, and the
        errors of `index`."""
        return phrases.trace(self.index(), text, spans, n, words)

    def find_words(self, query: str, n: int = 5) -> "WordMatches":
        """Rank documents, kept and dropped, by the words of a query in tantivy's language, and return the first `n`.
        Raises NotFinishedError, with the command that builds the index of words, if the run has none."""
        index = word_searches.opened_words(self.recipe, self.settings)
        index = self._required(index, "index of words", 'explain find RECIPE --words "WORDS"')
        return word_searches.find_words(index, query, n)

    def _required(self, index: R | None, what: str, command: str) -> R:
        if index is None:
            raise NotFinishedError(
                f"the {what} of {self.recipe.name} is not built in {redact_url(self.settings.home)}: run `gristmill "
                f"{command}`"
            )
        return index

    def diff(self, other: "Run") -> "Difference":
        """The differences between this corpus and another finished one: documents, texts, columns, shares.

        >>> run.diff(run).empty
        True
        """
        return differences.between(self._side(), other._side())

    def _side(self) -> "matching.Side":
        return matching.side_of_corpus(self.recipe.name, self.corpus, self.data.tokens if self.data else None)

    def export(self, to: str | Path, format: Literal["parquet", "jsonl"] = "parquet", where: str = "") -> str:
        """Write the curated documents like `gristmill export documents`, and return the folder.

        `to`: an empty folder or an address; `format`: `jsonl` is compressed with zstd; `where`: an expression, only
        documents for which it is true are written. Runs on the executor of this machine. Raises FileExistsError if the
        folder has other files, and RecipeError for an expression over columns that the documents do not have.
        """
        return frames.export_documents(self.recipe, self.settings, self.corpus, f"{to}", format, where)

    @property
    def tables(self) -> "dict[str, View]":
        """The tables that `sql` can query, by name."""
        return sql_queries.views(
            self.recipe, self.corpus, self.data, self.document_stages, self.steps, self.trained, self.settings
        )

    @property
    def _deciding(self) -> set[str]:
        """The labels of the stages that decided about the documents."""
        return {stage.label for stage in self.document_stages}

    def _labelled(self, stage: str) -> list[str]:
        labels = [stage.label for _, stage in self.built]
        found = [label for label in labels if not stage or stage in (label, label.rpartition("-")[0])]
        if not found:
            raise LookupError(f"no stage {stage} in the run of {self.recipe.name}; its stages are {', '.join(labels)}")
        return found

    @cached_property
    def tokens(self) -> int | None:
        """Tokens of the documents that training may read."""
        return None if self.data is None else self.data.tokens.result["train"]

    @property
    def characters_per_token(self) -> float | None:
        """Characters per token of the documents after the last row of the funnel, for estimating tokens."""
        characters = self.steps[-1].characters_out
        assert characters is not None, "the corpus has texts after its last step"
        return characters / self.tokens if self.tokens else None

    def estimated_tokens(self, characters: int | None) -> int | None:
        """Estimated tokens of `characters`; None without tokens to estimate from."""
        per_token = self.characters_per_token
        return None if characters is None or per_token is None else round(characters / per_token)

    @cached_property
    def mixture(self) -> list[MixedSource]:
        """The sources of the training data."""
        if self.data is None:
            return []
        shares = self.data.mixture.result["sources"]
        return [MixedSource(name, source["share"], source["epochs"]) for name, source in shares.items()]

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The recorded metrics of each training step: `step`, `train/loss` in nats per token, ..."""
        if self.trained is None:
            return []
        return [*map(orjson.loads, self.trained.model.file(METRICS).read().splitlines())]

    @property
    def training_losses(self) -> list[float]:
        """Training loss of each step, in nats per token."""
        return [line["train/loss"] for line in self.metrics]

    @property
    def result(self) -> dict[str, Any]:
        """The recorded results of training: `parameters`, `steps`, `tokens`, `sample`, held-out losses; or nothing."""
        return self.trained.result if self.trained else {}

    @property
    def stages(self) -> list[RunStage]:
        """All stages of the run, in their order."""
        return [RunStage(stage.folder, stage.reused) for _, stage in self.built]


Report = Run  # the name in release 0.1.0, for one more release
