"""The batches that a run's gradient noise would have allowed: a `batch_ramp` for the next run of the recipe."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gristmill.samples.batch_plan import BatchPlan
from gristmill.training.config import TrainingConfig

# The largest batch over the noise scale. Of McCandlish et al. 2018 (arXiv 1812.06162, equation 2.11): with batches of
# B sequences a loss takes 1 + B / B_noise times the fewest tokens. A quarter costs up to a quarter more of them in the
# part of the run that has the larger batch.
SHARE = 0.25


@dataclass(frozen=True)
class Ramp:
    """`stages`: (tokens, times) as `batch_ramp` has them; `steps`: updates that read the tokens of the run with them,
    `fixed_steps` those of the run; `first`, `last`: the noise scale in sequences after the warm-up and at the end."""

    stages: tuple[tuple[int, int], ...]
    steps: int
    fixed_steps: int
    first: float
    last: float

    @property
    def setting(self) -> str:
        """As a recipe has it."""
        return "[" + ", ".join(f"{{tokens: {tokens}, times: {times}}}" for tokens, times in self.stages) + "]"


def ramp(metrics: Iterable[Mapping[str, Any]], training: TrainingConfig, seq_len: int) -> Ramp | None:
    """By the lines of a run's metrics.jsonl (`train/tokens` so far, `train/noise_scale`), in the order of their steps.

    Batches double once twice as many sequences are at most SHARE of the noise scale, and stay so: a stage begins where
    the scale falls no more below that for the rest of the run. What the warm-up has measured does not count, as the
    loss falls fastest there. None for a run that measured no noise scale. The stages are by tokens, so that the
    samples of a step follow from its number, for any number of ranks and after a resume.
    """
    points = [
        (int(line["train/tokens"]), line["train/noise_scale"])
        for line in metrics
        if line["step"] > training.warmup_steps and "train/noise_scale" in line
    ]
    if not points:
        return None
    lowest, rest = math.inf, []  # of each point and all behind it
    for tokens, scale in reversed(points):
        lowest = min(lowest, scale)
        rest.append((tokens, lowest))
    stages: list[tuple[int, int]] = []
    for tokens, scale in reversed(rest):
        times = 2 ** math.floor(math.log2(max(1.0, SHARE * scale / training.batch)))
        if times > (stages[-1][1] if stages else 1):
            stages.append((tokens, times))
    plan, samples = BatchPlan(training.batch, seq_len, stages), training.batches(seq_len).first(training.steps)
    while stages and plan.samples[-1] >= samples:
        stages.pop()
        plan = BatchPlan(training.batch, seq_len, stages)
    steps = plan.numbers[-1] + math.ceil((samples - plan.samples[-1]) / plan.sizes[-1])
    return Ramp(tuple(stages), steps, training.steps, points[0][1], points[-1][1])
