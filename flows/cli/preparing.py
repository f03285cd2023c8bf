"""Commands for before a run: write a first recipe, validate one, and estimate what it costs."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt

from gristmill.flows.cli.app import FinishedRecipe, Json, RecipeArgument
from gristmill.flows.cli.options import with_options
from gristmill.flows.cli.results import capacity_lines
from gristmill.flows.cli.terminal import json_text, print_result, print_texts
from gristmill.flows.experiments.options import CrawlOptions, PlanOptions
from gristmill.flows.machine.runs import runs_of
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.machine.wrong_values import listed
from gristmill.flows.recipe import check as checking
from gristmill.flows.recipe import reference
from gristmill.flows.recipe.errors import MAX_FINDINGS
from gristmill.flows.recipe.recipe import RECIPES, load, shipped_names
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

_MAX_SKIPPED = 10
_DROP_CHARACTERS = 80  # of a dropped document
_NAMES = {"pages": "PDF", "code": "code"}  # of kinds of files; others have the name of their key


def init(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FOLDER|FILE...|NAME",
            help="WARC, ARC, WET, Parquet, JSON Lines, text, PDF, archives of code, or name of a shipped recipe",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="recipe to write; must not exist")] = Path("recipe.yaml"),
    name: Annotated[str, typer.Option(help="name of the recipe; default: name of the first source")] = "",
) -> None:
    """Tries the steps on up to 200 documents per source and prints ten dropped ones.
    The name of a shipped recipe copies it.

    Guide: docs/guides/sources.md

    Examples:
        gristmill recipe init crawl
        gristmill recipe init fineweb --out fineweb.yaml
    """
    if out.exists():
        raise FileExistsError(f"{out} exists. Choose another file with --out, or delete {out}")
    if len(paths) == 1 and paths[0] in shipped_names() and not Path(paths[0]).exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        with open(out, "x", encoding="utf-8") as copy:
            copy.write((RECIPES / f"{paths[0]}.yaml").read_text(encoding="utf-8"))
        print_texts([f"wrote {out}, the shipped recipe {paths[0]}. Set its sources. Next:", _check_line(out)])
        return

    draft = first_recipes.first_recipe(paths, name, str(out.parent))
    typer.echo("init: trying the steps on the first documents of each source", err=True)
    kept = 0
    try:
        draft, kept, lines = _try_on_sample(draft)
    except corpora.NothingLeftError as error:  # a run reports the same
        lines = [f"sample: {error}"]
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(out, "x", encoding="utf-8") as recipe:
        recipe.write(draft.text)
    print_texts(printable(line) for line in [*_lines(draft), *lines, *_next_lines(draft, out, kept)])


def _try_on_sample(draft: "FirstRecipe") -> "tuple[FirstRecipe, int, list[str]]":
    """Return the recipe with the threshold that fits its documents, how many of a sample it keeps, and lines about the
    sample."""
    result = trials.trial(draft.recipe)
    if not result.is_punctuation_counted:
        return draft, result.kept, [*trial_lines(result)]
    dropped = f"{result.near_alpha_words:,} more of {result.documents:,} sampled documents"
    comment = f"Gopher's 0.8, which counts punctuation as words, would drop {dropped}"
    loosened = draft.with_setting("gopher_quality", "min_alpha_words", trials.LOOSER_ALPHA_WORDS, comment)
    chosen = f"set gopher_quality.min_alpha_words: {trials.LOOSER_ALPHA_WORDS:g}, because {comment}"
    again = trials.trial(loosened.recipe)
    return loosened, again.kept, [chosen, *trial_lines(again)]


def trial_lines(result: "Trial") -> "Iterator[str]":
    """Yield the number of kept documents of a sample, and a line for each example of a dropped document."""
    yield f"sample: the steps keep {result.kept:,} of {result.documents:,} documents"
    if result.drops:
        yield f"{len(result.drops)} of the dropped documents:"
    for one in result.drops:
        row = one.row
        value = f" {row['value']:.3g} (threshold {row['threshold']:g})" if row.get("threshold") is not None else ""
        detail = f" {row['detail']}" if row.get("detail") and not value else ""
        detail += ", counts punctuation as words" if row["rule"] == trials.ALPHA_WORDS else ""
        beginning = " ".join((one.text or row.get("url") or "").split())[:_DROP_CHARACTERS]
        yield f"  {row['step']}.{row['rule']}{value}{detail}: {beginning}"


def schema(
    to: Annotated[Path | None, typer.Option(metavar="FILE", help="file to write; default: standard output")] = None,
) -> None:
    """Editors use it to complete and validate recipes. It has types, defaults, bounds and examples, also of your own
    steps.

    Reference: docs/reference/recipe.md

    Examples:
        gristmill recipe schema
        gristmill recipe schema --to recipe.schema.json
    """
    text = json_text(reference.schema()) + "\n"
    if to is None:
        typer.echo(text, nl=False)
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(text, encoding="utf-8")
    first_line = f"# yaml-language-server: $schema={to.name}"
    print_texts([f"wrote {to}. Add this as the first line of a recipe in the same folder:", first_line])


def _lines(recipe: "FirstRecipe") -> list[str]:
    lines = []
    for source in recipe.sources:
        columns = ", ".join(f"{what} in `{column}`" for what, column in source.columns.items())
        kind, plural = _NAMES.get(source.kind, source.kind), "s" * (source.files != 1)
        what = f"{source.files:,} {kind} file{plural}, {source.bytes / 1e6:,.1f} MB"
        others = f"; ignored: {', '.join(source.others)}" if source.others else ""
        lines.append(f"{source.entry['name']}: {what}{f'; {columns}' if columns else ''}{others}")
    counts = first_recipes.sampled(recipe.sources)
    languages = ", ".join(f"{code} {count}" for code, count in recipe.languages.items()) or "none detected"
    if counts["documents"]:
        sample = f"{counts['documents']:,} documents at the beginning of files, {counts['pages']:,} of them HTML"
        lines.append(f"sample: {sample}; languages: {languages}")
    lines += [f"skipped: {path}: {reason}" for path, reason in recipe.passed_over[:_MAX_SKIPPED]]
    if (more := len(recipe.passed_over) - _MAX_SKIPPED) > 0:
        lines.append(f"skipped: {more:,} more files")
    return lines


def _check_line(out: Path) -> str:
    return f"  gristmill check {shlex.quote(f'{out}')}"


def _next_lines(recipe: "FirstRecipe", out: Path, kept: int) -> list[str]:
    typed = shlex.quote(f"{out}")
    if not kept:
        return [
            f"wrote {out}, which keeps none of the sample: loosen the thresholds above in it, then:",
            _check_line(out),
        ]
    return [
        f"wrote {out}. Next:",
        f"  gristmill corpus {typed}",
        f"  gristmill export documents {typed} --to {recipe.name}-documents",
    ]


def check(
    name: RecipeArgument,
    deep: Annotated[bool, typer.Option("--deep", help="also remote files, and custom steps")] = False,
    as_json: Json = False,
) -> None:
    """Prints one line per problem: unknown keys, conflicting settings, missing files, too little disk space. Exits with
    1 if there is a problem.

    Examples:
        gristmill check recipe.yaml
        gristmill check recipe.yaml --deep
    """
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
        yield f"not checked: {listed(result.unseen)}. Add --deep to check"
    made = None if result.findings else _would_make(name)
    if result.estimate is not None and (made is None or made.makes_something):  # it is of a run that reuses nothing
        yield result.estimate.sentence
    if not result.findings:
        yield f"{name}: no problems"
        yield from made.sentences() if made is not None else ()


def _would_make(name: str) -> "recorded.WouldMake | None":
    """Return which stages a run would make. None for a home without runs of the recipe, so that a first check does not
    import the libraries."""
    recipe = load(name)
    if not runs_of(MachineSettings().home, recipe.name):
        return None
    return recorded.would_make(recipe, MachineSettings())


@with_options
def capacity(name: FinishedRecipe, crawl: CrawlOptions, as_json: Json = False) -> None:
    """Prints hours, memory, bytes and money as ranges, with the measurements that they are based on.

    Guide: docs/guides/estimate-cost.md

    Examples:
        gristmill decide capacity recipe.yaml --machines 100 --cores 64
        gristmill decide capacity recipe.yaml --cores 640 --core-hour 0.04
    """
    result = crawl_capacity.capacity(finished.finished(name), crawl, name)
    print_result(result.as_json(), [result.table, *capacity_lines(result)], as_json)


@with_options
def plan(
    name: RecipeArgument,
    options: PlanOptions,
    write: Annotated[bool, typer.Option("--write", help="best layout, written to the recipe's file")] = False,
    page: Annotated[bool, typer.Option("--page", help="HTML page with plots")] = False,
    as_json: Json = False,
) -> None:
    """Lists the layouts that fit the GPUs, fastest first. Needs no GPU. If the corpus is finished, also estimates the
    cost of the whole crawl.

    Guide: docs/guides/plan-a-training.md

    Examples:
        gristmill decide plan recipe.yaml --device h100 --devices 64 --price 2.5
        gristmill decide plan recipe.yaml --devices 64 --machines 100 --cores 64
    """
    require("train", "counting a model's parameters")

    result = training_plan.plan(name, **vars(options))
    tables = plan_page.layouts(result), plan_page.laws(result)
    print_result(result.as_json(), (*tables, *plan_page.lines(result)), as_json)
    if page:
        print_texts([plan_page.write(result, MachineSettings().home)])
    if write:
        _write_settings(name, result.settings())


def _write_settings(name: str, values: "Mapping[str, Value]") -> None:
    """Write settings of `training` into a recipe's file. Raises ValueError for a shipped recipe, with the settings to
    copy."""
    path = Path(name)
    block = "\n".join(["training:", *(f"  {key}: {value}" for key, value in values.items())])
    if not path.is_file():
        raise ValueError(f"--write: {name} is a shipped recipe. Copy it to a file, and add\n{block}")
    path.write_text(edited(path.read_text(encoding="utf-8"), "training", values), encoding="utf-8")
    print_texts([f"wrote into {name}:", block])
