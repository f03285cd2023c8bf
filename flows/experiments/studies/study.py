"""The flow `study`: one question about training, answered by small models with an interval for each arm."""

from dataclasses import asdict, replace

import numpy as np
import orjson
from prefect.artifacts import create_table_artifact
from prefect.logging import get_run_logger

from gristmill.flows.experiments.decisions.ablate import compare
from gristmill.flows.experiments.decisions.options import DecisionOptions
from gristmill.flows.experiments.decisions.plan import Arms
from gristmill.flows.experiments.decisions.report import DecisionReport
from gristmill.flows.experiments.studies import page
from gristmill.flows.experiments.studies.options import StudyOptions
from gristmill.flows.experiments.studies.questions import QUESTIONS, RESUME, Choice
from gristmill.flows.experiments.studies.report import ArmResult, StudyReport
from gristmill.flows.experiments.studies.resume import resumed
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.wrong_values import did_you_mean
from gristmill.flows.recipe import variants
from gristmill.flows.recipe.forms import RecipeLike
from gristmill.flows.recipe.options import spread
from gristmill.flows.recipe.proxy import ProxyConfig, load_proxy
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.reports.dependents.marks import marked
from gristmill.flows.reports.dependents.retractions import stale
from gristmill.flows.run.artifacts import artifact_key, flow_run_name
from gristmill.flows.run.flow import recorded_flow
from gristmill.flows.run.runner import run_context
from gristmill.flows.stages.proxy import METRICS
from gristmill.flows.stats.critical_batch import CriticalBatch, critical_batch
from gristmill.flows.stats.protocol import Protocol
from gristmill.storage import checked_json, files, layout
from gristmill.storage.home import open_stage
from gristmill.tasks.engine.extras import require


@recorded_flow(name="study", flow_run_name=flow_run_name, persist_result=False)
@spread
def study(recipe: RecipeLike, question: str, options: StudyOptions) -> StudyReport:
    """Answer a question about training by runs of a small model, each arm compared with the base.

    Args:
        recipe: its documents are trained on
        question: batch, rate-rule, precision, clip, order, vocabulary or resume
    """
    require("train", "studies")
    if question not in (*QUESTIONS, RESUME):
        names = [*QUESTIONS, RESUME]
        hint = did_you_mean(question, names) or f"the questions are {', '.join(names)}"
        raise ValueError(f"there is no study {question}; {hint}")
    with run_context(recipe) as context:
        proxy = _proxy(question, options)
        report = (
            resumed(context, load(recipe), proxy, options)
            if question == RESUME
            else _answered(context, load(recipe), question, proxy, options)
        )
        name = files.join(context.settings.home, "studies", f"{report.recipe}-{question}-{report.id}")
        checked_json.write(f"{name}.json", report.as_json())
        keys = [key for row in report.rows for key in row.keys]
        report = replace(report, page=f"{name}.html", stale=stale(context.settings.home, keys))
        files.write_bytes(report.page, marked(page.page(report), report.stale).encode())
        create_table_artifact(
            key=artifact_key(report.recipe, f"study-{question}"),
            table=[{key: value for key, value in asdict(row).items() if key != "losses"} for row in report.rows],
            description=f"{report.asks} {report.sentence}",
        )
        get_run_logger().info("%s", report.sentence)
        return report


def _proxy(question: str, options: StudyOptions) -> ProxyConfig:
    proxy = load_proxy(options.proxy)
    if options.schedule is None:
        return proxy
    if question != "batch":
        raise ValueError(f"--schedule is for the study batch, not {question}: remove it")
    training = proxy.training.model_dump() | {"schedule": options.schedule}
    return ProxyConfig.model_validate(proxy.model_dump() | {"training": training})


