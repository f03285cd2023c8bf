"""The report of a run."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import wrapt
from rich.console import Console, Group

from gristmill.flows.cli.render.tables import funnel_table
from gristmill.storage.printable import redact_url

if TYPE_CHECKING:
    from gristmill.flows.machine.settings import MachineSettings
    from gristmill.flows.reports.run import Report
    from gristmill.flows.run import prefect_env
    from gristmill.tasks.engine.make import StageResult
else:
    prefect_env = wrapt.lazy_import("gristmill.flows.run.prefect_env")


def print_report(report: "Report", console: Console) -> None:
    """Print the funnel, what was made of losses and a sample of the model, the stages, and how to look at the run."""

    title = f"Funnel of {report.recipe.name}"
    console.print(funnel_table(title, report.steps, report.characters_per_token, report.tokens, console.width))
    if report.types:
        console.print(types_line(report.types), highlight=False)
    if report.engines:
        console.print(engines_line(report.engines), highlight=False)
    if report.mixture:
        console.print(mixture_line(report), highlight=False)
    sections = {"Outputs": [f"{'reused' if stage.reused else 'made  '}  {stage.folder}" for stage in report.stages]}
    looked_at = [prefect_line(*prefect_env.user_interface())]
    if report.trained:
        console.print(Group(*training_lines(report)), highlight=False)
        if report.result["sample"] is not None:
            sections = {"Sample": [report.result["sample"]], **sections}
        looked_at.append(mlflow_line(report.settings))
    if report.exported:
        sections["Exported"] = [exported_line(report.exported)]
    sections["Look at it"] = looked_at
    for name, lines in sections.items():
        console.print(f"\n[bold]{name}[/bold]")
        console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


_TYPES = 8  # that a line names


def types_line(types: Mapping[str, int]) -> str:
    """The types of records of which no text is read."""
    shown = ", ".join(f"{name} {count:,}" for name, count in [*types.items()][:_TYPES])
    more = f", and {len(types) - _TYPES:,} types more" if len(types) > _TYPES else ""
    return f"no text is read of: {shown}{more}"


def engines_line(engines: Mapping[str, int]) -> str:
    """How many documents have the text of each engine that a union asked."""
    return f"texts by engine: {', '.join(f'{name} {count:,}' for name, count in engines.items())}"


def mixture_line(report: "Report") -> str:
    """What a model is trained on."""
    mixed = (f"{source.name} {source.share:.0%} ({source.epochs:.2f} epochs)" for source in report.mixture)
    return f"mixture: {', '.join(mixed)}"


def exported_line(stage: "StageResult") -> str:
    """What lies in the folder of an export."""
    counts = stage.result
    return f"{counts['documents']:,} documents, {counts['characters']:,} characters in {stage.folder}"


def training_lines(report: "Report") -> list[str]:
    """The model, and how well it predicts."""
    result, losses = report.result, report.training_losses
    return [
        f"model: {result['parameters']:,} parameters, {result['steps']} steps, {result['tokens']:,} tokens",
        f"training loss: {losses[0]:.4f} at the first step, {losses[-1]:.4f} at the last",
        f"unigram model: {result['unigram/loss']:.4f} nats/token, {result['unigram/bits_per_byte']:.4f} bits/byte",
        f"trained model: {result['heldout/loss']:.4f} nats/token, {result['heldout/bits_per_byte']:.4f} bits/byte "
        "(both on held-out documents, as they were extracted)",
        *(f"trained model: {value:.4f} bits/byte on {what}" for what, value in _other_sets(result).items()),
    ]


def _other_sets(result: Mapping[str, float]) -> dict[str, float]:
    """Bits per byte of what else a model was evaluated on, by what it is."""
    found = {"those of them that the recipe keeps": result.get("survivors/bits_per_byte")}
    for name, value in result.items():
        if name.startswith("evaluation/") and name.endswith("/bits_per_byte") and name.count("/") == 2:
            found[name.split("/")[1]] = value
    return {what: value for what, value in found.items() if value is not None}


def prefect_line(address: str, home: str) -> str:
    """The address of the Prefect server, or the command that starts one on what has been recorded."""
    return f"Prefect: {redact_url(address)}" if address else f"PREFECT_HOME={home} {_programs()}/prefect server start"


def mlflow_line(settings: "MachineSettings") -> str:
    """The address of the MLflow server, or the command that starts one; without a password."""
    uri = redact_url(settings.tracking_uri)
    return f"MLflow: {uri}" if uri.startswith("http") else f"{_programs()}/mlflow ui --backend-store-uri {uri}"


def _programs() -> Path:
    return Path(sys.executable).parent
