"""The names of runs in Prefect's user interface, and the tables there: counts, funnel and figures."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, cast
from uuid import UUID

import wrapt
from prefect.artifacts import (
    create_link_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.context import FlowRunContext
from prefect.runtime import flow_run

from gristmill.flows.reports.funnel import TOP, FunnelRow, funnel_row
from gristmill.flows.reports.run import Run
from gristmill.flows.reports.tables import listed
from gristmill.flows.run import server as prefect_server
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.spec import StageSpec

if TYPE_CHECKING:
    from gristmill.flows.reports import run_page
else:
    run_page = wrapt.lazy_import("gristmill.flows.reports.run_page")

_RANDOM_NAME = re.compile("[a-z]+-[a-z]+")


def flow_run_name() -> str:
    """`<flow>-<recipe>`, also for runs of deployments, unless a person has named the run.

    Prefect fills in two random words (`brave-lion`) for a run without a name, in the form of its pages and in its API,
    and records nowhere that it did. So a name of that form is replaced, and any other one is kept.
    """
    context = _context()
    assert context.flow is not None and context.flow_run is not None, "Prefect requests the name when a run begins"
    run = context.flow_run
    if run.deployment_id is not None and not run.auto_scheduled and not _RANDOM_NAME.fullmatch(run.name):
        return run.name
    return f"{context.flow.name}-{_recipe(context)}"


def stage_name(spec: StageSpec) -> str:
    """`<recipe>-<stage>`, with the first of its steps where a recipe may have several stages of the kind."""
    parts = [_recipe(_context()), spec.name]
    record = spec.record
    if decisions := getattr(record, "decisions", ()):
        parts.append(decisions[0][0])
    elif steps := getattr(record, "steps", ()):
        parts.append(steps[0].step)
    return "-".join(parts)


def _context() -> FlowRunContext:
    context = FlowRunContext.get()
    assert context is not None, "stages are made and runs are named inside a flow"
    return context


def _recipe(context: FlowRunContext) -> str:
    assert context.parameters is not None, "a flow's parameter is the recipe"
    return context.parameters["recipe"].name


_PAGE_SHARDS = 1_000


def artifact_key(*parts: str) -> str:
    """The parts as Prefect takes them: a to z, 0 to 9 and dashes."""
    return "-".join(parts).replace("_", "-")


def publish(report: Run) -> None:
    """Record the funnel of the flow run that calls it, what each rule dropped, where its page is, and what its training
    gave, each under the recipe's name. A flow that another one called leaves this to that one.

    The page is written where a server is set by its address, whose pages a person looks at: this process reads all
    shards for it, one after the other, so that of a corpus of many shards is left to `gristmill report`.
    """
    if flow_run.get_parent_flow_run_id() is not None:
        return
    name = report.recipe.name
    what = "; ".join(report.summary)
    create_table_artifact(
        key=artifact_key(name, "funnel"), table=funnel_table(report), description=f"Funnel of {name}: {what}"
    )
    create_table_artifact(key=artifact_key(name, "drops"), table=drops_table(report), description=f"Drops of {name}")
    if prefect_server.has_pages(report.settings) and len(report.corpus.sources) <= _PAGE_SHARDS:
        path = run_page.write_page(report)
        create_link_artifact(key=artifact_key(name, "page"), link=path, link_text=path, description=f"Page of {name}")
    if report.trained is not None:
        figures = [{"figure": figure, "value": value} for figure, value in training_figures(report).items()]
        create_table_artifact(key=artifact_key(name, "training"), table=figures, description=f"Model of {name}: {what}")


def publish_stage(name: str, stage: StageResult) -> None:
    """Record what a stage did to the documents, or what its manifest records, as an artifact of its task run.

    `name`: of the recipe and the stage.
    """
    rows = [_row(funnel_row(count), None) for count in stage.step_counts]
    create_table_artifact(
        key=artifact_key(name),
        table=rows or [{"record": record, "value": str(value)[:400]} for record, value in stage.result.items()],
        description=f"{stage.name} {'reused' if stage.reused else 'made'}: `{stage.folder}`",
    )


def progress_artifact(name: str) -> Callable[[float], None]:
    """A function that records the percentage of a stage's phase, as an artifact of the task run that calls it first.

    `name`: of the recipe and the stage.
    """
    ids: list[UUID] = []

    def record(percent: float) -> None:
        if ids:
            update_progress_artifact(ids[0], progress=percent)
            return
        key = artifact_key("progress", name)
        artifact = create_progress_artifact(key=key, progress=percent, description=f"Progress of {name}")
        ids.append(cast(UUID, artifact))  # no coroutine, as no event loop runs in this thread

    return record


def funnel_table(report: Run) -> list[dict[str, str | int | float | None]]:
    """A row for each step, and one for the tokens if there are some; those before it are estimated from characters."""
    rows = [_row(row, report.characters_per_token) for row in report.steps]
    if report.tokens is None:
        return rows
    documents = report.steps[-1].documents_out
    return [*rows, {"step": "tokens", "documents in": documents, "documents out": documents, "tokens": report.tokens}]


def drops_table(report: Run) -> list[dict[str, str | int]]:
    """A row for each rule that dropped documents, in the order of the steps: how many reached the step, and went."""
    return [
        {"step": row.name, "rule": rule, "documents in": row.documents_in, "dropped": count}
        for row in report.steps
        for rule, count in row.drops.items()
        if count
    ]


def _row(row: FunnelRow, per_token: float | None) -> dict[str, str | int | float | None]:
    return {
        "step": row.name,
        "documents in": row.documents_in,
        "documents out": row.documents_out,
        "kept %": None if row.kept is None else round(100 * row.kept, 2),
        "tokens": None if per_token is None or row.characters_out is None else round(row.characters_out / per_token),
        "top reasons": listed(row.reasons, TOP),
    }


def training_figures(report: Run) -> dict[str, float]:
    """How well the model predicts, and what it was trained on; losses in nats a token."""
    names = ("heldout/bits_per_byte", "unigram/bits_per_byte", "heldout/loss", "unigram/loss")
    figures = {name: report.result[name] for name in (*names, "parameters", "steps", "tokens")}
    figures |= {f"share of {source.name} in training tokens": source.share for source in report.mixture}
    figures |= {f"epochs of {source.name} in training": source.epochs for source in report.mixture}
    return figures | {
        "first training loss": report.training_losses[0],
        "last training loss": report.training_losses[-1],
    }
