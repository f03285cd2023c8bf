"""How well models predict, and tokenizers cut."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import wrapt

from gristmill.flows.cli.app import Json, ModelArgument, RecipeArgument
from gristmill.flows.cli.terminal import print_result
from gristmill.flows.machine.settings import MachineSettings
from gristmill.tasks.engine.extras import require

if TYPE_CHECKING:
    from gristmill.flows.cli import searching
    from gristmill.flows.experiments.models import evaluation
    from gristmill.flows.explore.search import memorized as memorization
    from gristmill.flows.reports import tokenizers
    from gristmill.flows.reports.tokenizers import TokenizerFigures
    from gristmill.flows.run import progress
else:
    searching = wrapt.lazy_import("gristmill.flows.cli.searching")
    evaluation = wrapt.lazy_import("gristmill.flows.experiments.models.evaluation")
    tokenizers = wrapt.lazy_import("gristmill.flows.reports.tokenizers")
    progress = wrapt.lazy_import("gristmill.flows.run.progress")
    memorization = wrapt.lazy_import("gristmill.flows.explore.search.memorized")


def evaluate(
    name: ModelArgument,
    tasks: Annotated[
        Path | None,
        typer.Option(
            help="a folder of tasks, one *.jsonl file each, with `context`, `choices`, `answer` or `context`, `target`"
        ),
    ] = None,
    memorized: Annotated[
        bool,
        typer.Option(
            "--memorized",
            help="instead: how much of its training text a recipe's model continues verbatim, by the number of copies",
        ),
    ] = False,
    prompts: Annotated[int, typer.Option(min=1, help="with --memorized: drawn from training and held-out text")] = 2000,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="with --memorized: of each prompt")] = 50,
    continuation_tokens: Annotated[int, typer.Option(min=1, help="with --memorized: that have to follow")] = 50,
    as_json: Json = False,
) -> None:
    """Bits per byte on the held-out text of each source, and accuracy on tasks of multiple choice or of a last word.
    Written beside the model as JSON, and logged to the recipe's MLflow run.

    With --memorized what it has memorized, with a page; copies are counted by the index of `gristmill explain find`,
    which is made where it is not there."""
    require("train", "evaluating a model")
    if memorized:
        _memorized(name, prompts, prompt_tokens, continuation_tokens, as_json)
        return

    with progress.progress_bar() as bar:
        task = bar.add_task("batches", total=None)
        result = evaluation.evaluate(
            name, tasks, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )
    print_result(result, (*result.tables, *result.remarks()), as_json)


def _memorized(name: str, prompts: int, prompt: int, continuation: int, as_json: bool) -> None:
    if evaluation.trained_model(name).report is None:  # ahead of the index, which takes longer
        raise ValueError(f"{name} is the folder of a model: name its recipe, whose home has the training text")
    result = memorization.memorized(searching.opened_index(name), prompts, prompt, continuation)
    path = memorization.write(result, MachineSettings().home)
    print_result(vars(result) | {"page": path}, [result.table, path], as_json)


def tokenizer_report(
    name: RecipeArgument,
    others: Annotated[
        list[Path] | None,
        typer.Option("--beside", metavar="FILE", help="a tokenizer.json or a SentencePiece model; may be repeated"),
    ] = None,
    as_json: Json = False,
) -> None:
    """The recipe's own tokenizer, and other files, side by side."""
    measurements = tokenizers.tokenizer_figures(name, others or ())
    print_result(list(map(_plain, measurements)), (figures.table for figures in measurements), as_json)


def _plain(figures: "TokenizerFigures") -> dict[str, Any]:
    counts = {name: getattr(figures, name) for name in ("tokens", "bytes", "words")}
    groups = [
        {"source": source, "language": language, **{name: counts[name][source, language] for name in counts}}
        for source, language in sorted(figures.tokens)
    ]
    plain = {f.name: getattr(figures, f.name) for f in dataclasses.fields(figures) if f.name not in counts}
    return {**plain, "groups": groups}
