"""The effect and its variance from paired differences, with pairs and evaluation documents as crossed random samples.

A pair's difference on a document is effect + pair + document + pair x document. The variance of the mean over n pairs
and all documents is estimated as V(pairs) + V(documents) - V(pairs x documents), each from its own mean square, since
the first two both count the third (Searle, Casella and McCulloch, Variance Components, 1992, chapter 4; Owen 2007,
The pigeonhole bootstrap, has the same sum for means over a crossed sample). Degrees of freedom are Satterthwaite's
(1946). Documents of one host are correlated, so hosts are the units of the evaluation sample
(`EvaluationSet.units`), whose documents are summed before anything is squared. Learning rates are fixed effects: the
effect may differ between the groups of pairs with one learning rate, so pairs vary within these groups.

`Components` are the variance components of runs, fitted in closed form with the method of moments for a balanced layout
(the same chapter 4): each mean square is set equal to its expectation, and a negative component is 0.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from scipy.special import fdtri

from gristmill.flows.stats.runs import EvaluationSet

# Level of the test that the pairs of a decision vary more than the pairs of the bank. If the bank has half of the
# variance, false verdicts rise to 8%, without the test to 10%; at a quarter to 10% and 17%. It costs 1% of power.
UNLIKE = 0.1


# With `resample`, the share of the bank's variance that is attributed to seeds. With all of it there are up to 14%
# false verdicts and 81% coverage with 12 pairs, if halves differ a third as much as seeds. With a half there are at
# most 6% false verdicts and at least 89% coverage, with 3, 6 and 12 pairs and with banks of 4, 8 and 12, for any
# variance of halves. It widens the intervals if halves add no variance.
SEED_SHARE = 0.5


@dataclass(frozen=True)
class Estimate:
    """effect in bits per byte, positive if the candidate needs fewer. pair_variance: of one pair's difference.
    half_variance: of the effect, from the sample of training hosts. document_variance: of the effect, from the sample
    of documents, with document_degrees degrees of freedom. degrees: of the total variance; pair_degrees: of the
    variance of the pairs without a bank."""

    effect: float
    pair_variance: float
    document_variance: float
    degrees: float
    pairs: int
    pair_degrees: int
    document_degrees: float
    half_variance: float = 0.0

    @property
    def variance(self) -> float:
        return self.variance_at(self.pairs)

    @property
    def shared_variance(self) -> float:
        """The variance that more pairs do not reduce."""
        return self.document_variance + self.half_variance

    def variance_at(self, pairs: int) -> float:
        return self.pair_variance / pairs + self.shared_variance


@dataclass(frozen=True)
class Units:
    """The units of documents. For each judged set: its documents in the order of units, the start of each unit, the
    indexes of these units, and the factor for a sum of squares of deviations. stratum: for each unit, the first set
    with documents of it."""

    sets: tuple[tuple[np.ndarray, np.ndarray, np.ndarray, float], ...]
    stratum: np.ndarray


@lru_cache(maxsize=16)
def units_of(evaluation: EvaluationSet) -> Units:
    """The units of the judged sets.

    A unit's deviation is biased toward 0, more so for a larger share of the set. A sum of squares is divided by its
    expectation under a working model, in which all documents of a unit move together (Bell and McCaffrey 2002, Bias
    reduction in standard errors for linear regression with multi-stage samples): with G units of equal size the factor
    is G/(G-1).
    """
    numbers = np.unique(evaluation.units[evaluation.weights > 0])
    stratum, sets = np.full(len(numbers), -1), list[tuple[np.ndarray, np.ndarray, np.ndarray, float]]()
    for number, name in enumerate(evaluation.judged):
        documents = evaluation.members(name)
        inside = np.searchsorted(numbers, evaluation.units[documents])
        order = np.argsort(inside, kind="stable")
        places, begins, counts = np.unique(inside[order], return_index=True, return_counts=True)
        share = counts / len(documents)
        squares, cubes = float((share**2).sum()), float((share**3).sum())
        sets.append((documents[order], begins, places, 1 / (1 + squares - 2 * cubes / squares)))
        stratum[places] = np.where(stratum[places] < 0, number, stratum[places])
    return Units(tuple(sets), stratum)


def deviations(bits: np.ndarray, evaluation: EvaluationSet) -> np.ndarray:
    """Deviations of units for bits (..., documents), float64 (..., units): the sum of their squares is the variance of
    the measure from the sample of units.

    A unit's deviation is the sum over its documents of bits minus the set's bits per byte times the document's bytes: a
    linearized ratio (Cochran, Sampling Techniques, 1977, section 6.3; for clusters Liang and Zeger 1986).
    """
    units = units_of(evaluation)
    total = np.zeros((*bits.shape[:-1], len(units.stratum)))
    for documents, begins, places, scale in units.sets:
        size, selection = evaluation.size[documents], bits[..., documents]
        beyond = (selection - selection.sum(axis=-1, keepdims=True) / size.sum() * size) * evaluation.weights[documents]
        total[..., places] += np.add.reduceat(beyond, begins, axis=-1) * np.sqrt(scale)
    return total


def within(values: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, int]:
    """Values (pairs, ...) minus the mean of their group, and their degrees of freedom. groups: int (pairs,)."""
    numbers = np.unique(groups)
    centered = values.copy()
    for number in numbers:
        centered[groups == number] -= values[groups == number].mean(axis=0)
    return centered, len(values) - len(numbers)


def interaction(
    differences: np.ndarray, evaluation: EvaluationSet, groups: np.ndarray | None = None
) -> tuple[float, float]:
    """The part of the variance of one pair's difference from pair x document, and its degrees of freedom.

    differences: bits (pairs, documents). groups: see `estimate`.
    """
    units = units_of(evaluation)
    centered, degrees = within(differences, np.zeros(len(differences), int) if groups is None else groups)
    total = float((deviations(centered, evaluation) ** 2).sum())
    return total / degrees, float(degrees * sum(len(places) - 1 for _, _, places, _ in units.sets))


def document_variance(differences: np.ndarray, evaluation: EvaluationSet) -> tuple[float, float]:
    """Variance of the measure from the sample of documents, and its degrees of freedom.

    differences: bits (documents,), of one sample of pairs. Degrees follow from the observed fourth moment, so they
    are low if a few units have most of the variance.
    """
    units, squares, spread = units_of(evaluation), deviations(differences, evaluation) ** 2, 0.0
    for number, (*_, scale) in enumerate(units.sets):
        of_set = squares[units.stratum == number]
        spread += float(((of_set - of_set.mean()) ** 2).sum()) * scale if len(of_set) else 0.0
    total = float(squares.sum())
    return total, 2 * total**2 / spread if spread > 0 else np.inf


def pooled_degrees(own: int, bank: int, shared: int) -> float:
    """Degrees of freedom of a variance pooled from pairs and a bank that share `shared` base runs.

    Differences with the same base run have a correlation of a half, their squares of a quarter.
    """
    total = own + bank
    return total**2 / (total + max(shared - 1, 0) / 2)


def estimate(
    differences: np.ndarray,
    evaluation: EvaluationSet,
    bank: tuple[float, int, int] | None = None,
    resample: bool = False,
    groups: np.ndarray | None = None,
) -> Estimate:
    """Estimate the effect from differences in bits (pairs, documents).

    groups: int (pairs,), the number of each pair's learning rate, with equally many pairs at each; None: one for all.
    The effect is the mean over these rates, and pairs vary around the effect at their own rate.

    bank: variance of a pair's difference in the bank, its degrees of freedom, and how many of these pairs it shares. A
    shared pair has the same base run on both sides. A bank that varies less than the pairs, by an F test, is ignored.

    resample: each pair has read its own half of the training hosts. N hosts vary around the population as halves of
    them vary around the N (Shao and Wu 1989, A general theory for jackknife variance estimation: delete-half). So the
    variance of pairs beyond the variance of seeds is added once more, and more pairs do not reduce it. The bank has
    only the variance of seeds, since both runs of an A/A pair read the same half: SEED_SHARE of it is subtracted;
    without a bank the whole variance of pairs counts. Pairs of the bank are not pooled. The effect of halves on single
    documents counts among pairs and among documents, which makes the interval a little wider.
    """
    pairs = len(differences)
    by_pair = evaluation.measure(differences)
    groups = np.zeros(pairs, int) if groups is None else groups
    centered, own_degrees = within(by_pair, groups)
    own = float((centered**2).sum()) / own_degrees
    variance, of_halves, degrees = own, 0.0, float(own_degrees)
    if resample:
        other = 0.0 if bank is None else bank[0]
        variance, of_halves = max(own, other), max(own - SEED_SHARE * other, 0.0)
    elif bank is not None:
        other, other_degrees, shared = bank
        if own <= other * float(fdtri(own_degrees, other_degrees, 1 - UNLIKE)):
            variance = (own * own_degrees + other * other_degrees) / (own_degrees + other_degrees)
            degrees = pooled_degrees(own_degrees, other_degrees, shared)
    among_documents, document_degrees = document_variance(differences.mean(axis=0), evaluation)
    common, common_degrees = interaction(differences, evaluation, groups)
    # A variance is not negative: if documents do not differ beyond chance, only pairs count.
    of_documents = max(among_documents - common / pairs, 0.0)
    # The variances of pairs and halves are estimated from the same pairs, so they are one part.
    parts = [(variance / pairs + of_halves, degrees)]
    if of_documents > 0:
        parts += [(among_documents, document_degrees), (common / pairs, common_degrees)]
    scale = sum(part**2 / freedom for part, freedom in parts)
    whole = variance / pairs + of_halves + of_documents
    # Without any noise, as with a bank of equal runs, there is nothing to weigh.
    freedom = whole**2 / scale if scale > 0 else degrees
    return Estimate(
        float(by_pair.mean()),
        variance,
        of_documents,
        float(max(freedom, 1.0)),
        pairs,
        own_degrees,
        float(max(document_degrees, 1.0)),
        of_halves,
    )


class Components(BaseModel):
    """Standard deviations in bits per byte.

    pair: the effect of a pair on all arms, which cancels in differences. sample: the effect of an arm's sample of text
    in the order of one pair. run: the remaining effect of one training; `fitted` cannot separate these two, so its
    `run` has both. learning_rate: an arm's effect between learning rates, 0 in `fitted`. document: an arm's effect
    between documents of mean length of the same host; host: between hosts, on all their documents. run_document: the
    remaining effect of one run on one such document. level, slope: the base's bits per byte, and their decrease for a
    factor e of tokens.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    pair: float = Field(ge=0)
    sample: float = Field(ge=0)
    run: float = Field(ge=0)
    learning_rate: float = Field(ge=0)
    document: float = Field(ge=0)
    host: float = Field(0.0, ge=0)
    run_document: float = Field(ge=0)
    level: float = Field(gt=0)
    slope: float = 0.0

    @model_validator(mode="after")
    def _varies(self) -> Self:
        if self.run == self.sample == 0:
            raise ValueError("components: run and sample are 0, so runs do not vary and there are no error rates.")
        return self

    def pair_variance(self, evaluation: EvaluationSet) -> float:
        """Variance of a pair's difference between two arms."""
        return 2 * (self.sample**2 + self.run**2 + self.run_document**2 * _share(evaluation))

    def document_variance(self, evaluation: EvaluationSet) -> float:
        """Variance of the effect from the sample of documents and of their hosts."""
        of_hosts = self.host**2 / evaluation.effective_units
        return 2 * (self.document**2 * _share(evaluation) + of_hosts)


