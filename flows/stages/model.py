"""`model`: training in processes of their own, as one stage.

Token shards and what grows need a real file system: where the home is none, training works in a local folder.
"""

import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.given_files import init_digests, initial_folder, task_digests, tasks_folder
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.trunk import BranchPoint
from gristmill.flows.stages.heldout import Data
from gristmill.storage import checked_json, files, ledger
from gristmill.storage.home import FinishedStage
from gristmill.storage.training_manifest import local_manifest
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import MAKER, StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import FinishedInput, StageSpec, Work
from gristmill.training.checkpoint.keeping import committed, restore, stored, upload_newer
from gristmill.training.config import (
    CHECKPOINTS,
    TRAINING_VERSION,
    GuardConfig,
    Parallel,
    RunConfig,
    TrackingConfig,
    TrainingConfig,
)
from gristmill.training.model_config import ModelConfig
from gristmill.training.run import joining, launch
from gristmill.training.run.heartbeat import Limits
from gristmill.training.start import Start

# Of the folder of a training what it gives; the rest are logs, and settings with addresses.
VALUES = ("config.json", "model.safetensors", "result.json")


def local_folder(settings: MachineSettings, folder: str) -> str:
    """Checkpoints and logs are appended to while they grow, which needs a real file system."""
    return folder if files.is_local(folder) else f"{settings.local_folder}/{folder.split('://')[-1]}"


def local_mixture(settings: MachineSettings, folder: str) -> Path:
    """The file of a mixture, by its stage's folder, on a local path, with all that it names beside it: token shards are
    mapped into memory."""
    if files.is_local(folder):
        return Path(folder) / "mixture.json"
    return local_manifest(files.join(folder, "mixture.json"), f"{settings.local_folder}/cache/stages")


def local_files(settings: MachineSettings, stage: StageResult | FinishedStage, names: Sequence[str]) -> Path:
    """A local folder with these files of a stage, compared with their digests. Raises DamagedFileError."""
    folder = Path(local_folder(settings, stage.folder))
    for name in names:
        copy = stage.file(name).local()
        if not files.is_local(stage.folder):
            files.copy(copy, str(folder / name))
    return folder


RESULT = "result.json"


class ModelTraining(Settings):
    """`trunk`: where a branch of another model begins."""

    model: ModelConfig
    training: TrainingConfig
    # in no record without one, so that earlier homes keep the keys of their models
    trunk: BranchPoint | None = Field(default=None, exclude_if=lambda trunk: trunk is None)


@dataclass(frozen=True)
class ModelPlaces:
    """`mixture`: its file on a local path; `out`: a local folder for what grows, checkpoints and logs; `folder`: the
    stage's; `processes`: how many train on each of the `nodes`, which changes rounding and not the samples;
    `tracking_uri`, `run_id`: those of MLflow; `init_from`, `init_digests`: the folder of the first weights, or empty,
    and their digests; `eval_tasks`: the folder of tasks, or empty; `max_rollbacks`: the guard's budget; `parallel`: how
    the processes divide the model, which changes only rounding, too; `restarts`, `limits`: how often within an hour it
    starts again by itself, and when a process hangs; `start`: a `gristmill.training.start.Start` as JSON, or nothing;
    `lines`: by name the addresses of metrics of the steps before it; `note`: a sentence about both."""

    mixture: str
    out: str
    folder: str
    processes: int
    nodes: launch.Nodes
    tracking_uri: str
    run_id: str
    init_from: str
    init_digests: dict[str, str]
    eval_tasks: str
    max_rollbacks: int
    parallel: dict[str, int]
    restarts: int
    limits: Limits
    start: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Trained:
    """The trained model's stage, what `result.json` says of it, and the id of its MLflow run."""

    model: StageResult
    result: dict[str, Any]
    mlflow_run: str


def model_spec(
    settings: MachineSettings, recipe: Recipe, data: Data, places: Callable[[], ModelPlaces] | None = None
) -> StageSpec:
    """The stage; without places it can be looked up, but not made. First weights and tasks are known by their content,
    wherever they are. The budget of rollbacks is no part of it: a training that it ended goes on with a larger one. Nor
    is the layout, which rounds otherwise: a training that one layout began goes on with another."""
    guard = recipe.training.guard.model_copy(update={"max_rollbacks": GuardConfig().max_rollbacks})
    plain = TrainingConfig()
    unplaced = {
        "init_from": None,
        "eval_tasks": None,
        "guard": guard,
        "parallel": plain.parallel,
    }
    inputs: dict[str, FinishedInput | str]
    inputs = {"mixture": data.mixture, "tokens": data.tokens, "tokenizer": data.tokenizer}
    if (folder := initial_folder(settings, recipe)) is not None:
        inputs |= {f"init_from {name}": digest for name, digest in init_digests(settings, folder).items()}
    if (folder := tasks_folder(settings, recipe)) is not None:
        inputs |= {f"eval_tasks {name}": digest for name, digest in task_digests(settings, folder).items()}
    return StageSpec(
        name="model",
        # 2: products of Muon's stacked matrices are rounded differently; its momentum is 0.9 instead of 0.95
        version=TRAINING_VERSION,
        body=_train,
        record=ModelTraining(
            model=recipe.model, training=recipe.training.model_copy(update=unplaced), trunk=data.branch
        ),
        inputs=inputs,
        places=places,
        work=Work(modules=("gristmill.training.run.launch",), unicode=False),
        resumes=True,
    )


