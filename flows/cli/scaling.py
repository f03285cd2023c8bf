"""Commands about other sizes: scale, agreement, transfer."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import wrapt

from gristmill.flows.cli.app import Json, RecipeArgument
from gristmill.flows.cli.in_flow import in_flow, recipe_to_run
from gristmill.flows.cli.results import coordinate_lines, scaling_parts, sweep_lines
from gristmill.flows.cli.terminal import print_result, print_texts
from gristmill.flows.experiments.scaling import grid as grids
from gristmill.flows.machine.settings import MachineSettings, require
from gristmill.flows.recipe.proxy import load_proxy
from gristmill.flows.stages.judge import check_judges

if TYPE_CHECKING:
    from gristmill.flows.experiments import mixtures
    from gristmill.flows.experiments.scaling import scale as flow
    from gristmill.flows.experiments.scaling import transfer as transfer_check
    from gristmill.flows.recipe.recipe import Recipe
else:
    flow = wrapt.lazy_import("gristmill.flows.experiments.scaling.scale")
    transfer_check = wrapt.lazy_import("gristmill.flows.experiments.scaling.transfer")
    mixtures = wrapt.lazy_import("gristmill.flows.experiments.mixtures")


class Method(StrEnum):
    DOREMI = "doremi"
    REGMIX = "regmix"


Proxy = Annotated[str, typer.Option(metavar="FILE", help="the small model: a YAML file, or a shipped one")]
Clean = Annotated[
    str, typer.Option(metavar="PATH", help="texts to judge by: JSON lines, Parquet, a folder of .txt, or reference")
]
Judge = Annotated[
    list[str],
    typer.Option(metavar="SET", help="an evaluation set that counts: a source, clean, or extracted for all; likewise"),
]
Repeat = Annotated[bool, typer.Option("--repeat", help="a run may read documents more than once")]


def mix(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="a YAML file, or the name of a shipped recipe")],
    method: Annotated[
        Method,
        typer.Option(
            help="doremi: weights that a proxy learns while it trains; regmix: a regression over many proxies"
        ),
    ] = Method.REGMIX,
    out: Annotated[Path | None, typer.Option(help="the recipe to write; default: NAME-METHOD.yaml")] = None,
    proxy: Proxy = "small",
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
    clean: Clean = "",
    judge: Annotated[
        list[str], typer.Option(metavar="SET", help="regmix: a set that counts: a source, clean, or extracted for all")
    ] = [],  # noqa: B006
    eta: Annotated[
        float, typer.Option(help="doremi: step size of the weights; the paper's, for 200,000 steps: 1")
    ] = 0.1,
    smoothing: Annotated[float, typer.Option(help="doremi: share of uniform weights")] = 1e-3,
) -> None:
    """Writes the mixture as a recipe, if it is better than the usual ones by more than chance.

    gristmill decide mix recipe.yaml --method regmix --judge extracted"""
    recipe = recipe_to_run(name, None)
    to = out or Path(f"{recipe.name}-{method}.yaml")
    if to.exists():
        raise FileExistsError(f"{to} is there already: name another file by --out, or remove it")
    require("train", "looking for a mixture")

    if method is Method.REGMIX:
        check_judges(MachineSettings(), [recipe], clean or None, judge)

    others = seeds, keep or None, tokens, clean or None, judge, eta, smoothing
    mixture = in_flow("mix", recipe.name, lambda: mixtures.mix(recipe, str(method), proxy, runs, *others))
    print_texts([mixture.table])
    if mixture.refusal:
        print_texts([*mixture.found, f"no recipe is written: {mixture.refusal}"])
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    with open(to, "x", encoding="utf-8") as file:
        file.write(mixtures.written(mixture))
    options = ["--proxy", proxy, *(part for one in judge for part in ("--judge", one))]
    options += ["--clean", clean] if clean else []
    options += [] if clean or judge else ["--judge", "extracted"]  # what DoReMi looks at, too
    print_texts(
        [*mixture.found, *mixture.remarks(), f"wrote {to}. Test it:", f"  {mixtures.command(mixture, to, options)}"]
    )


def scale(
    name: RecipeArgument,
    sizes: Annotated[str, typer.Option(metavar="N,N,...", help="parameters, as 80k,150k,240k")],
    tokens: Annotated[str, typer.Option(metavar="N,N,...", help="of a run, as 100k,200k,400k")],
    most_flops: Annotated[
        float | None, typer.Option(help="leave out cells of the grid with more floating-point operations")
    ] = None,
    forecast: Annotated[
        list[str],
        typer.Option(
            metavar="N:D", help="forecast a run of N parameters on D tokens, then train it; may be given again"
        ),
    ] = [],  # noqa: B006
    budget: Annotated[
        list[float],
        typer.Option(help="operations whose best split between parameters and tokens is asked for; likewise"),
    ] = [],  # noqa: B006
    proxy: Proxy = "small",
    seeds: Annotated[int, typer.Option(min=1, help="runs of each cell")] = 1,
    rate_sweeps: Annotated[
        int, typer.Option(min=0, help="sizes at which half and twice the learning rate are tried, too")
    ] = 2,
    clean: Clean = "",
    judge: Judge = [],  # noqa: B006
    repeat: Repeat = False,
    plan: Annotated[bool, typer.Option("--plan", help="print what would be trained; do nothing")] = False,
    as_json: Json = False,
) -> None:
    """The law forecasts the loss at other sizes, with intervals. A forecast is registered in MLflow before its run is
    trained. Finished runs are reused."""
    require("train", "training a grid of models")

    options: dict[str, Any] = {
        "sizes": grids.numbers(sizes),
        "tokens": grids.numbers(tokens),
        "most_flops": most_flops,
        "forecasts": forecast,
        "budgets": budget,
        "proxy": proxy,
        "seeds": seeds,
        "rate_sweeps": rate_sweeps,
        "clean": clean or None,
        "judge": judge,
        "repeat": repeat,
    }
    recipe = recipe_to_run(name, None)
    if plan:
        _print_plan(recipe, options)
        return

    report = in_flow("scale", recipe.name, lambda: flow.scale(recipe, **options))
    print_result(report.as_json(), scaling_parts(report), as_json)


def agreement(
    base: RecipeArgument,
    sizes: Annotated[
        str,
        typer.Option(
            metavar="N,N,...", help="parameters, the smallest first; the largest are what the others are held against"
        ),
    ],
    tokens: Annotated[str, typer.Option(metavar="N,N,...", help="of a run at each size")],
    against: Annotated[list[str], typer.Option(metavar="RECIPE", help="another recipe; may be given again")] = [],  # noqa: B006
    setting: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="RECIPE with another value; likewise")
    ] = [],  # noqa: B006
    without: Annotated[list[str], typer.Option(metavar="STEP", help="RECIPE without a step; likewise")] = [],  # noqa: B006
    raw: Annotated[bool, typer.Option("--raw", help="raw extraction, without the steps behind it")] = False,
    proxy: Proxy = "small",
    seeds: Annotated[int, typer.Option(min=2, help="runs of each recipe at each size")] = 2,
    clean: Clean = "",
    judge: Judge = [],  # noqa: B006
    tasks: Annotated[
        str, typer.Option(metavar="PATH", help="a folder of tasks, or lm-eval:NAME,NAME, that are measures, too")
    ] = "",
    repeat: Repeat = False,
    as_json: Json = False,
) -> None:
    """Trains models of several sizes on several recipes, and compares their order at each size with that of the
    largest."""
    require("train", "comparing recipes")

    options: dict[str, Any] = {
        "sizes": grids.numbers(sizes),
        "tokens": grids.numbers(tokens),
        "against": against,
        "settings": setting,
        "without": without,
        "raw": raw,
        "proxy": proxy,
        "seeds": seeds,
        "clean": clean or None,
        "judge": judge,
        "tasks": tasks or None,
        "repeat": repeat,
    }
    recipe = recipe_to_run(base, None)

    report = in_flow("agreement", recipe.name, lambda: flow.agreement(recipe, **options))
    print_result(report.as_json(), (report.sentence, *report.tables()), as_json)


def transfer(
    widths: Annotated[str, typer.Option(metavar="N,N,...", help="model.dim of each size, the base's first")] = "64,256",
    layers: Annotated[str, typer.Option(metavar="N,N,...", help="model.layers of each size; likewise")] = "4",
    rule: Annotated[
        list[str],
        typer.Option(metavar="RULE", help="standard, mup (for widths) or completep (for layers, too); may be repeated"),
    ] = ["standard", "mup"],  # noqa: B006
    rate: Annotated[
        float, typer.Option(min=1e-9, help="the middle of the learning rates, each twice the last")
    ] = 0.016,
    rates: Annotated[int, typer.Option(min=1, help="how many of them")] = 5,
    seeds: Annotated[int, typer.Option(min=1, help="runs of each size at each rate")] = 3,
    steps: Annotated[int, typer.Option(min=10, help="of each run")] = 60,
    batch: Annotated[int, typer.Option(min=1, help="sequences of a step")] = 8,
    seq_len: Annotated[int, typer.Option("--seq-len", min=4, help="tokens of a sequence")] = 32,
    optimizer: Annotated[str, typer.Option(help="adamw or muon")] = "adamw",
    mixture: Annotated[
        str, typer.Option(metavar="FILE", help="mixture.json of a finished run's tokens; without it synthetic ones")
    ] = "",
    look: Annotated[bool, typer.Option("--look", help="the coordinate check alone, at --rate: seconds")] = False,
) -> None:
    """Trains small models at several rates for a short while.

    First the coordinate check: how far four updates move the residual stream and the logits at each size. Where that
    grows with the size (a slope above 0), a rate is too large for larger models, and the best one falls. Then each size
    is trained at each rate: with `standard` the best one moves, with `mup` or `completep` it should stay within a step.
    The sizes are all pairs of --widths and --layers; the first is the base, which all rules train alike. To use it,
    sweep the rate at the base, and give it to the large model with `training.parametrization: {rule: mup, base_dim:
    64}`.

    gristmill decide transfer --look                                                   widths 64 and 256, a minute

    gristmill decide transfer --widths 64,512 --rule mup                                 does mup hold over widths?

    gristmill decide transfer --widths 64 --layers 4,16 --rule standard --rule completep    over depths?"""
    require("train", "training models of several sizes")

    sizes = [transfer_check.Size(dim, depth) for dim in grids.numbers(widths) for depth in grids.numbers(layers)]
    check = transfer_check.Check(
        sizes, transfer_check.rates_around(rate, rates), seeds, steps, batch, seq_len,
        optimizer=optimizer, mixture=Path(mixture) if mixture else None,
    )  # fmt: skip
    for each in rule:
        print_texts(coordinate_lines(transfer_check.coordinates(check, each, rate)))
    for each in rule if not look else []:
        print_texts(sweep_lines(transfer_check.sweep(check, each)))


def _print_plan(recipe: "Recipe", options: dict[str, Any]) -> None:
    small = load_proxy(options["proxy"])
    cells = grids.grid(small, options["sizes"], options["tokens"], options["most_flops"])
    targets = [grids.forecast_cell(small, text) for text in options["forecasts"]]
    swept = transfer_check.swept_cells(cells, options["rate_sweeps"])
    print_texts(grids.plan(small, cells, targets, options["seeds"], swept))
    try:
        judged = check_judges(MachineSettings(), [recipe], options["clean"], options["judge"])
    except ValueError as error:
        last = f"none of this can be trained yet: {error}"
    else:
        last = f"judged by {', '.join(judged)}"
    print_texts([last])
