"""What is said before anything is trained: the smallest effect that a decision sees, its runs and their tokens."""

from dataclasses import dataclass

from flows.comparison.bank import Bank, judged_documents
from flows.comparison.components import Components
from flows.comparison.power import Noise, smallest_effect
from flows.comparison.protocol import WANTED_POWER, Protocol, tested_documents
from flows.comparison.runs import EvaluationSet


@dataclass(frozen=True)
class Cost:
    """The fewest and the most runs, and trained tokens; evaluation is no part of these. `bank_runs`: those of the
    A/A bank among the runs, of which half are the base's own."""

    bank_runs: int
    runs: tuple[int, int]
    tokens: tuple[int, int]


def cost(protocol: Protocol, candidates: int, tokens: int, bank_pairs: int) -> Cost:
    """Of a decision with so many candidates and A/A pairs, whose runs take so many tokens each."""
    rates, tested = len(protocol.learning_rates), protocol.tested(candidates)
    screened = candidates if tested < candidates else 0

    def needed(pairs: int) -> int:
        return rates * (screened + tested * pairs + max(pairs, bank_pairs) + bank_pairs)

    fewest, most, halves = needed(protocol.looks[0]), needed(protocol.looks[-1]), protocol.worth_pairs * rates
    return Cost(
        bank_runs=2 * bank_pairs * rates,
        runs=(fewest, most + halves),
        tokens=(fewest * tokens, most * tokens + halves * (tokens // 2)),
    )


def sees(
    protocol: Protocol, evaluation: EvaluationSet, candidates: int, known: Bank | Components, bank_pairs: int = 0
) -> float:
    """The effect, in bits per byte, that a decision with so many candidates sees with probability WANTED_POWER.

    known: how much runs differ, by components that were recorded before, or by the decision's own A/A bank; of the
    bank the size is its own. A bank of one recipe knows nothing of candidates that act differently on different
    documents: by it the effect is a lower bound.
    """
    judged = tested_documents(protocol, evaluation, candidates)[1]
    if isinstance(known, Bank):
        noise = Noise(known.variance(judged_documents(judged)), known.degrees)
    else:
        rates = len(protocol.learning_rates)
        noise = Noise(known.pair_variance(rates, judged), max(bank_pairs - 1, 0), known.document_variance(judged))
    return smallest_effect(protocol.looks, protocol.limits(candidates), noise, WANTED_POWER)
