"""The models and runs of `scale` and `agreement`: shapes by size, learning rates by compute, and the plans.

Commands and flows make a plan before any work: it validates the options and lists the runs. Some sizes are also trained
at other learning rates (a sweep), to check the rule for the rate.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import wrapt

from gristmill.flows.experiments.decisions.arm_settings import check_data
from gristmill.flows.experiments.decisions.device import Device, time_sentence
from gristmill.flows.experiments.decisions.plan import Arms, arms
from gristmill.flows.experiments.decisions.tasks import task_sets, tasks_folder
from gristmill.flows.experiments.options import AgreementOptions, ScaleOptions, number
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import before_run
from gristmill.flows.recipe.proxy import ProxyConfig, load_proxy
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.evaluation.judge import check_judges
from gristmill.flows.stats.law import ScalingRuns
from gristmill.training.model_config import ModelConfig

if TYPE_CHECKING:
    from gristmill.training import decoder
else:
    decoder = wrapt.lazy_import("gristmill.training.decoder")

# The best learning rate falls with the compute to this power: DeepSeek LLM, arXiv 2401.02954, equation 1. Their batch
# grows with compute; here it is the proxy's, which asks for a rate that falls faster, if anything.
RATE_POWER = -0.125


@dataclass(frozen=True)
class ScaledModel:
    """A shape of the proxy's model at another size. `parameters`: all of them, embeddings included, tied ones once;
    `non_embedding`: those outside of embedding and output projection; `flops_per_token`: of training on one token, see
    `gristmill.training.decoder.flops_per_token`."""

    model: ModelConfig
    parameters: int
    non_embedding: int
    flops_per_token: int


@dataclass(frozen=True)
class Cell:
    """A model and a token budget; its runs differ only in their seeds."""

    size: ScaledModel
    tokens: int
    learning_rate: float

    @property
    def flops(self) -> float:
        return float(self.size.flops_per_token) * self.tokens


def scaled_model(proxy: ProxyConfig, parameters: int) -> ScaledModel:
    """The shape whose count is nearest to `parameters`, on a logarithmic scale.

    Heads stay as wide as the proxy's; their number, and with it the width, grows by one at a time. Layers are in
    proportion to the width, rounded, as are kv_heads and ffn where the proxy gives them. Raises ValueError where the
    smallest such model has more than twice as many parameters, because of its embeddings.
    """
    heads, best = 1, _shape(proxy, 1)
    while best.parameters < parameters:
        heads += 1
        wider = _shape(proxy, heads)
        if wider.parameters >= parameters:
            # the nearer one by ratio
            return wider if wider.parameters * best.parameters < parameters**2 else best
        best = wider
    if best.parameters > 2 * parameters:
        raise ValueError(
            f"a model of {parameters:,} parameters is too small: with a vocabulary of {proxy.vocab_size:,} "
            f"and heads as wide as in the proxy {proxy.name}, the smallest model has {best.parameters:,}; "
            "use larger sizes, or a smaller vocab_size in the proxy"
        )
    return best


def cell(proxy: ProxyConfig, size: ScaledModel, tokens: int) -> Cell:
    """A cell, its tokens lowered to whole steps.

    The learning rate is the largest of the proxy's, which is the tuned one, times (compute / the proxy's)^-0.125.
    """
    step = proxy.step_tokens
    tokens = tokens // step * step
    if not tokens:
        raise ValueError(f"a step takes {step:,} tokens, and a run cannot be shorter than a step; use more tokens")
    tuned = scaled_from(proxy)
    ratio = size.flops_per_token * tokens / (tuned.flops_per_token * proxy.tokens)
    return Cell(size, tokens, float(f"{proxy.learning_rates[-1] * ratio**RATE_POWER:.3g}"))


def grid(
    proxy: ProxyConfig, sizes: Sequence[int], tokens: Sequence[int], most_flops: float | None = None
) -> list[Cell]:
    """A cell for each size and budget with at most `most_flops` operations; sizes of one shape give one."""
    models = dict.fromkeys(scaled_model(proxy, size) for size in sorted(sizes))
    cells = [cell(proxy, size, budget) for size in models for budget in sorted(tokens)]
    return [one for one in dict.fromkeys(cells) if most_flops is None or one.flops <= most_flops]


def forecast_cell(proxy: ProxyConfig, text: str) -> Cell:
    """The run that `2.5M:10M` asks for, parameters and tokens. Raises ValueError for what is no such pair."""
    size, colon, budget = text.partition(":")
    if not colon:
        raise ValueError(f"{text!r} is not a run to forecast; write parameters:tokens, such as 2.5M:10M")
    return cell(proxy, scaled_model(proxy, number(size)), number(budget))


def plan(
    proxy: ProxyConfig,
    cells: Sequence[Cell],
    targets: Sequence[Cell],
    seeds: int,
    sweeps: Sequence[Sequence[Cell]] = (),
) -> list[str]:
    """What will be trained, a line each. `sweeps`: cells at other learning rates. Raises ValueError for a grid without
    a cell."""
    if not cells:
        raise ValueError("the grid has no runs: use smaller sizes or fewer tokens, or raise --most-flops")
    lines = [f"proxy {proxy.name}: {len(cells)} cells, {len(cells) * seeds} runs"]
    by_size: dict[int, list[Cell]] = {}
    for one in cells:
        by_size.setdefault(one.size.parameters, []).append(one)
    for parameters, some in by_size.items():
        model = some[0].size.model
        budgets = ", ".join(f"{one.tokens:,} (rate {one.learning_rate:g})" for one in some)
        lines.append(f"  {parameters:,} parameters, {model.layers} layers of width {model.dim}: tokens {budgets}")
    largest = max(one.flops for one in cells)
    lines += [
        f"  forecast: {one.size.parameters:,} parameters on {one.tokens:,} tokens, {one.flops / largest:.1f} times the "
        "grid's largest compute"
        for one in targets
    ]
    lines += [
        f"  learning rates {', '.join(f'{one.learning_rate:.3g}' for one in some)} at {some[0].size.parameters:,} "
        f"parameters and {some[0].tokens:,} tokens"
        for some in sweeps
    ]
    # the rule's own rate is a run of the grid
    tried = {one for some in sweeps for one in some} - {*cells}
    total = seeds * sum(one.flops for one in cells) + sum(one.flops for one in [*targets, *tried])
    return [*lines, f"  {total:.2e} floating-point operations in total"]


def scaled_proxy(proxy: ProxyConfig, size: ScaledModel) -> ProxyConfig:
    """The proxy with another model."""
    return proxy.model_copy(update={"model": size.model})


def scaled_from(proxy: ProxyConfig) -> ScaledModel:
    """The proxy's own model."""
    return _counted(proxy.model, proxy.vocab_size)


