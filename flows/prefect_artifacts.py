"""What a run leaves for Prefect's user interface: counts of each stage, funnel and figures, as tables."""

import flows.prefect_env  # noqa: F401, I001  (before anything imports prefect)

# isort: split
from collections.abc import Callable
from typing import cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact

from flows.reports.funnel import FunnelRow, funnel_row
from flows.reports.run import Report
from tasks.engine.make import StageResult


def publish(report: Report) -> None:
    """Record the artifacts `funnel` and `training` of the flow run that calls it."""
    name = report.recipe.name
    create_table_artifact(key="funnel", table=funnel_table(report), description=f"Funnel of {name}")
    figures = [{"figure": name, "value": value} for name, value in training_figures(report).items()]
    create_table_artifact(key="training", table=figures, description=f"Model of {name}")


def publish_stage(stage: StageResult) -> None:
    """Record what a stage did to the documents, or what its manifest records, as an artifact of its task run."""
    rows = [_row(funnel_row(count), None) for count in stage.step_counts]
    create_table_artifact(
        key=f"stage-{stage.name.replace('_', '-')}",
        table=rows or [{"record": name, "value": str(value)[:400]} for name, value in stage.result.items()],
        description=f"{stage.name} {'reused' if stage.reused else 'made'}: `{stage.folder}`",
    )


def progress_artifact(name: str) -> Callable[[float], None]:
    """A function that records the percentage of a stage's phase, as an artifact of the task run that calls it first."""
    made: list[UUID] = []

    def record(percent: float) -> None:
        if made:
            update_progress_artifact(made[0], progress=percent)
            return
        key = f"progress-{name.replace('_', '-')}"
        artifact = create_progress_artifact(key=key, progress=percent, description=f"progress of {name}")
        made.append(cast(UUID, artifact))  # no coroutine, as no event loop runs in this thread

    return record


def funnel_table(report: Report) -> list[dict[str, str | int | float | None]]:
    """A row for each step; tokens are estimated from characters, but for those of the last row."""
    rows = [_row(row, report.characters_per_token) for row in report.funnel]
    documents = report.funnel[-1].documents_out
    return [*rows, {"step": "tokens", "documents in": documents, "documents out": documents, "tokens": report.tokens}]


def _row(row: FunnelRow, per_token: float | None) -> dict[str, str | int | float | None]:
    return {
        "step": row.name,
        "documents in": row.documents_in,
        "documents out": row.documents_out,
        "kept %": None if row.kept is None else round(100 * row.kept, 2),
        "tokens": None if per_token is None or row.characters_out is None else round(row.characters_out / per_token),
        "top reasons": ", ".join(f"{rule} {count:,}" for rule, count in list(row.reasons.items())[:3]),
    }


def training_figures(report: Report) -> dict[str, float]:
    """What the model was trained on, and how well it predicts; losses in nats a token."""
    figures = {f"share of {source.name}": source.share for source in report.mixture}
    figures |= {f"epochs of {source.name}": source.epochs for source in report.mixture}
    names = ("parameters", "steps", "tokens", "unigram/loss", "unigram/bits_per_byte")
    figures |= {name: report.result[name] for name in (*names, "heldout/loss", "heldout/bits_per_byte")}
    return figures | {
        "first training loss": report.training_losses[0],
        "last training loss": report.training_losses[-1],
    }
