"""The time and the cost of runs of a proxy, on this machine or on another device.

The rate of this machine, and the time of a run besides its steps, are measured with short runs when they are first
needed, and kept for the proxy and the device. The rate of another device is a share of its data sheet's (MFU). Where
the arms of a comparison differ in cost, or in how much text they read, the plan and the report say so.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import wrapt

from gristmill.flows.experiments.decisions.arm_data import ComparisonData
from gristmill.flows.experiments.decisions.arm_settings import ArmSettings
from gristmill.flows.experiments.options import OtherDevice
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.proxy import ProxyConfig
from gristmill.flows.run.progress import duration
from gristmill.flows.stages.model import local_mixture
from gristmill.flows.stages.proxy import ENVIRONMENT, at_once, devices_of, gpus
from gristmill.storage import checked_json, files
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.engine import clusters
from gristmill.tasks.engine.code_version import releases
from gristmill.tasks.engine.make import StageResult
from gristmill.training.hardware import (
    GPU_RUN_SECONDS,
    MFU,
    MeasuredRate,
    RateRequest,
    asked_sheet,
    data_sheet_flops,
    measured_mfu,
)
from gristmill.training.run.environment import environment_of

if TYPE_CHECKING:
    from gristmill.training import decoder
else:
    decoder = wrapt.lazy_import("gristmill.training.decoder")

SMALL = 60e6  # parameters; models below were not measured, and are too small to fill a GPU
# A run reads the evaluation documents twice: for the losses by set and by document.
EVALUATIONS = 2
RATES = 2  # the version of what is stored of a machine; 2: the start, and the rate of the evaluation


@dataclass(frozen=True)
class Device:
    """`description`: with the source of the rate; `flops`: floating-point operations a second that one process
    trains with; `at_once`: runs of the proxy at the same time; `count`: devices that are paid for, at `price` an hour
    each, 0 for not known; `bound`: the rate is one that training does not reach; `start`: seconds of a run besides its
    steps and its evaluation; `evaluated`: tokens a second of an evaluation, 0: not known."""

    description: str
    flops: float
    at_once: int
    count: int = 1
    price: float = 0.0
    bound: bool = False
    start: float = 0.0
    evaluated: float = 0.0


@dataclass(frozen=True)
class Time:
    """`run`: seconds of one, of which `besides` are not spent on its steps; `hours`, `money`: of the fewest and the
    most runs, on all devices."""

    run: float
    besides: float
    hours: tuple[float, float]
    money: tuple[float, float]


def time_of(device: Device, proxy: ProxyConfig, tokens: int, runs: tuple[int, int], evaluated: int = 0) -> Time:
    """The time of runs. `tokens`: of a run; `runs`: the fewest and the most; `evaluated`: tokens of an evaluation. If
    the rate of evaluations is unknown, a forward pass is a third of a step."""
    rate = device.flops * proxy.processes
    read = EVALUATIONS * evaluated
    evaluation = read / (device.evaluated * proxy.processes) if device.evaluated else run_flops(proxy, read) / 3 / rate
    besides = device.start + evaluation
    seconds = besides + run_flops(proxy, tokens) / rate
    low, high = (-(-count // device.at_once) * seconds / 3600 for count in runs)
    price = device.count * device.price
    return Time(seconds, besides, (low, high), (low * price, high * price))


def time_sentence(device: Device, groups: Sequence[tuple[ProxyConfig, int, int]]) -> str:
    """The time and the cost of runs on a device. `groups`: proxies, tokens of a run of each, and runs."""
    times = [time_of(device, proxy, tokens, (runs, runs)) for proxy, tokens, runs in groups]
    hours, money = sum(time.hours[1] for time in times), sum(time.money[1] for time in times)
    least = "at least " if device.bound else ""
    price = f", for {least}{money:,.2f}" if device.price else ""
    whole = f"{device.at_once} at once, {least}{duration(3600 * hours)}{price}"
    return f"{whole} ({device.description}), without the corpora and tokens"


def run_flops(proxy: ProxyConfig, tokens: int) -> float:
    """Floating-point operations of a run: the model's own count, attention in full."""
    return float(decoder.flops_per_token(proxy.model, proxy.vocab_size)) * tokens


