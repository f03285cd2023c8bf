"""Commands that run something: demo, run, corpus, tokens, pretrain, harvest."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.app import app, console, settings

if TYPE_CHECKING:
    from flows.recipe import Recipe


@app.command()
def demo() -> None:
    """Harvest the documentation of the installed packages as WARC files and run the recipe `demo` on them."""
    _harvest(_default_folder())
    run_flow("pipeline", load_recipe("demo"))


RecipeArgument = Annotated[str, typer.Argument(metavar="RECIPE", help="a YAML file, or the name of a shipped recipe")]


@app.command()
def run(name: RecipeArgument) -> None:
    """Run a recipe from its WARC files to a trained model. What is finished already is reused.

    The files of a recipe's sources may be paths, globs, https:// or s3:// addresses, or lists such as Common
    Crawl's warc.paths.gz.
    """
    run_flow("pipeline", load_recipe(name))


@app.command()
def corpus(name: RecipeArgument) -> None:
    """Make a recipe's curated documents, and their export if it names one. It needs no mixture, model or training."""
    run_flow("corpus", load_recipe(name))


@app.command()
def tokens(name: RecipeArgument) -> None:
    """Make a recipe's token shards and the plan of their mixture, and all that comes before them."""
    run_flow("tokens", load_recipe(name))


@app.command()
def pretrain(name: RecipeArgument) -> None:
    """Train a recipe's model, and make all that comes before it."""
    run_flow("pretrain", load_recipe(name))


@app.command()
def harvest(
    out: Annotated[Path | None, typer.Argument(help="folder to write; default: harvest in the home")] = None,
) -> None:
    """Write the documentation of the installed packages as WARC 1.1 files: a crawl that needs no network."""
    _harvest(out or _default_folder())


def load_recipe(name: str) -> "Recipe":
    from flows.recipe import load

    return load(name)


def run_flow(flow: str, recipe: "Recipe") -> None:
    """Run one of the flows, and print what it made. A recipe that it cannot use is an error before Prefect starts."""
    if flow != "corpus":
        recipe.training_mixture()

    from flows import pipeline
    from flows.cli.render_run import print_report

    print_report(getattr(pipeline, flow)(recipe), console())


def _default_folder() -> Path:
    return Path(settings().local_folder) / "harvest"


def _harvest(out: Path) -> None:
    from flows import demo as harvesting
    from flows.progress_bar import progress_bar

    with progress_bar() as bar:
        task = bar.add_task(f"harvesting the installed documentation into {out}", total=None)
        report = harvesting.harvest(out, progress=lambda done, total: bar.update(task, completed=done, total=total))
    console().print(f"harvest: {report.pages:,} pages in {out}", highlight=False)
