"""How large a checkpoint is and how often one should be saved: Young's and Daly's intervals between failures."""

import math
from dataclasses import dataclass

from gristmill.flows.planning.memory import FLOAT, Counts, optimizer_bytes
from gristmill.training.config import TrainingConfig

# Hours of one device between failures. Grattafiori et al. 2024 (Llama 3, arXiv 2407.21783), section 3.3.4: 419
# interruptions that nobody had planned in 54 days of 16,384 H100.
DEVICE_HOURS = 54 * 24 * 16_384 / 419


@dataclass(frozen=True)
class Checkpoints:
    """`bytes`: of one, weights and optimizer of all ranks; `stall`: seconds that training waits for it; `failures`:
    seconds between two; `interval`: seconds of training between two checkpoints; `steps`: the same; `lost`: the share
    of the time that saving takes and that is trained again."""

    bytes: float
    stall: float
    failures: float
    interval: float
    steps: int
    lost: float


def young(stall: float, failures: float) -> float:
    """Young 1974: sqrt(2 delta M), the first order of the best interval between two checkpoints."""
    return math.sqrt(2 * stall * failures)


def daly(stall: float, failures: float) -> float:
    """Daly 2006, equation 37: a higher order, which holds also where a checkpoint takes long; seconds of work between
    the end of one and the beginning of the next."""
    if stall >= 2 * failures:
        return failures
    x = math.sqrt(stall / (2 * failures))
    return young(stall, failures) * (1 + x / 3 + x * x / 9) - stall


def checkpoints(
    training: TrainingConfig, parameters: Counts, devices: int, copied: float, step: float, device_hours: float
) -> Checkpoints:
    """Of a training on so many devices. `copied`: bytes a second from a device to its machine's memory, for which
    training waits (files are written while it goes on); `step`: seconds of one; `device_hours`: of one device between
    failures, any of which ends the run."""
    size = FLOAT * parameters.whole + optimizer_bytes(training, parameters)
    stall = size / devices / copied
    failures = device_hours * 3600 / devices
    interval = daly(stall, failures)
    lost = stall / (interval + stall) + (interval + stall) / (2 * failures)
    return Checkpoints(size, stall, failures, interval, max(1, round(interval / step)), lost)