def named(other: OtherDevice, proxy: ProxyConfig) -> Device:
    """Devices that this machine does not have. Raises ValueError for a name without a known data sheet, an MFU outside
    of (0, 1], and fewer devices than a run has processes."""
    parameters = proxy.model.parameters(proxy.vocab_size)
    reached = measured_mfu(other.device, parameters)
    mfu = next(share for share in (other.mfu, reached, MFU) if share is not None)
    peak, devices = asked_sheet(other.device, mfu).flops, other.devices
    if devices < proxy.processes:
        raise ValueError(
            f"--devices {devices}: a run of the proxy {proxy.name} has {proxy.processes} processes, with one "
            "device each; give at least as many, or lower its `processes`"
        )
    if other.mfu is None and reached is not None:
        source = ", as measured with a model of about this size"
    else:
        source = ", which is assumed: the rate of this model was not measured there"
        if parameters < SMALL:
            source += ", and small models reach far less (docs/explanation/training.md)"
    description = f"{devices} {other.device} at {mfu:.0%} of the {peak / 1e12:,.1f} TFLOP/s of its data sheet{source}"
    description += f"; a start of {GPU_RUN_SECONDS:g} s, as the first run of `3m` had on an H200"
    bound = reached is None and parameters < SMALL
    at_once, start = devices // proxy.processes, GPU_RUN_SECONDS
    return Device(description, mfu * peak, at_once, devices, other.price, bound, start)


def check_asked(other: OtherDevice, plan: bool) -> None:
    """Raise ValueError for options of a device that nothing reads."""
    named = [flag for flag, value in (("--device", other.device), ("--price", other.price)) if value]
    if named and not plan:
        flags, need = " and ".join(named), "needs" if len(named) == 1 else "need"
        raise ValueError(f"{flags} {need} --plan, because models are trained on this machine. Add --plan")
    if plan and other.devices > 1 and not other.device:
        raise ValueError(f"--devices {other.devices} needs --device. Add the name of the GPU, such as --device h100")


def asked(settings: MachineSettings, other: OtherDevice) -> Callable[[ProxyConfig], Device]:
    """A function that gives the device of a proxy: the one in the options, or this machine, which is measured."""
    return partial(named, other) if other.device else partial(measured, settings, price=other.price)


def measured(settings: MachineSettings, proxy: ProxyConfig, price: float = 0.0) -> Device:
    """This machine, measured now if it was not before, with as many runs at once as a decision has. Raises RuntimeError
    for a proxy that cannot be trained here."""
    path = _kept(settings, proxy)
    if not path.is_file():
        checked_json.write(str(path), _measure(settings, proxy).model_dump(mode="json"))
    return _device(settings, proxy, path, price)


def known(settings: MachineSettings, proxy: ProxyConfig) -> Device | None:
    """This machine, if it was measured."""
    path = _kept(settings, proxy)
    return _device(settings, proxy, path, 0.0) if path.is_file() else None


def _device(settings: MachineSettings, proxy: ProxyConfig, path: Path, price: float) -> Device:
    rate = MeasuredRate.model_validate(checked_json.read(str(path)))
    how = "at most, measured with matrix products" if rate.bound else "measured"
    description = f"{rate.device} of this machine, {rate.flops / 1e9:,.1f} GFLOP/s {how}"
    if not rate.bound and (peak := data_sheet_flops(rate.device)):
        description += f", {rate.flops / peak:.2%} of its data sheet"
    runs = at_once(settings, proxy.processes)
    if settings.executor in clusters.DISTANT:
        runs = settings.workers or runs
        description += "; workers of the cluster are taken to be as fast"
    # a run of one process is forked from one that has imported everything
    start = rate.start_seconds + (rate.import_seconds if proxy.processes > 1 or sys.platform != "linux" else 0.0)
    return Device(description, rate.flops, runs, len(gpus()) or 1, price, rate.bound, start, rate.evaluated)


def _request(proxy: ProxyConfig) -> RateRequest:
    return RateRequest(model=proxy.model, training=proxy.training, vocab_size=proxy.vocab_size)


def _kept(settings: MachineSettings, proxy: ProxyConfig) -> Path:
    """The file with the rate of a proxy on this machine, named by a digest of what the rate depends on."""
    machine = [platform.node(), platform.machine(), str(os.cpu_count()), os.environ.get("CUDA_VISIBLE_DEVICES", "")]
    machine.append(str(at_once(settings, proxy.processes)))
    whole = [str(RATES), _request(proxy).model_dump_json(), *machine, *releases(("torch",)).values()]
    return Path(settings.local_folder) / "rates" / f"{files.digest(json.dumps(whole).encode())}.json"


def _measure(settings: MachineSettings, proxy: ProxyConfig) -> MeasuredRate:
    """The mean of as many processes as a decision has at once, since they share memory, caches and GPUs."""
    count = at_once(settings, proxy.processes) * proxy.processes
    devices = [devices_of(slot, 1, gpus()) for slot in range(count)]
    if gpus():
        _short_runs(proxy, devices[:1])  # compiles for all later runs
    rates = _short_runs(proxy, devices)
    numbers = ("flops", "start_seconds", "import_seconds", "evaluated")
    means = {name: statistics.mean(getattr(rate, name) for rate in rates) for name in numbers}
    return MeasuredRate(bound=any(rate.bound for rate in rates), device=rates[0].device, **means)