def _train(phases: PhaseRunner, record: ModelTraining, places: ModelPlaces) -> dict:
    """Train the model."""
    out = Path(places.out)
    run_json, log = out / "run.json", out / "training.log"
    store = files.join(places.folder, CHECKPOINTS) if places.out != places.folder else None
    joined = store is not None and places.nodes.count > 1
    if store and joined:
        upload_newer(out / CHECKPOINTS, store, out)  # of a training on only this machine
    elif store and (checkpoint := restore(store, out, out / CHECKPOINTS, phases.message)):
        phases.message(f"{checkpoint.name} is from {store}")
    has_own = bool(committed(out / CHECKPOINTS)) or bool(store and stored(store))
    if places.note and not has_own:
        phases.message(places.note)
    for name, address in places.lines.items() if not has_own else ():
        files.write_bytes(str(out / name), files.read_bytes(address))
    run_settings = {
        "init_from": places.init_from or None,
        "eval_tasks": places.eval_tasks or None,
        "guard": record.training.guard.model_copy(update={"max_rollbacks": places.max_rollbacks}),
        "parallel": Parallel(**places.parallel),
    }
    run = RunConfig(
        model=record.model,
        training=record.training.model_copy(update=run_settings),
        init_digests=places.init_digests,
        data=Path(places.mixture),
        out=out,
        store=store,
        tracking=TrackingConfig(run_id=places.run_id),
        start=Start.model_validate(places.start) if places.start else None,
    )
    checked_json.write(str(run_json), run.model_dump(mode="json"))
    environment = {"MLFLOW_TRACKING_URI": places.tracking_uri}
    with joining.offered(run, places.folder, phases.message) if joined else nullcontext():
        code = launch.launch(
            run_json,
            places.processes,
            log,
            env=environment,
            on_line=phases.message,
            nodes=places.nodes,
            restarts=places.restarts,
            limits=places.limits,
        )
    check_ended_well(code, out, log, places.nodes.count)
    shutil.rmtree(out / "trunk", ignore_errors=True)  # the copy of a checkpoint in a store
    if joined:
        shutil.rmtree(out / CHECKPOINTS)  # some files of those that are in the store
    if store:
        for path in sorted(out.iterdir()):
            if path.is_file():
                files.upload_file(str(path), files.join(places.folder, path.name))
    there = files.names(places.folder)
    values = [name for name in there if name in VALUES]
    apart = (*VALUES, MAKER)
    logs = [name for name in there if name not in apart and name.endswith((".json", ".jsonl", ".safetensors"))]
    phases.once("record", ledger.record_files, {"names": values, "logs": logs})
    return {"result": files.read_json(files.join(places.folder, RESULT))}


class InterruptedTrainingError(RuntimeError):
    """A training ended for a reason that the same command may overcome: it was stopped, or killed or hung too often.

    `exit_code`: of the command line, for a scheduler that starts it again (EX_TEMPFAIL of sysexits.h).
    """

    exit_code = launch.STOPPED


def check_ended_well(code: int, out: Path, log: Path, machines: int = 1) -> None:
    """Raise RuntimeError, with the cause, for a training on so many machines that `gristmill.training.run.launch`
    started and that left this code; InterruptedTrainingError if the same command may resume it."""
    if code == launch.STOPPED:
        raise InterruptedTrainingError(
            f"training was stopped and saved a checkpoint in {out}: run the same command to resume"
        )
    report = out / "guard.json"
    if code and report.exists():
        raise RuntimeError(f"training ended: {files.read_json(str(report))['error']}")
    if code and (failure := out / launch.FAILURE).exists():
        message = f"training ended: {failure.read_text().strip()}; more is in {log}"
        if machines > 1:
            message += (
                f". If another of the {machines} machines ended first, its log has the reason. The same "
                "commands resume from the newest checkpoint"
            )
        raise InterruptedTrainingError(message) if launch.is_interrupted(code) else RuntimeError(message)
    if code:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise RuntimeError(f"training ended with code {code}; the end of {log}:\n{last}")
