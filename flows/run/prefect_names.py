"""Names of runs in Prefect's user interface. Separate: every module with flows needs it."""

import gristmill.flows.run.prefect_env  # noqa: F401, I001  (before anything imports prefect)

# isort: split
from prefect.context import FlowRunContext

from gristmill.tasks.engine.spec import StageSpec


def flow_run_name() -> str:
    """`<flow>-<recipe>`; a run that was asked for through the API keeps its name, which may be a user's.

    A schedule names runs at random, as the API does where it is given no name; only of a schedule it is known.
    """
    context = _context()
    assert context.flow is not None and context.flow_run is not None, "Prefect asks for the name of a run that begins"
    run = context.flow_run
    if run.deployment_id is not None and not run.auto_scheduled:
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
    assert context is not None, "stages are made, and runs are named, within a flow"
    return context


def _recipe(context: FlowRunContext) -> str:
    assert context.parameters is not None, "a flow's parameter is the recipe"
    return context.parameters["recipe"].name
