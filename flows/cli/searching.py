"""Commands that search texts: index, find, trace."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt

from gristmill.flows.cli import documents as render
from gristmill.flows.cli.app import Json, RecipeArgument
from gristmill.flows.cli.in_flow import in_flow, recipe_to_run, start_server_again
from gristmill.flows.cli.terminal import print_result, print_texts

if TYPE_CHECKING:
    from gristmill.flows.experiments.models import evaluation
    from gristmill.flows.explore.search import indexes
    from gristmill.flows.reports.search import phrases
    from gristmill.flows.reports.search import words as word_search
    from gristmill.flows.reports.search.opened import PhraseIndex
else:
    evaluation = wrapt.lazy_import("gristmill.flows.experiments.models.evaluation")
    indexes = wrapt.lazy_import("gristmill.flows.explore.search.indexes")
    phrases = wrapt.lazy_import("gristmill.flows.reports.search.phrases")
    word_search = wrapt.lazy_import("gristmill.flows.reports.search.words")

Count = Annotated[int, typer.Option("-n", min=0, help="documents to print, of kept and of dropped ones")]


def index(name: RecipeArgument) -> None:
    """Takes 4 bytes of disk per token. To build the index with the token shards, set `index: true` in the recipe.

    Guide: docs/guides/search.md

    Examples:
        gristmill explain index recipe.yaml
    """
    start_server_again()
    opened = opened_index(name)
    result = opened.stage.result
    counts = (result["train"], result["dropped"])
    kept, dropped = (f"{each['documents']:,} documents ({each['tokens']:,} tokens)" for each in counts)
    print_texts([f"index: {opened.stage.folder}. Kept: {kept}. Dropped: {dropped}"])


def find(
    name: RecipeArgument,
    phrase: Annotated[
        str, typer.Argument(metavar="PHRASE", help="exact text; or expression, with --regex, or words, with --words")
    ],
    regex: Annotated[
        bool,
        typer.Option("--regex", help="RE2 expression over all kept texts, without an index"),
    ] = False,
    words: Annotated[
        bool,
        typer.Option("--words", help="ranked search (BM25) with an index of words"),
    ] = False,
    dropped: Annotated[bool, typer.Option(help="also dropped documents")] = True,
    n: Count = 5,
    as_json: Json = False,
) -> None:
    """Prints the number of matches in kept and dropped documents, the rules that dropped them, and the text around
    matches. Builds a missing index first.

    Guide: docs/guides/search.md

    Examples:
        gristmill explain find recipe.yaml "stone mill"
        gristmill explain find recipe.yaml --words "stone mill kept:true"
    """
    if words:
        if regex:
            raise typer.BadParameter("--words and --regex exclude each other. Remove one of them")

        recipe = recipe_to_run(name, None)
        ranked = word_search.find_words(
            indexes.open_words(recipe, partial(in_flow, "word_index", recipe.name)), phrase, n
        )
        print_result(ranked, render.ranked(ranked), as_json)
        return
    if regex:
        result = indexes.find_expression(recipe_to_run(name, None), phrase, n)
    else:
        result = phrases.find(opened_index(name), phrase, n, dropped)
    print_result(result, render.phrase(result, dropped and not regex), as_json)


def trace(
    name: RecipeArgument,
    text: Annotated[
        str, typer.Argument(metavar="TEXT|FILE", help="text, UTF-8 text file, or - for standard input")
    ] = "",
    prompt: Annotated[
        str, typer.Option(metavar="TEXT", help="prompt for a text by the recipe's model, instead of TEXT")
    ] = "",
    tokens: Annotated[int, typer.Option(min=1, help="with --prompt: tokens to generate")] = 100,
    temperature: Annotated[float, typer.Option(min=0, help="with --prompt: sampling temperature; 0: greedy")] = 0.8,
    seed: Annotated[int, typer.Option(min=0, help="with --prompt: seed of the sampling")] = 1,
    words: Annotated[int, typer.Option(min=1, help="words of the shortest span")] = 6,
    spans: Annotated[int, typer.Option("--spans", min=1, help="spans to print, rarest first")] = 10,
    n: Annotated[int, typer.Option("-n", min=0, help="documents to print of each span")] = 3,
    as_json: Json = False,
) -> None:
    """Prints the rarest spans first, each with the documents that contain it. Builds a missing index first.

    Guide: docs/guides/search.md

    Examples:
        gristmill explain trace recipe.yaml answer.txt
        gristmill explain trace recipe.yaml --prompt "Once"
    """
    if bool(text) == bool(prompt):
        raise typer.BadParameter("trace needs a text or --prompt. Give one of them")
    opened = opened_index(name)
    if prompt:
        query = evaluation.generate_text(name, prompt, tokens, temperature, seed)
    else:
        query = _text(text)

    result = phrases.trace(opened, query, spans, n, words)
    print_result(result, render.trace(result), as_json)


def _text(text: str) -> str:
    if text == "-":
        return sys.stdin.read()
    try:
        path = Path(text)
        if path.is_file():
            return path.read_text(encoding="utf-8")
    except OSError:  # a text that is too long for a name
        pass
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{text} is not UTF-8: {error}. Convert the file to UTF-8") from None
    return text


def opened_index(name: str) -> "PhraseIndex":
    """Open the index of a recipe. Builds it first if it is missing."""
    recipe = recipe_to_run(name, None)
    return indexes.open_index(recipe, partial(in_flow, "index", recipe.name))
