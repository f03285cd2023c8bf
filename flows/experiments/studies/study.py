"""The flow `study`: one question about training, answered by small models with an interval for each arm.

The study `resume` has no arms: does a resumed run have the weights of an uninterrupted one? The proxy is trained to the
end, then again from the checkpoint after half of its steps, with one process and with two.
"""

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import orjson
from prefect.artifacts import create_table_artifact
from prefect.logging import get_run_logger

from gristmill.flows.experiments.decisions.ablate import compare
from gristmill.flows.experiments.decisions.arm_data import proxy_data
from gristmill.flows.experiments.decisions.plan import Arms
from gristmill.flows.experiments.decisions.report import DecisionReport
from gristmill.flows.experiments.options import DecisionOptions, StudyOptions
from gristmill.flows.experiments.studies.report import ArmResult, StudyReport, study_page
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.wrong_values import did_you_mean
from gristmill.flows.recipe import variants
from gristmill.flows.recipe.forms import RecipeLike
from gristmill.flows.recipe.options import spread
from gristmill.flows.recipe.proxy import ProxyConfig, load_proxy
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.reports.dependents.retractions import marked, stale
from gristmill.flows.run.artifacts import artifact_key, flow_run_name
from gristmill.flows.run.flow import recorded_flow
from gristmill.flows.run.runner import run_context
from gristmill.flows.stages.model import local_mixture
from gristmill.flows.stages.proxy import ENVIRONMENT, METRICS, RESULT, run_record
from gristmill.flows.stats.critical_batch import CriticalBatch, critical_batch
from gristmill.flows.stats.protocol import Protocol
from gristmill.storage import checked_json, files, layout
from gristmill.storage.home import open_stage
from gristmill.tasks.engine.extras import require
from gristmill.training.config import CHECKPOINTS, RunConfig, TrainingConfig
from gristmill.training.run import launch

RATE = 0.01  # runs only use its ratio to the base's
MIN_STEPS = 16  # of a run with the largest batch
FACTORS = (1, 2, 4, 8, 16, 32)
LARGE = 8  # times the proxy's batch, at which rules for the learning rate are compared
QUANTILES = 10


@dataclass(frozen=True)
class Choice:
    """An arm: `settings` as for `--set`; `x`: where it is on the axis of numbers, if the question has one."""

    label: str
    settings: tuple[str, ...]
    x: float | None = None


@dataclass(frozen=True)
class Question:
    """`asks`: the question; `choices`: makes the arms, the base first; `axis`: the name of their numbers."""

    asks: str
    choices: Callable[[Recipe, ProxyConfig, StudyOptions], list[Choice]]
    axis: str = ""


