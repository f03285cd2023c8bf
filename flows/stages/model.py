"""The training stage: torchrun under the flow's eyes."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.context import PhaseRunner, RunContext, StageResult, StageSpec, stage
from flows.machine import MachineSettings
from flows.mlflow_runs import ModelRun
from flows.recipe import Recipe
from flows.stages.all_stages import Data
from storage import files
from training import launch
from training.config import RunConfig, TrackingConfig

RESULT = "result.json"


@dataclass(frozen=True)
class Trained:
    """The trained model's stage, what `result.json` says of it, and the id of its MLflow run."""

    model: StageResult
    result: dict[str, Any]
    mlflow_run: str


def train(context: RunContext, recipe: Recipe, data: Data) -> Trained:
    """Train on the mixture, in processes of their own, resuming from the newest checkpoint if there is one.

    The number of processes is a setting of the machine: it changes rounding, not the samples. With a home that is
    not on a local disk, checkpoints stay in the local folder until training is done.
    """
    settings = {"model": recipe.model.model_dump(mode="json"), "training": recipe.training.model_dump(mode="json")}
    inputs = {"mixture": data.mixture.key, "tokens": data.tokens.key, "tokenizer": data.tokenizer.key}
    made = stage("model", (launch.main,), settings, inputs)
    folder = made.folder(context.settings.home)
    run = ModelRun(context.settings, recipe, data, made.key, folder)

    def body(phases: PhaseRunner) -> dict:
        out = _local(context.settings, folder)
        with _alone(out), run as tracked:
            _launch(context.settings, recipe, _mixture(context.settings, data), out, tracked, phases)
        if out != folder:
            files.upload(out, folder)
        return {"result": files.read_json(files.join(folder, RESULT))}

    built = context.build(StageSpec(made, body))
    return Trained(built, built.manifest["result"], run.of_reused() if built.reused else run.id)


def _launch(
    settings: MachineSettings, recipe: Recipe, mixture: Path, out: str, tracked: str, phases: PhaseRunner
) -> None:
    run_json, log = Path(out) / "run.json", Path(out) / "training.log"
    run = RunConfig(
        model=recipe.model,
        training=recipe.training,
        data=mixture,
        out=Path(out),
        tracking=TrackingConfig(run_id=tracked),
    )
    files.write_bytes(str(run_json), run.model_dump_json(indent=2).encode())
    processes = settings.training_processes or launch.default_processes()
    environment = {"MLFLOW_TRACKING_URI": settings.tracking_uri}
    code = launch.launch(run_json, processes, log, env=environment, on_line=phases.say)
    if code == launch.STOPPED:
        raise RuntimeError(f"training was stopped and has saved a checkpoint in {out}: run the same command to go on")
    if code:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise RuntimeError(f"training ended with code {code}; the end of {log}:\n{last}")


@contextmanager
def _alone(out: str) -> Iterator[None]:
    """Two runs of one recipe would write the same checkpoints; the second is refused."""
    Path(out).mkdir(parents=True, exist_ok=True)
    with open(f"{out}/.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RuntimeError(f"another run is training in {out}: wait for it, and this one will reuse it") from error
        yield


def _local(settings: MachineSettings, folder: str) -> str:
    """Checkpoints and logs are appended to while they grow, which needs a real file system."""
    return folder if files.is_local(folder) else f"{settings.local_folder}/{folder.split('://')[-1]}"


def _mixture(settings: MachineSettings, data: Data) -> Path:
    """The mixture's file on a local path, with all it names beside it: token shards are mapped into memory."""
    folder = data.mixture.folder
    if files.is_local(folder):
        return Path(folder) / "mixture.json"
    remote, local = folder.rsplit("/", 1)[0], f"{settings.local_folder}/cache/stages"
    mixture = files.read_json(files.join(folder, "mixture.json"))
    shards = [shard["path"] for part in mixture["sources"] + mixture["heldout"] for shard in part["shards"]]
    names = [mixture["tokenizer"], *shards, f"../{folder.rsplit('/', 1)[1]}/mixture.json"]
    for name in names:
        inner = name.removeprefix("../")
        files.copy(files.join(remote, inner), f"{local}/{inner}")
    return Path(local) / folder.rsplit("/", 1)[1] / "mixture.json"
