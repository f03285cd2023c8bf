"""How well models predict, and tokenizers cut."""

import dataclasses
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gristmill.flows.cli.app import LOOK, Json, ModelArgument, app, console, print_json, print_texts, settings
from gristmill.flows.cli.running import RecipeArgument
from gristmill.flows.machine.extras import require

if TYPE_CHECKING:
    from gristmill.flows.reports.tokenizers import TokenizerFigures


@app.command(rich_help_panel=LOOK)
def evaluate(
    name: ModelArgument,
    tasks: Annotated[
        Path | None,
        typer.Option(
            help="a folder of tasks, one *.jsonl file each, with `context`, `choices`, `answer` or `context`, `target`"
        ),
    ] = None,
    memorised: Annotated[
        bool,
        typer.Option(
            "--memorised",
            help="instead: how much of its training text a recipe's model continues verbatim, by the number of copies",
        ),
    ] = False,
    prompts: Annotated[int, typer.Option(min=1, help="with --memorised: drawn from training and held-out text")] = 2000,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="with --memorised: of each prompt")] = 50,
    continuation_tokens: Annotated[int, typer.Option(min=1, help="with --memorised: that have to follow")] = 50,
    as_json: Json = False,
) -> None:
    """Bits per byte of a model on the held-out text of each source, and its accuracy on tasks of multiple choice or of
    a last word. Written beside the model as JSON, and logged to the recipe's MLflow run.

    With --memorised what it has by heart, with a page; copies are counted by the index of `gristmill find`, which is
    made where it is not there."""
    require("train", "evaluating a model")
    if memorised:
        _memorised(name, prompts, prompt_tokens, continuation_tokens, as_json)
        return

    from gristmill.flows.cli.render import tables as render
    from gristmill.flows.models import evaluation
    from gristmill.flows.run.progress import progress_bar

    with progress_bar() as bar:
        task = bar.add_task("batches", total=None)
        found = evaluation.evaluate(
            name, tasks, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )
    if as_json:
        print_json(asdict(found))
        return
    if found.heldout:
        console().print(render.heldout_table(found))
    if found.tasks:
        console().print(render.tasks_table(found))
    print_texts(render.remarks(found))


def _memorised(name: str, prompts: int, prompt: int, continuation: int, as_json: bool) -> None:
    from gristmill.flows.cli.render import search as render
    from gristmill.flows.cli.searching import opened_index
    from gristmill.flows.models.evaluation import trained_model
    from gristmill.flows.search.memorised import memorised, write

    if trained_model(name).report is None:  # ahead of the index, which takes longer
        raise ValueError(f"{name} is the folder of a model: name its recipe, whose home has the training text")
    found = memorised(opened_index(name), prompts, prompt, continuation)
    path = write(found, settings().home)
    if as_json:
        print_json(asdict(found) | {"page": path})
        return
    console().print(render.memorised_table(found))
    print_texts([path])


@app.command(name="tokenizer-report", rich_help_panel=LOOK)
def tokenizer_report(
    name: RecipeArgument,
    others: Annotated[
        list[Path] | None,
        typer.Option("--beside", metavar="FILE", help="a tokenizer.json or a SentencePiece model; may be repeated"),
    ] = None,
    as_json: Json = False,
) -> None:
    """What tokenizers make of a finished corpus, side by side: the recipe's own, and other files."""
    from gristmill.flows.reports.tokenizers import tokenizer_figures

    found = tokenizer_figures(name, others or ())
    if as_json:
        print_json([_plain(figures) for figures in found])
        return

    from rich.table import Table

    table = Table("tokenizer", "source", "language", "bytes a token", "tokens a word", "tokens")
    for figures in found:
        table.add_row(
            f"{figures.name}: vocabulary {figures.vocab_size:,}, unused {figures.unused:,}, in the first "
            f"{figures.shared:.1%}, embedding {figures.embedding:,} parameters, inexact documents {figures.inexact:,}",
            "all",
            "",
            f"{figures.bytes_per_token():.3f}",
            f"{figures.fertility():.3f}",
            f"{sum(figures.tokens.values()):,}",
        )
        for group in sorted(figures.tokens):
            row = f"{figures.bytes_per_token(group):.3f}", f"{figures.fertility(group):.3f}"
            table.add_row("", *group, *row, f"{figures.tokens[group]:,}")
    console().print(table)


def _plain(figures: "TokenizerFigures") -> dict[str, Any]:
    counts = {name: getattr(figures, name) for name in ("tokens", "bytes", "words")}
    groups = [
        {"source": source, "language": language, **{name: counts[name][source, language] for name in counts}}
        for source, language in sorted(figures.tokens)
    ]
    plain = {f.name: getattr(figures, f.name) for f in dataclasses.fields(figures) if f.name not in counts}
    return {**plain, "groups": groups}
