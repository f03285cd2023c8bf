"""Input of a decision: runs and their losses on evaluation documents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class RunRequest:
    """One training of the proxy model on one arm's tokens.

    `pair` seeds weights and order, and is the same for all arms. `salt` selects another sample of the same arm's text;
    it is 0 except in A/A runs.
    """

    arm: str
    pair: int
    learning_rate: float
    tokens: int
    salt: int = 0


def rate_of_pair(pair: int, learning_rates: Sequence[float]) -> float:
    """The learning rate of all runs of a pair: rates alternate over pair numbers."""
    return learning_rates[pair % len(learning_rates)]


# Returns the bits of each evaluation document for each request, float64 (documents,), documents always in the same
# order. It gets a whole batch of requests, so that it can train several runs at the same time.
Run = Callable[[Sequence[RunRequest]], Sequence[np.ndarray]]


@dataclass(frozen=True, eq=False)
class EvaluationSet:
    """The evaluation documents, in the order of every run's losses.

    names: of the sets. set_of: the set of each document, int (documents,). size: bytes of each document, int64
    (documents,). judged: the sets that count. cluster_of: the cluster of each document, int64 (documents,), with
    numbers that are unique over all sets; documents of one cluster, such as a host, are correlated. By default every
    document is its own cluster. hostless: sets of documents with unknown hosts, whose clusters are files. Raises
    ValueError if a judged set is unknown or has fewer than two documents.
    """

    names: tuple[str, ...]
    set_of: np.ndarray
    size: np.ndarray
    judged: tuple[str, ...]
    cluster_of: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    hostless: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.cluster_of):
            object.__setattr__(self, "cluster_of", np.arange(len(self.size)))
        if not len(self.set_of) == len(self.cluster_of) == len(self.size):
            raise ValueError(
                f"evaluation: {len(self.set_of)} set numbers and {len(self.cluster_of)} cluster numbers for "
                f"{len(self.size)} sizes; give one of each per size."
            )
        if not self.judged or not set(self.judged) <= set(self.names):
            raise ValueError(
                f"evaluation: the judged sets {list(self.judged)} are not among {list(self.names)}; choose from these."
            )
        for name in self.judged:
            documents = self.members(name)
            if len(documents) < 2 or self.size[documents].min() < 1:
                raise ValueError(
                    f"evaluation: set {name!r} has {len(documents)} documents; it needs at least 2, none of them empty."
                )

    @cached_property
    def _members(self) -> dict[str, np.ndarray]:
        return {name: np.flatnonzero(self.set_of == number) for number, name in enumerate(self.names)}

    def members(self, name: str) -> np.ndarray:
        """Indexes of a set's documents."""
        return self._members[name]

    @cached_property
    def weights(self) -> np.ndarray:
        """float64 (documents,): the measure, the judged sets' mean bits per byte, is the weighted sum of bits."""
        weights = np.zeros(len(self.size))
        for name in self.judged:
            documents = self.members(name)
            weights[documents] = 1 / (len(self.judged) * self.size[documents].sum())
        return weights

    def measure(self, bits: np.ndarray) -> np.ndarray:
        """Bits per byte of bits (..., documents)."""
        return bits @ self.weights

    def by_set(self, bits: np.ndarray) -> dict[str, float]:
        """Bits per byte of each set that has a document; bits (documents,)."""
        places = {name: self.members(name) for name in self.names}
        return {
            name: float(bits[indexes].sum() / self.size[indexes].sum())
            for name, indexes in places.items()
            if len(indexes)
        }

    @cached_property
    def alone(self) -> tuple[str, ...]:
        """Judged sets with a single cluster. Their results apply only to this cluster."""
        return tuple(name for name in self.judged if len(np.unique(self.cluster_of[self.members(name)])) == 1)

    @cached_property
    def units(self) -> np.ndarray:
        """int64 (documents,): the random sampling unit: the cluster, or the document in sets of one cluster."""
        units = self.cluster_of.copy()
        for name in self.alone:
            units[self.members(name)] = self.cluster_of.max() + 1 + self.members(name)
        return units

    @cached_property
    def effective_units(self) -> float:
        """The number of units of equal weight that would give the measure the same variance, if documents of one unit
        do not differ (Kish, Survey Sampling, 1965)."""
        shares = np.bincount(np.unique(self.units, return_inverse=True)[1], weights=self.weights * self.size)
        return float(1 / (shares**2).sum())

    @property
    def unit_name(self) -> str:
        """The kind of the judged sets' units: hosts, files, or documents if each document is a unit."""
        grouped = [name for name in self.judged if name not in self.alone]
        if not grouped:
            return "documents"
        return "files" if set(grouped) <= set(self.hostless) else "hosts"

    @property
    def clustered(self) -> bool:
        """Whether a unit of the judged sets contains several documents."""
        units = self.units[self.weights > 0]
        return len(np.unique(units)) < len(units)

    def split(self, stride: int) -> tuple[np.ndarray, np.ndarray]:
        """Masks (documents,) of about every stride-th document of each set, and of the rest, in whole units.

        Units are taken from the smallest to the largest, so the selection is never one large unit. If this would select
        fewer than two documents of a set, or leave fewer than two units, the set is split by documents: then both parts
        have the same units.
        """
        chosen, side = np.zeros(len(self.size), dtype=bool), dict[int, bool]()
        for name in self.names:
            documents = self.members(name)
            units, first, counts = np.unique(self.units[documents], return_index=True, return_counts=True)
            sides, taken, seen = dict[int, bool](), 0, 0
            for index in np.lexsort((first, counts)):
                unit, count = int(units[index]), int(counts[index])
                sides[unit] = side.get(unit, (taken + count) * stride < seen + count + stride)
                taken, seen = taken + count * sides[unit], seen + count
            if taken >= 2 and sum(not each for each in sides.values()) >= 2:
                side |= sides
                chosen[documents] = [sides[int(unit)] for unit in self.units[documents]]
            else:
                chosen[documents[::stride]] = True
        return chosen, ~chosen

    def take(self, mask: np.ndarray) -> "EvaluationSet":
        return replace(self, set_of=self.set_of[mask], size=self.size[mask], cluster_of=self.cluster_of[mask])


def losses_of(run: Run, requests: Sequence[RunRequest], documents: int) -> dict[RunRequest, np.ndarray]:
    """Losses by request. Raises ValueError if losses are missing, have another length or are not finite."""
    losses = list(run(requests))
    if len(losses) != len(requests):
        raise ValueError(f"run: got {len(losses)} losses for {len(requests)} requests; return one for each.")
    for request, bits in zip(requests, losses, strict=True):
        if bits.shape != (documents,):
            raise ValueError(f"run: {request} gave losses of shape {bits.shape}; return one for each of {documents}.")
        if not np.isfinite(bits).all():
            raise ValueError(
                f"run: {request} gave a loss that is not finite, so training diverged; lower its learning rate."
            )
    return dict(zip(requests, losses, strict=True))