def _share(evaluation: EvaluationSet) -> float:
    """The variance of the measure if each document of mean length has variance 1."""
    counts = np.array([len(evaluation.members(name)) for name in evaluation.judged])
    return float((1 / counts).sum() / len(counts) ** 2)


def fitted(bits: np.ndarray, evaluation: EvaluationSet, groups: np.ndarray | None = None) -> Components:
    """Fit components to the bits of runs, float64 (arms, pairs, documents), at least 2 of each.

    groups: int (pairs,), the number of each pair's learning rate, by which the effect of an arm may differ; one group
    must have 2 or more pairs. Arms may be samples of one arm by salt; the components of arms are then near 0. Raises
    ValueError for too few arms or pairs.
    """
    arms, pairs, _ = bits.shape
    groups = np.zeros(pairs, int) if groups is None else groups
    if arms < 2 or pairs <= len(np.unique(groups)):
        raise ValueError(
            f"components: {arms} arms and {pairs} pairs are too few to separate them; use 2 or more of each."
        )
    measure = evaluation.measure(bits)
    of_run, of_pair = _from_measures(measure, groups)
    of_document, of_host, of_run_document = _from_documents(bits, evaluation, groups)
    share = _share(evaluation)
    root = {
        "pair": of_pair,
        "sample": 0.0,
        # A run's measure includes the part of its documents.
        "run": of_run - of_run_document * share,
        "learning_rate": 0.0,
        "document": of_document,
        "host": of_host,
        "run_document": of_run_document,
    }
    return Components(**{name: float(np.sqrt(max(v, 0.0))) for name, v in root.items()}, level=float(measure.mean()))


