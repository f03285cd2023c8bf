"""The flow `ablate`: measure the worth of a data decision. It compares recipes and returns verdicts with intervals."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wrapt
from prefect.artifacts import create_table_artifact
from prefect.logging import get_run_logger

from gristmill.flows.experiments.decisions import device
from gristmill.flows.experiments.decisions.arm_data import Arm, ComparisonData, diffs, only_in, proxy_data
from gristmill.flows.experiments.decisions.arm_settings import check_tokens, own_tokenizers, step_unit
from gristmill.flows.experiments.decisions.device import ArmCost, text_bytes
from gristmill.flows.experiments.decisions.plan import Arms, Plan, arms, planned
from gristmill.flows.experiments.decisions.report import ArmFigures, DecisionReport, OnlyIn, set_effects
from gristmill.flows.experiments.decisions.runs import ProxyRuns, decision_id, evaluation_set, training_losses
from gristmill.flows.experiments.decisions.tasks import DecisionTasks, task_results, task_sets, tasks_folder
from gristmill.flows.experiments.options import DecisionOptions
from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.check import before_run
from gristmill.flows.recipe.forms import RecipeLike
from gristmill.flows.recipe.given_files import tokenizer_at, vocabulary
from gristmill.flows.recipe.options import spread
from gristmill.flows.recipe.variants import difference
from gristmill.flows.reports.dependents.retractions import marked, stale
from gristmill.flows.reports.funnel import funnel
from gristmill.flows.run.artifacts import artifact_key, flow_run_name
from gristmill.flows.run.flow import recorded_flow
from gristmill.flows.run.progress import duration
from gristmill.flows.run.runner import run_context
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.dedup.near_duplicates import pairs_of_copies
from gristmill.flows.stages.evaluation.judge import check_judges, renamed_sets
from gristmill.flows.stages.proxy import ProxyResult
from gristmill.flows.stats.protocol import Protocol, calibrate, decide, requests
from gristmill.flows.stats.runs import RunRequest
from gristmill.storage import checked_json, files
from gristmill.tasks.engine.extras import require
from gristmill.tasks.engine.lease import lease

if TYPE_CHECKING:
    from gristmill.flows.experiments.decisions import page as decision_page
    from gristmill.flows.experiments.decisions import tracking
else:
    decision_page = wrapt.lazy_import("gristmill.flows.experiments.decisions.page")
    tracking = wrapt.lazy_import("gristmill.flows.experiments.decisions.tracking")


STEP = "minhash"
MIN_SHARE_OF_PAIRS = 0.1  # with fewer pairs of copies in a run, its verdict says little about duplicates


def pairs_in_run(pairs: int, share: float) -> float:
    """Expected number of pairs of copies with both documents in a run that reads this share of documents at random."""
    return pairs * min(share, 1.0) ** 2


def duplicate_warnings(compared: Arms, data: ComparisonData, pairs: int | None) -> Iterator[str]:
    """Warnings about candidates without the base's step `minhash` whose runs contain few of the pairs that it found.
    `pairs`: None if the base has no such step."""
    if not pairs:
        return
    for name in compared.candidates:
        if STEP in [step.step for step in compared.recipes[name].steps]:
            continue
        tokens = sum(data.arms[name].source_tokens.values())
        resampling = "" if data.half is None else ", without --resample,"
        expected = pairs_in_run(pairs, data.budget_tokens / tokens)
        if expected < MIN_SHARE_OF_PAIRS * pairs:
            yield (
                f"warning: {name} keeps the {pairs:,} pairs of copies that `{STEP}` finds, but a run reads "
                f"{data.budget_tokens / tokens:.1%} of its tokens, where {expected:.1f} of these pairs are "
                "expected to occur together, so its verdict says little about duplicates. `--tokens "
                f"{tokens}`, or a `--proxy` with as many tokens{resampling} reads all of them"
            )


def publish_decision(report: DecisionReport) -> None:
    """Record the verdicts and the worth of the steps as artifacts of the calling flow run, under the base's name."""
    rows: list[dict[str, Any]] = [
        {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}
        for row in report.rows()
    ]
    what = "; ".join(report.sentences)
    create_table_artifact(
        key=artifact_key(report.base, "verdicts"),
        table=rows,
        description=f"{report.title} ({report.id}): {what}",
    )
    if report.attribution:
        steps = [asdict(each) for each in report.attribution]
        create_table_artifact(
            key=artifact_key(report.base, "attribution"),
            table=steps,
            description=f"Contribution of the steps of {report.base}: {report.title}",
        )


