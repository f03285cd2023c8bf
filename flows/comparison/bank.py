"""The A/A bank: pairs of runs of one recipe on two samples of its text, whose true difference is 0."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flows.comparison.runs import EvaluationSet, Run, RunRequest


@dataclass(frozen=True)
class Bank:
    """Differences in bits per byte of A/A pairs, (A/A pairs, learning rates), at these learning rates."""

    learning_rates: tuple[float, ...]
    differences: np.ndarray

    @property
    def averaged(self) -> np.ndarray:
        """Over the learning rates, (A/A pairs,)."""
        return self.differences.mean(1)

    @property
    def variance(self) -> float:
        """Of the difference of one pair; the mean is known to be 0."""
        return float((self.averaged**2).mean())

    def as_json(self) -> dict[str, Any]:
        return {"learning_rates": list(self.learning_rates), "differences": self.differences.tolist()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Bank":
        rates = tuple(map(float, value["learning_rates"]))
        return cls(rates, np.array(value["differences"], np.float64).reshape(-1, len(rates)))


def calibrate(
    arm: str, pairs: int, learning_rates: Sequence[float], tokens: int, run: Run, evaluation: EvaluationSet
) -> Bank:
    """Run A/A pairs 0, 1, ... of an arm. One half of the runs is that of a later decision with this base."""
    wanted = [
        RunRequest(arm, pair, rate, tokens, salt) for pair in range(pairs) for rate in learning_rates for salt in (0, 1)
    ]
    losses = evaluation.measure(np.stack(list(run(wanted)))).reshape(pairs, len(learning_rates), 2)
    return Bank(tuple(learning_rates), losses[..., 0] - losses[..., 1])
