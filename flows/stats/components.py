"""Variance components of runs, fitted in closed form: how much losses vary, and by what.

Method of moments for a balanced layout (Searle, Casella and McCulloch, Variance Components, 1992, chapter 4): each mean
square is set equal to its expectation. A component that comes out negative is 0.
"""

from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gristmill.flows.stats.runs import EvaluationSet


class Components(BaseModel):
    """Standard deviations in bits per byte.

    pair: what a pair adds to all arms alike; it cancels in differences. sample: of what one arm's text in the order of
    one pair adds, at all learning rates alike. run: of one training beyond that. learning_rate: of an arm's effect from
    one learning rate to another. document: of an arm's effect from one document of mean length to another of the same
    host; host: from one host to another, on all its documents. run_document: of one run on one such document beyond all
    that. level, slope: the base's bits per byte, and what a factor e of tokens takes from it.
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
            raise ValueError("components: run and sample are 0; runs that do not vary have no error rates.")
        return self

    def pair_variance(self, learning_rates: int, evaluation: EvaluationSet) -> float:
        """Of a pair's difference between two arms, averaged over learning rates."""
        of_run = self.run**2 + self.run_document**2 * _share(evaluation)
        return 2 * (self.sample**2 + of_run / learning_rates)

    def document_variance(self, evaluation: EvaluationSet) -> float:
        """Of the effect, by the sample of documents and of their hosts."""
        of_hosts = self.host**2 / evaluation.effective_units
        return 2 * (self.document**2 * _share(evaluation) + of_hosts)


def _share(evaluation: EvaluationSet) -> float:
    """Variance of the measure if each document of mean length has variance 1."""
    counts = np.array([len(evaluation.members(name)) for name in evaluation.judged])
    return float((1 / counts).sum() / len(counts) ** 2)


def fitted(bits: np.ndarray, evaluation: EvaluationSet) -> Components:
    """Components of runs, float64 (arms, pairs, learning rates, documents), at least 2 of each but learning rates.

    Arms may be one arm's samples by salt, where the components of arms are then near 0. ValueError if there are too
    few.
    """
    arms, pairs, rates, _ = bits.shape
    if arms < 2 or pairs < 2:
        raise ValueError(f"components: {arms} arms and {pairs} pairs cannot be told apart; give 2 or more of each.")
    measure = evaluation.measure(bits)
    of_run, of_sample, of_pair, of_rate = _from_measures(measure)
    of_document, of_host, of_run_document = _from_documents(bits, evaluation)
    share = _share(evaluation)
    root = {
        "pair": of_pair,
        "sample": of_sample,
        # A run's measure holds its documents' part too.
        "run": of_run - of_run_document * share,
        "learning_rate": of_rate,
        "document": of_document,
        "host": of_host,
        "run_document": of_run_document,
    }
    return Components(**{name: float(np.sqrt(max(v, 0.0))) for name, v in root.items()}, level=float(measure.mean()))


def _from_measures(measure: np.ndarray) -> tuple[float, float, float, float]:
    """Variances of run, sample, pair and arm x learning rate from (arms, pairs, learning rates).

    Pairs count within learning rates, since a pair's weights train differently at each. At one learning rate run and
    sample are one, and count as run.
    """
    arms, pairs, rates = measure.shape
    by_pair = measure.mean(axis=0)
    by_arm = measure.mean(axis=1)
    residual = measure - by_pair[None] - by_arm[:, None] + measure.mean(axis=(0, 1))
    free = (arms - 1) * (pairs - 1)
    of_both = float((residual**2).sum()) / (free * rates)
    of_pair = float(by_pair.var(axis=0, ddof=1).mean()) - of_both / arms
    if rates == 1:
        return of_both, 0.0, of_pair, 0.0
    of_mean = float((residual.mean(axis=2) ** 2).sum()) / free
    of_run = (of_both - of_mean) * rates / (rates - 1)
    contrast = by_arm - by_arm.mean(axis=1, keepdims=True)
    contrast = contrast - contrast.mean(axis=0)
    of_rate = float((contrast**2).sum()) / ((arms - 1) * (rates - 1)) - of_run / pairs
    return of_run, of_both - of_run, of_pair, of_rate


def _from_documents(bits: np.ndarray, evaluation: EvaluationSet) -> tuple[float, float, float]:
    """Variances of arm x document within hosts, arm x host and run x document, in bits per byte of a document of mean
    length. Where no host has several documents, all that arms differ by counts as documents'."""
    arms, pairs, rates, _ = bits.shape
    among, within, count = 0.0, 0.0, 0
    of_documents, in_hosts, of_hosts, between = 0.0, 0, 0.0, 0.0
    for name in evaluation.judged:
        documents = evaluation.members(name)
        size = evaluation.size[documents]
        values = bits[..., documents]
        # Beyond the run's own bits per byte and the document's own difficulty at a learning rate and a pair.
        values = values - values.sum(axis=-1, keepdims=True) / size.sum() * size
        values = (values - values.mean(axis=0)) / size.mean()
        by_arm = values.mean(axis=(1, 2))
        residual = values - by_arm[:, None, None]
        free = len(documents) - 1
        within += float((residual**2).sum()) / ((arms - 1) * (pairs * rates - 1))
        among += float((by_arm**2).sum()) / (arms - 1)
        count += free
        _, host, counts = np.unique(evaluation.units[documents], return_inverse=True, return_counts=True)
        # A host's deviation is per byte: a document of twice the bytes has twice the bits of it. A document's own has
        # twice the variance.
        length = size / size.mean()
        weight = np.bincount(host, weights=length)
        slope = np.array([np.bincount(host, weights=row) for row in by_arm]) / weight
        of_documents += float(((by_arm - slope[:, host] * length) ** 2 / length).sum()) / (arms - 1)
        in_hosts += len(documents) - len(counts)
        of_hosts += float((weight * slope**2).sum()) / (arms - 1)
        between += float(weight.sum() - (weight**2).sum() / weight.sum())
    of_run_document = within / count
    noise = of_run_document / (pairs * rates)
    if not in_hosts:
        return among / count - noise, 0.0, of_run_document
    both = of_documents / in_hosts
    hosts = count - in_hosts
    return both - noise, (of_hosts - hosts * both) / between, of_run_document