@dataclass
class _Clock:
    """Start of the flow, and seconds that it waited for other flows."""

    began: float
    asked: float = 0.0

    def others(self, work: Callable[[], Any]) -> Any:
        start = time.monotonic()
        try:
            return work()
        finally:
            self.asked += time.monotonic() - start

    def __str__(self) -> str:
        whole = time.monotonic() - self.began
        own = whole - self.asked
        return f"{duration(whole)}, of which {duration(own)} ({own / whole:.1%}) were not spent on data and runs"


@recorded_flow(name="ablate", flow_run_name=flow_run_name, persist_result=False)
@spread
def ablate(recipe: RecipeLike, options: DecisionOptions) -> DecisionReport:
    """Verdicts on candidates beside a base, in bits per byte of documents that no recipe filtered.

    Prefect shows what is said of each parameter in its form.

    Args:
        recipe: the base
    """
    require("train", "comparing recipes")
    with run_context(recipe) as context:
        return compare(context, arms(recipe, options, options.leave_one_out), options)


def compare(
    context: RunContext, compared: Arms, options: DecisionOptions, alpha: float = Protocol.model_fields["alpha"].default
) -> DecisionReport:
    """Decide between arms within a flow run, and record it. alpha: two-sided error of the decision."""
    clock, log = _Clock(time.monotonic()), get_run_logger()
    for other in compared.recipes.values():
        before_run(other, context.settings)
    folder = tasks_folder(context.settings, options.tasks) if options.tasks else None
    sets = task_sets(folder)
    check_judges(context.settings, [*compared.recipes.values()], options.clean, options.judge, tuple(sets))
    file = tokenizer_at(context.settings, options.tokenizer, "tokenizer") if options.tokenizer else None
    known = partial(device.known, context.settings)
    plan = planned(compared, options, known, sets, None if file is None else vocabulary(file))
    plan = replace(plan, protocol=plan.protocol.model_copy(update={"alpha": alpha}))
    for line in (*plan.lines(), *renamed_sets(compared.recipes)):
        log.info("%s", line)
    data = clock.others(lambda: _data(context, plan, options, file))
    scored = DecisionTasks(context, folder, data) if folder else None
    check_tokens(plan.settings, data.budget_tokens)
    plan = replace(plan, tokens=data.budget_tokens, evaluation=evaluation_set(data, options.judge, scored), data=data)
    plan = replace(plan, text_bytes=text_bytes(context.settings, data))
    copies = pairs_of_copies(context, data.arms[compared.base].corpus)
    pairs_met = None if copies is None else copies.result["pairs"]
    limits = list(duplicate_warnings(compared, data, pairs_met))
    for line in (*plan.lines(), *limits):
        log.info("%s", line)
    decided = _decided(context, plan, data, scored, clock, limits)
    publish_decision(decided)
    for line in limits:  # again, where the verdict is read
        log.warning("%s", line)
    log.info("decided in %s", clock)
    return decided


def _data(context: RunContext, plan: Plan, options: DecisionOptions, tokenizer: Path | None) -> ComparisonData:
    """Corpora and tokens, a subflow `corpus` for each recipe."""
    compared, proxy = plan.arms, plan.proxy

    def apart(name: str, make: Callable[[], Any]) -> Any:
        results = []

        @recorded_flow(name="corpus", flow_run_name=lambda: f"corpus-{name}", persist_result=False)
        def corpus(recipe: RecipeLike) -> None:
            results.append(make())

        corpus(compared.recipes[name])
        return results[0]

    return proxy_data(
        context,
        proxy,
        compared.recipes,
        options.tokens or proxy.tokens,
        step_tokens=2 * step_unit(plan.settings),  # so that half of a run is whole steps, too
        clean=options.clean,
        repeat=options.tokens is not None,
        tokenizer=tokenizer,
        own_tokenizers=own_tokenizers(compared.recipes, tokenizer is not None),
        contexts={name: one.proxy.model.seq_len for name, one in plan.settings.items()},
        pairs=plan.pairs if plan.protocol.resample else None,
        apart=apart,
    )


