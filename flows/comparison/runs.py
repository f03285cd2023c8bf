"""What a decision asks for, and what it is given: runs, and their losses on evaluation documents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class RunRequest:
    """One training of the proxy model on one arm's tokens.

    `pair` seeds weights and order, alike for all arms. `salt` gives another sample of the same arm's text: it is 0 but
    for A/A runs.
    """

    arm: str
    pair: int
    learning_rate: float
    tokens: int
    salt: int = 0


# Bits of each evaluation document, float64 of shape (documents,), for each request; documents always in the same order.
# A whole batch is asked for at once, so that runs can be trained side by side.
Run = Callable[[Sequence[RunRequest]], Sequence[np.ndarray]]


@dataclass(frozen=True, eq=False)
class EvaluationSet:
    """The evaluation documents, in the order of every run's losses.

    names: of the sets. set_of: the set of each document, int (documents,). size: bytes of each document, int64
    (documents,). judged: the sets that count. cluster_of: the cluster of each document, int64 (documents,); documents
    of one cluster are alike. Without it each document is its own. ValueError if a judged set is unknown, or has under
    two documents.
    """

    names: tuple[str, ...]
    set_of: np.ndarray
    size: np.ndarray
    judged: tuple[str, ...]
    cluster_of: np.ndarray | None = None

    def __post_init__(self) -> None:
        if len(self.set_of) != len(self.size):
            raise ValueError(
                f"evaluation: {len(self.set_of)} set numbers for {len(self.size)} sizes; give one of each."
            )
        if not self.judged or not set(self.judged) <= set(self.names):
            raise ValueError(
                f"evaluation: judged sets {list(self.judged)} are not among {list(self.names)}; name some."
            )
        for name in self.judged:
            documents = self.members(name)
            if len(documents) < 2 or self.size[documents].min() < 1:
                raise ValueError(
                    f"evaluation: set {name!r} has {len(documents)} documents; give at least 2, none of them empty."
                )

    @cached_property
    def _members(self) -> dict[str, np.ndarray]:
        return {name: np.flatnonzero(self.set_of == number) for number, name in enumerate(self.names)}

    def members(self, name: str) -> np.ndarray:
        """Places of a set's documents."""
        return self._members[name]

    @cached_property
    def weights(self) -> np.ndarray:
        """float64 (documents,): bits weighted by these sum to the measure, the judged sets' mean bits per byte."""
        weights = np.zeros(len(self.size))
        for name in self.judged:
            documents = self.members(name)
            weights[documents] = 1 / (len(self.judged) * self.size[documents].sum())
        return weights

    def measure(self, bits: np.ndarray) -> np.ndarray:
        """Bits per byte of bits (..., documents)."""
        return bits @ self.weights

    def split(self, stride: int) -> tuple[np.ndarray, np.ndarray]:
        """Masks (documents,) of every stride-th document of each set, and of the others."""
        chosen = np.zeros(len(self.size), dtype=bool)
        for name in self.names:
            chosen[self.members(name)[::stride]] = True
        return chosen, ~chosen

    def take(self, mask: np.ndarray) -> "EvaluationSet":
        clusters = None if self.cluster_of is None else self.cluster_of[mask]
        return replace(self, set_of=self.set_of[mask], size=self.size[mask], cluster_of=clusters)


def asked(run: Run, requests: Sequence[RunRequest], documents: int) -> dict[RunRequest, np.ndarray]:
    """Losses by request. ValueError if some are missing, of another length or not finite."""
    losses = list(run(requests))
    if len(losses) != len(requests):
        raise ValueError(f"run: {len(losses)} losses came for {len(requests)} requests; return one for each.")
    for request, bits in zip(requests, losses, strict=True):
        if bits.shape != (documents,):
            raise ValueError(f"run: {request} gave losses of shape {bits.shape}; return one for each of {documents}.")
        if not np.isfinite(bits).all():
            raise ValueError(f"run: {request} gave a loss that is not finite; its training diverged, lower its rate.")
    return dict(zip(requests, losses, strict=True))
