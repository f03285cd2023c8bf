"""Commands that search texts: index, find, trace."""

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gristmill.flows.cli.app import LOOK, MAKE, Json, app, print_json, print_texts, recipe_to_run
from gristmill.flows.cli.in_flow import in_flow, start_server_again
from gristmill.flows.cli.running import RecipeArgument

if TYPE_CHECKING:
    from gristmill.flows.search.opened import OpenedIndex

Shown = Annotated[int, typer.Option("-n", min=0, help="how many documents are shown of what is kept and of the rest")]


@app.command(rich_help_panel=MAKE)
def index(name: RecipeArgument) -> None:
    """Make the index by which `find` and `trace` look up texts of a recipe, and all that comes before it.

    `index: true` in a recipe makes it with the token shards. It has four bytes for each token, and the tokens of the
    documents that were dropped; a job holds twenty bytes for each token of a block of 32 million.
    """
    start_server_again()
    opened = opened_index(name)
    made = opened.stage.result
    kept, dropped = made["train"], made["dropped"]
    print_texts(
        [
            f"index of {kept['documents']:,} documents ({kept['tokens']:,} tokens) that are trained on, and of "
            f"{dropped['documents']:,} ({dropped['tokens']:,} tokens) that were dropped: {opened.stage.folder}"
        ]
    )


@app.command(rich_help_panel=LOOK)
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
    """Where a phrase is in a recipe's texts: how often, in how many documents, kept and dropped and by which rule; of
    some the text around it, the source, the URL and the place of the record.

    The phrase may begin and end within a word, and is not found over the end of a document. The index is made first,
    where it is not there (`gristmill index`). Documents of takedown lists are in no index.

    With --words the best documents come first (BM25), as a search engine has them: `"a phrase"`, `-must not`, OR,
    `title:`, `url:`, `source:`, `step:`, `rule:`, `kept:true`. Their index is one of its own, made first where it is
    not there; `word_index: true` in a recipe makes it with the corpus:

    gristmill find recipe.yaml --words "stone mill kept:true url:museum"
    """
    from gristmill.flows.cli.render import search as render

    if words:
        if regex:
            raise typer.BadParameter("--words and --regex are two searches: give one of them")
        from gristmill.flows.search.words import find_words, open_words

        recipe = recipe_to_run(name, None)
        ranked = find_words(open_words(recipe, partial(in_flow, "word_index", recipe.name)), phrase, n)
        if as_json:
            print_json(asdict(ranked))
        else:
            print_texts(render.ranked(ranked))
        return
    if regex:
        from gristmill.flows.search.expressions import find_expression

        found = find_expression(recipe_to_run(name, None), phrase, n)
    else:
        from gristmill.flows.search.phrases import find as find_phrase

        found = find_phrase(opened_index(name), phrase, n, dropped)
    if as_json:
        print_json(asdict(found))
    else:
        print_texts(render.phrase(found))


@app.command(rich_help_panel=LOOK)
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
    """The longest spans of a text that a recipe's training data has word for word, the rarest first, each with its
    documents: where a model may have a sentence from. The index is made first, where it is not there."""
    from gristmill.flows.cli.render import search as render

    if bool(text) == bool(prompt):
        raise typer.BadParameter("give a text, or --prompt for what the recipe's model writes")
    opened = opened_index(name)
    if prompt:
        from gristmill.flows.search.written import written

        given = written(name, prompt, tokens, temperature, seed)
    else:
        given = _text(text)
    from gristmill.flows.search.spans import trace as trace_spans

    found = trace_spans(opened, given, spans, n, words)
    if as_json:
        print_json(asdict(found))
    else:
        print_texts(render.trace(found))


def _text(given: str) -> str:
    if given == "-":
        return sys.stdin.read()
    try:
        path = Path(given)
        if path.is_file():
            return path.read_text(encoding="utf-8")
    except OSError:  # a text that is too long for a name
        pass
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{given} is no text in UTF-8: {error}") from None
    return given


def opened_index(name: str) -> "OpenedIndex":
    """A recipe's index, which is made where it is not there."""
    from gristmill.flows.search.opened import open_index

    recipe = recipe_to_run(name, None)
    return open_index(recipe, partial(in_flow, "index", recipe.name))
