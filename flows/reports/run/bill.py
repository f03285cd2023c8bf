"""What a finished run took: of its corpus by stage, and of its training by what training has recorded of its speed.

The time of a stage is the CPU time of its jobs, when they were made: a stage that several recipes share is in the bill
of each. That of training is the time of the steps that the model is made of; starts, evaluations, checkpoints, and
steps that were lost and taken again, are not in it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import orjson

from gristmill.flows.curation import processing
from gristmill.flows.reports.run import Run
from gristmill.flows.stages.language_model import BILL
from gristmill.storage import checked_json, files
from gristmill.tasks.engine.job_costs import REQUESTS_A_READ
from gristmill.tasks.engine.make import StageResult
from gristmill.training.run.tracking import METRICS, TIMING


@dataclass(frozen=True)
class AnswerBill:
    """Answers of a language model: `price` by the prices of the machine that asked."""

    requests: int
    prompt_tokens: int
    completion_tokens: int
    price: float


@dataclass(frozen=True)
class StageBill:
    """`core_hours`: None for a stage whose files were removed; `bytes`: of its files in the home;
    `requests`: to the store, None where the home is none; `answers`: None for a stage that asks no language model."""

    stage: str
    core_hours: float | None
    bytes: int
    requests: int | None
    answers: AnswerBill | None = None


@dataclass(frozen=True)
class TrainingBill:
    """`hours`: of the steps; `gpu_hours`: of all GPUs, 0 on processors; `core_hours`: of the processes;
    `kilowatt_hours`: of the processors of rank 0's machine and of all GPUs, these taken to draw what rank 0's does;
    None without a counter."""

    hours: float
    processes: int
    gpu_hours: float
    core_hours: float
    kilowatt_hours: float | None


@dataclass(frozen=True)
class RunBill:
    stages: tuple[StageBill, ...]
    training: TrainingBill | None

    @property
    def core_hours(self) -> float:
        """Of the stages that were measured."""
        return sum(stage.core_hours or 0.0 for stage in self.stages)

    @property
    def bytes(self) -> int:
        return sum(stage.bytes for stage in self.stages)

    @property
    def requests(self) -> int | None:
        """None for a home that is no object store."""
        counted = [stage.requests for stage in self.stages if stage.requests is not None]
        return sum(counted) if counted else None

    @property
    def answers(self) -> AnswerBill | None:
        """None for a run that asks no language model."""
        bills = [stage.answers for stage in self.stages if stage.answers is not None]
        names = [field.name for field in fields(AnswerBill)]
        return AnswerBill(**{name: sum(getattr(each, name) for each in bills) for name in names}) if bills else None

    def metrics(self) -> dict[str, float]:
        """The sums, as MLflow has them."""
        found = {
            "resources/corpus_core_hours": self.core_hours,
            "resources/bytes": float(self.bytes),
        }
        if self.requests is not None:
            found["resources/requests"] = float(self.requests)
        if self.answers is not None:
            found |= {f"resources/lm_{name}": float(value) for name, value in asdict(self.answers).items()}
        if self.training is not None:
            found["resources/training_hours"] = self.training.hours
            found["resources/training_gpu_hours"] = self.training.gpu_hours
            found["resources/training_core_hours"] = self.training.core_hours
            if self.training.kilowatt_hours is not None:
                found["resources/training_kilowatt_hours"] = self.training.kilowatt_hours
        return found


def bill(report: Run) -> RunBill:
    """What the run of a report took. Reads a small file of each stage, and the figures of training's steps."""
    rows = tuple(_row(stage) for stage in processing(report.built))
    if report.trained is None:
        return RunBill(rows, None)
    model = report.trained.model
    timing = [*map(orjson.loads, model.file(TIMING).read().splitlines())]
    metrics = [*map(orjson.loads, model.file(METRICS).read().splitlines())]
    return RunBill(rows, training_bill(metrics, timing))


def _row(stage: StageResult) -> StageBill:
    costs = stage.costs
    unknown = costs is None or files.is_local(stage.folder)
    return StageBill(
        stage.name,
        None if costs is None else sum(cost.cpu_seconds for cost in costs.values()) / 3600,
        stage.manifest["parts"]["bytes"],
        None if unknown else sum(cost.reads * REQUESTS_A_READ + cost.writes for cost in (costs or {}).values()),
        _answers(stage),
    )


def _answers(stage: StageResult) -> AnswerBill | None:
    if "answers" not in stage.result:
        return None
    try:
        found = checked_json.read(files.join(stage.folder, BILL))
    except FileNotFoundError:  # its files were removed
        return None
    return AnswerBill(**{field.name: found[field.name] for field in fields(AnswerBill)})


def training_bill(metrics: Iterable[Mapping[str, Any]], timing: Iterable[Mapping[str, Any]]) -> TrainingBill | None:
    """By the lines of metrics.jsonl (`step`, `train/tokens` so far) and timing.jsonl (`step`,
    `train/tokens_per_second`, `system/processes`, ...), both in the order of their steps. None where training did not
    record its processes."""
    speeds = {line["step"]: line for line in timing if "system/processes" in line}
    seconds = core_seconds = gpu_seconds = joules = 0.0
    processes, known, before = 0, False, 0.0
    for line in metrics:
        tokens, before = line["train/tokens"] - before, line["train/tokens"]
        if (at := speeds.get(line["step"])) is None:
            continue
        took = tokens / at["train/tokens_per_second"]
        processes = int(at["system/processes"])
        gpus = processes if "system/gpu_memory_peak_gib" in at else 0
        seconds += took
        gpu_seconds += took * gpus
        core_seconds += took * processes * at["system/cpu_percent"] / 100
        watts = at.get("system/package_watts", 0.0) + gpus * at.get("system/gpu_watts", 0.0)
        known = known or "system/package_watts" in at or "system/gpu_watts" in at
        joules += took * watts
    if not seconds:
        return None
    energy = joules / 3.6e6 if known else None
    return TrainingBill(seconds / 3600, processes, gpu_seconds / 3600, core_seconds / 3600, energy)
