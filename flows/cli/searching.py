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
    from gristmill.flows.explore.search import expressions, indexes
    from gristmill.flows.reports.search import phrases
    from gristmill.flows.reports.search import words as word_search
    from gristmill.flows.reports.search.opened import PhraseIndex
else:
    indexes = wrapt.lazy_import("gristmill.flows.explore.search.indexes")
    phrases = wrapt.lazy_import("gristmill.flows.reports.search.phrases")
    word_search = wrapt.lazy_import("gristmill.flows.reports.search.words")
    expressions = wrapt.lazy_import("gristmill.flows.explore.search.expressions")

Shown = Annotated[int, typer.Option("-n", min=0, help="how many documents are shown of what is kept and of the rest")]


def index(name: RecipeArgument) -> None:
    """Makes first what the index needs. `index: true` in a recipe makes it with the token shards. It has four bytes for
    each token, and the tokens of the documents that were dropped; a job holds twenty bytes for each token of a block of
    32 million.
    """
    start_server_again()
    opened = opened_index(name)
    result = opened.stage.result
    counts = (result["train"], result["dropped"])
    kept, dropped = (f"{each['documents']:,} documents ({each['tokens']:,} tokens)" for each in counts)
    print_texts([f"index of {kept} that are trained on, and of {dropped} that were dropped: {opened.stage.folder}"])


def find(
    name: RecipeArgument,
    phrase: Annotated[
        str, typer.Argument(help="any text, found byte for byte; with --regex an expression, with --words words")
    ],
    regex: Annotated[
        bool,
        typer.Option("--regex", help="an expression of RE2 over the texts that are kept: reads all of them, no index"),
    ] = False,
    words: Annotated[
        bool,
        typer.Option(
            "--words", help="some words: documents ranked by them, of what is kept and of what was dropped; own index"
        ),
    ] = False,
    dropped: Annotated[bool, typer.Option(help="search documents that were dropped, too")] = True,
    n: Shown = 5,
    as_json: Json = False,
) -> None:
    """Prints how often the phrase occurs, in how many documents, kept and dropped and by which rule; of some documents
    the text around it, the source, the URL and the place of the record.

    The phrase may begin and end within a word, and is not found over the end of a document. The index is made first,
    where it is not there (`gristmill explain index`). Documents of takedown lists are in no index.

    With --words the best documents come first (BM25), as a search engine has them: `"a phrase"`, `-must not`, OR,
    `title:`, `url:`, `source:`, `step:`, `rule:`, `kept:true`. Their index is one of its own, made first where it is
    not there; `word_index: true` in a recipe makes it with the corpus:

    gristmill explain find recipe.yaml --words "stone mill kept:true url:museum"
    """
    if words:
        if regex:
            raise typer.BadParameter("--words and --regex are two searches: give one of them")

        recipe = recipe_to_run(name, None)
        ranked = word_search.find_words(
            indexes.open_words(recipe, partial(in_flow, "word_index", recipe.name)), phrase, n
        )
        print_result(ranked, render.ranked(ranked), as_json)
        return
    if regex:
        result = expressions.find_expression(recipe_to_run(name, None), phrase, n)
    else:
        result = phrases.find(opened_index(name), phrase, n, dropped)
    print_result(result, render.phrase(result), as_json)


def trace(
    name: RecipeArgument,
    text: Annotated[str, typer.Argument(help="a text, or a file of UTF-8; `-`: what stands on the input")] = "",
    prompt: Annotated[
        str, typer.Option(help="in place of a text: what the recipe's trained model writes behind this")
    ] = "",
    tokens: Annotated[int, typer.Option(min=1, help="that the model writes")] = 100,
    temperature: Annotated[float, typer.Option(min=0, help="of the model; 0 takes the likeliest token")] = 0.8,
    seed: Annotated[int, typer.Option(min=0, help="of what the model draws")] = 1,
    words: Annotated[int, typer.Option(min=1, help="of the shortest span")] = 6,
    spans: Annotated[int, typer.Option("--spans", min=1, help="how many are shown, the rarest first")] = 10,
    n: Annotated[int, typer.Option("-n", min=0, help="how many documents are shown of each span")] = 3,
    as_json: Json = False,
) -> None:
    """Prints the rarest spans first, each with its documents: where a model may have a sentence from. The index is made
    first if it is missing."""
    if bool(text) == bool(prompt):
        raise typer.BadParameter("give a text, or --prompt for what the recipe's model writes")
    opened = opened_index(name)
    if prompt:
        query = expressions.written(name, prompt, tokens, temperature, seed)
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
        raise typer.BadParameter(f"{text} is no text in UTF-8: {error}") from None
    return text


def opened_index(name: str) -> "PhraseIndex":
    """A recipe's index, which is built first if it is missing."""
    recipe = recipe_to_run(name, None)
    return indexes.open_index(recipe, partial(in_flow, "index", recipe.name))
