"""What extraction counted of each source, beside what it kept and dropped. Separate: sentences and sums, no rows."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports.funnel import funnel, ranked
from gristmill.flows.stages.corpus import Corpus
from gristmill.storage import layout, parquet

DAMAGED = "damaged_record"
_MAX_LEDGERS = 200  # of a corpus with more shards none is read, to name files
_SHOWN_FILES = 3


def by_source(corpus: Corpus, what: str) -> dict[str, Any]:
    """By the name of each source what was counted of it."""
    sources = corpus.extracted.result["sources"].items()
    return {name: counts[what] for name, counts in sources}


def total(corpus: Corpus, what: str) -> dict[str, int]:
    """Documents or records of all sources, by what was counted, the most frequent first."""
    counts = Counter[str]()
    for of_source in by_source(corpus, what).values():
        counts.update(of_source)
    return ranked(counts)


def date_lines(recipe: Recipe, corpus: Corpus) -> Iterator[str]:
    """Sentences on dates that cannot be read, and on steps that keep the newest where documents have none."""
    sources = by_source(corpus, "dates")
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


def damage_lines(corpus: Corpus) -> Iterator[str]:
    """A sentence on what could not be read of the source files, with the first damage of a few files. Whatever was lost
    with one damaged record, such as the rest of a compressed file, counts as one document."""
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
