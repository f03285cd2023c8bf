"""Searches in the texts of a recipe, for Python users and commands: phrases, words and regular expressions.

Indexes of phrases and of words are built if they are missing. A regular expression needs no index: all texts are read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import wrapt

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.lineage import ORIGIN
from gristmill.flows.reports.run import Run
from gristmill.flows.reports.search import phrases, words
from gristmill.flows.reports.search.opened import PhraseIndex, opened
from gristmill.flows.reports.search.phrases import Count, FoundDocument, PhraseMatches, Trace
from gristmill.flows.reports.search.words import WordIndex, WordMatches, opened_words
from gristmill.tasks.documents.selection import select_groups
from gristmill.tasks.engine import extras

if TYPE_CHECKING:
    from gristmill.flows.explore.search import index as index_flow
else:
    index_flow = wrapt.lazy_import("gristmill.flows.explore.search.index")

R = TypeVar("R")
# Calls the function that builds an index.
Make = Callable[[Callable[[], Any]], Any]
_CONTEXT = 200  # characters on either side of a match that is shown


def open_index(recipe: Any, make: Make = lambda run: run()) -> PhraseIndex:
    """Return the index of a recipe's phrases, in which `find` and `trace` search; build it first if it is missing.

    `recipe`: a YAML file, the name of a shipped recipe, or a mapping; `make`: called with the function that builds the
    index, and all that it needs. The curated documents of a recipe without a mixture are encoded for it. Raises
    RecipeError.
    """
    recipe = load(recipe)

    def run() -> None:
        index_flow.index(recipe)

    return _find_or_build(partial(opened, recipe), make, run, ("pydivsufsort",))


def open_words(recipe: Any, make: Make = lambda run: run()) -> WordIndex:
    """Return the index of a recipe's words, in which `find_words` searches; build it and its corpus first if they are
    missing. A recipe needs no mixture for it. `recipe` and `make` as for `open_index`. Raises RecipeError."""
    recipe = load(recipe)

    def run() -> None:
        index_flow.word_index(recipe)

    return _find_or_build(partial(opened_words, recipe), make, run, words.INDEX_PACKAGES)


def find(phrase: str, recipe: Any, n: int = 5, dropped: bool = True) -> PhraseMatches:
    """Find every place of a phrase, byte for byte, in a recipe's texts.

    `recipe`: a finished run, an opened index, or as for `open_index`, which builds the index if it is missing; `n`: how
    many kept and how many dropped documents are shown; `dropped`: whether dropped documents are searched, too. Raises
    ValueError for an empty phrase.

    >>> gristmill.find("olive oil", "recipe.yaml").kept.documents
    12
    """
    return phrases.find(_index(recipe), phrase, n, dropped)


def trace(text: str, recipe: Any, spans: int = 10, n: int = 3, words: int = 6) -> Trace:
    """Find the longest spans of a text in what is trained on, the rarest first.

    `recipe`: as for `find`; `spans`: how many are shown; `n`: how many documents of each; `words`: of the shortest
    span. Raises ValueError for a text without words.
    """
    return phrases.trace(_index(recipe), text, spans, n, words)


def find_words(query: str, recipe: Any, n: int = 5) -> WordMatches:
    """Rank documents, kept and dropped, by the words of a query in tantivy's language, and return the first `n`.

    `recipe`: a finished run, an opened word index, or as for `open_words`, which builds it if it is missing. Raises
    ValueError for a query that cannot be parsed.
    """
    if isinstance(recipe, Run):
        return recipe.find_words(query, n)
    return words.find_words(recipe if isinstance(recipe, WordIndex) else open_words(recipe), query, n)


def _index(recipe: Any) -> PhraseIndex:
    """The index to search."""
    if isinstance(recipe, Run):
        return recipe.index()
    return recipe if isinstance(recipe, PhraseIndex) else open_index(recipe)


def _find_or_build(look: Callable[[], R | None], make: Make, run: Callable[[], Any], packages: Iterable[str]) -> R:
    """What `look` returns, after `make(run)` if that is None. Raises MissingExtraError if a distribution that builds
    the index is missing."""
    result = look()
    if result is None:
        extras.require_all("building this index", packages)
        make(run)
        result = look()
    assert result is not None, "it was just built"
    return result


def find_expression(recipe: Recipe, expression: str, n: int, settings: MachineSettings | None = None) -> PhraseMatches:
    """The matches of a regular expression of RE2 (https://github.com/google/re2/wiki/Syntax) in the curated texts,
    without overlaps. `n`: how many documents are shown.

    Reads all texts, in time linear in their length. Holds the texts of a row group per thread. Raises ValueError for an
    invalid expression.
    """
    try:
        pc.match_substring_regex(pa.array(["text"]), expression)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{expression!r} is not an expression of RE2: {error}") from None
    corpus = finished(recipe, settings).corpus
    times = documents = 0
    shown: list[FoundDocument] = []
    with ThreadPoolExecutor() as pool:
        work = partial(_in_shard, corpus.places.documents, corpus.places.kept, expression, n)
        for counts, found in pool.map(work, range(len(corpus.sources))):
            times += counts.times
            documents += counts.documents
            shown += found[: n - len(shown)]
    return PhraseMatches(expression, Count(times, documents), Count(), {}, tuple(shown))


def _in_shard(
    documents: Sequence[str], kept: Sequence[str], expression: str, n: int, shard: int
) -> tuple[Count, list[FoundDocument]]:
    times = found = 0
    shown: list[FoundDocument] = []
    for group in select_groups(documents[shard], kept[shard], [*ORIGIN, "text"]):
        counts = pc.count_substring_regex(group["text"], expression).to_numpy()
        times += int(counts.sum())
        matching = np.flatnonzero(counts)
        found += len(matching)
        rows = group.take(pa.array(matching[: n - len(shown)]))
        shown += _shown(rows, counts[matching], expression, shard)
    return Count(times, found), shown


def _shown(rows: pa.Table, counts: np.ndarray, expression: str, shard: int) -> Iterator[FoundDocument]:
    parts = pc.split_pattern_regex(rows["text"], expression, max_splits=1).to_pylist()
    for row, count, (before, after) in zip(rows.to_pylist(), counts.tolist(), parts, strict=False):
        text = row.pop("text")
        yield FoundDocument(
            row["id"],
            True,
            "",
            "",
            count,
            shard,
            None,
            before[-_CONTEXT:],
            text[len(before) : len(text) - len(after)],
            after[:_CONTEXT],
            row,
        )
