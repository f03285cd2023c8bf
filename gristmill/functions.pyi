"""Signatures of functions whose parameters the code makes. Written by `python -m tests.public.signatures`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from prefect import flow

from gristmill.flows.experiments.decisions.report import DecisionReport
from gristmill.flows.experiments.mixtures import MixtureResult
from gristmill.flows.experiments.planning.plan import TrainingPlan
from gristmill.flows.experiments.scaling.ladder import AgreementReport
from gristmill.flows.experiments.scaling.report import ScalingReport
from gristmill.flows.experiments.studies.report import StudyReport
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports.run import Run

RecipeArgument = str | Path | Mapping[str, Any] | Recipe

@flow
def corpus(
    recipe: RecipeArgument,
    settings: Sequence[str] = ...,
) -> Run: ...
@flow
def tokens(
    recipe: RecipeArgument,
    settings: Sequence[str] = ...,
) -> Run: ...
@flow
def pretrain(
    recipe: RecipeArgument,
    settings: Sequence[str] = ...,
) -> Run: ...
@flow
def pipeline(
    recipe: RecipeArgument,
    settings: Sequence[str] = ...,
) -> Run: ...
@flow
def ablate(
    recipe: RecipeArgument,
    against: Sequence[RecipeArgument] = ...,
    settings: Sequence[str] = ...,
    without: Sequence[str] = ...,
    raw: bool = ...,
    proxy: str | Mapping[str, Any] = ...,
    clean: str | None = ...,
    judge: Sequence[str] = ...,
    leave_one_out: bool = ...,
    tasks: str | None = ...,
    tokens: int | None = ...,
    pairs: Sequence[int] = ...,
    futility: float | None = ...,
    bank_pairs: int = ...,
    first_pair: int = ...,
    tokenizer: str | None = ...,
    resample: bool = ...,
) -> DecisionReport: ...
@flow
def agreement(
    recipe: RecipeArgument,
    sizes: Sequence[int],
    tokens: Sequence[int],
    against: Sequence[RecipeArgument] = ...,
    settings: Sequence[str] = ...,
    without: Sequence[str] = ...,
    raw: bool = ...,
    proxy: str | Mapping[str, Any] = ...,
    clean: str | None = ...,
    judge: Sequence[str] = ...,
    repeat: bool = ...,
    seeds: int = ...,
    tasks: str | None = ...,
) -> AgreementReport: ...
@flow
def mix(
    recipe: RecipeArgument,
    proxy: str | Mapping[str, Any] = ...,
    clean: str | None = ...,
    judge: Sequence[str] = ...,
    method: Literal["doremi", "regmix"] = ...,
    runs: int | None = ...,
    seeds: int = ...,
    keep: RecipeArgument | None = ...,
    tokens: int | None = ...,
    eta: float = ...,
    smoothing: float = ...,
) -> MixtureResult: ...
def plan(
    recipe: RecipeArgument,
    device: str = ...,
    devices: int = ...,
    machine_devices: int = ...,
    network: float = ...,
    mfu: float = ...,
    device_memory: float | None = ...,
    price: float = ...,
    failure_hours: float = ...,
    tensor: int = ...,
    pipeline: int = ...,
    corpus_tokens: float | None = ...,
    served: float | None = ...,
    law: str | None = ...,
    pages: int = ...,
    shard_pages: int = ...,
    machines: int = ...,
    cores: int = ...,
    memory: float | None = ...,
    core_hour: float = ...,
    terabyte_month: float = ...,
    million_requests: float = ...,
    settings: MachineSettings | None = ...,
) -> TrainingPlan: ...
@flow
def scale(
    recipe: RecipeArgument,
    sizes: Sequence[int],
    tokens: Sequence[int],
    proxy: str | Mapping[str, Any] = ...,
    clean: str | None = ...,
    judge: Sequence[str] = ...,
    repeat: bool = ...,
    most_flops: float | None = ...,
    forecasts: Sequence[str] = ...,
    budgets: Sequence[float] = ...,
    seeds: int = ...,
    rate_sweeps: int = ...,
) -> ScalingReport: ...
@flow
def study(
    recipe: RecipeArgument,
    question: str,
    proxy: str | Mapping[str, Any] = ...,
    clean: str | None = ...,
    judge: Sequence[str] = ...,
    pairs: int = ...,
    tokens: int | None = ...,
    column: str = ...,
    schedule: str | None = ...,
) -> StudyReport: ...