def _batches(recipe: Recipe, proxy: ProxyConfig, options: StudyOptions) -> list[Choice]:
    """Learning rates follow the square root of the batch (Malladi et al. 2022, arXiv 2205.10287)."""
    batch, tokens = proxy.training.batch, options.tokens or proxy.tokens
    factors = [factor for factor in FACTORS if tokens // (factor * batch * proxy.model.seq_len) >= MIN_STEPS]
    return [_with_batch(f"batch {batch * factor}", batch * factor, sqrt(factor), True) for factor in factors]


def _rate_rules(recipe: Recipe, proxy: ProxyConfig, options: StudyOptions) -> list[Choice]:
    batch = proxy.training.batch
    large = batch * LARGE
    # runs only use keys that differ from the base, so every arm must have a different batch
    return [
        _with_batch(f"batch {batch}", batch, 1),
        _with_batch(f"batch {large}, unchanged rate", large, 1),
        _with_batch(f"batch {large}, square root rule", large, sqrt(LARGE)),
        _with_batch(f"batch {large}, linear rule", large, LARGE),
    ]


def _with_batch(label: str, batch: int, factor: float, on_axis: bool = False) -> Choice:
    settings = (f"training.batch={batch}", f"training.learning_rate={RATE * factor:.6g}")
    return Choice(label, settings, batch if on_axis else None)


def _precisions(recipe: Recipe, proxy: ProxyConfig, options: StudyOptions) -> list[Choice]:
    names = ("fp32", "bf16", "fp16")
    unscaled = ("training.precision=fp16", "training.loss_scaling=false")
    return [*(Choice(name, (f"training.precision={name}",)) for name in names), Choice("fp16, unscaled", unscaled)]


def _clips(recipe: Recipe, proxy: ProxyConfig, options: StudyOptions) -> list[Choice]:
    norm = 1.0 if proxy.training.clip_norm is None else proxy.training.clip_norm
    values = {f"norm {norm:g}": f"{norm:g}", f"norm {norm / 10:g}": f"{norm / 10:g}", "no clipping": "null"}
    return [Choice(label, (f"training.clip_norm={value}",)) for label, value in values.items()]


def _orders(recipe: Recipe, proxy: ProxyConfig, options: StudyOptions) -> list[Choice]:
    groups = orjson.dumps([{"column": "source"}, {"column": options.column, "quantiles": QUANTILES}]).decode()
    shared = [f"mixture.by={groups}"]
    if recipe.mixture is None:
        shared.append("mixture.strategy=proportional")

    def ordered(order: str) -> Choice:
        phases = orjson.dumps([{"share": 1, "order": order}]).decode()
        return Choice(f"{order} {options.column}", (*shared, f"mixture.phases={phases}"))

    return [Choice("shuffled", tuple(shared)), ordered("ascending"), ordered("descending")]


def _vocabularies(recipe: Recipe, proxy: ProxyConfig, options: StudyOptions) -> list[Choice]:
    sizes = [proxy.vocab_size, *(int(proxy.vocab_size * factor) for factor in (0.5, 2, 4))]
    return [Choice(f"{size:,} tokens", (f"tokenizer.vocab_size={size}",), size) for size in sizes]


# `resume` has no arms: see `study.resumed`
QUESTIONS: dict[str, Question] = {
    "batch": Question("From which batch on do larger ones cost tokens?", _batches, "batch, sequences"),
    "rate-rule": Question("How should the learning rate follow the batch?", _rate_rules),
    "precision": Question("Which precision loses something, and where does fp16 fail?", _precisions),
    "clip": Question("What does clipping the gradient do?", _clips),
    "order": Question("Does it help to read documents in an order?", _orders),
    "vocabulary": Question("Which vocabulary size is best?", _vocabularies, "tokens of the vocabulary"),
}
RESUME = "resume"


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
        files.write_bytes(report.page, marked(study_page(report), report.stale).encode())
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
    """The critical batch; None if fewer than three batches were trained. `report`: a decision with a verdict, for which
    the base was also trained on half of the tokens."""
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


ASKS = "Does a resumed run have the weights of an uninterrupted one?"
_WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class _Runs:
    """`folder`: of the runs; `base`: their settings, apart from the folder."""

    folder: Path
    base: RunConfig

    def trained(self, name: str, processes: int, checkpoint: Path | None = None) -> Path:
        """Train, from a checkpoint if there is one, and return the run's folder. Raises RuntimeError if the run
        fails."""
        out = self.folder / name
        if checkpoint is not None:
            shutil.copytree(checkpoint, out / CHECKPOINTS / checkpoint.name)
        checked_json.write(str(out / "run.json"), self.base.model_copy(update={"out": out}).model_dump(mode="json"))
        log = out / "training.log"
        if code := launch.launch(out / "run.json", processes, log, env=ENVIRONMENT):
            last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise RuntimeError(f"the run {name} of the study ended with code {code}: {last}")
        return out

    def halfway(self, run: Path) -> Path:
        """The first checkpoint of a run."""
        return min((run / CHECKPOINTS).iterdir(), key=lambda path: path.name)


def resumed(context: RunContext, recipe: Recipe, proxy: ProxyConfig, options: StudyOptions) -> StudyReport:
    """Train, resume and compare. Raises RuntimeError if a run fails."""
    data = proxy_data(context, proxy, {recipe.name: recipe}, options.tokens or proxy.tokens, clean=options.clean)
    rate, rows = proxy.learning_rates[-1], list[ArmResult]()
    record = run_record(proxy, data.budget_tokens, rate, 1, 0)
    steps = record.training.steps
    kept = {"checkpoint_every": -(-steps // 2), "keep_checkpoints": 3}
    training = TrainingConfig.model_validate(record.training.model_dump() | kept)
    mixture = Path(local_mixture(context.settings, data.mixture(recipe.name, 1).folder))
    with TemporaryDirectory(prefix="gristmill-resume-", dir=context.settings.local_folder) as folder:
        base = RunConfig(model=record.model, training=training, data=mixture, out=Path(folder))
        runs = _Runs(Path(folder), base)
        whole = runs.trained("uninterrupted", 1)
        rows.append(ArmResult("uninterrupted", loss=_loss(whole)))
        for label, processes in (("resumed", 1), ("resumed by 2 processes", 2)):
            again = runs.trained(label.replace(" ", "-"), processes, runs.halfway(whole))
            rows.append(ArmResult(label, loss=_loss(again), outcome=_distance(whole, again)))
    identity = files.digest(f"{data.mixture(recipe.name, 1).key} {record.model_dump_json()}".encode())[:16]
    return StudyReport(identity, recipe.name, RESUME, ASKS, "", tuple(rows))


def _loss(run: Path) -> float:
    return float(files.read_json(str(run / RESULT))["heldout/bits_per_byte"])


def _distance(one: Path, other: Path) -> str:
    """`the same bits`, or the distance between the weights relative to their norm."""
    from safetensors.numpy import load_file

    first, second = (load_file(run / _WEIGHTS) for run in (one, other))
    if all(np.array_equal(first[name], second[name]) for name in first):
        return "the same bits"
    squares = sum(float(((first[name] - second[name]).astype(np.float64) ** 2).sum()) for name in first)
    whole = sum(float((first[name].astype(np.float64) ** 2).sum()) for name in first)
    return f"weights differ by {np.sqrt(squares / whole):.1e} of their norm"
