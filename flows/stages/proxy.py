"""The stages that train small models.

`proxy`: one short training, and its loss on every evaluation document.

`doremi`: a proxy that reweights its sources during training, compared with a finished reference.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.proxy import ProxyConfig
from gristmill.flows.stages.model import local_folder, local_mixture
from gristmill.storage import checked_json, files, ledger, parquet
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine import clusters
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, Work
from gristmill.tasks.engine.stage_jobs import StageJobs
from gristmill.training.config import CHECKPOINTS, DOCUMENT_LOSSES, TRAINING_VERSION, RunConfig, TrainingConfig
from gristmill.training.model_config import ModelConfig
from gristmill.training.run import launch
from gristmill.training.run.preloaded import kept, preloaded

SECONDS = "seconds.json"
METRICS = "metrics.jsonl"  # with times
RECORDED = (DOCUMENT_LOSSES, METRICS, "model.safetensors", "config.json")
RESULT = "result.json"
RESTARTS = 1  # of a run whose process was killed
# One thread on every machine: a second one is of little use to a model of this size, and changes rounding.
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class ProxyRun:
    """A run that is asked for. `mixture`: the stage whose `mixture.json` names what it trains on, and the evaluation
    documents as what is held out; `pair`: seeds the weights and, with `salt`, the order of the data; `tokens`: its
    budget."""

    proxy: ProxyConfig
    mixture: StageResult
    pair: int
    learning_rate: float
    tokens: int
    salt: int = 0


@dataclass(frozen=True)
class ProxyResult:
    """A run that is done. Of each evaluation document, in the order of the mixture's held-out sets: `set_of`, the
    index of its name in `sets`; `bits`, float64; `sizes`, UTF-8 bytes of its text, int64; all (documents,).

    `key`, `label`, `contents`: of its stage; `metrics`: those of the last step; `tokens`: targets learned from;
    `epochs`: how often each source was read; `seconds`: what the training took when it was made, its start included.
    """

    key: str
    label: str
    contents: str
    folder: str
    sets: tuple[str, ...]
    set_of: np.ndarray
    bits: np.ndarray
    sizes: np.ndarray
    metrics: Mapping[str, float]
    tokens: int
    epochs: Mapping[str, float]
    seconds: float
    reused: bool


class ProxyTraining(Settings):
    model: ModelConfig
    training: TrainingConfig
    processes: int = 1  # they decide rounding


@dataclass(frozen=True)
class ProxyPlaces:
    """`mixture`: its file on a local path; `out`: a local folder for what grows; `folder`: the stage's; `devices`: the
    GPUs, as CUDA_VISIBLE_DEVICES names them, or empty; `preloaded`: the address of what gives the run its process, or
    empty."""

    mixture: str
    out: str
    folder: str
    devices: str
    preloaded: str


def train_proxies(context: RunContext, runs: Sequence[ProxyRun]) -> list[ProxyResult]:
    """The results of runs, in their order. Those that are finished in the home are found; the others are trained, as
    many at once as GRISTMILL_PROXY_RUNS says, or by the workers of the cluster that the settings name. Requests with
    equal keys are trained once.

    A result depends on neither. An error in one, or a signal, ends the others.
    """
    settings = context.settings
    most = max((run.proxy.processes for run in runs), default=1)
    specs = [partial(proxy_spec, settings, run) for run in runs]
    keys = [spec(0).key for spec in specs]
    distinct = dict(zip(keys, specs, strict=True))
    jobs = _jobs(settings, dict(zip(keys, runs, strict=True)).values(), most)
    forks = jobs is None and any(
        run.proxy.processes == 1 and context.find(distinct[key](0)) is None for key, run in zip(keys, runs, strict=True)
    )
    with preloaded(ENVIRONMENT) if forks else nullcontext("") as address:
        wanted = [partial(spec, address=address) for spec in distinct.values()]
        finished = context.build_all(wanted, partial(at_once, settings, most), jobs)
    stages = dict(zip(distinct, finished, strict=True))
    return [_result(stages[key], run) for key, run in zip(keys, runs, strict=True)]


@dataclass(frozen=True)
class DistantRun:
    """A run as a worker is asked for it. `mixture`: name, key and folder of its stage, whose contents have the digest
    `contents`; `proxy`: its place among the proxies that all jobs share; `more`: the other fields of the run."""

    mixture: tuple[str, str, str]
    contents: str
    proxy: int
    more: dict[str, Any]


def _jobs(settings: MachineSettings, runs: Iterable[ProxyRun], processes: int) -> StageJobs | None:
    """How workers make the stages of runs; None if they are trained on this machine."""
    if settings.executor not in clusters.DISTANT:
        return None
    proxies: list[ProxyConfig] = []
    arguments = []
    for run in runs:
        if run.proxy not in proxies:
            proxies.append(run.proxy)
        mixture = run.mixture.name, run.mixture.key, run.mixture.folder
        more = {each.name: getattr(run, each.name) for each in fields(run) if each.name not in ("proxy", "mixture")}
        arguments.append(DistantRun(mixture, run.mixture.contents, proxies.index(run.proxy), more))
    return StageJobs(partial(distant_spec, settings.home, tuple(proxies)), arguments, processes)


def distant_spec(home: str, proxies: Sequence[ProxyConfig], asked: DistantRun, slot: int) -> StageSpec:
    """The stage of a run on a worker, by the worker's own settings but for the home. `slot`: as for `proxy_spec`."""
    name, key, folder = asked.mixture
    mixture = StageResult(name, key, folder, {"contents": asked.contents}, reused=True)
    run = ProxyRun(proxy=proxies[asked.proxy], mixture=mixture, **asked.more)
    address = kept(tuple(ENVIRONMENT.items())) if run.proxy.processes == 1 else ""
    return proxy_spec(MachineSettings(home=home), run, slot, address)


