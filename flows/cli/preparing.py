"""Before a run: a first recipe, what is wrong with one, and what it would take."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt

from gristmill.flows.cli.app import FinishedRecipe, Json
from gristmill.flows.cli.options import with_options
from gristmill.flows.cli.results import capacity_lines
from gristmill.flows.cli.terminal import json_text, print_result, print_texts
from gristmill.flows.experiments.planning.options import CrawlOptions, PlanOptions
from gristmill.flows.machine.runs import runs_of
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.machine.wrong_values import listed
from gristmill.flows.recipe import check as checking
from gristmill.flows.recipe import reference
from gristmill.flows.recipe.errors import MAX_FINDINGS
from gristmill.flows.recipe.recipe import load
from gristmill.flows.recipe.settings_file import edited
from gristmill.storage.printable import printable
from gristmill.tasks.engine.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gristmill.flows.experiments.planning import capacity as crawl_capacity
    from gristmill.flows.experiments.planning import page as plan_page
    from gristmill.flows.experiments.planning import plan as training_plan
    from gristmill.flows.recipe import first_recipe as first_recipes
    from gristmill.flows.recipe.first_recipe import FirstRecipe
    from gristmill.flows.recipe.settings_file import Value
    from gristmill.flows.reports import finished, recorded
    from gristmill.flows.reports.run import trial as trials
    from gristmill.flows.reports.run.trial import Trial
    from gristmill.flows.stages import corpus as corpora
else:
    corpora = wrapt.lazy_import("gristmill.flows.stages.corpus")
    trials = wrapt.lazy_import("gristmill.flows.reports.run.trial")
    plan_page = wrapt.lazy_import("gristmill.flows.experiments.planning.page")
    training_plan = wrapt.lazy_import("gristmill.flows.experiments.planning.plan")
    first_recipes = wrapt.lazy_import("gristmill.flows.recipe.first_recipe")
    crawl_capacity = wrapt.lazy_import("gristmill.flows.experiments.planning.capacity")
    finished = wrapt.lazy_import("gristmill.flows.reports.finished")
    recorded = wrapt.lazy_import("gristmill.flows.reports.recorded")

_MAX_PASSED_OVER = 10
_DROP_CHARACTERS = 80  # of a dropped document
_NAMES = {"pages": "PDF", "code": "code"}  # of kinds of files; others have the name of their key


def init(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FOLDER|FILE...", help="WARC, ARC, WET, Parquet, lines of JSON, text, PDF, or archives of code"
        ),
    ],
    out: Annotated[Path, typer.Option(help="the recipe to write; it must not be there")] = Path("recipe.yaml"),
    name: Annotated[str, typer.Option(help="of the recipe; default: that of the first source")] = "",
) -> None:
    """Looks at the files to find their format, columns and languages. Then runs the steps on up to 200 documents of
    each source, chooses a threshold that depends on punctuation, and prints ten documents that the recipe would drop.

    gristmill recipe init pages/*.warc.gz --out recipe.yaml"""
    if out.exists():
        raise FileExistsError(f"{out} exists. Choose another file with --out, or remove it")

    draft = first_recipes.first_recipe(paths, name, str(out.parent))
    typer.echo("init: running the steps on the first documents of each source", err=True)
    try:
        draft, shown = _try_on_sample(draft)
    except corpora.NothingLeftError as error:  # nothing to look at; a run reports the same
        shown = [f"sample: {error}"]
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(out, "x", encoding="utf-8") as recipe:
        recipe.write(draft.text)
    print_texts(printable(line) for line in [*_lines(draft), *shown, *_next_lines(draft, out)])


def _try_on_sample(draft: "FirstRecipe") -> "tuple[FirstRecipe, list[str]]":
    """The recipe with the threshold that fits its documents, and lines about what its steps do to a sample."""
    result = trials.trial(draft.recipe)
    if not result.is_punctuation_counted:
        return draft, [*trial_lines(result)]
    dropped = f"{result.near_alpha_words:,} of {result.documents:,} sampled documents"
    comment = f"Gopher's 0.8 counts punctuation as words, and drops {dropped}"
    loosened = draft.with_setting("gopher_quality", "min_alpha_words", trials.LOOSER_ALPHA_WORDS, comment)
    chosen = f"chosen: gopher_quality.min_alpha_words {trials.LOOSER_ALPHA_WORDS:g}, since {comment}"
    return loosened, [chosen, *trial_lines(trials.trial(loosened.recipe))]


def trial_lines(result: "Trial") -> "Iterator[str]":
    """What the steps keep of a sample, and a line for each dropped document that is shown."""
    yield f"steps on a sample: {result.kept:,} of {result.documents:,} documents kept"
    if result.drops:
        yield f"{len(result.drops)} of the documents that they drop:"
    for one in result.drops:
        row = one.row
        value = f" {row['value']:.3g} (threshold {row['threshold']:g})" if row.get("threshold") is not None else ""
        detail = f" {row['detail']}" if row.get("detail") and not value else ""
        detail += ", counts punctuation as words" if row["rule"] == trials.ALPHA_WORDS else ""
        beginning = " ".join((one.text or row.get("url") or "").split())[:_DROP_CHARACTERS]
        yield f"  {row['step']}.{row['rule']}{value}{detail}: {beginning}"


def schema(
    to: Annotated[Path | None, typer.Option(help="the file to write; default: the terminal")] = None,
    page: Annotated[bool, typer.Option("--page", help="the keys as a page of Markdown, in place of a schema")] = False,
) -> None:
    """Each key has its type, default, bounds and an example. Editors complete and check recipes with it. Your own steps
    are in it."""
    text = reference.page() if page else json_text(reference.schema()) + "\n"
    if to is None:
        typer.echo(text, nl=False)
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(text, encoding="utf-8")
    if not page:
        print_texts([f"wrote {to}. First line of a recipe beside it:", f"# yaml-language-server: $schema={to.name}"])


def _lines(recipe: "FirstRecipe") -> list[str]:
    lines = []
    for source in recipe.sources:
        columns = ", ".join(f"{what} in `{column}`" for what, column in source.columns.items())
        kind, plural = _NAMES.get(source.kind, source.kind), "s" * (source.files != 1)
        what = f"{source.files:,} {kind} file{plural}, {source.bytes / 1e6:,.1f} MB"
        others = f"; not taken: {', '.join(source.others)}" if source.others else ""
        lines.append(f"{source.entry['name']}: {what}{f'; {columns}' if columns else ''}{others}")
    counts = first_recipes.sampled(recipe.sources)
    languages = ", ".join(f"{code} {count}" for code, count in recipe.languages.items()) or "none recognised"
    if counts["documents"]:
        sample = f"{counts['documents']:,} documents, {counts['pages']:,} of them HTML"
        lines.append(f"sample: {sample}; languages: {languages}")
    lines += [f"passed over: {path}: {reason}" for path, reason in recipe.passed_over[:_MAX_PASSED_OVER]]
    if (more := len(recipe.passed_over) - _MAX_PASSED_OVER) > 0:
        lines.append(f"passed over: {more:,} more files")
    return lines


def _next_lines(recipe: "FirstRecipe", out: Path) -> list[str]:
    typed = shlex.quote(f"{out}")
    return [
        f"wrote {out}. Next:",
        f"  gristmill corpus {typed}",
        f"  gristmill export documents {typed} --to {recipe.name}-documents",
    ]


def check(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="a YAML file, or the name of a shipped recipe")],
    deep: Annotated[bool, typer.Option("--deep", help="ask for remote files, and import steps of your own")] = False,
    as_json: Json = False,
) -> None:
    """Prints a line for each problem: unknown keys, settings that exclude each other, missing files, a home without
    room. Exits with 1 if there is one.

    gristmill check recipe.yaml --deep"""
    result = checking.check(name, MachineSettings(), deep)
    print_result(result, _check_lines(name, result), as_json)
    if result.findings:
        raise typer.Exit(1)


def _check_lines(name: str, result: checking.Checked) -> "Iterator[str]":
    yield from map(str, result.findings)
    yield from (f"{name}: {remark}" for remark in result.remarks[:MAX_FINDINGS])
    if (more := len(result.remarks) - MAX_FINDINGS) > 0:
        yield f"{name}: {more:,} more remarks"
    if result.unseen:
        yield f"not looked at without --deep: {listed(result.unseen)}"
    if result.estimate is not None:
        yield result.estimate.sentence
    if not result.findings:
        yield f"{name}: nothing is wrong"
        yield from _would_make(name)


def _would_make(name: str) -> list[str]:
    """What a run would make, where the home has runs of the recipe; a first check does without its libraries."""
    recipe = load(name)
    if not runs_of(MachineSettings().home, recipe.name):
        return []

    return recorded.would_make(recipe, MachineSettings()).sentences()


@with_options
def capacity(name: FinishedRecipe, crawl: CrawlOptions, as_json: Json = False) -> None:
    """Prints hours and what limits them, memory, bytes and money, as ranges with what they rest on.

    What the run's jobs do not say is not printed; the command that measures it is.

    gristmill decide capacity recipe.yaml --machines 100 --cores 64 --core-hour 0.04"""
    result = crawl_capacity.capacity(finished.finished(name), crawl, name)
    print_result(result.as_json(), [result.table, *capacity_lines(result)], as_json)


@with_options
def plan(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="a YAML file, or the name of a shipped recipe")],
    options: PlanOptions,
    write: Annotated[bool, typer.Option("--write", help="set the best layout in the recipe's file")] = False,
    page: Annotated[bool, typer.Option("--page", help="write a page with plots, and print its path")] = False,
    as_json: Json = False,
) -> None:
    """
    Trains nothing, and needs no GPU. The layouts that fit so many GPUs are listed, the fastest first. Where the corpus
    of the recipe is finished, what the whole crawl would take is in the bill, as `decide capacity` has it.

    gristmill decide plan recipe.yaml --device h100 --devices 64 --price 2.5

    gristmill decide plan recipe.yaml --devices 64 --price 2.5 --machines 100 --cores 64 --core-hour 0.04   crawl to
    model"""
    require("train", "counting a model's parameters")

    result = training_plan.plan(name, **vars(options))
    tables = plan_page.layouts(result), plan_page.laws(result)
    print_result(result.as_json(), (*tables, *plan_page.lines(result)), as_json)
    if page:
        print_texts([plan_page.write(result, MachineSettings().home)])
    if write:
        _write_settings(name, result.settings())


def _write_settings(name: str, values: "Mapping[str, Value]") -> None:
    """Put settings of `training` into a recipe's own file. Raises ValueError for a recipe that ships, with the settings
    to copy."""
    path = Path(name)
    block = "\n".join(["training:", *(f"  {key}: {value}" for key, value in values.items())])
    if not path.is_file():
        raise ValueError(f"--write: {name} is no file of yours; copy the recipe, and give it\n{block}")
    path.write_text(edited(path.read_text(encoding="utf-8"), "training", values), encoding="utf-8")
    print_texts([f"wrote into {name}:", block])
