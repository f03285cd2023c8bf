"""`doremi`: a proxy that reweights its sources while it trains, beside a finished reference."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.proxy import ProxyConfig
from gristmill.flows.stages.model import local_folder, local_mixture
from gristmill.flows.stages.proxy import ProxyResult, at_once, devices_of, gpus
from gristmill.storage import checked_json, files, ledger
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, Work
from gristmill.training.config import TRAINING_VERSION, ModelConfig, TrainingConfig
from gristmill.training.run import launch

# those of gristmill.training.doremi and gristmill.training.hub.weight_files, which load torch
WEIGHTS, RESULT = "domain_weights.parquet", "result.json"
REFERENCE = ("config.json", "model.safetensors")


@dataclass(frozen=True)
class DoReMi:
    """A run that is asked for. `mixture`: the stage whose `mixture.json` names the sources; `reference`: a finished
    proxy on it; `pair`: seeds weights and order; see `gristmill.training.doremi.DoReMiRun` for the others."""

    proxy: ProxyConfig
    mixture: StageResult
    reference: ProxyResult
    pair: int
    learning_rate: float
    tokens: int
    eta: float
    smoothing: float


class DoReMiTraining(Settings):
    model: ModelConfig
    training: TrainingConfig
    eta: float
    smoothing: float


@dataclass(frozen=True)
class DoReMiPlaces:
    """`mixture`: its file on a local path; `reference`: the folder of the reference; `out`: a local folder for what
    grows; `folder`: the stage's; `device`: the GPU, as CUDA_VISIBLE_DEVICES names it, or empty."""

    mixture: str
    reference: str
    out: str
    folder: str
    device: str


def doremi(context: RunContext, runs: Sequence[DoReMi]) -> list[StageResult]:
    """The stages of runs, in their order; several are trained at once. The `weights` of a result are the mean weights
    by source."""
    settings = context.settings
    specs = [partial(doremi_spec, settings, run) for run in runs]
    return context.build_all(specs, partial(at_once, settings, 1))


def doremi_spec(settings: MachineSettings, run: DoReMi, slot: int) -> StageSpec:
    """The stage of a run. `slot`: its number among those that are trained at once."""
    training = run.proxy.run_training(run.tokens, run.learning_rate, run.pair, run.pair)

    def places() -> DoReMiPlaces:
        folder = spec.folder(settings.home)
        return DoReMiPlaces(
            mixture=str(local_mixture(settings, run.mixture.folder)),
            reference=run.reference.folder,
            out=local_folder(settings, folder),
            folder=folder,
            device=devices_of(slot, 1, gpus()),
        )

    spec = StageSpec(
        name="doremi",
        version=TRAINING_VERSION,
        body=_train,
        record=DoReMiTraining(model=run.proxy.model, training=training, eta=run.eta, smoothing=run.smoothing),
        inputs={"mixture": run.mixture, "reference": run.reference},
        places=places,
        work=Work(
            modules=("gristmill.training.run.launch", "gristmill.training.doremi"),
            libraries=("torch",),  # as for the proxies
            unicode=False,
        ),
    )
    return spec


def _train(phases: PhaseRunner, record: DoReMiTraining, places: DoReMiPlaces) -> dict:
    """Train a proxy that reweights its sources."""
    out = Path(places.out)
    run_json, log = out / "run.json", out / "training.log"
    reference = Path(places.reference)
    if not files.is_local(places.reference):
        reference = out / "reference"
        for name in REFERENCE:
            files.copy(files.join(places.reference, name), str(reference / name))
    run = record.model_dump(mode="json") | {"data": places.mixture, "reference": str(reference), "out": str(out)}
    out.mkdir(parents=True, exist_ok=True)
    checked_json.write(str(run_json), run)
    # one thread on every machine, as other proxies have
    environment = {"OMP_NUM_THREADS": "1"} | ({"CUDA_VISIBLE_DEVICES": places.device} if places.device else {})
    began = time.monotonic()
    code = launch.launch(run_json, 1, log, env=environment, poll=phases.check, module="gristmill.training.doremi")
    if code:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise RuntimeError(f"the DoReMi run {places.folder} ended with code {code}; the end of {log}:\n{last}")
    phases.message(f"trained in {time.monotonic() - began:.0f} seconds")
    if places.out != places.folder:
        for name in (WEIGHTS, RESULT):
            files.upload_file(str(out / name), files.join(places.folder, name))
    phases.once("record", ledger.record_files, {"names": [WEIGHTS, RESULT]})
    return files.read_json(files.join(places.folder, RESULT))
