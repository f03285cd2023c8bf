"""What a decision will do, said before anything is trained: recipes, what they share, runs, tokens, time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from flows.arms import Arms
from flows.comparison.protocol import Protocol
from flows.proxy_config import ProxyConfig
from flows.stages.arm_data import ComparisonData

# Floating point operations a second and core in the training of a proxy of .24 million parameters: measured.
CORE_RATE = 17e9
START_SECONDS = 6.0  # of a run: processes, libraries, evaluation


@dataclass(frozen=True)
class Plan:
    """`tokens`: of a run; `parameters`: of the proxy; `at_once`: runs trained at the same time; `bank`: A/A pairs."""

    arms: Arms
    protocol: Protocol
    proxy: ProxyConfig
    bank: int
    tokens: int
    at_once: int
    data: ComparisonData | None = None

    @property
    def bank_runs(self) -> int:
        """Half of them are the base's own."""
        return 2 * self.bank * len(self.protocol.learning_rates)

    @property
    def runs(self) -> tuple[int, int]:
        """The fewest and the most that are trained, those of the bank included."""
        rates, looks = len(self.protocol.learning_rates), self.protocol.looks
        count = len(self.arms.candidates)
        tested = self.protocol.tested(count)
        screened = count if tested < count else 0

        def needed(pairs: int) -> int:
            return rates * (screened + tested * pairs + max(pairs, self.bank) + self.bank)

        return needed(looks[0]), needed(looks[-1]) + self.protocol.worth_pairs * rates

    def lines(self) -> Iterator[str]:
        names = ", ".join(self.arms.candidates)
        yield f"decision: {self.arms.base} against {names}"
        yield from (f"{step} cannot be left out: {reason}" for step, reason in self.arms.fixed.items())
        rates = ", ".join(f"{rate:g}" for rate in self.protocol.learning_rates)
        yield (
            f"proxy: {self.proxy.name}, {parameters(self.proxy):,} parameters; each run {self.tokens:,} tokens"
            f"{'' if self.data else ' at most'}; learning rates {rates}; after {_listed(self.protocol.looks)} pairs a "
            "verdict may fall"
        )
        count = len(self.arms.candidates)
        if (tested := self.protocol.tested(count)) < count:
            yield f"screening: one run each of {count} candidates, then the best {tested} are tested"
        if self.data:
            yield from self._of_data(self.data)
        fewest, most = self.runs
        low, high = (seconds * self.run_seconds / self.at_once / 60 for seconds in (fewest, most))
        yield (
            f"runs: {fewest} to {most}, {self.bank_runs} of them for the A/A bank that says how much runs differ; "
            f"{self.at_once} at once, {self.run_seconds:.0f} s each (estimated), so {low:.0f} to {high:.0f} minutes; "
            "those that the home has are not trained again"
        )

    @property
    def run_seconds(self) -> float:
        """Of one run, from its floating point operations (6 for each parameter and token)."""
        return START_SECONDS + 6 * parameters(self.proxy) * self.tokens / CORE_RATE

    def _of_data(self, data: ComparisonData) -> Iterator[str]:
        base = {stage.key for stage in data.arms[self.arms.base].corpus.stages}
        for name, arm in data.arms.items():
            tokens = sum(arm.source_tokens.values())
            epochs = ", ".join(f"{source} {count:.2f}" for source, count in arm.epochs.items())
            shared = "" if name == self.arms.base else self._shared(base, {s.key for s in arm.corpus.stages})
            yield f"  {name}: {tokens:,} tokens, of which a run reads these epochs: {epochs}{shared}"

    def _shared(self, base: set[str], own: set[str]) -> str:
        return f"; {len(own & base)} of {len(own)} stages are those of {self.arms.base}"


def protocol_of(
    proxy: ProxyConfig, pairs: list[int], leave_one_out: bool, first_pair: int = 1, bank_pairs: int = 0
) -> Protocol:
    """What is declared before any run. Attribution tests every step; else many candidates are screened.

    Raises ValueError for looks that do not rise from 2 on, and for an A/A bank of one pair.
    """
    if bank_pairs == 1:
        raise ValueError("--bank-pairs 1: one A/A pair has no variance; give 0, for no bank, or 2 or more")
    looks = tuple(pairs) or proxy.looks
    given: dict[str, Any] = {"learning_rates": proxy.learning_rates, "looks": looks, "first_pair": first_pair}
    given["worth_pairs"] = min(Protocol.model_fields["worth_pairs"].default, looks[0])
    try:
        return Protocol(**given | ({"survivors": None} if leave_one_out else {}))
    except ValidationError as error:
        raise ValueError("; ".join(each["msg"].removeprefix("Value error, ") for each in error.errors())) from None


def parameters(proxy: ProxyConfig) -> int:
    """Of the proxy, norms left out."""
    model = proxy.model
    attention = 2 * model.dim * model.head_dim * (model.heads + model.kv_head_count)
    embeddings = proxy.vocab_size * model.dim * (1 if model.tie_embeddings else 2)
    return embeddings + model.layers * (attention + 3 * model.dim * model.ffn_dim)


def _listed(numbers: tuple[int, ...]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last