def _answered(
    context: RunContext, recipe: Recipe, question: str, proxy: ProxyConfig, options: StudyOptions
) -> StudyReport:
    asked = QUESTIONS[question]
    first, *others = asked.choices(recipe, proxy, options)
    base = variants.variant(recipe, *first.settings).recipe
    chosen = DecisionOptions(
        proxy=proxy.model_dump(mode="json") if options.schedule else options.proxy,
        clean=options.clean,
        judge=options.judge,
        tokens=options.tokens,
        pairs=[options.pairs],
        futility=0.0,
    )
    alpha = Protocol.model_fields["alpha"].default / len(others)  # Bonferroni: any arm may be the one with a verdict
    rows, reports = list[ArmResult](), list[DecisionReport]()
    for choice in others:
        candidate = variants.variant(recipe, *choice.settings).recipe
        compared = Arms(recipe.name, {recipe.name: base, choice.label: candidate}, {}, {})
        try:
            reports.append(compare(context, compared, chosen, alpha))
        except (RuntimeError, ValueError) as error:
            if not reports and choice == others[-1]:
                raise
            get_run_logger().warning("%s: %s", choice.label, error)
            rows.append(ArmResult(choice.label, choice.x, failure=f"{error}"))
            continue
        if len(reports) == 1:
            rows.insert(0, _row(reports[0], first))
        rows.append(_row(reports[-1], choice))
    critical = _critical(max(reports, key=lambda one: len(one.runs)), rows) if question == "batch" else None
    scale = _noise_scale(context, rows) if question == "batch" else None
    identity = files.digest("\n".join(report.id for report in reports).encode())[:16]
    return StudyReport(
        id=identity,
        recipe=recipe.name,
        question=question,
        asks=asked.asks,
        axis=asked.axis,
        rows=tuple(rows),
        conditions=reports[0].decision.conditions,
        critical=critical,
        noise_scale=scale,
    )


def _row(report: DecisionReport, choice: Choice) -> ArmResult:
    decision = report.decision
    pairs = decision.protocol.pairs(0, decision.protocol.looks[-1])
    runs, [verdict] = {run.request: run for run in report.runs}, decision.verdicts
    arm = choice.label if choice.label == verdict.candidate else decision.base
    own = [runs[decision.request(arm, pair)] for pair in pairs]
    losses = tuple(run.bits_per_byte for run in own)
    seconds, cost = float(np.mean([run.seconds for run in own])), report.arms[arm].cost
    keys = tuple(run.key for run in own)
    found = ArmResult(choice.label, choice.x, float(np.mean(losses)), seconds=seconds, losses=losses, keys=keys)
    if cost is not None:
        found = replace(found, parameters=cost.parameters, flops=cost.flops)
    if arm == decision.base:
        return found
    return replace(found, outcome=verdict.outcome, effect=verdict.effect, low=verdict.low, high=verdict.high)


def _critical(report: DecisionReport, rows: list[ArmResult]) -> CriticalBatch | None:
    """None for under three batches that were trained. `report`: a decision with a verdict, for which the base has also
    been trained on half of the tokens."""
    trained = [row for row in rows if row.losses and row.x is not None]
    if len(trained) < 3:
        return None
    decision, losses = report.decision, {run.request: run.bits_per_byte for run in report.runs}
    gains = [
        losses[half] - losses[decision.request(half.arm, half.pair)] for half in losses if half.tokens < decision.tokens
    ]
    if len(gains) < 3:
        return CriticalBatch(None, None, None, None, "no batch was found to be worse than the smallest")
    measured = np.array([row.x for row in trained]), np.array([row.losses for row in trained]).T
    return critical_batch(*measured, np.array(gains))


def _noise_scale(context: RunContext, rows: list[ArmResult]) -> float | None:
    """The gradient noise scale in sequences: the median over the runs of the smallest batch whose steps have several
    micro-batches. None without one."""
    for row in rows:
        scales = [_last_scale(context, key) for key in row.keys]
        if known := [scale for scale in scales if scale is not None]:
            return float(np.median(known))
    return None


def _last_scale(context: RunContext, key: str) -> float | None:
    lines = open_stage(layout.stage_folder(context.settings.home, "proxy", key)).file(METRICS).read().splitlines()
    scale = orjson.loads(lines[-1]).get("train/noise_scale")
    return None if scale is None or not np.isfinite(scale) else float(scale)
