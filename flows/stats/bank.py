"""The A/A bank: pairs of runs of one arm that differ in the sample of its text. It says how much runs differ."""

from collections.abc import Sequence
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

from gristmill.flows.stats.crossed import interaction
from gristmill.flows.stats.runs import EvaluationSet, Run, RunRequest, asked


class Bank(BaseModel):
    """Differences of A/A pairs, for one proxy, number of tokens and list of learning rates.

    differences: bits per byte of salt 0 minus salt 1, a row a pair, a column a learning rate. interaction: what
    evaluation documents that react to single pairs add to the variance of a pair's difference. units: how many hosts
    these documents are of, or documents where each counts alone.
    `model_dump(mode="json")` and `Bank.model_validate` are its JSON.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    arm: str
    tokens: int
    learning_rates: tuple[float, ...]
    pairs: tuple[int, ...]
    differences: tuple[tuple[float, ...], ...]
    interaction: float
    units: int

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if len(self.pairs) < 2 or len(self.differences) != len(self.pairs):
            raise ValueError(
                f"bank: {len(self.differences)} differences for {len(self.pairs)} pairs; it needs 2 or more."
            )
        if any(len(row) != len(self.learning_rates) for row in self.differences):
            raise ValueError(f"bank: each row needs {len(self.learning_rates)} differences, one a learning rate.")
        return self

    @property
    def degrees(self) -> int:
        return len(self.pairs) - 1

    def variance(self, units: int) -> float:
        """Of a pair's difference, averaged over learning rates, on evaluation documents of so many units."""
        means = np.array(self.differences).mean(axis=1)
        return float(max(means.var(ddof=1) + self.interaction * (self.units / units - 1), 0.0))

    def variance_at(self, learning_rate: float) -> float:
        """Of a pair's difference at one learning rate."""
        column = self.learning_rates.index(learning_rate)
        return float(np.var([row[column] for row in self.differences], ddof=1))


def requests(arm: str, pairs: Sequence[int], learning_rates: Sequence[float], tokens: int) -> list[RunRequest]:
    """The runs of a bank. Those of salt 0 are also the runs of a decision whose base is this arm."""
    return [RunRequest(arm, pair, rate, tokens, salt) for pair in pairs for rate in learning_rates for salt in (0, 1)]


def calibrate(
    run: Run, evaluation: EvaluationSet, arm: str, pairs: Sequence[int], learning_rates: Sequence[float], tokens: int
) -> Bank:
    """Train A/A pairs of one arm. ValueError if there are under two pairs."""
    if len(pairs) < 2:
        raise ValueError(f"calibrate: {len(pairs)} pairs have no variance; ask for 2 or more, 12 do well.")
    wanted = requests(arm, pairs, learning_rates, tokens)
    losses = asked(run, wanted, len(evaluation.size))
    bits = np.array([losses[request] for request in wanted]).reshape(len(pairs), len(learning_rates), 2, -1)
    differences = bits[:, :, 0] - bits[:, :, 1]
    return Bank(
        arm=arm,
        tokens=tokens,
        learning_rates=tuple(learning_rates),
        pairs=tuple(pairs),
        differences=tuple(tuple(float(x) for x in row) for row in evaluation.measure(differences)),
        interaction=interaction(differences.mean(axis=1), evaluation)[0],
        units=judged_units(evaluation),
    )


def judged_units(evaluation: EvaluationSet) -> int:
    return len(np.unique(evaluation.units[evaluation.weights > 0]))
