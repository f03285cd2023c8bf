"""What a mixture would take of the tokens that a recipe has made."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import by_name
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.tables import Table
from gristmill.storage import checked_json, files
from gristmill.tasks.engine.make import NotFinishedError, StageResult
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.plan import MAX_EPOCHS, concatenated_cuts, document_lengths, mean_shares, packed, windows
from gristmill.tasks.tokens.strategies import stretches


@dataclass(frozen=True)
class PackedSource:
    """In [0, 1]: the shares of the source's documents that concatenation cuts, and that best fit cuts; the share of the
    rows of best fit that is padding."""

    concatenated_cut: float
    best_fit_cut: float
    best_fit_padding: float


@dataclass(frozen=True)
class PlannedSource:
    """`wanted` and `share`: of the training tokens, in [0, 1], as the weights ask and as `max_epochs` permits; `has`:
    tokens that the source has for training; `takes`: tokens that training would read; `epochs`: `takes` over `has`;
    `packing`: where it was asked for."""

    name: str
    wanted: float
    share: float
    has: int
    takes: int
    epochs: float
    packing: PackedSource | None = None

    @property
    def remark(self) -> str:
        if self.epochs > MAX_EPOCHS:
            return f"more than {MAX_EPOCHS} epochs: repeated tokens have diminishing value"
        return "too few tokens for its weight" if self.share < self.wanted * (1 - 1e-9) else ""


def plan_table(sources: Iterable[PlannedSource]) -> Table:
    """A row for each source of a mixture."""
    rows = [(one.name, one.wanted, one.share, one.has, one.takes, one.epochs, one.remark) for one in sources]
    columns = ("source", "#weight|.2%", "#share|.2%", "#has", "#takes", "#epochs|.2f", "remark")
    return Table(columns, rows)


def packing_table(sources: Iterable[PlannedSource]) -> Table:
    """A row for each source that was packed."""
    names = ("documents cut: concatenate", "best_fit", "padding: concatenate", "best_fit")
    packed = [(one.name, one.packing) for one in sources if one.packing]
    columns = ("source", *(f"#{name}|.2%" for name in names))
    return Table(columns, [(name, p.concatenated_cut, p.best_fit_cut, 0, p.best_fit_padding) for name, p in packed])


def plan_mixture(
    recipe: Any, mixture: str = "", budget: int = 0, settings: MachineSettings | None = None, packing: bool = False
) -> list[PlannedSource]:
    """The plan for `budget` tokens (default: those of the recipe's training) by a mixture (default: the recipe's).
    `packing`: pack the sources of the mixture that the recipe has made, which reads the lengths of all documents.

    Raises NotFinishedError where the recipe's tokens are not made, ValueError for a mixture that names a source which
    the recipe does not have, or that cannot fill the budget.
    """
    report = finished(recipe, settings)
    if report.data is None:
        name = report.recipe.name
        raise NotFinishedError(
            f"the tokens of {name} do not exist: run `gristmill run RECIPE --tokens-only` with it first"
        )
    given = Mixture.model_validate(by_name(mixture)) if mixture else report.recipe.training_mixture()
    budget = budget or report.recipe.training.token_budget(report.recipe.model.seq_len)
    ours = report.recipe.training_mixture()
    if (given.by, given.rehydrate) != (ours.by, ours.rehydrate):
        raise ValueError(
            f"the mixture groups documents differently from {report.recipe.name}: use the same `by` and "
            "`rehydrate` in both"
        )
    if report.data.grouped is not None:
        has = report.data.grouped.result["tokens"]
    else:
        has = dict.fromkeys((source.name for source in report.recipe.sources), 0)
        for source, record in zip(report.corpus.sources, report.data.tokens.records("encode"), strict=True):
            has[source] += record["train"]["tokens"]
        if missing := sorted(set(given.named) - set(has)):
            raise ValueError(
                f"the mixture names {', '.join(missing)}, which are not sources of {report.recipe.name} "
                f"({', '.join(has)}); use the mixture's names for the sources, or write your own mixture"
            )
        if empty := sorted(name for name in given.named if not has[name]):
            raise ValueError(f"the mixture names {', '.join(empty)}, but these have no documents left to train on")
    met = mean_shares(stretches(given, has, budget), budget)
    wanted = _wanted(given, has, budget)
    packed_sources = _packing(report.data.mixture, report.recipe.model.seq_len) if packing else {}
    return [
        PlannedSource(
            name,
            wanted[name],
            share,
            has[name],
            round(share * budget),
            share * budget / has[name],
            packed_sources.get(name),
        )
        for name, share in sorted(met.items(), key=lambda item: (-item[1], item[0]))
    ]


def _packing(mixture: StageResult, seq_len: int) -> dict[str, PackedSource]:
    found = {}
    for source in checked_json.read(files.join(mixture.folder, "mixture.json"))["sources"]:
        documents = concatenated = cut = rows = 0
        for begin, run in windows([(shard["path"], shard["tokens"]) for shard in source["shards"]]):
            lengths = document_lengths(mixture.folder.rsplit("/", 1)[0], run)
            best = packed(lengths, seq_len)
            documents += len(lengths)
            concatenated += concatenated_cuts(lengths, begin, seq_len)
            cut += best.cut
            rows += best.rows
        padding = 1 - source["tokens"] / (rows * seq_len)
        found[source["name"]] = PackedSource(concatenated / documents, cut / documents, padding)
    return found


def _wanted(settings: Mixture, has: dict[str, int], budget: int) -> dict[str, float]:
    """Shares without caps."""
    plan = stretches(settings.model_copy(update={"max_epochs": math.inf}), has, budget)
    return mean_shares(plan, budget)
