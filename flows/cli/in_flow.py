"""Run flows: check the recipe first, start the Prefect server meanwhile, and report a stop in one line."""

import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import typer
import wrapt

from gristmill.flows.machine import limits
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import before_run
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.first_look import unread_urls
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.recipe.shortages import shortages
from gristmill.flows.recipe.variants import changed
from gristmill.storage.printable import redact_url

if TYPE_CHECKING:
    from gristmill.flows.machine import context
    from gristmill.flows.reports import finished
    from gristmill.flows.run import server
else:
    context = wrapt.lazy_import("gristmill.flows.machine.context")
    finished = wrapt.lazy_import("gristmill.flows.reports.finished")
    server = wrapt.lazy_import("gristmill.flows.run.server")

Result = TypeVar("Result")


def recipe_to_run(name: str, limit: int | None, values: Sequence[str] = ()) -> Recipe:
    """Load and validate a recipe before the libraries of the work are imported. `values`: of `--set`. Raises
    RecipeError."""
    recipe = changed(load(name), values)
    if limit is not None:
        recipe = recipe.model_copy(update={"limit": limit})
    machine = MachineSettings()
    try:
        before_run(recipe, machine)
    except RecipeError:
        if any(shortages(recipe, machine)):  # stages cannot be looked up without their packages
            raise
        finished.check_run(recipe, machine)  # the home may have the finished stages of deleted source files
    return recipe


def warn_of_unread_urls(name: str, recipe: Recipe) -> None:
    """Print what hosts are unknown for, before work that depends on hosts."""
    for remark in unread_urls(recipe, MachineSettings()):
        typer.echo(f"{name}: {remark}", err=True)


def start_server_again() -> None:
    """Start the Prefect server of a home that has a Prefect database, before a command does anything else, because the
    start takes longest. A new database is not made for a command that may fail."""
    settings = MachineSettings()
    if (server.home_folder(settings) / "prefect.db").exists() and not server.named():
        server.start(settings)


def _start_server() -> None:
    settings = MachineSettings()
    if not server.named():
        if not (server.home_folder(settings) / "prefect.db").exists():
            typer.echo("prefect: creating the database of this home", err=True)
        server.start(settings)


def in_flow(
    flow: str, recipe: str, run: Callable[[], Result], find: Callable[[], Result | None] = lambda: None
) -> Result:
    """Call `run`, which runs a flow, and return its result. The module of the flow is imported while the Prefect server
    starts. `find`: returns the result without a flow and without the server, or None if a stage is not finished."""
    typer.echo(f"{flow} of {recipe}, in {redact_url(MachineSettings().home)}", err=True)
    # until the flow handles the signal
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        if (finished := find()) is not None:
            return finished
        limits.check_run()
        context.check_executor(MachineSettings())
        _start_server()  # while Prefect is imported here
        return run()
    except (KeyboardInterrupt, SystemExit):
        typer.echo("gristmill: stopped. Finished work is kept. Run the same command to resume", err=True)
        raise