def _short_runs(proxy: ProxyConfig, devices: Sequence[str]) -> list[MeasuredRate]:
    """Measure with a process on each of the devices, at the same time."""
    with TemporaryDirectory(prefix="gristmill-") as folder, ExitStack() as running:
        request = f"{folder}/request.json"
        checked_json.write(request, _request(proxy).model_dump(mode="json"))
        processes = []
        for device in devices:
            environment = environment_of(1, "") | ENVIRONMENT | ({"CUDA_VISIBLE_DEVICES": device} if device else {})
            process = subprocess.Popen(
                [sys.executable, "-m", "gristmill.training.run.rate", request],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            processes.append(running.enter_context(process))
            running.callback(process.kill)  # before waiting for it, if another one has failed
        answers = [(*process.communicate(), process.returncode) for process in processes]
    for _, errors, code in answers:
        if code:
            last = (errors.strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(
                f"the speed of the proxy {proxy.name} on this machine cannot be measured: {last}; choose a "
                "device with --device"
            )
    return [MeasuredRate.model_validate_json(output.splitlines()[-1]) for output, _, _ in answers]


MAX_TOKENS = 1 << 22  # of a source or a group, read to estimate the bytes of a token
_ALIKE = 0.005  # smaller relative differences of costs are not mentioned


@dataclass(frozen=True)
class ArmCost:
    """`parameters`: of the model, without gains of norms; `flops`: floating-point operations of a run; `text_bytes`:
    about how many UTF-8 bytes of text a run reads, None if a token is the same amount of text in all arms."""

    parameters: int
    flops: float
    text_bytes: float | None = None

    def __str__(self) -> str:
        text = "" if self.text_bytes is None else f", about {self.text_bytes:,.0f} bytes of text"
        return f"{self.parameters:,} parameters, {self.flops:.2e} floating-point operations a run{text}"


def arm_cost(settings: ArmSettings, tokens: int, text_bytes: float | None = None) -> ArmCost:
    """The cost of a run. `tokens`, `text_bytes`: that it reads."""
    proxy = settings.proxy
    return ArmCost(proxy.model.parameters(proxy.vocab_size), run_flops(proxy, tokens), text_bytes)


def cost_sentence(costs: Mapping[str, ArmCost]) -> str:
    """As "arms differ in cost: A has 1.31 times the parameters and 1.20 times the floating-point operations of base";
    empty if they cost the same. `costs`: the base's first."""
    (base, own), *others = costs.items()
    parts = [f"{name} has {' and '.join(ratios)}" for name, cost in others if (ratios := [*_ratios(own, cost)])]
    return f"arms differ in cost: {', '.join(parts)} of {base}" if parts else ""


def _ratios(base: ArmCost, other: ArmCost) -> Iterator[str]:
    for field, what in (("parameters", "parameters"), ("flops", "floating-point operations")):
        ratio = getattr(other, field) / getattr(base, field)
        if abs(ratio - 1) > _ALIKE:
            yield f"{ratio:.2f} times the {what}"


def text_bytes(settings: MachineSettings, data: ComparisonData) -> dict[str, float]:
    """About how many bytes of text a run of each arm reads; empty if all arms have one tokenizer and pack documents in
    the same way."""
    arms = data.arms.values()
    packings = {arm.recipe.mixture.packing if arm.recipe.mixture else "concatenate" for arm in arms}
    if len({arm.tokenizer.key for arm in arms}) == 1 and len(packings) == 1:
        return {}
    return {name: _read(settings, arm.mixture, data.budget_tokens) for name, arm in data.arms.items()}


def _read(settings: MachineSettings, plan: StageResult, tokens: int) -> float:
    manifest = load_training_manifest(local_mixture(settings, plan.folder))
    sizes = np.array(manifest.token_bytes, np.int64)
    total = 0.0
    for source in manifest.sources:
        counted = size = 0
        for shard in source.shards:
            ids = np.memmap(shard.path, manifest.dtype, mode="r", offset=shard.offset)[: MAX_TOKENS - counted]
            counted, size = counted + len(ids), size + int(sizes[ids].sum())
            if counted >= MAX_TOKENS:
                break
        padding = plan.result["sources"][source.name].get("padding", 0.0)
        total += source.share * tokens * (1 - padding) * size / counted
    return total
