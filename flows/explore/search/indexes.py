"""The indexes of a recipe, built where they are missing, and searches by recipe: what Python users call."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import wrapt

from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.run import Run
from gristmill.flows.reports.search import phrases, words
from gristmill.flows.reports.search.opened import PhraseIndex, opened
from gristmill.flows.reports.search.phrases import PhraseMatches, Trace
from gristmill.flows.reports.search.words import WordIndex, WordMatches, opened_words
from gristmill.tasks.engine import extras

if TYPE_CHECKING:
    from gristmill.flows.explore.search import index as index_flow
else:
    index_flow = wrapt.lazy_import("gristmill.flows.explore.search.index")

R = TypeVar("R")
# Given a function that builds an index, it calls that.
Make = Callable[[Callable[[], Any]], Any]


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
    """What `look` returns, after `make(run)` if that is None.

    Raises MissingExtraError if one of the distributions that build it is missing.
    """
    result = look()
    if result is None:
        extras.require_all("building this index", packages)
        make(run)
        result = look()
    assert result is not None, "it was just built"
    return result
