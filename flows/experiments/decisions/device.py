"""How long runs of a proxy take and what they cost, on the device at hand or on one that is named.

The rate of this machine is measured by a few steps when somebody asks for it, and kept for the proxy and the device.
Of a device that one cannot see it is a share of what its data sheet promises (MFU).
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import wrapt

from gristmill.flows.experiments.decisions.options import OtherDevice
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.proxy import ProxyConfig
from gristmill.flows.run.progress import duration
from gristmill.flows.stages.proxy import ENVIRONMENT, at_once, gpus
from gristmill.storage import checked_json, files
from gristmill.tasks.engine.code_version import releases
from gristmill.training.hardware import MeasuredRate, RateRequest, asked_sheet
from gristmill.training.run.launch import environment_of

if TYPE_CHECKING:
    from gristmill.training import decoder
else:
    decoder = wrapt.lazy_import("gristmill.training.decoder")

# Of a run of the proxy `small`: its start, evaluation and end. A larger one has more to evaluate.
START_SECONDS = 2.0


@dataclass(frozen=True)
class Device:
    """`said`: what it is, and where the rate comes from; `flops`: floating-point operations a second that one process
    trains with; `at_once`: runs of the proxy at the same time; `count`: devices that are paid for, at `price` an hour
    each, 0 for not known; `bound`: the rate is one that training does not reach."""

    said: str
    flops: float
    at_once: int
    count: int = 1
    price: float = 0.0
    bound: bool = False


@dataclass(frozen=True)
class Time:
    """`run`: seconds of one; `hours`: of the fewest and of the most runs, on all devices; `money`: likewise."""

    run: float
    hours: tuple[float, float]
    money: tuple[float, float]


def time_of(device: Device, proxy: ProxyConfig, tokens: int, runs: tuple[int, int]) -> Time:
    """Of so many runs, of so many tokens each."""
    seconds = START_SECONDS + run_flops(proxy, tokens) / (device.flops * proxy.processes)
    low, high = (-(-count // device.at_once) * seconds / 3600 for count in runs)
    rate = device.count * device.price
    return Time(seconds, (low, high), (low * rate, high * rate))


def time_sentence(device: Device, groups: Sequence[tuple[ProxyConfig, int, int]]) -> str:
    """How long runs take on a device, and what they cost. `groups`: proxies, tokens of a run of each, and runs."""
    times = [time_of(device, proxy, tokens, (runs, runs)) for proxy, tokens, runs in groups]
    hours, money = sum(time.hours[1] for time in times), sum(time.money[1] for time in times)
    least = "at least " if device.bound else ""
    price = f", for {least}{money:,.2f}" if device.price else ""
    whole = f"{device.at_once} at once, {least}{duration(3600 * hours)}{price}"
    return f"{whole} ({device.said}), without the corpora and tokens"


def run_flops(proxy: ProxyConfig, tokens: int) -> float:
    """Floating-point operations of a run: the model's own count, attention in full."""
    return float(decoder.flops_per_token(proxy.model, proxy.vocab_size)) * tokens


def named(other: OtherDevice, proxy: ProxyConfig) -> Device:
    """Devices that this machine does not have. Raises ValueError for a name that no data sheet is known of, for an MFU
    that is no share, and for fewer devices than a run has processes."""
    peak, devices = asked_sheet(other.device, other.mfu).flops, other.devices
    if devices < proxy.processes:
        raise ValueError(
            f"--devices {devices}: a run of the proxy {proxy.name} has {proxy.processes} processes, with one "
            "device each; give at least as many, or lower its `processes`"
        )
    description = f"{devices} {other.device} at {other.mfu:.0%} of the {peak / 1e12:,.1f} TFLOP/s of its data sheet"
    return Device(description, other.mfu * peak, devices // proxy.processes, devices, other.price)


def check_asked(other: OtherDevice, plan: bool) -> None:
    """Raise ValueError for options of a device that nothing reads."""
    named = [flag for flag, value in (("--device", other.device), ("--price", other.price)) if value]
    if named and not plan:
        flags, need = " and ".join(named), "needs" if len(named) == 1 else "need"
        raise ValueError(f"{flags} {need} --plan, because models are trained on this machine. Add --plan")
    if plan and other.devices > 1 and not other.device:
        raise ValueError(f"--devices {other.devices} needs --device. Add the name of the GPU, such as --device h100")


def asked(settings: MachineSettings, other: OtherDevice) -> Callable[[ProxyConfig], Device]:
    """What gives the device that a proxy is trained on: one that options name, or this machine, which is measured."""
    return partial(named, other) if other.device else partial(measured, settings, price=other.price)


def measured(settings: MachineSettings, proxy: ProxyConfig, price: float = 0.0) -> Device:
    """This machine, measured now if it was not yet. Raises RuntimeError for a proxy that cannot be trained here."""
    path = _kept(settings, proxy)
    if not path.is_file():
        checked_json.write(str(path), _measure(proxy).model_dump(mode="json"))
    return _device(settings, proxy, path, price)


def known(settings: MachineSettings, proxy: ProxyConfig) -> Device | None:
    """This machine, if it was measured."""
    path = _kept(settings, proxy)
    return _device(settings, proxy, path, 0.0) if path.is_file() else None


def _device(settings: MachineSettings, proxy: ProxyConfig, path: Path, price: float) -> Device:
    rate = MeasuredRate.model_validate(checked_json.read(str(path)))
    how = "at most, measured with matrix products" if rate.bound else "measured"
    description = f"{rate.device} of this machine, {rate.flops / 1e9:,.1f} GFLOP/s {how}"
    return Device(description, rate.flops, at_once(settings, proxy.processes), len(gpus()) or 1, price, rate.bound)


def _request(proxy: ProxyConfig) -> RateRequest:
    return RateRequest(model=proxy.model, training=proxy.training, vocab_size=proxy.vocab_size)


def _kept(settings: MachineSettings, proxy: ProxyConfig) -> Path:
    """Where the rate of a proxy on this machine is, or will be: the file is named by all that decides it."""
    machine = [platform.node(), platform.machine(), str(os.cpu_count()), os.environ.get("CUDA_VISIBLE_DEVICES", "")]
    whole = [_request(proxy).model_dump_json(), *machine, *releases(("torch",)).values()]
    return Path(settings.local_folder) / "rates" / f"{files.digest(json.dumps(whole).encode())}.json"


def _measure(proxy: ProxyConfig) -> MeasuredRate:
    with TemporaryDirectory(prefix="gristmill-") as folder:
        request = f"{folder}/request.json"
        checked_json.write(request, _request(proxy).model_dump(mode="json"))
        done = subprocess.run(
            [sys.executable, "-m", "gristmill.training.run.rate", request],
            env=environment_of(1, "") | ENVIRONMENT,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(
            f"the speed of the proxy {proxy.name} on this machine cannot be measured: {last}; choose a "
            "device with --device"
        )
    return MeasuredRate.model_validate_json(done.stdout.splitlines()[-1])
