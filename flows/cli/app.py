"""The application that commands are added to, and what they have in common."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from gristmill.flows.machine.settings import MachineSettings
    from gristmill.flows.recipe.recipe import Recipe

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="Web crawls in, a trained language model out, and a reason for every document that was dropped.\n\n"
    "Where things are kept and how many workers there are is set in the environment: GRISTMILL_HOME (default "
    ".gristmill), GRISTMILL_EXECUTOR (serial, threads, local, dask, kubernetes, slurm), GRISTMILL_WORKERS, "
    "GRISTMILL_DASK_ADDRESS, GRISTMILL_DASK_TLS_CA, _CERT and _KEY, GRISTMILL_CLUSTER, GRISTMILL_LOG_FORMAT (text, "
    "json), GRISTMILL_MEMORY, GRISTMILL_LOCAL, GRISTMILL_REMOTE_IO__..., GRISTMILL_STEPS, GRISTMILL_MLFLOW_URI, "
    "GRISTMILL_REDIS, GRISTMILL_TRAINING_...; "
    "PREFECT_API_URL names a Prefect server.",
)


# The groups of the commands in --help, in this order.
MAKE = "Make: a corpus, tokens, a model"
DECIDE = "Decide: between recipes, mixtures, thresholds, sizes"
LOOK = "Look: at what was made, and why"
HAND_OVER = "Hand over: documents, models, filters, tokens"
SERVE = "Serve: this machine and its runs"


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"gristmill {version('gristmill')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version, and end")
    ] = False,
) -> None:
    """Options of the program itself."""


Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help="read the first so many documents of each source only, to try")
]
FinishedRecipe = Annotated[
    str, typer.Argument(metavar="RECIPE", help="as for `run`, which must have finished what is asked for")
]
ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|FOLDER",
        help="a recipe whose training is finished; or the local folder of a training run, a checkpoint, an export",
    ),
]


def settings() -> "MachineSettings":
    """The settings of this machine, from the environment."""
    from gristmill.flows.machine.settings import MachineSettings

    return MachineSettings()


def recipe_to_run(name: str, limit: int | None) -> "Recipe":
    """A recipe that is checked, before the libraries of the work are imported. Raises RecipeError."""
    from gristmill.flows.check.run import before_run
    from gristmill.flows.recipe.errors import RecipeError
    from gristmill.flows.recipe.recipe import load

    recipe = load(name)
    if limit is not None:
        recipe = recipe.model_copy(update={"limit": limit})
    try:
        before_run(recipe, settings())
    except RecipeError:
        from gristmill.flows.reports.finished import check_run

        check_run(recipe, settings())  # where files are gone, the home may have what was made of them
    return recipe


def print_json(value: Any) -> None:
    """Print a value that reports return, as JSON."""
    from pydantic_core import to_json

    typer.echo(to_json(value, indent=2).decode())


def console() -> "Console":
    """The standard output."""
    from gristmill.flows.cli import terminal

    return terminal.console()


def print_texts(texts: "Iterable[RenderableType]") -> None:
    """Print texts as they are: without markup, colours of numbers, or new line ends."""
    out = console()
    for text in texts:
        out.print(text, markup=False, highlight=False, soft_wrap=True)