def _from_measures(measure: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """Variances of run and pair from (arms, pairs)."""
    arms = len(measure)
    by_pair = measure.mean(axis=0)
    residual, degrees = within((measure - by_pair).T, groups)
    of_run = float((residual**2).sum()) / ((arms - 1) * degrees)
    of_pair = float((within(by_pair, groups)[0] ** 2).sum()) / degrees
    return of_run, of_pair - of_run / arms


def _from_documents(bits: np.ndarray, evaluation: EvaluationSet, groups: np.ndarray) -> tuple[float, float, float]:
    """Variances of arm x document within hosts, arm x host and run x document, in bits per byte of a document of mean
    length. If no host has several documents, all differences of arms count as arm x document."""
    arms, pairs, _ = bits.shape
    among, in_runs, count = 0.0, 0.0, 0
    of_documents, in_hosts, of_hosts, between = 0.0, 0, 0.0, 0.0
    for name in evaluation.judged:
        documents = evaluation.members(name)
        size = evaluation.size[documents]
        values = bits[..., documents]
        # Subtract the run's bits per byte and the document's difficulty in a pair.
        values = values - values.sum(axis=-1, keepdims=True) / size.sum() * size
        values = (values - values.mean(axis=0)) / size.mean()
        by_arm = values.mean(axis=1)
        residual, degrees = within(values.swapaxes(0, 1), groups)
        free = len(documents) - 1
        in_runs += float((residual**2).sum()) / ((arms - 1) * degrees)
        among += float((by_arm**2).sum()) / (arms - 1)
        count += free
        _, host, counts = np.unique(evaluation.units[documents], return_inverse=True, return_counts=True)
        # A host's deviation is per byte: a document with twice the bytes gets twice the bits of it. A document's own
        # deviation has twice the variance.
        length = size / size.mean()
        weight = np.bincount(host, weights=length)
        slope = np.array([np.bincount(host, weights=row) for row in by_arm]) / weight
        of_documents += float(((by_arm - slope[:, host] * length) ** 2 / length).sum()) / (arms - 1)
        in_hosts += len(documents) - len(counts)
        of_hosts += float((weight * slope**2).sum()) / (arms - 1)
        between += float(weight.sum() - (weight**2).sum() / weight.sum())
    of_run_document = in_runs / count
    noise = of_run_document / pairs
    if not in_hosts:
        return among / count - noise, 0.0, of_run_document
    both = of_documents / in_hosts
    hosts = count - in_hosts
    return both - noise, (of_hosts - hosts * both) / between, of_run_document
