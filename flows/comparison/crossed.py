"""The effect and its variance from paired differences, with pairs and evaluation documents as crossed random samples.

A pair's difference on a document is effect + pair + document + pair x document. The variance of the mean over n pairs
and all documents is estimated as V(pairs) + V(documents) - V(pairs x documents), each from its own mean square, since
the first two both count the third (Searle, Casella and McCulloch, Variance Components, 1992, chapter 4; Owen 2007,
The pigeonhole bootstrap, has the same sum for means over a crossed sample). Degrees of freedom are Satterthwaite's
(1946).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import fdtri

from gristmill.flows.comparison.runs import EvaluationSet

# Level of the test that the pairs of a decision vary more than those of the bank. With a bank of half the variance
# false verdicts then rise to 8%, without the test to 10%; at a quarter to 10% and 17%. It costs 1% of power.
UNLIKE = 0.1


@dataclass(frozen=True)
class Estimate:
    """effect in bits per byte, positive if the candidate needs fewer. pair_variance: of one pair's difference;
    document_variance: of the effect, by the sample of documents. degrees: of their sum over the pairs."""

    effect: float
    pair_variance: float
    document_variance: float
    degrees: float
    pairs: int

    @property
    def variance(self) -> float:
        return self.pair_variance / self.pairs + self.document_variance

    def variance_at(self, pairs: int) -> float:
        return self.pair_variance / pairs + self.document_variance


def interaction(differences: np.ndarray, evaluation: EvaluationSet) -> tuple[float, float]:
    """What pair x document adds to the variance of one pair's difference, and its degrees of freedom.

    differences: bits (pairs, documents).
    """
    pairs = len(differences)
    weights, total, degrees = evaluation.weights, 0.0, 0.0
    centred = differences - differences.mean(axis=0)
    for name in evaluation.judged:
        documents = evaluation.members(name)
        deviations = _deviations(centred[:, documents], evaluation.size[documents]) * weights[documents]
        count = len(documents)
        total += float((deviations**2).sum()) / (pairs - 1) * count / (count - 1)
        degrees += (pairs - 1) * (count - 1)
    return total, degrees


def _deviations(bits: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Bits (..., documents) beyond the set's bits per byte times a document's bytes: deviations of a ratio."""
    return bits - bits.sum(axis=-1, keepdims=True) / size.sum() * size


def document_variance(differences: np.ndarray, evaluation: EvaluationSet) -> tuple[float, float]:
    """Variance of the measure by the sample of documents, and its degrees of freedom.

    differences: bits (documents,), of one sample of pairs. Degrees follow from the observed fourth moment, so that a
    few documents that hold most of the variance count as few.
    """
    weights, total, spread = evaluation.weights, 0.0, 0.0
    for name in evaluation.judged:
        documents = evaluation.members(name)
        squares = (_deviations(differences[documents], evaluation.size[documents]) * weights[documents]) ** 2
        correction = len(documents) / (len(documents) - 1)
        total += float(squares.sum()) * correction
        spread += float(((squares - squares.mean()) ** 2).sum()) * correction**3
    return total, 2 * total**2 / spread if spread > 0 else np.inf


def pooled_degrees(own: int, bank: int, shared: int) -> float:
    """Degrees of freedom of a variance pooled from pairs and a bank that share so many base runs.

    Differences with the same base run correlate by a half, their squares by a quarter.
    """
    total = own + bank
    return total**2 / (total + max(shared - 1, 0) / 2)


def estimate(
    differences: np.ndarray, evaluation: EvaluationSet, bank: tuple[float, int, int] | None = None
) -> Estimate:
    """The effect of differences in bits (pairs, documents).

    bank: variance of a pair's difference in the bank, its degrees of freedom, and how many of these pairs it shares. A
    shared pair has the same base run on both sides. A bank that varies less than the pairs, by an F test, is left out.
    """
    pairs = len(differences)
    by_pair = evaluation.measure(differences)
    own, own_degrees = float(by_pair.var(ddof=1)), pairs - 1
    variance, degrees = own, float(own_degrees)
    if bank is not None:
        other, other_degrees, shared = bank
        if own <= other * float(fdtri(own_degrees, other_degrees, 1 - UNLIKE)):
            variance = (own * own_degrees + other * other_degrees) / (own_degrees + other_degrees)
            degrees = pooled_degrees(own_degrees, other_degrees, shared)
    among_documents, document_degrees = document_variance(differences.mean(axis=0), evaluation)
    common, common_degrees = interaction(differences, evaluation)
    # A variance is not negative: where documents do not differ beyond chance, pairs alone count.
    of_documents = among_documents - common / pairs
    parts = [(variance / pairs, degrees)]
    if of_documents > 0:
        parts += [(among_documents, document_degrees), (common / pairs, common_degrees)]
    of_documents = max(of_documents, 0.0)
    scale = sum(part**2 / freedom for part, freedom in parts)
    whole = variance / pairs + of_documents
    # max: without any noise, as with a bank of equal runs, there is nothing to weigh.
    freedom = whole**2 / scale if scale > 0 else degrees
    return Estimate(float(by_pair.mean()), variance, of_documents, float(max(freedom, 1.0)), pairs)