def _shape(proxy: ProxyConfig, heads: int) -> ScaledModel:
    base = proxy.model
    ratio = heads / base.heads
    groups = base.heads // base.kv_head_count
    update = {
        "dim": base.head_dim * heads,
        "heads": heads,
        "layers": max(1, int(base.layers * ratio + 0.5)),
        # the largest number of kv heads that divides the heads and shares each among as many, or fewer
        "kv_heads": base.kv_heads and next(k for k in range(max(1, heads // groups), heads + 1) if heads % k == 0),
        "ffn": base.ffn and max(32, round(base.ffn * ratio / 32) * 32),
    }
    return _counted(ModelConfig.model_validate(base.model_dump() | update), proxy.vocab_size)


def _counted(model: ModelConfig, vocab_size: int) -> ScaledModel:
    whole = decoder.parameter_count(model, vocab_size)
    embeddings = vocab_size * model.dim * (1 if model.tie_embeddings else 2)
    return ScaledModel(model, whole, whole - embeddings, decoder.flops_per_token(model, vocab_size))


FACTORS = (0.5, 1.0, 2.0)  # of the rule's rate: a step of 2, as learning rates are usually swept


def swept_cells(cells: Sequence[Cell], sizes: int) -> list[tuple[Cell, ...]]:
    """The cells of sweeps: at each of several sizes, the middle budget with each of FACTORS times its rate. `sizes`:
    how many; they are evenly spaced and include the smallest and the largest."""
    by_size: dict[int, list[Cell]] = {}
    for one in cells:
        by_size.setdefault(one.size.parameters, []).append(one)
    ordered = [sorted(by_size[size], key=lambda one: one.tokens) for size in sorted(by_size)]
    places = np.linspace(0, len(ordered) - 1, min(sizes, len(ordered))).round()
    chosen = sorted({int(place) for place in places})
    middle = [ordered[place][len(ordered[place]) // 2] for place in chosen]
    return [tuple(replace(one, learning_rate=factor * one.learning_rate) for factor in FACTORS) for one in middle]


@dataclass(frozen=True)
class RateSweep:
    """The losses of a size and a token budget at several rates. `best`: the rate at the minimum of a parabola, within
    the rates; `worth`: the loss at the rule's rate minus the loss at the best one, relative to the former; `noise`: how
    much two runs at one rate differ, relative to the loss."""

    parameters: int
    tokens: int
    rates: tuple[float, ...]
    losses: tuple[float, ...]
    best: float
    worth: float
    noise: float

    @property
    def rule(self) -> float:
        """The rule's rate."""
        return self.rates[len(self.rates) // 2]

    @property
    def at_edge(self) -> bool:
        return self.best in (self.rates[0], self.rates[-1])

    @property
    def sentence(self) -> str:
        size = f"at {self.parameters:,} parameters and {self.tokens:,} tokens"
        if self.worth <= 2 * self.noise:
            return f"{size} no learning rate is better than the rule's {self.rule:g} beyond noise"
        beyond = ", the last one tried" if self.at_edge else ""
        return (
            f"{size} a learning rate of {self.best:.2g}{beyond} instead of {self.rule:g} would lower the "
            f"loss by {self.worth:.2%}"
        )


def rate_sweep(
    parameters: int, tokens: int, rates: Sequence[float], losses: Sequence[float], noise: float
) -> RateSweep:
    """The sweep. `rates`: ascending, the rule's in the middle; `losses`: of a run at each."""
    log, values = [float(x) for x in np.log(rates)], np.asarray(losses, float)
    lowest, rule = int(values.argmin()), float(values[len(rates) // 2])
    best, least = log[lowest], float(values[lowest])
    bend, slope, _ = (float(x) for x in np.polyfit(log, values, 2))
    if bend > 0 and log[0] < (turn := -slope / (2 * bend)) < log[-1]:
        best, least = turn, float(np.polyval(np.polyfit(log, values, 2), turn))
    worth = (rule - least) / rule
    return RateSweep(parameters, tokens, tuple(rates), tuple(losses), float(np.exp(best)), worth, noise)


MIN_ARMS = 3  # by chance, two recipes have the same order at two sizes in half of the cases


@dataclass(frozen=True)
class GridPlan:
    """`cells`: the grid; `targets`: runs that are forecast, then trained; `sweeps`: cells at other learning rates."""

    proxy: ProxyConfig
    cells: list[Cell]
    targets: list[Cell]
    sweeps: list[tuple[Cell, ...]]
    seeds: int

    def lines(self) -> list[str]:
        return plan(self.proxy, self.cells, self.targets, self.seeds, self.sweeps)

    @property
    def problem(self) -> str:
        """Why these runs would give no law; empty if they can give one."""
        sizes = np.repeat([float(one.size.parameters) for one in self.cells], self.seeds)
        tokens = np.repeat([float(one.tokens) for one in self.cells], self.seeds)
        if problem := ScalingRuns(sizes, tokens, np.ones(len(sizes))).problem:
            return problem
        trained = {*self.cells, *(one for sweep in self.sweeps for one in sweep)}
        for one in self.targets:
            if one in trained:
                size = f"{one.size.parameters:,} parameters on {one.tokens:,} tokens"
                return f"the forecast of {size} is a run of the grid, which is trained before; forecast another run"
        return ""


def planned_grid(options: ScaleOptions) -> GridPlan:
    """Raises what `load_proxy`, `grid`, `forecast_cell` and `plan` raise."""
    small = load_proxy(options.proxy)
    cells = grid(small, options.sizes, options.tokens, options.most_flops)
    targets = [forecast_cell(small, text) for text in options.forecasts]
    planned = GridPlan(small, cells, targets, [], options.seeds)
    planned.lines()  # raises for a grid without a run
    return GridPlan(small, cells, targets, swept_cells(cells, options.rate_sweeps), options.seeds)


def checked_grid(settings: MachineSettings, recipe: Recipe, options: ScaleOptions) -> GridPlan:
    """The plan of runs that can be trained. Raises as `planned_grid` and `check_judges`, and ValueError for runs that
    do not determine a law."""
    planned = planned_grid(options)
    if problem := planned.problem:
        raise ValueError(problem)
    check_judges(settings, [recipe], options.clean, options.judge)
    return planned


@dataclass(frozen=True)
class AgreementPlan:
    """`compared`: the recipes; `cells`: a size and its tokens each, sizes ascending; `tasks`: the folder of tasks."""

    compared: Arms
    proxy: ProxyConfig
    cells: list[Cell]
    seeds: int
    tasks: Path | None

    def lines(self) -> list[str]:
        return plan(self.proxy, self.cells, [], self.seeds * len(self.compared.recipes))

    def time_lines(self, device: Callable[[ProxyConfig], Device]) -> Iterator[str]:
        """The time of the runs of each size. `device`: gives the device that a proxy is trained on."""
        runs = self.seeds * len(self.compared.recipes)
        for one in self.cells:
            proxy = scaled_proxy(self.proxy, one.size)
            yield f"  {one.size.parameters:,} parameters: {time_sentence(device(proxy), [(proxy, one.tokens, runs)])}"
        yield "runs that are already in the home are reused"


def checked_agreement(settings: MachineSettings, recipe: Recipe, options: AgreementOptions) -> AgreementPlan:
    """Raises ValueError for sizes that do not ascend, fewer than MIN_ARMS recipes and unknown evaluation sets, and what
    `arms`, `check_data`, `before_run`, `load_proxy` and `cell` raise."""
    sizes, tokens = options.sizes, options.tokens
    if len(sizes) < 2 or len(tokens) != len(sizes) or sorted(set(sizes)) != sizes:
        raise ValueError(
            f"sizes are {sizes} and token budgets {tokens}; give two or more of each, in ascending order of size"
        )
    compared = arms(recipe, options)
    if (count := len(compared.recipes)) < MIN_ARMS:
        raise ValueError(
            f"{count} recipes ({', '.join(compared.recipes)}) have no ranks to compare: give {MIN_ARMS} or more, the "
            "base included; add some with --against, --set, --without or --raw"
        )
    if options.seeds < 2:
        raise ValueError(f"seeds is {options.seeds}, so the noise of a run is unknown; use 2 or more")
    check_data(compared.recipes)
    small = load_proxy(options.proxy)
    for other in compared.recipes.values():
        before_run(other, settings)
    folder = tasks_folder(settings, options.tasks) if options.tasks else None
    check_judges(settings, [*compared.recipes.values()], options.clean, options.judge, tuple(task_sets(folder)))
    cells = [cell(small, scaled_model(small, size), budget) for size, budget in zip(sizes, tokens, strict=True)]
    for one in cells:  # raises for fewer than two steps
        small.run_training(one.tokens, one.learning_rate, 0, 0)
    return AgreementPlan(compared, small, cells, options.seeds, folder)
