"""Runs drawn from planted variance components, whose verdicts are therefore known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gristmill.flows.stats.crossed import Components
from gristmill.flows.stats.runs import EvaluationSet, RunRequest

Draw = Callable[[np.random.Generator, int], np.ndarray]


def normal(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.standard_normal(count)


@dataclass(frozen=True)
class Simulator:
    """A `Run`: the same request gives the same losses.

    effects: of each candidate, in bits per byte, one number or one a learning rate; arms without one have none. tokens:
    for which `components.level` holds. draw: standardised deviates of documents, normal if not given.
    """

    components: Components
    evaluation: EvaluationSet
    learning_rates: tuple[float, ...]
    tokens: int
    seed: int
    effects: Mapping[str, float | Sequence[float]] = field(default_factory=dict)
    draw: Draw = normal
    _arms: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, requests: Sequence[RunRequest]) -> list[np.ndarray]:
        return [self._bits(request) for request in requests]

    def _rng(self, *key: int | str) -> np.random.Generator:
        # SeedSequence takes numbers alone; a length in front keeps different keys apart.
        words = [n for part in key for n in ([len(part), *part.encode()] if isinstance(part, str) else [part])]
        return np.random.default_rng([self.seed, *words])

    def _arm(self, arm: str) -> tuple[np.ndarray, np.ndarray]:
        """Its effect at each learning rate, and deviations by document, in bits."""
        if arm not in self._arms:
            rng, known = self._rng(1, arm), self.components
            rates = known.learning_rate * rng.standard_normal(len(self.learning_rates))
            # A planted effect is the mean over these learning rates.
            effects = np.asarray(self.effects.get(arm, 0.0)) + rates - rates.mean()
            deviations = known.document * self.draw(rng, len(self.evaluation.size)) * self._scale
            if known.host:
                hosts, host_of = np.unique(self.evaluation.cluster_of, return_inverse=True)
                deviations += known.host * self.draw(rng, len(hosts))[host_of] * self.evaluation.size
            self._arms[arm] = effects, deviations
        return self._arms[arm]

    def _bits(self, request: RunRequest) -> np.ndarray:
        known, size = self.components, self.evaluation.size
        column = self.learning_rates.index(request.learning_rate)
        effects, by_document = self._arm(request.arm)
        pair = self._rng(2, request.pair, column).standard_normal()
        sample = self._rng(4, request.arm, request.pair, request.salt, request.tokens).standard_normal()
        run = self._rng(3, request.arm, request.pair, column, request.salt, request.tokens)
        per_byte = known.level - known.slope * np.log(request.tokens / self.tokens) - effects[column]
        per_byte += known.pair * pair + known.sample * sample + known.run * run.standard_normal()
        return per_byte * size + by_document + known.run_document * self.draw(run, len(size)) * self._scale

    @cached_property
    def _scale(self) -> np.ndarray:
        """Bits of a deviation of 1: the variance of a document's bits grows with its bytes."""
        means = np.ones(len(self.evaluation.names))
        for number, name in enumerate(self.evaluation.names):
            documents = self.evaluation.members(name)
            if len(documents):
                means[number] = self.evaluation.size[documents].mean()
        return np.sqrt(self.evaluation.size * means[self.evaluation.set_of])
