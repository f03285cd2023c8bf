"""An effect and its standard error, from losses of pairs of runs on the same documents.

Pairs and documents are both samples: of seeds, and of what one may want to read. Differences x of pair p on document d
are a crossed table with one value a cell. The error of their mean has a part of pairs, a part of documents and one of
their interaction, which the first two both hold; so it is v_pairs + v_documents - v_interaction, by the usual analysis
of variance (Searle, Casella and McCulloch 1992, chapter 4), with the degrees of freedom of Satterthwaite (1946).

Few pairs say little of their own variance. It is pooled with that of an A/A bank: pairs of runs of one recipe, whose
true difference is 0.
"""

from dataclasses import dataclass

import numpy as np

from flows.comparison.runs import EvaluationSet


@dataclass(frozen=True)
class Estimate:
    """`effect` in bits per byte, positive where the candidate is better; its standard `error` with its `degrees` of
    freedom; `by_rate`: the effect at each learning rate; `pair_variance`: of the difference of one pair, pooled;
    `document_variance`: the part of error^2 that more pairs do not change."""

    effect: float
    error: float
    degrees: float
    by_rate: tuple[float, ...]
    pairs: int
    pair_variance: float
    document_variance: float


def estimate(bits: np.ndarray, evaluation: EvaluationSet, bank: np.ndarray) -> Estimate:
    """From differences of bits, base minus candidate, (pairs, learning rates, documents).

    `bank`: differences of A/A pairs in bits per byte, averaged over learning rates, (A/A pairs,); may be empty.
    Raises ValueError for one pair without a bank, whose variance nobody knows.
    """
    pairs = len(bits)
    by_rate = evaluation.measure(bits).mean(0)
    averaged = bits.mean(1)
    each = evaluation.measure(averaged)
    effect = float(each.mean())
    squares, degrees = float(((each - effect) ** 2).sum() + (bank**2).sum()), pairs - 1 + len(bank)
    if not degrees:
        raise ValueError("one pair of runs and no A/A bank: the variance of a pair is not known; ask for more pairs")
    pooled = squares / degrees
    documents, documents_degrees, interaction, interaction_degrees = _documents(averaged, evaluation)
    runs = pooled / pairs
    beyond_runs = max(0.0, documents - interaction)
    variance = runs + beyond_runs
    if not variance:
        raise ValueError("all runs have equal losses: the recipes are trained on the same tokens in the same order")
    spread = runs**2 / degrees
    if beyond_runs:
        spread += documents**2 / documents_degrees + interaction**2 / interaction_degrees
    return Estimate(
        effect=effect,
        error=float(np.sqrt(variance)),
        degrees=variance**2 / spread,
        by_rate=tuple(map(float, by_rate)),
        pairs=pairs,
        pair_variance=pooled,
        document_variance=beyond_runs,
    )


def _documents(bits: np.ndarray, evaluation: EvaluationSet) -> tuple[float, float, float, float]:
    """Variance of the effect that documents bring, with its degrees of freedom, and the part of it that is the
    interaction with pairs, with its own; from differences (pairs, documents).

    Within a set of m documents the effect is a ratio, bits over bytes; its residuals are those of the linearised ratio
    (Cochran 1977, chapter 6). Several sets are strata.
    """
    pairs = len(bits)
    variance = degrees_part = interaction = interaction_part = 0.0
    for name in evaluation.judged:
        rows = evaluation.rows(name)
        size, m = evaluation.size[rows].astype(np.float64), int(rows.sum())
        given = bits[:, rows]
        ratios = given.sum(1) / size.sum()
        scale = m / (len(evaluation.judged) * size.sum())
        residuals = (given - ratios[:, None] * size) * scale
        means = residuals.mean(0)
        of_set = float(means.var(ddof=1)) / m
        variance += of_set
        degrees_part += of_set**2 / (m - 1)
        if pairs > 1:
            left = residuals - means
            within = float((left**2).sum()) / ((pairs - 1) * (m - 1)) / (pairs * m)
            interaction += within
            interaction_part += within**2 / ((pairs - 1) * (m - 1))
    return (
        variance,
        variance**2 / degrees_part if degrees_part else 1.0,
        interaction,
        interaction**2 / interaction_part if interaction_part else 1.0,
    )