def _decided(
    context: RunContext,
    plan: Plan,
    data: ComparisonData,
    tasks: DecisionTasks | None,
    clock: _Clock,
    limits: Sequence[str],
) -> DecisionReport:
    """The decision. `limits`: sentences on what the budget cannot tell."""
    compared, proxy, protocol, evaluation = plan.arms, plan.proxy, plan.protocol, plan.evaluation
    log, tokens = get_run_logger(), data.budget_tokens
    base = compared.recipes[compared.base]
    batches = 0

    def around(count: int, train: Callable[[], list[ProxyResult]]) -> list[ProxyResult]:
        """A batch of runs as a subflow."""
        nonlocal batches
        batches += 1
        results = []

        @recorded_flow(name="proxies", flow_run_name=lambda: f"proxies-{batches}", persist_result=False)
        def proxies(recipe: RecipeLike, runs: int) -> None:
            results.append(train())

        clock.others(lambda: proxies(base, count))
        return results[0]

    def trained(results: list[tuple[RunRequest, ProxyResult]]) -> None:
        figures = [runs.figures(request) for request, _ in results]
        losses = {result.key: training_losses(result) for _, result in results}
        with tracked.turn():
            tracking.log_runs(tracked, figures, losses, datasets)
        log.info("runs: %d finished", len(runs.found))

    runs = ProxyRuns(context, proxy, data, evaluation, tasks, around, trained, plan.settings)
    identity = decision_id(protocol, evaluation, runs, list(compared.recipes), tokens, plan.bank)
    params = {"proxy": proxy.model_dump(mode="json"), "protocol": protocol.model_dump(mode="json"), "tokens": tokens}
    params |= {"base": compared.base, "candidates": list(compared.candidates), "judged": list(evaluation.judged)}
    params |= {"judge": plan.conditions.judge, "parameters": plan.conditions.parameters}
    datasets = tracking.Datasets(data.evaluation, {name: arm.mixture for name, arm in data.arms.items()})
    # processes that make the same decision share its runs, by the leases of their stages; they take turns at the report
    folder = files.join(context.settings.home, "decisions", identity)
    exclusive = partial(lease, folder, lambda text: log.debug("%s", text))
    tracked = tracking.decision_run(context.settings, base.name, identity, params, datasets, exclusive)
    with tracked:
        bank = None
        announced = " ".join([plan.announcement(), *limits])
        if plan.bank:
            numbers = protocol.pairs(0, plan.bank)
            wanted = requests(compared.base, numbers, protocol.learning_rates, tokens)
            if missing := runs.missing(wanted):
                log.info("A/A bank: %d runs of %s, %d of them to train now", len(wanted), compared.base, missing)
            bank = calibrate(runs, evaluation, compared.base, numbers, protocol.learning_rates, tokens)
            by_bank = plan.by_bank(bank)
            announced = f"{announced} {by_bank}"
            log.info("%s", by_bank)
        decision = decide(protocol, evaluation, compared.base, compared.candidates, tokens, runs, bank, plan.conditions)
        report = DecisionReport(
            id=identity,
            decision=decision,
            arms={name: _figures(arm, plan.costs[name]) for name, arm in data.arms.items()},
            sets=set_effects(decision, evaluation, {request: runs.bits(request) for request in runs.found}),
            runs=tuple(map(runs.figures, runs.found)),
            steps=compared.steps,
            fixed=compared.fixed,
            announced=announced,
            differences={name: tuple(difference(base, compared.recipes[name])) for name in compared.candidates},
            **(task_results(decision, runs.scores, tasks.left_out) if tasks else {}),
        )
        name = files.join(context.settings.home, "decisions", f"{base.name}-{identity}")
        corpora = {arm: data.arms[arm].corpus for arm in compared.recipes}
        only = _differing(corpora, compared.base)
        report = replace(report, stale=stale(context.settings.home, [run.key for run in report.runs]))
        with tracked.turn():
            checked_json.write(f"{name}.json", report.as_json())
            shown = diffs(corpora, compared.base, name)
            report = replace(report, only=only, diffs=shown, page=f"{name}.html")
            files.write_bytes(report.page, marked(decision_page.page(report), report.stale).encode())
            return replace(report, mlflow_run=tracking.finish(tracked, report, compared.recipes))


def _differing(corpora: Mapping[str, Corpus], base: str) -> dict[str, OnlyIn]:
    """By candidate, documents that it has and the base has not, and the other way round."""
    return {
        name: OnlyIn(only_in(corpora[base], corpus), only_in(corpus, corpora[base]))
        for name, corpus in corpora.items()
        if name != base
    }


def _figures(arm: Arm, cost: ArmCost) -> ArmFigures:
    rows = funnel(arm.corpus.stages)
    times = [stage.cpu_seconds for stage in arm.corpus.stages]
    durations = [seconds for seconds in times if seconds is not None]
    return ArmFigures(
        documents=rows[-1].documents_out,
        tokens=sum(arm.source_tokens.values()),
        epochs=arm.epochs,
        funnel=tuple(rows),
        cpu_seconds=sum(durations) if len(durations) == len(times) else None,
        cost=cost,
    )
