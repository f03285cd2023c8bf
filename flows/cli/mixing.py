"""The command that looks for a mixture: mix."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt
from rich.table import Table

from gristmill.flows.cli.in_flow import in_flow, recipe_to_run
from gristmill.flows.cli.terminal import console, print_texts
from gristmill.flows.machine.settings import MachineSettings, require
from gristmill.flows.stages.evaluation.judge import check_judges

if TYPE_CHECKING:
    from rich.table import Table

    from gristmill.flows.experiments.mixing import mix as mixture_flow
    from gristmill.flows.experiments.mixing import mixed_recipe
    from gristmill.flows.experiments.mixing.mixed_recipe import FoundMixture
else:
    mixture_flow = wrapt.lazy_import("gristmill.flows.experiments.mixing.mix")
    mixed_recipe = wrapt.lazy_import("gristmill.flows.experiments.mixing.mixed_recipe")


class Method(StrEnum):
    DOREMI = "doremi"
    REGMIX = "regmix"


def mix(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="a YAML file, or the name of a shipped recipe")],
    method: Annotated[
        Method,
        typer.Option(
            help="doremi: weights that a proxy learns while it trains; regmix: a regression over many proxies"
        ),
    ] = Method.REGMIX,
    out: Annotated[Path | None, typer.Option(help="the recipe to write; default: NAME-METHOD.yaml")] = None,
    proxy: Annotated[
        str, typer.Option(metavar="FILE", help="the small model: a YAML file, or a shipped one")
    ] = "small",
    runs: Annotated[
        int | None, typer.Option(min=1, help="seeds of doremi (default 3), mixtures of regmix (default 32)")
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=2, help="regmix: runs of each mixture, and new runs of the one that is found")
    ] = 2,
    keep: Annotated[
        str,
        typer.Option(
            metavar="RECIPE",
            help="regmix: one that `mix` wrote before sources were added or changed: those that it has keep their "
            "weights beside each other, and few runs find the share of the others",
        ),
    ] = "",
    tokens: Annotated[int | None, typer.Option(min=1, help="of a run; default: the proxy's")] = None,
    clean: Annotated[
        str, typer.Option(metavar="PATH", help="texts to judge by: JSON lines, Parquet, a folder of .txt, or reference")
    ] = "",
    judge: Annotated[
        list[str], typer.Option(metavar="SET", help="regmix: a set that counts: a source, clean, or extracted for all")
    ] = [],  # noqa: B006
    eta: Annotated[
        float, typer.Option(help="doremi: step size of the weights; the paper's, for 200,000 steps: 1")
    ] = 0.1,
    smoothing: Annotated[float, typer.Option(help="doremi: share of uniform weights")] = 1e-3,
) -> None:
    recipe = recipe_to_run(name, None)
    to = out or Path(f"{recipe.name}-{method}.yaml")
    if to.exists():
        raise FileExistsError(f"{to} is there already: name another file by --out, or remove it")
    require("train", "looking for a mixture")

    if method is Method.REGMIX:
        check_judges(MachineSettings(), [recipe], clean or None, judge)

    others = seeds, keep or None, tokens, clean or None, judge, eta, smoothing
    found = in_flow("mix", recipe.name, lambda: mixture_flow.mix(recipe, str(method), proxy, runs, *others))
    console().print(mixture_table(found))
    if found.refusal:
        print_texts([*found.found, f"no recipe is written: {found.refusal}"])
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    with open(to, "x", encoding="utf-8") as file:
        file.write(mixed_recipe.written(found))
    options = ["--proxy", proxy, *(part for one in judge for part in ("--judge", one))]
    options += ["--clean", clean] if clean else []
    options += [] if clean or judge else ["--judge", "extracted"]  # what DoReMi looks at, too
    print_texts(
        [*found.found, *found.remarks(), f"wrote {to}. Test it:", f"  {mixed_recipe.command(found, to, options)}"]
    )


def mixture_table(found: "FoundMixture") -> "Table":
    """A row a source."""
    table = Table(title=f"mixture of {found.recipe.name} by {found.method}")
    for column in ("source", "weight", found.interval, "uniform", "by tokens", "tokens", "epochs", "share taken"):
        table.add_column(column, justify="left" if column == "source" else "right")
    for one in found.sources:
        table.add_row(
            one.name,
            f"{one.weight:.3f}",
            f"{one.low:.3f} to {one.high:.3f}",
            f"{one.uniform:.3f}",
            f"{one.proportional:.3f}",
            f"{one.tokens:,}",
            f"{one.epochs:.2f}",
            f"{one.share:.3f}",
        )
    return table
