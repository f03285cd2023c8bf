"""What a training draws, where a counter tells: that of the processors (RAPL) and the reading of a GPU (NVML)."""

from __future__ import annotations

import time
from pathlib import Path

import torch

# The Linux kernel's powercap: https://docs.kernel.org/power/powercap/powercap.html. Most systems let root alone read
# it.
POWERCAP = Path("/sys/class/powercap")


class Power:
    """Watts since the last call: `system/package_watts`, of all processors of rank 0's machine, and `system/gpu_watts`,
    of its GPU at the moment. What has no counter, or one that may not be read, is absent."""

    def __init__(self, device: torch.device, powercap: Path = POWERCAP) -> None:
        self.device = device
        self.packages = [path for path in sorted(powercap.glob("*")) if _name(path).startswith("package-")]
        self.last = self._read()
        self.at = time.perf_counter()

    def __call__(self) -> dict[str, float]:
        now, counters = time.perf_counter(), self._read()
        seconds, joules = now - self.at, 0.0
        for path, value in counters.items():
            before = self.last.get(path, value)
            wrapped = value < before  # at its range, which it begins again from
            joules += (value - before + (_number(path / "max_energy_range_uj") or 0) * wrapped) / 1e6
        self.at, self.last = now, counters
        found = {"system/package_watts": joules / seconds} if counters and seconds else {}
        if (watts := gpu_watts(self.device)) is not None:
            found["system/gpu_watts"] = watts
        return found

    def _read(self) -> dict[Path, int]:
        found = {path: _number(path / "energy_uj") for path in self.packages}
        return {path: value for path, value in found.items() if value is not None}


def gpu_watts(device: torch.device) -> float | None:
    """What a GPU draws at the moment; None for a CPU, and where NVML's Python package is not installed."""
    if device.type != "cuda":
        return None
    try:
        return torch.cuda.power_draw(device) / 1000  # milliwatts
    except (ModuleNotFoundError, RuntimeError):
        return None


def _name(path: Path) -> str:
    try:
        return (path / "name").read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except OSError:
        return None
