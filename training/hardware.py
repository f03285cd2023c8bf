"""What GPUs do at most and hold, by the data sheets of their makers. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pydantic import Field

from gristmill.storage.settings import CheckedSettings
from gristmill.training.config import TrainingConfig
from gristmill.training.model_config import ModelConfig

# Hours of one device between failures. Grattafiori et al. 2024 (Llama 3, arXiv 2407.21783), section 3.3.4: 419
# interruptions that nobody had planned in 54 days of 16,384 H100.
DEVICE_HOURS = 54 * 24 * 16_384 / 419


class RateRequest(CheckedSettings):
    """What `gristmill.training.run.rate` trains in a short run."""

    model: ModelConfig
    training: TrainingConfig
    vocab_size: int = Field(gt=0)
    most_seconds: float = Field(default=30, gt=0, description="maximum time to measure (seconds)")


class MeasuredRate(CheckedSettings):
    """What it answers: floating-point operations a second of training in one process on `device`; `bound`: at most, and
    nothing else was measured. `start_seconds`: what a run takes besides its steps and its evaluation; `import_seconds`:
    until its process has loaded what it needs; `evaluated`: tokens a second of an evaluation."""

    flops: float = Field(gt=0)
    bound: bool
    device: str
    start_seconds: float = Field(default=0, ge=0)
    import_seconds: float = Field(default=0, ge=0)
    evaluated: float = Field(default=0, ge=0)


@dataclass(frozen=True)
class DataSheet:
    """`flops`: dense bf16 operations a second with sums in float32; `memory`: bytes; `link`, `host`: bytes a second in
    one direction, to the other GPUs of a machine and to its processors."""

    flops: float
    memory: float
    link: float
    host: float


_PCIE_4, _PCIE_5 = 32e9, 64e9  # sixteen lanes

# A name of torch.cuda.get_device_name holds one of these, of which the first counts. NVIDIA's data sheets of A100 (80
# GB), H100 (SXM, PCIe, NVL), H200, B200 (per GPU of an HGX, without sparsity), L40S and A10G; GeForce RTX 4090: the
# white paper of the Ada architecture; AMD's data sheet of the Instinct MI300X. They give NVLink and Infinity Fabric in
# both directions together: half of it is here. Where NVLink only joins pairs, the link is PCIe.
DATA_SHEETS = {
    "H100 PCIe": DataSheet(756.0e12, 80e9, _PCIE_5, _PCIE_5),
    "H100 NVL": DataSheet(835.0e12, 94e9, _PCIE_5, _PCIE_5),
    "H100": DataSheet(989.5e12, 80e9, 450e9, _PCIE_5),
    "H200": DataSheet(989.5e12, 141e9, 450e9, _PCIE_5),
    "B200": DataSheet(2250.0e12, 180e9, 900e9, _PCIE_5),
    "A100": DataSheet(312.0e12, 80e9, 300e9, _PCIE_4),
    "L40S": DataSheet(362.0e12, 48e9, _PCIE_4, _PCIE_4),
    "A10G": DataSheet(125.0e12, 24e9, _PCIE_4, _PCIE_4),
    "RTX 4090": DataSheet(165.2e12, 24e9, _PCIE_4, _PCIE_4),
    "MI300X": DataSheet(1307.4e12, 192e9, 448e9, _PCIE_5),
}


# Share of the data sheet's rate that training reaches: of dense models of 100 million parameters and more, compiled, on
# an H100, .40 to .55, as docs/explanation/training.md measured.
MFU = 0.4


# Measured shares of the data sheet's rate: parameters, share, device. `gristmill.training` on one GPU, compiled, by
# tests.benchmarks.gpu_training: docs/explanation/training.md, "Speed on a GPU", and the same program on one H100.
MEASURED_MFU = (
    (124e6, 0.413, "H200"),
    (124e6, 0.421, "H100"),
    (350e6, 0.393, "H100"),
    (1.3e9, 0.541, "H200"),
    (1.3e9, 0.546, "H100"),
)
MFU_RANGE = 2.0  # a model up to this many times as large or as small as a measured one is assumed to reach its share
# Seconds of a run besides its steps on a GPU that is not here: the first run of `3m` took as long on one H200, with
# an empty compile cache (docs/explanation/training.md). No other start on a GPU was recorded.
GPU_RUN_SECONDS = 45.0


def measured_mfu(device_name: str, parameters: int) -> float | None:
    """The measured share of a device's data sheet for a model of about this size; None without a record."""
    name = device_name.lower()
    near = [
        (abs(math.log(parameters / size)), share)
        for size, share, device in MEASURED_MFU
        if device.lower() in name and max(parameters / size, size / parameters) <= MFU_RANGE
    ]
    return min(near)[1] if near else None


def data_sheet(device_name: str) -> DataSheet | None:
    """The data sheet of a device by its name, in upper or lower case; None if it is not listed."""
    lowercase_name = device_name.lower()
    return next((sheet for name, sheet in DATA_SHEETS.items() if name.lower() in lowercase_name), None)


def data_sheet_flops(device_name: str) -> float | None:
    """Floating-point operations a second that a device's data sheet promises in bf16; None for one not listed."""
    sheet = data_sheet(device_name)
    return None if sheet is None else sheet.flops


def asked_sheet(name: str, mfu: float) -> DataSheet:
    """The data sheet of a device that the options `--device` and `--mfu` name, which need not be here.

    Raises ValueError for a name without a known data sheet, and for an MFU outside of (0, 1].
    """
    sheet = data_sheet(name)
    if sheet is None:
        names = ", ".join(sorted(each.lower() for each in DATA_SHEETS))
        raise ValueError(f"--device {name}: no data sheet is known of it; give one of {names}")
    if not 0 < mfu <= 1:
        raise ValueError(
            f"--mfu {mfu:g} is not a fraction of the data sheet's rate; give one above 0 and at most 1, as 0.4"
        )
    return sheet
