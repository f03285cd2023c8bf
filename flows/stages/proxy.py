"""`proxy`: one short training of a small model, and its loss on every evaluation document."""

import hashlib
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.proxy import ProxyConfig
from gristmill.flows.stages.model import local_folder, local_mixture
from gristmill.storage import checked_json, files, layout, parquet
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.training.config import CHECKPOINTS, DOCUMENT_LOSSES, ModelConfig, RunConfig, TrainingConfig
from gristmill.training.run import launch

SECONDS = "seconds.json"
RECORDED = (DOCUMENT_LOSSES, "metrics.jsonl", "model.safetensors", "config.json")
RESULT = "result.json"
RESTARTS = 1  # of a run whose process was killed


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

    `metrics`: those of the last step; `tokens`: targets learned from; `epochs`: how often each
    source was read; `seconds`: what the training took when it was made, its start included.
    """

    key: str
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


class Record(Settings):
    model: ModelConfig
    training: TrainingConfig


@dataclass(frozen=True)
class ProxyPlaces:
    """`mixture`: its file on a local path; `out`: a local folder for what grows; `folder`: the stage's; `device`: the
    GPU, as CUDA_VISIBLE_DEVICES names it, or empty."""

    mixture: str
    out: str
    folder: str
    device: str


def train_proxies(context: RunContext, runs: Sequence[ProxyRun]) -> list[ProxyResult]:
    """The results of runs, in their order. Those that are finished in the home are found; the others are trained, as
    many at once as GRISTMILL_PROXY_RUNS says. Requests with equal keys are trained once.

    A result does not depend on how many are trained at once. An error in one, or a signal, ends the others.
    """
    settings = context.settings
    specs = [partial(proxy_spec, settings, run) for run in runs]
    keys = [spec(0).key for spec in specs]
    distinct = dict(zip(keys, specs, strict=True))
    stages = dict(zip(distinct, context.build_all(list(distinct.values()), partial(at_once, settings)), strict=True))
    return [_result(stages[key], run) for key, run in zip(keys, runs, strict=True)]


def proxy_spec(settings: MachineSettings, run: ProxyRun, slot: int) -> StageSpec:
    """The stage of a run. `slot`: its number among those that are trained at once."""
    record = run_record(run.proxy, run.tokens, run.learning_rate, run.pair, run.salt)
    inputs = {"mixture": run.mixture.key}  # which is made from the keys of the tokens and the tokenizer

    def places() -> ProxyPlaces:
        folder, devices = spec.folder(settings.home), gpus()
        return ProxyPlaces(
            mixture=str(local_mixture(settings, run.mixture)),
            out=local_folder(settings, folder),
            folder=folder,
            device=devices[slot % len(devices)] if devices else "",
        )

    spec = StageSpec("proxy", _train, record, inputs, places, ("gristmill.training.run.launch",), ("torch",))
    return spec


def run_record(proxy: ProxyConfig, tokens: int, learning_rate: float, pair: int, salt: int) -> Record:
    """All that decides a run beside its data. The salt is in the seed of the order alone."""
    order = hashlib.blake2b(f"{pair}\0{salt}".encode(), digest_size=6).digest()
    training = proxy.run_training(tokens, learning_rate, pair, int.from_bytes(order, "little"))
    # what these would add is seen at the end of the run alone, or by nobody
    seldom = {name: training.steps for name in ("eval_every", "checkpoint_every")} | {
        "monitor_every": training.steps + 1,
        "sample_tokens": 0,
    }
    return Record(model=proxy.model, training=training.model_copy(update=seldom))


def at_once(settings: MachineSettings) -> int:
    """How many proxies are trained at the same time."""
    return settings.proxy_runs or len(gpus()) or os.cpu_count() or 1


@cache
def gpus() -> tuple[str, ...]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch  # takes seconds

    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    count = torch.cuda.device_count()
    return tuple(named[:count] or map(str, range(count)))


def _train(phases: PhaseRunner, record: Record, places: ProxyPlaces) -> dict:
    """Train a proxy and take its loss on every evaluation document."""
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
    # one thread on every machine: a second one is of little use to a model of this size, and changes rounding
    environment = {"OMP_NUM_THREADS": "1"} | ({"CUDA_VISIBLE_DEVICES": places.device} if places.device else {})
    began = time.monotonic()
    code = launch.launch(run_json, 1, log, env=environment, poll=phases.check, restarts=RESTARTS)
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
    phases.once("record", layout.record_files, {"names": list(RECORDED)})
    # nobody goes on from a proxy's checkpoint, and there are hundreds of them
    shutil.rmtree(out / CHECKPOINTS)
    (out / RESULT).unlink()
    return {"tokens": result["tokens"], "metrics": {name: value for name, value in result.items() if "/" in name}}


def _result(stage: StageResult, run: ProxyRun) -> ProxyResult:
    table = parquet.read_table(files.join(stage.folder, DOCUMENT_LOSSES))
    names = table["set"].to_numpy(zero_copy_only=False)
    sets = tuple(dict.fromkeys(names.tolist()))
    sources = checked_json.read(files.join(run.mixture.folder, "mixture.json"))["sources"]
    tokens = stage.result["tokens"]
    return ProxyResult(
        key=stage.key,
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
