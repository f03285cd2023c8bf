"""A finished corpus that is looked at, and what is known of it without reading documents."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.funnel import FunnelRow, funnel_row, ranked
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.reports.run import Run
from gristmill.flows.reports.search.opened import PhraseIndex, opened
from gristmill.flows.reports.search.words import WordIndex, opened_words
from gristmill.flows.stages.corpus import Corpus, pinned
from gristmill.flows.stages.removal import takedown_lists
from gristmill.flows.stats.distributions import Distribution, is_number
from gristmill.storage import files, parquet
from gristmill.storage.home import FinishedStage, open_stage
from gristmill.tasks.dedup.takedowns import hidden_ids
from gristmill.tasks.url.step import Url


@dataclass(frozen=True)
class Step:
    """A step of the funnel, and the stage that has its ledger."""

    stage: FinishedStage
    row: FunnelRow

    @property
    def key(self) -> str:
        """By which a page names it: a step may be in the funnel twice."""
        return f"{self.stage.label}.{self.row.step}"

    @property
    def drops(self) -> dict[str, int]:
        """Documents by rule, most first; rules that dropped none are left out."""
        return {rule: documents for rule, documents in ranked(self.row.drops).items() if documents}


@dataclass(frozen=True)
class Opened:
    """`given`: the recipe as it was asked for."""

    given: Any
    report: Run

    @property
    def recipe(self) -> Recipe:
        return self.report.recipe

    @property
    def settings(self) -> MachineSettings:
        return self.report.settings

    @property
    def corpus(self) -> Corpus:
        return self.report.corpus

    @cached_property
    def extracted(self) -> FinishedStage:
        return open_stage(self.corpus.extracted.folder)

    @cached_property
    def kept(self) -> FinishedStage:
        return open_stage(self.corpus.kept.folder)

    @cached_property
    def steps(self) -> list[Step]:
        """The funnel, in the order of the steps; of training data also what is held out."""
        deciding = [open_stage(stage.folder) for stage in self.report.document_stages if stage.step_counts]
        return [Step(stage, funnel_row(count)) for stage in deciding for count in stage.step_counts]

    @cached_property
    def recipe_steps(self) -> dict[str, Any]:
        """The recipe's steps by name, with the content that their files have now."""
        context, _ = open_run(self.settings, self.recipe)
        return {step.step: step for step in self.recipe.steps} | {
            step.step: step for step in pinned(context, self.recipe.after)
        }

    @cached_property
    def kept_by_shard(self) -> list[int]:
        """How many documents of each shard are kept, as its jobs have counted."""
        return [record["rows_out"] for record in self.kept.part_records]

    @cached_property
    def _takedowns(self) -> Url:
        return takedown_lists(open_run(self.settings, self.recipe)[0], self.recipe)

    def taken_down(self, documents: Iterable[tuple[str, str | None]]) -> set[str]:
        """The ids of those that the recipe's takedown lists name, whatever dropped them: nothing of them is shown.
        `documents`: ids and URLs."""
        return hidden_ids(self._takedowns, documents) if self.recipe.takedowns else set()

    @cached_property
    def index(self) -> PhraseIndex | None:
        """The index of its texts; None where it was not made."""
        return opened(self.recipe, self.settings)

    @cached_property
    def words(self) -> WordIndex | None:
        """The word index; None where it was not made."""
        return opened_words(self.recipe, self.settings)

    def step(self, key: str) -> Step:
        """Raises LookupError for a key that no step has."""
        for step in self.steps:
            if step.key == key:
                return step
        raise LookupError(f"no step {key}")


def open_recipe(recipe: Any, settings: MachineSettings | None = None) -> Opened:
    """A recipe's finished corpus. Raises NotFinishedError with the fix."""
    return Opened(recipe, finished(recipe, settings))


# How the numbers of documents are distributed: over all, or over shards that are drawn where there are many.


_DOCUMENTS = 200_000  # after so many no more shards are read
_PLACES = ("offset", "length", "status")


@dataclass
class Summary:
    """`columns`: the numbers of each column, of all documents that were measured, kept or not; `shards`: how many of
    `of` were read; `documents`: of them."""

    shards: int = 0
    of: int = 0
    documents: int = 0
    columns: dict[str, Distribution] = field(default_factory=dict)


def summary(opened: Opened) -> Summary:
    """Read the measured columns of shards in a drawn order, until 200,000 documents were read. Holds a row group."""
    corpus = opened.corpus
    found = Summary(of=len(corpus.sources))
    for shard in np.random.default_rng(0).permutation(found.of).tolist():
        if found.documents >= _DOCUMENTS:
            break
        found.shards += 1
        found.documents += parquet.rows(corpus.extracted.part(shard))
        have: dict[str, str] = {}
        for stage in (corpus.extracted, *corpus.measured):
            if files.exists(stage.part(shard)):
                # selections carry `characters` of what they keep; the extraction has those of all
                schema = parquet.schema(stage.part(shard))
                have |= {
                    each.name: stage.part(shard)
                    for each in schema
                    if _counts(each) and not (each.name == "characters" and "characters" in have)
                }
        for part in dict.fromkeys(have.values()):
            names = [name for name, where in have.items() if where == part]
            for group in parquet.groups(part, names):
                for name in names:
                    found.columns.setdefault(name, Distribution()).add(group[name])
    return found


def _counts(column: pa.Field) -> bool:
    return is_number(column.type) and column.name not in _PLACES