def proxy_spec(settings: MachineSettings, run: ProxyRun, slot: int, address: str = "") -> StageSpec:
    """The stage of a run. `slot`: its number among those that are trained at once; `address`:
    ProxyPlaces.preloaded."""

    def places() -> ProxyPlaces:
        folder = spec.folder(settings.home)
        return ProxyPlaces(
            mixture=str(local_mixture(settings, run.mixture.folder)),
            out=local_folder(settings, folder),
            folder=folder,
            devices=devices_of(slot, run.proxy.processes, gpus()),
            preloaded=address,
        )

    spec = StageSpec(
        name="proxy",
        # 2: products of Muon's stacked matrices are rounded differently; its momentum is 0.9 instead of 0.95
        version=TRAINING_VERSION,
        body=_train,
        record=run_record(run.proxy, run.tokens, run.learning_rate, run.pair, run.salt),
        inputs={"mixture": run.mixture},  # which has the digests of the tokens and of the tokenizer
        places=places,
        work=Work(
            modules=("gristmill.training.run.preloaded",),
            libraries=("torch",),  # runs are compared by small differences of their losses
            unicode=False,
        ),
    )
    return spec


def _train(phases: PhaseRunner, record: ProxyTraining, places: ProxyPlaces) -> dict:
    """Train a proxy and compute its loss on every evaluation document."""
    out = Path(places.out)
    run_json, log = out / "run.json", out / "training.log"
    run = RunConfig(
        model=record.model,
        training=record.training,
        data=Path(places.mixture),
        out=out,
        document_losses=True,
    )
    checked_json.write(str(run_json), run.model_dump(mode="json"))
    environment = ENVIRONMENT | ({"CUDA_VISIBLE_DEVICES": places.devices} if places.devices else {})
    began = time.monotonic()
    code = launch.launch(
        run_json,
        record.processes,
        log,
        env=environment,
        poll=phases.check,
        restarts=RESTARTS,
        preloaded=places.preloaded,
    )
    if code:
        report = out / "guard.json"
        if report.exists():
            raise RuntimeError(f"the proxy run {places.folder} ended: {files.read_json(str(report))['error']}")
        if (failure := out / launch.FAILURE).exists():
            raise RuntimeError(f"the proxy run {places.folder} ended: {failure.read_text().strip()}; more is in {log}")
        last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise RuntimeError(f"the proxy run {places.folder} ended with code {code}; the end of {log}:\n{last}")
    result = files.read_json(str(out / RESULT))
    files.write_bytes(files.join(places.folder, SECONDS), f"{time.monotonic() - began:.3f}".encode())
    if places.out != places.folder:
        for name in RECORDED:
            files.upload_file(str(out / name), files.join(places.folder, name))
    values = [name for name in RECORDED if name != METRICS]
    phases.once("record", ledger.record_files, {"names": values, "logs": [METRICS]})
    # no run resumes from a proxy's checkpoint, and there are hundreds of them
    shutil.rmtree(out / CHECKPOINTS)
    (out / RESULT).unlink()
    return {"tokens": result["tokens"], "metrics": {name: value for name, value in result.items() if "/" in name}}


