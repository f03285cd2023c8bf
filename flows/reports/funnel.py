"""The funnel: how many documents each step keeps, and why it drops the others; counts of the extraction by source."""

import importlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import wrapt

from gristmill.flows.reports.tables import Table, listed
from gristmill.storage import layout

if TYPE_CHECKING:
    from pandas import DataFrame

    from gristmill.flows.recipe.recipe import Recipe
    from gristmill.flows.stages.corpus import Corpus
    from gristmill.storage import parquet
else:
    parquet = wrapt.lazy_import("gristmill.storage.parquet")

TOP = 3  # reasons of a step in a table
DAMAGED = "damaged_record"
_MAX_LEDGERS = 200  # to name damaged files, the ledgers of a corpus with more shards are not read
_SHOWN_FILES = 3


def pandas() -> ModuleType:
    """The module pandas. Raises ImportError, with the fix, if it is not installed."""
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise ImportError(
            "data frames of a report need pandas, which is not installed: `pip install pandas`"
        ) from error


def frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> "DataFrame":
    """A data frame with a row for each mapping; `columns`: all columns, even without rows. Raises as `pandas`."""
    return pandas().DataFrame.from_records(list(rows), columns=columns)


class Counted(Protocol):
    """A stage, as returned by the engine or read from a home."""

    @property
    def step_counts(self) -> list[dict[str, Any]]: ...


@dataclass(frozen=True)
class FunnelRow:
    """The effect of one step on all documents.

    `characters_in` is None if there is no text before the step; then `characters_out` counts the texts that it made.
    `drops`: documents by rule; `edits`: spans that were cut out of texts, by rule, None for a step without cuts.
    """

    step: str
    documents_in: int
    documents_out: int
    characters_in: int | None
    characters_out: int | None
    drops: dict[str, int]
    edits: dict[str, int] | None = None

    @property
    def kept(self) -> float | None:
        """The share of documents that are kept, in [0, 1]; None if none arrive."""
        return self.documents_out / self.documents_in if self.documents_in else None

    @property
    def flow(self) -> str:
        return f"{self.documents_in:,} → {self.documents_out:,}"

    @property
    def name(self) -> str:
        """The step, marked if the row counts its cuts: a step cuts while texts are made, and may drop later."""
        return self.step if self.edits is None else f"{self.step}, cuts"

    @property
    def reasons(self) -> dict[str, int]:
        """The rules with their drops and cuts, most first."""
        return ranked(self.drops | (self.edits or {}))


def ranked(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts with the largest first, ties by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def funnel_row(count: dict[str, Any]) -> FunnelRow:
    """The row of one step's counts (`gristmill.storage.ledger.count`), summed or of one shard."""
    return FunnelRow(
        count["step"],
        count["rows_in"],
        count["rows_out"],
        count["characters_in"],
        count["characters_out"],
        count["drops"],
        count.get("edits"),
    )


def table(
    rows: Iterable[FunnelRow], characters_per_token: float | None = None, tokens: int | None = None, title: str = ""
) -> Table:
    """A row for each step, and one for the tokens.

    Tokens before tokenization are estimates, marked with `~`: characters divided by the characters per token of the
    tokenized documents. The tokens of the last row are counted. Without tokens, characters are shown instead.
    """
    size = "#characters" if characters_per_token is None else "#tokens"
    shown: list[tuple[Any, ...]] = []
    for row in rows:
        about = " → ".join(_about(each, characters_per_token) for each in (row.characters_in, row.characters_out))
        shown.append((row.name, row.flow, "-" if row.kept is None else row.kept, about, listed(row.reasons, TOP)))
    if tokens is not None:
        shown.append(("tokens", f"{row.documents_out:,}", 1.0, tokens))
    return Table(("step", "#documents", "#kept|.1%", size, "top reasons for drops"), shown, title)


def _about(characters: int | None, per_token: float | None) -> str:
    if characters is None:
        return "-"
    return f"{characters / 1e3:,.0f}k" if per_token is None else f"~{characters / per_token / 1e3:,.0f}k"


def funnel(stages: Iterable[Counted]) -> list[FunnelRow]:
    """A row for each step of the stages, in their order."""
    return [funnel_row(count) for stage in stages for count in stage.step_counts]


def count_by_source(corpus: "Corpus", what: str) -> dict[str, Any]:
    """Counts of the extraction by source. `what`: a field of the counts."""
    sources = corpus.extracted.result["sources"].items()
    return {name: counts[what] for name, counts in sources}


def total_counts(corpus: "Corpus", what: str) -> dict[str, int]:
    """Counts over all sources, the largest first. `what`: a field of counts by name, such as `engines`."""
    counts = Counter[str]()
    for of_source in count_by_source(corpus, what).values():
        counts.update(of_source)
    return ranked(counts)


def date_lines(recipe: "Recipe", corpus: "Corpus") -> Iterator[str]:
    """Sentences about dates that could not be parsed, and about steps that keep the newest of documents without one."""
    sources = count_by_source(corpus, "dates")
    for name, dates in sources.items():
        if dates["unread"]:
            yield (
                f"{dates['unread']:,} documents of {name} have a date that could not be parsed, such as "
                f"{', '.join(map(repr, dates['examples']))}: they count as documents without a date"
            )
    undated = sum(dates["none"] + dates["unread"] for dates in sources.values())
    for step in recipe.steps:
        by_date = [order for order in getattr(step, "keep", None) or () if order in ("newest", "oldest")]
        if undated and by_date and "keep" in step.model_fields_set:
            yield (
                f"{step.step} keeps the {by_date[0]} of duplicates, and {undated:,} documents have no date: "
                "they come after all documents with a date"
            )


def damage_lines(corpus: "Corpus") -> Iterator[str]:
    """A sentence about records that could not be read, with the first damage of a few files. Everything that is lost
    with a damaged record, such as the rest of a compressed file, counts as one document."""
    count = sum(row.drops.get(DAMAGED, 0) for row in funnel((corpus.extracted,)))
    if not count:
        return
    first: dict[str, str] = {}
    if len(corpus.sources) <= _MAX_LEDGERS:
        for shard in range(len(corpus.sources)):
            ledger = parquet.read_table(layout.ledger_part(corpus.extracted.folder, shard), ["rule", "file", "detail"])
            for row in ledger.to_pylist():
                if row["rule"] == DAMAGED:
                    first.setdefault(row["file"] or "", row["detail"] or "")
    shown = [f"{name} ({detail})" for name, detail in [*first.items()][:_SHOWN_FILES]]
    more = [f"and {len(first) - _SHOWN_FILES:,} more files"] if len(first) > _SHOWN_FILES else []
    where = ", ".join([*shown, *more]) or f"see `gristmill explain show dropped --rule {DAMAGED}`"
    yield (
        f"unreadable: {count:,} record{'s' * (count != 1)}, each counted as one document, even if the rest of a file "
        f"is lost with it: {where}"
    )
