"""Commands that evaluate: evaluate, for models, and tokenizers."""

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
        typer.Option(metavar="FOLDER", help="folder with a .jsonl file for each task"),
    ] = None,
    memorized: Annotated[
        bool,
        typer.Option(
            "--memorized",
            help="share of training text that a recipe's model continues verbatim, instead",
        ),
    ] = False,
    prompts: Annotated[int, typer.Option(min=1, help="with --memorized: number of prompts")] = 2000,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="with --memorized: tokens of a prompt")] = 50,
    continuation_tokens: Annotated[int, typer.Option(min=1, help="with --memorized: tokens to continue with")] = 50,
    as_json: Json = False,
) -> None:
    """Prints bits per byte on the held-out text of each source, and accuracy on tasks. Writes JSON next to the model
    and logs to the recipe's MLflow run.

    Guide: docs/guides/evaluate-a-model.md

    Examples:
        gristmill train evaluate recipe.yaml --tasks tasks
        gristmill train evaluate recipe.yaml --memorized
    """
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
    if evaluation.trained_model(name).report is None:  # checked before the index, which takes longer
        raise ValueError(f"--memorized needs a recipe, but {name} is a folder. Name the recipe of the model instead")
    result = memorization.memorized(searching.opened_index(name), prompts, prompt, continuation)
    path = memorization.write(result, MachineSettings().home)
    print_result(vars(result) | {"page": path}, [result.table, path], as_json)


def tokenizer_report(
    name: RecipeArgument,
    others: Annotated[
        list[Path] | None,
        typer.Option("--beside", metavar="FILE", help="tokenizer.json or SentencePiece model to compare; repeatable"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Prints tokens, bytes and words by source and language, for the recipe's tokenizer and for other files.

    Guide: docs/guides/compare-tokenizers.md

    Examples:
        gristmill explain tokenizers recipe.yaml
        gristmill explain tokenizers recipe.yaml --beside other/tokenizer.json
    """
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
