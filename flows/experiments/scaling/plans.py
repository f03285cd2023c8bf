"""What `scale` and `agreement` need and train: checked before any work, by commands and by the flows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import wrapt

from gristmill.flows.experiments.decisions.arm_settings import check_data
from gristmill.flows.experiments.decisions.device import Device, time_sentence
from gristmill.flows.experiments.decisions.plan import Arms, arms
from gristmill.flows.experiments.decisions.tasks import task_sets, tasks_folder
from gristmill.flows.experiments.options import AgreementOptions, ScaleOptions
from gristmill.flows.experiments.scaling.grid import Cell, cell, forecast_cell, grid, plan, scaled_model, scaled_proxy
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import before_run
from gristmill.flows.recipe.proxy import ProxyConfig, load_proxy
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.evaluation.judge import check_judges
from gristmill.flows.stats.law import ScalingRuns

if TYPE_CHECKING:
    from gristmill.flows.experiments.scaling import transfer
else:
    transfer = wrapt.lazy_import("gristmill.flows.experiments.scaling.transfer")

MIN_ARMS = 3  # two recipes are in the same order at two sizes in one case of two, whatever the sizes


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
        """Why these runs would have no result; empty if they can have one."""
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
    return GridPlan(small, cells, targets, transfer.swept_cells(cells, options.rate_sweeps), options.seeds)


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
        """The time of the runs of each size. `device`: what a proxy is trained on."""
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
