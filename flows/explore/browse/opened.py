"""A finished corpus to browse: its steps, indexes and stages, and a summary of the measured columns."""

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
    """A step of the funnel and the stage with its ledger."""

    stage: FinishedStage
    row: FunnelRow

    @property
    def key(self) -> str:
        """Identifies the step on a page, since a step may be in the funnel twice."""
        return f"{self.stage.label}.{self.row.step}"

    @property
    def drops(self) -> dict[str, int]:
        """Documents by rule, most first, without rules that dropped none."""
        return {rule: documents for rule, documents in ranked(self.row.drops).items() if documents}


@dataclass(frozen=True)
class Opened:
    """A recipe's finished corpus. `given`: the recipe as the caller passed it."""

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
        """The funnel, in the order of the steps, with held-out documents of training data."""
        deciding = [open_stage(stage.folder) for stage in self.report.document_stages if stage.step_counts]
        return [Step(stage, funnel_row(count)) for stage in deciding for count in stage.step_counts]

    @cached_property
    def recipe_steps(self) -> dict[str, Any]:
        """The recipe's steps by name, with the current content of their files."""
        context, _ = open_run(self.settings, self.recipe)
        return {step.step: step for step in self.recipe.steps} | {
            step.step: step for step in pinned(context, self.recipe.after)
        }

    @cached_property
    def kept_by_shard(self) -> list[int]:
        """The number of kept documents of each shard, as counted by its jobs."""
        return [record["rows_out"] for record in self.kept.part_records]

    @cached_property
    def _takedowns(self) -> Url:
        return takedown_lists(open_run(self.settings, self.recipe)[0], self.recipe)

    def taken_down(self, documents: Iterable[tuple[str, str | None]]) -> set[str]:
        """The ids of documents in the recipe's takedown lists, which must not be shown, whatever dropped them.
        `documents`: ids and URLs."""
        return hidden_ids(self._takedowns, documents) if self.recipe.takedowns else set()

    @cached_property
    def index(self) -> PhraseIndex | None:
        """The index of its texts; None if there is none."""
        return opened(self.recipe, self.settings)

    @cached_property
    def words(self) -> WordIndex | None:
        """The word index; None if there is none."""
        return opened_words(self.recipe, self.settings)

    def step(self, key: str) -> Step:
        """The step with a key. Raises LookupError if there is none."""
        for step in self.steps:
            if step.key == key:
                return step
        raise LookupError(f"no step {key}")


def open_recipe(recipe: Any, settings: MachineSettings | None = None) -> Opened:
    """A recipe's finished corpus. Raises NotFinishedError with the fix."""
    return Opened(recipe, finished(recipe, settings))


_DOCUMENTS = 200_000  # a summary reads no more shards after this many
_PLACES = ("offset", "length", "status")


@dataclass
class Summary:
    """Distributions of columns. `columns`: by name, over all measured documents, kept or not; `shards`: how many of
    `of` shards were read; `documents`: documents in these."""

    shards: int = 0
    of: int = 0
    documents: int = 0
    columns: dict[str, Distribution] = field(default_factory=dict)


def summary(opened: Opened) -> Summary:
    """Read the measured columns of shards in random order, up to 200,000 documents. Holds a row group."""
    corpus = opened.corpus
    total = Summary(of=len(corpus.sources))
    for shard in np.random.default_rng(0).permutation(total.of).tolist():
        if total.documents >= _DOCUMENTS:
            break
        total.shards += 1
        total.documents += parquet.rows(corpus.extracted.part(shard))
        have: dict[str, str] = {}
        for stage in (corpus.extracted, *corpus.measured):
            if files.exists(stage.part(shard)):
                # selections have `characters` only of the documents that they keep; the extraction has all
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
                    total.columns.setdefault(name, Distribution()).add(group[name])
    return total


def _counts(column: pa.Field) -> bool:
    return is_number(column.type) and column.name not in _PLACES
