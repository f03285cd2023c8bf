"""What the protocol asks for, a training run, and what it gets: a loss for each evaluation document."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, order=True)
class RunRequest:
    """One training run on `tokens` tokens of the arm. `pair` seeds weights and order, the same for all arms; another
    `salt` gives another sample of the same arm's text."""

    arm: str
    pair: int
    learning_rate: float
    tokens: int
    salt: int = 0


# Bits of each evaluation document, float64 (documents,), for each request; the documents are always in one order. A
# batch is asked for at once, so that runs can be trained at the same time.
Run = Callable[[Sequence[RunRequest]], Sequence[np.ndarray]]


@dataclass(frozen=True)
class EvaluationSet:
    """The evaluation documents: names of their sets, the set of each, int (documents,), and its bytes, int64.

    `judged`: the sets that count; the measure is the mean of their bits per byte.
    """

    names: tuple[str, ...]
    set_of: np.ndarray
    size: np.ndarray
    judged: tuple[str, ...]

    def __post_init__(self) -> None:
        if unknown := [name for name in self.judged if name not in self.names] or not self.judged:
            raise ValueError(f"judged sets {unknown} are none of {', '.join(self.names)}; name at least one of these")
        for name in self.judged:
            if self.rows(name).sum() < 2:
                raise ValueError(f"the evaluation set {name} has less than two documents; give it more")

    def rows(self, name: str) -> np.ndarray:
        """True for the documents of a set, bool (documents,)."""
        return self.set_of == self.names.index(name)

    def bits_per_byte(self, bits: np.ndarray) -> dict[str, float]:
        """Of each set, from the bits of each document (documents,)."""
        return {name: float(bits[self.rows(name)].sum() / self.size[self.rows(name)].sum()) for name in self.names}

    def measure(self, bits: np.ndarray) -> np.ndarray:
        """The mean over the judged sets of bits per byte, from bits (..., documents)."""
        return self.contributions(bits).sum(-1)

    def contributions(self, bits: np.ndarray) -> np.ndarray:
        """What each document adds to the measure: (..., documents), which sum to it."""
        weights = np.zeros(len(self.size))
        for name in self.judged:
            rows = self.rows(name)
            weights[rows] = 1 / (len(self.judged) * self.size[rows].sum())
        return bits * weights
