"""An evaluation for a person."""

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from flows.evaluation import Evaluation


def heldout_table(found: Evaluation) -> Table:
    table = Table("held-out text", title=found.model)
    table.add_column("bits per byte", justify="right")
    for name, value in found.heldout.items():
        if name.endswith("bits_per_byte"):
            source = name.removeprefix("heldout/").removesuffix("bits_per_byte").rstrip("/")
            table.add_row(source or "all", f"{value:.4f}")
    return table


def tasks_table(found: Evaluation) -> Table:
    """Accuracies in percent, with their standard errors."""
    table = Table("task", title=found.model)
    for head in ("examples", "accuracy %", "normalised %", "chance %", "perplexity", "bits per byte"):
        table.add_column(head, justify="right")
    for name, figures in found.tasks.items():
        table.add_row(
            name,
            f"{figures['examples']:,}",
            _share(figures, "accuracy"),
            _share(figures, "accuracy_normalised"),
            _share(figures, "chance"),
            _number(figures.get("perplexity"), ",.2f"),
            _number(figures["bits_per_byte"], ".3f"),
        )
    return table


def remarks(found: Evaluation) -> Iterator[str]:
    for name, figures in found.tasks.items():
        if figures["cut"]:
            yield f"{name}: the context of {figures['cut']:,} pairs was cut at its left to fit the model"
    yield from (f"not scored: {sentence}" for sentence in found.unknown)
    yield f"report: {found.path}"
    if found.mlflow_run:
        yield f"logged to the MLflow run {found.mlflow_run}"


def _share(figures: dict[str, Any], name: str) -> str:
    value, error = figures.get(name), figures.get(f"{name}_stderr")
    if value is None:
        return ""
    return f"{100 * value:.2f}" + ("" if error is None else f" ± {100 * error:.2f}")


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
