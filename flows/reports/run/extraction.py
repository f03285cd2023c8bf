"""What extraction counted of each source, beside what it kept and dropped. Separate: sentences and sums, no rows."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports.funnel import ranked
from gristmill.flows.stages.corpus import Corpus


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
