"""The flows `scale` and `agreement`: a recipe's losses at other sizes, and whether recipes keep their order there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import wrapt
from prefect.logging import get_run_logger

from gristmill.flows.experiments.decisions.arm_data import ComparisonData, proxy_data
from gristmill.flows.experiments.decisions.runs import evaluation_set
from gristmill.flows.experiments.decisions.tasks import DecisionTasks, mean_by_task
from gristmill.flows.experiments.options import AgreementOptions, ScaleOptions
from gristmill.flows.experiments.scaling.grid import (
    FACTORS,
    Cell,
    RateSweep,
    checked_agreement,
    checked_grid,
    rate_sweep,
    scaled_proxy,
)
from gristmill.flows.experiments.scaling.ladder import ERROR, JUDGED, AgreementReport
from gristmill.flows.experiments.scaling.report import LEVEL, CheckedForecast, GridRun, ScalingReport, scaling_page
from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.forms import RecipeLike
from gristmill.flows.recipe.options import spread
from gristmill.flows.recipe.proxy import ProxyConfig
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports.dependents.retractions import marked, stale
from gristmill.flows.run.artifacts import flow_run_name
from gristmill.flows.run.flow import recorded_flow
from gristmill.flows.run.runner import run_context
from gristmill.flows.stages.proxy import ProxyRun, proxy_spec, train_proxies
from gristmill.flows.stats.law import forecast
from gristmill.flows.stats.runs import EvaluationSet
from gristmill.storage import checked_json, files
from gristmill.tasks.engine.extras import require
from gristmill.tasks.engine.spec import StageSpec, digest

if TYPE_CHECKING:
    from gristmill.flows.experiments.scaling import tracking
    from gristmill.flows.run import tracking as mlflow_runs
else:
    tracking = wrapt.lazy_import("gristmill.flows.experiments.scaling.tracking")
    mlflow_runs = wrapt.lazy_import("gristmill.flows.run.tracking")


@dataclass(frozen=True)
class _Trained:
    """Trains cells on the tokens of an arm. `data`: with the budget of the longest cell; `tasks`: to score each run
    on."""

    context: RunContext
    proxy: ProxyConfig
    data: ComparisonData
    evaluation: EvaluationSet
    repeat: bool
    tasks: DecisionTasks | None = None

    def run(self, arm: str, one: Cell, pair: int) -> ProxyRun:
        proxy = scaled_proxy(self.proxy, one.size)
        return ProxyRun(proxy, self.data.arms[arm].mixture, pair, one.learning_rate, one.tokens)

    def spec(self, arm: str, one: Cell, pair: int) -> StageSpec:
        return proxy_spec(self.context.settings, self.run(arm, one, pair), 0)

    def __call__(self, wanted: Sequence[tuple[str, Cell, int]]) -> list[GridRun]:
        """Train runs, each given by an arm, a cell and a pair; runs that are finished in the home are reused."""
        # the longest first, so that no core is idle at the end
        order = sorted(range(len(wanted)), key=lambda index: -wanted[index][1].flops)
        results = train_proxies(self.context, [self.run(*wanted[index]) for index in order])
        by_run = {}
        for index, result in zip(order, results, strict=True):
            arm, one, pair = wanted[index]
            bits, errors = self._scored(self.spec(arm, one, pair), result.bits)
            loss = float(self.evaluation.measure(bits))
            size, by_set = one.size, self.evaluation.by_set(bits) | errors
            by_run[index] = GridRun(
                size.parameters,
                size.non_embedding,
                one.tokens,
                one.flops,
                one.learning_rate,
                pair,
                loss,
                result.key,
                by_set,
            )
        return [by_run[index] for index in range(len(wanted))]

    def _scored(self, spec: StageSpec, bits: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        """Bits of a finished run, then of right answers, and its share of wrong answers by task."""
        if self.tasks is None:
            return bits, {}
        stage = self.context.find(spec)
        assert stage is not None, "it was trained or found"
        scores = self.tasks.scored(stage)
        errors = {f"{ERROR}{name}": 1 - hits for name, hits in mean_by_task(scores, "hit").items()}
        return np.concatenate([bits, scores["bits"].to_numpy()]), errors


@recorded_flow(name="scale", flow_run_name=flow_run_name, persist_result=False)
@spread
def scale(recipe: RecipeLike, options: ScaleOptions) -> ScalingReport:
    """A scaling law of a recipe: the proxy at each of `sizes`, trained on each of `tokens`. Forecasts, as `2.5M:10M`,
    are registered, trained and checked.

    Args:
        recipe: whose tokens are trained on
    """
    require("train", "training a grid of models")
    with run_context(recipe) as context:
        log, planned = get_run_logger(), checked_grid(context.settings, recipe, options)
        small, cells, targets, sweeps = planned.proxy, planned.cells, planned.targets, planned.sweeps
        for line in planned.lines():
            log.info("%s", line)
        make = partial(_trained, context, {recipe.name: recipe}, small, options)
        # two lengths, so that the grid's tokens, and so its runs, do not depend on the forecasts
        trained = make(longest=max(one.tokens for one in cells))
        larger = make(longest=max(one.tokens for one in targets)) if targets else trained

        wanted = [(recipe.name, one, pair) for one in cells for pair in range(options.seeds)]
        keys = [trained.spec(*one).key for one in wanted]
        judged = trained.evaluation.judged
        asked = {"budgets": str(options.budgets), "rate_sweeps": str(options.rate_sweeps)}
        if options.forecasts:  # only then, so that the id of laws without forecasts is unchanged
            asked["forecasts"] = str(sorted(options.forecasts))
        identity = digest({"runs": "\n".join(sorted(keys)), "judged": "\n".join(judged)} | asked)[:16]
        params: dict[str, Any] = {"proxy": small.model_dump(mode="json"), "judged": list(judged)}
        params |= {"sizes": options.sizes, "tokens": options.tokens, "seeds": options.seeds}
        datasets = [
            mlflow_runs.dataset_input(trained.data.arms[recipe.name].mixture, "training"),
            mlflow_runs.dataset_input(trained.data.evaluation, "evaluation"),
        ]
        with tracking.scaling_run(context.settings, recipe.name, identity, params, datasets) as tracked:
            tried = [(recipe.name, one, 0) for sweep in sweeps for one in sweep]
            results = trained(wanted + tried)
            report = ScalingReport(recipe.name, identity, tuple(results[: len(wanted)]), judged, tuple(options.budgets))
            tracking.log_runs(tracked, report.runs)
            log.info("%s", report.sentence)
            report = replace(report, sweeps=_swept(results[len(wanted) :], len(FACTORS), report.fit.deviation))
            for remark in report.remarks:
                log.info("%s", remark)
            report = replace(report, forecasts=_forecast(report, larger, recipe.name, targets))
            report = replace(report, mlflow_run=tracking.finish(tracked, report))
        name = files.join(context.settings.home, "scaling", f"{recipe.name}-{identity}")
        checked_json.write(f"{name}.json", report.as_json())
        report = replace(report, stale=stale(context.settings.home, [run.key for run in report.runs]))
        files.write_bytes(f"{name}.html", marked(scaling_page(report), report.stale).encode())
        return replace(report, page=f"{name}.html")


@recorded_flow(name="agreement", flow_run_name=flow_run_name, persist_result=False)
@spread
def agreement(recipe: RecipeLike, options: AgreementOptions) -> AgreementReport:
    """Whether recipes keep their order from the smaller of `sizes` to the largest; `tokens`: of a run at each size.
    Right answers and wrong choices of tasks are measures beside the evaluation sets.

    Args:
        recipe: the base
    """
    require("train", "comparing recipes")
    with run_context(recipe) as context:
        log, planned = get_run_logger(), checked_agreement(context.settings, recipe, options)
        small, cells, seeds, compared = planned.proxy, planned.cells, planned.seeds, planned.compared
        names = tuple(compared.recipes)
        for line in planned.lines():
            log.info("%s", line)
        losses: dict[str, list[np.ndarray]] = {}
        for one in cells:
            # each size has a budget, and so tokens, of its own, which a decision at that size finds again
            train = _trained(context, compared.recipes, small, options, one.tokens, planned.tasks)
            runs = train([(name, one, pair) for name in names for pair in range(seeds)])
            measured = [{JUDGED: run.loss} | run.by_set for run in runs]
            for measure in measured[0]:
                values = [each[measure] for each in measured]
                losses.setdefault(measure, []).append(np.reshape(values, (len(names), seeds)))
        report = AgreementReport(
            recipe=recipe.name,
            arms=names,
            parameters=tuple(one.size.parameters for one in cells),
            tokens=tuple(one.tokens for one in cells),
            losses={measure: np.stack(each) for measure, each in losses.items() if len(each) == len(cells)},
            judged=train.evaluation.judged,
        )
        log.info("%s", report.sentence)
        return report


def _trained(
    context: RunContext,
    recipes: Mapping[str, Recipe],
    proxy: ProxyConfig,
    options: ScaleOptions | AgreementOptions,
    longest: int,
    tasks: Path | None = None,
) -> _Trained:
    """Data for runs of up to `longest` tokens. Raises ValueError where an arm has fewer and none may be repeated."""
    data = proxy_data(context, proxy, recipes, longest, clean=options.clean, repeat=options.repeat)
    if data.budget_tokens < longest:
        raise ValueError(
            f"a run of {longest:,} tokens would read documents more than once: one epoch has "
            f"{data.budget_tokens:,}; use fewer tokens, add documents, or allow it with --repeat"
        )
    scored = None if tasks is None else DecisionTasks(context, tasks, data)
    return _Trained(context, proxy, data, evaluation_set(data, options.judge, scored), options.repeat, scored)


def _swept(runs: Sequence[GridRun], rates: int, noise: float) -> tuple[RateSweep, ...]:
    """The sweeps of consecutive runs. `rates`: the number of runs in a sweep."""
    groups = [runs[start : start + rates] for start in range(0, len(runs), rates)]
    return tuple(
        rate_sweep(
            group[0].parameters,
            group[0].tokens,
            [run.learning_rate for run in group],
            [run.loss for run in group],
            noise,
        )
        for group in groups
    )


def _forecast(
    report: ScalingReport, train: _Trained, recipe: str, targets: Sequence[Cell]
) -> tuple[CheckedForecast, ...]:
    """Register a forecast of each target before the first training, then train and check."""
    if not targets:
        return ()

    log, keys = get_run_logger(), tuple(run.key for run in report.fitted)
    forecasts, largest = tracking.Forecasts(train.context.settings, recipe), float(report.compute.max())
    claims = []
    for one in targets:
        claimed = forecast(report.fit, keys, one.size.parameters, one.tokens, one.flops / largest, LEVEL)
        params = {"learning_rate": one.learning_rate, "pair": 0, "scaling": report.id}
        claim = forecasts.register(train.spec(recipe, one, 0), claimed, params)
        loss = claim.forecast.loss
        how = "was registered before" if claim.earlier else "registered"
        log.info(
            "forecast %s: %s parameters on %s tokens: %.4f bits per byte, %.0f%% interval %.4f to %.4f",
            how, f"{one.size.parameters:,}", f"{one.tokens:,}", loss.value, 100 * loss.level, loss.low, loss.high,
        )  # fmt: skip
        claims.append(claim)
    results = train([(recipe, one, 0) for one in targets])
    checks = []
    for claim, run in zip(claims, results, strict=True):
        checked = forecasts.check(claim, run.loss)
        log.info("%s", tracking.sentence(claim.forecast, checked))
        checks.append(CheckedForecast(run.key, claim.forecast, claim.mlflow_run, claim.earlier, checked))
    return tuple(checks)