def run_record(proxy: ProxyConfig, tokens: int, learning_rate: float, pair: int, salt: int) -> ProxyTraining:
    """The settings that decide a run, apart from its data. The salt changes only the seed of the order."""
    order = hashlib.blake2b(f"{pair}\0{salt}".encode(), digest_size=6).digest()
    training = proxy.run_training(tokens, learning_rate, pair, int.from_bytes(order, "little"))
    # their results are only read at the end of the run, or not at all
    seldom = {name: training.steps for name in ("eval_every", "checkpoint_every")} | {
        "monitor_every": training.steps + 1,
        "sample_tokens": 0,
    }
    return ProxyTraining(model=proxy.model, training=training.model_copy(update=seldom), processes=proxy.processes)


def at_once(settings: MachineSettings, processes: int) -> int:
    """How many proxies of so many processes each are trained at the same time."""
    return settings.proxy_runs or max(1, (len(gpus()) or os.cpu_count() or 1) // processes)


def devices_of(slot: int, processes: int, devices: Sequence[str]) -> str:
    """The GPUs of a run of so many processes, as CUDA_VISIBLE_DEVICES names them; "" on a machine without one.

    Runs in neighboring slots have others as long as there are enough. Raises ValueError for a run that has more
    processes than the machine has GPUs.
    """
    if not devices:
        return ""
    if processes > len(devices):
        raise ValueError(
            f"a run of the proxy has {processes} processes, with one GPU each, but this machine has "
            f"{len(devices)}: lower the proxy's `processes`"
        )
    return ",".join(devices[(slot * processes + i) % len(devices)] for i in range(processes))


@cache
def gpus() -> tuple[str, ...]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch  # takes seconds

    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    count = torch.cuda.device_count()
    return tuple(named[:count] or map(str, range(count)))


def _result(stage: StageResult, run: ProxyRun) -> ProxyResult:
    table = parquet.read_table(files.join(stage.folder, DOCUMENT_LOSSES))
    names = table["set"].to_numpy(zero_copy_only=False)
    sets = tuple(dict.fromkeys(names.tolist()))
    sources = checked_json.read(files.join(run.mixture.folder, "mixture.json"))["sources"]
    tokens = stage.result["tokens"]
    return ProxyResult(
        key=stage.key,
        label=stage.label,
        contents=stage.contents,
        folder=stage.folder,
        sets=sets,
        set_of=np.array([sets.index(name) for name in names]),
        bits=table["bits"].to_numpy(),
        sizes=table["bytes"].to_numpy(),
        metrics=stage.result["metrics"],
        tokens=tokens,
        epochs={source["name"]: source["share"] * tokens / source["tokens"] for source in sources},
        seconds=float(files.read_bytes(files.join(stage.folder, SECONDS))),
        reused=stage.reused,
    )


# those of gristmill.training.doremi and gristmill.training.hub.weight_files, which load torch
DOMAIN_WEIGHTS = "domain_weights.parquet"
REFERENCE_FILES = ("config.json", "model.safetensors")


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
        # 2: products of Muon's stacked matrices are rounded differently; its momentum is 0.9 instead of 0.95
        version=TRAINING_VERSION,
        body=_train_doremi,
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


def _train_doremi(phases: PhaseRunner, record: DoReMiTraining, places: DoReMiPlaces) -> dict:
    """Train a proxy that reweights its sources."""
    out = Path(places.out)
    run_json, log = out / "run.json", out / "training.log"
    reference = Path(places.reference)
    if not files.is_local(places.reference):
        reference = out / "reference"
        for name in REFERENCE_FILES:
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
        for name in (DOMAIN_WEIGHTS, RESULT):
            files.upload_file(str(out / name), files.join(places.folder, name))
    phases.once("record", ledger.record_files, {"names": [DOMAIN_WEIGHTS, RESULT]})
    return files.read_json(files.join(places.folder, RESULT))
