"""The protocol for comparing two or more recipes, declared before the first run.

1. *Pairs.* Every arm trains with the same pair number, which seeds weights and order; the effect is the mean over
   pairs of base minus candidate, in bits per byte, averaged over the judged evaluation sets. What a pair adds to all
   arms cancels.
2. *Two learning rates*, a small one and the tuned one, since verdicts of proxy models can flip with the learning rate
   (arXiv 2512.24503). Each pair is trained at one of them, and they alternate over pairs: most of a pair's noise is the
   sample of text that it reads, which two runs on the same text share. The effect is the mean over pairs, with the same
   number at each rate. Learning rates are a fixed choice: a verdict is about these rates, and pairs vary around the
   effect at their own. The rates *disagree* if a boundary is crossed and the effect at one of them has a different sign
   from the mean. The verdict is then withheld, and sampling of this candidate ends. This can only remove verdicts, so
   no error rate rises.
3. *Interval.* A t interval over pairs, since with 3 or 4 pairs a percentile bootstrap has far too little coverage. The
   variance of a pair is pooled with the variance of the A/A bank of the same proxy, tokens and learning rates, with its
   degrees of freedom, unless the decision's own pairs vary more (an F test at 10%). Evaluation documents are a random
   sample too: pairs and documents are crossed random effects, whose variances are added with Satterthwaite's degrees of
   freedom (`crossed`). Documents of one host are correlated, so the sampling unit is the host.
4. *Interim analyses (looks).* After declared numbers of pairs the statistic is compared with a boundary that spends a
   two-sided error of alpha t^2 up to the share t of the pairs (Lan and DeMets 1983; Kim and DeMets 1987; Jennison and
   Turnbull, Group Sequential Methods, 2000, chapter 7). A t statistic is compared through its tail probability (section
   3.8). A decision ends at its last look: more pairs after an unclear result are a new decision on new pair numbers
   (`first_pair`). It also ends when a verdict has become unlikely (`futility`): when even an effect that the last look
   would detect with probability WANTED_POWER would cross the last boundary with less than this probability
   (`sequential.conditional_power`; Lan, Simon and Halperin 1982, Stochastically curtailed tests in long-term clinical
   trials). The boundaries do not assume this rule, so it can only remove verdicts.
5. *After stopping* a plain interval covers too little. Interval, effect and p value follow from the stage-wise ordering
   of outcomes (`sequential`); the effect is median-unbiased.
6. *Many candidates.* They are screened with one run each at every learning rate, with a pair number and evaluation
   documents that the test does not use (hosts with about a fourth of each set's documents), so the selection does not
   bias the test. A set with too few hosts is split by documents. The best candidates are tested, and alpha is split
   evenly over them (Bonferroni).
7. *Worth.* The base also trains on half of the tokens, and the effect is converted with its learning curve (`worth`).
8. *These files or the method* (`resample`). Without it all pairs read the same training documents, and a verdict is
   about these documents. With it each pair reads its own half of the hosts of every source, the same half for all arms.
   Halves of N hosts vary around the N hosts as the N vary around the population of hosts (delete-half jackknife, Shao
   and Wu 1989; exact for halves drawn without replacement: both variances are S^2/N for hosts of variance S^2). So the
   mean effect of n pairs, as an estimate for all hosts, has the variance

       (V_half + V_seed) / n + V_half

   where V_half + V_seed is the variance of the decision's pairs, and V_seed the variance of the A/A bank, in which both
   runs of a pair read the same half. Averaging pairs does not reduce the last term. V_half is estimated as the
   decision's variance minus half of the bank's, at least 0, and the variance of a pair as the larger of the two; both
   with the degrees of the decision's pairs. Subtracting the bank's whole variance is unbiased, but the difference of
   two variances from few pairs is too often near 0 (see `SEED_SHARE`). Without a bank V_half is the whole variance.
   Pairs of the bank and of the decision are not pooled.

The A/A bank (`Bank`) holds pairs of runs of one arm that differ in the sample of its text. It shows how much runs vary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from scipy.special import stdtrit

from gristmill.flows.stats.crossed import Estimate, estimate, interaction
from gristmill.flows.stats.runs import EvaluationSet, Run, RunRequest, losses_of, rate_of_pair
from gristmill.flows.stats.sequential import (
    WANTED_POWER,
    Look,
    Noise,
    chance_to_tell,
    conditional_power,
    declared,
    p_value,
    pairs_needed,
    stagewise,
    t_value,
)
from gristmill.flows.stats.verdict import AtLearningRate, Conditions, Outcome, Verdict, worth


class Bank(BaseModel):
    """Differences of A/A pairs, for one proxy, number of tokens and list of learning rates.

    differences: bits per byte of salt 0 minus salt 1, by pair. interaction: the part of the variance of a pair's
    difference from the interaction of pairs and evaluation documents. units: the number of hosts of these documents, or
    of documents if each is a unit. `model_dump(mode="json")` and `Bank.model_validate` convert to and from JSON.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    arm: str
    tokens: int
    learning_rates: tuple[float, ...]
    pairs: tuple[int, ...]
    differences: tuple[float, ...]
    interaction: float
    units: int

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if len(self.pairs) < 2 or len(self.differences) != len(self.pairs):
            raise ValueError(
                f"bank: {len(self.differences)} differences for {len(self.pairs)} pairs; it needs 2 or more."
            )
        return self

    @property
    def degrees(self) -> int:
        return len(self.pairs) - 1

    def variance(self, units: int) -> float:
        """Variance of a pair's difference on evaluation documents of `units` units."""
        own = np.array(self.differences).var(ddof=1)
        return float(max(own + self.interaction * (self.units / units - 1), 0.0))


def requests(arm: str, pairs: Sequence[int], learning_rates: Sequence[float], tokens: int) -> list[RunRequest]:
    """The runs of a bank. Runs with salt 0 are also the runs of a decision whose base is this arm."""
    return [
        RunRequest(arm, pair, rate_of_pair(pair, learning_rates), tokens, salt) for pair in pairs for salt in (0, 1)
    ]


def calibrate(
    run: Run, evaluation: EvaluationSet, arm: str, pairs: Sequence[int], learning_rates: Sequence[float], tokens: int
) -> Bank:
    """Train A/A pairs of one arm. Raises ValueError for fewer than two pairs."""
    if len(pairs) < 2:
        raise ValueError(f"calibrate: {len(pairs)} pairs have no variance; use 2 or more, better 12.")
    wanted = requests(arm, pairs, learning_rates, tokens)
    losses = losses_of(run, wanted, len(evaluation.size))
    bits = np.array([losses[request] for request in wanted]).reshape(len(pairs), 2, -1)
    differences = bits[:, 0] - bits[:, 1]
    return Bank(
        arm=arm,
        tokens=tokens,
        learning_rates=tuple(learning_rates),
        pairs=tuple(pairs),
        differences=tuple(float(x) for x in evaluation.measure(differences)),
        interaction=interaction(differences, evaluation)[0],
        units=judged_units(evaluation),
    )


def judged_units(evaluation: EvaluationSet) -> int:
    return len(np.unique(evaluation.units[evaluation.weights > 0]))


# Raise it when the same losses may give a different verdict: another estimate, boundary, interval or sentence.
VERSION = 4
# Every second pair after the first four. With `futility` of .2 such a decision needs under half of the runs of one
# with two runs a pair and analyses after 4, 8 and 16 pairs, with the same power (tests/flows/comparison/test_looks.py).
LOOKS = tuple(range(4, 21, 2))
# New pairs are recommended if they would detect the effect with at least this probability (see `chance_to_tell`).
ADVISED = 0.5
# One evaluation document in SCREENING_STRIDE is used for screening.
SCREENING_STRIDE = 4


class Protocol(BaseModel):
    """The settings of a decision."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    learning_rates: tuple[float, ...] = Field(min_length=1, description="Learning rates of the proxy, smallest first.")
    looks: tuple[int, ...] = Field(
        LOOKS, min_length=1, description="Numbers of pairs after which an interim analysis can end the decision."
    )
    futility: float = Field(
        0.2, ge=0, lt=1, description="End the decision if the probability of a verdict falls below this; 0: never."
    )
    alpha: float = Field(0.05, gt=0, lt=1, description="Two-sided error over all interim analyses and candidates.")
    level: float = Field(0.9, gt=0, lt=1, description="Level of the printed intervals.")
    survivors: int | None = Field(
        2, ge=1, description="Number of candidates that remain after screening; null: all are tested."
    )
    first_pair: int = Field(
        1, ge=1, description="Number of the first pair of the test; screening uses the pair before it."
    )
    worth_pairs: int = Field(
        4, ge=0, description="Pairs of the base at half of the tokens; 0: worth in tokens is not measured."
    )
    resample: bool = Field(False, description="Each pair reads its own half of the hosts, the same for all arms.")

    @model_validator(mode="after")
    def _order(self) -> Self:
        rates = len(self.learning_rates)
        if list(self.looks) != sorted({look // rates * rates for look in self.looks}) or self.looks[0] < 2 * rates:
            raise ValueError(
                f"looks: {list(self.looks)} must be ascending multiples of {rates}, as pairs alternate between {rates} "
                f"learning rates, and begin with {2 * rates} or more; use {[2 * rates * count for count in (1, 2, 3)]}."
            )
        if len(set(self.learning_rates)) < len(self.learning_rates) or min(self.learning_rates) <= 0:
            raise ValueError(f"learning_rates: {list(self.learning_rates)} must differ and be above 0.")
        if self.worth_pairs == 1 or self.worth_pairs > self.looks[0]:
            raise ValueError(
                f"worth_pairs: {self.worth_pairs} must be 0, or from 2 to the pairs of the first interim "
                f"analysis, {self.looks[0]}."
            )
        return self

    def rate(self, pair: int) -> float:
        """The learning rate of a pair's runs."""
        return rate_of_pair(pair, self.learning_rates)

    def groups(self, pairs: Sequence[int]) -> np.ndarray:
        """The number of the learning rate of each pair, int (pairs,)."""
        return np.array([self.learning_rates.index(self.rate(pair)) for pair in pairs])

    def tested(self, candidates: int) -> int:
        """How many of the candidates are tested after screening."""
        return candidates if self.survivors is None else min(candidates, self.survivors)

    def limits(self, candidates: int) -> tuple[float, ...]:
        return declared(self.looks, self.alpha / self.tested(candidates))

    def pairs(self, start: int, end: int) -> range:
        """Pair numbers of the test, from its `start`-th to before its `end`-th."""
        return range(self.first_pair + start, self.first_pair + end)


@dataclass(frozen=True)
class Decision:
    """Verdicts in the order of the candidates; which runs were asked for, and their trained tokens."""

    base: str
    tokens: int
    protocol: Protocol
    verdicts: tuple[Verdict, ...]
    runs: tuple[RunRequest, ...]
    screening: tuple[tuple[str, float], ...]
    conditions: Conditions | None = None

    def request(self, arm: str, pair: int) -> RunRequest:
        """The run of an arm in a pair of the test."""
        return RunRequest(arm, pair, self.protocol.rate(pair), self.tokens)

    def sentences(self) -> list[str]:
        return [verdict.sentence() for verdict in self.verdicts]


def decide(
    protocol: Protocol,
    evaluation: EvaluationSet,
    base: str,
    candidates: Sequence[str],
    tokens: int,
    run: Run,
    bank: Bank | None = None,
    conditions: Conditions | None = None,
) -> Decision:
    """Compare candidates with a base. `run` gets whole batches: screening, then one batch per look. `conditions`: the
    conditions that every verdict reports; None for runs without a model.

    Raises ValueError if arms have the same name, or if the bank has other tokens or learning rates.
    """
    if not candidates or len({base, *candidates}) <= len(candidates):
        raise ValueError(f"arms: {[base, *candidates]} must be two or more, with different names.")
    if bank is not None and (bank.tokens, bank.learning_rates) != (tokens, protocol.learning_rates):
        raise ValueError(
            f"bank: it was trained on {bank.tokens} tokens at learning rates {list(bank.learning_rates)}, "
            f"but this decision has {tokens} and {list(protocol.learning_rates)}; calibrate a bank for these."
        )
    losses: dict[RunRequest, np.ndarray] = {}

    def train(arms: Sequence[str], pairs: Sequence[int], count: int = tokens) -> None:
        wanted = [RunRequest(arm, pair, protocol.rate(pair), count) for pair in pairs for arm in arms]
        losses.update(losses_of(run, wanted, len(evaluation.size)))

    def bits(arm: str, pairs: Sequence[int], count: int = tokens) -> np.ndarray:
        """Bits of a trained arm, float64 (pairs, documents)."""
        return np.array([losses[RunRequest(arm, pair, protocol.rate(pair), count)] for pair in pairs])

    tested, screening = list(candidates), list[tuple[str, float]]()
    if protocol.tested(len(candidates)) < len(candidates):
        screened = {arm: _screened(protocol, arm, tokens) for arm in candidates}
        losses.update(losses_of(run, [request for runs in screened.values() for request in runs], len(evaluation.size)))
        mask, _ = evaluation.split(SCREENING_STRIDE)
        measured = {
            arm: float(evaluation.take(mask).measure(np.array([losses[one][mask] for one in runs])).mean())
            for arm, runs in screened.items()
        }
        screening = sorted(measured.items(), key=lambda item: item[1])
        tested = [arm for arm, _ in screening[: protocol.survivors]]
    mask, judged = tested_documents(protocol, evaluation, len(candidates))

    limits = protocol.limits(len(candidates))
    looks: dict[str, list[Look]] = {arm: [] for arm in tested}
    verdicts: dict[str, Verdict] = {}
    for k, (start, end) in enumerate(pairwise((0, *protocol.looks))):
        going = [arm for arm in candidates if arm in tested and arm not in verdicts]
        if not going:
            break
        train([base, *going], protocol.pairs(start, end))
        pairs = protocol.pairs(0, end)
        for arm in going:
            differences = (bits(base, pairs) - bits(arm, pairs))[..., mask]
            if not differences.any():
                verdicts[arm] = Verdict(
                    arm, base, "identical", protocol.level, end, protocol.learning_rates, 0.0, 0.0, 0.0
                )
                continue
            bank_variance = _pooled(bank, base, pairs, judged)
            result = estimate(differences, judged, bank_variance, protocol.resample, protocol.groups(pairs))
            looks[arm].append(_look(result, limits[k]))
            chance = None
            if not looks[arm][-1].crossed and end < protocol.looks[-1]:
                chance = _chance(protocol, result, bank, limits[-1])
            if chance is None or chance < protocol.futility:
                alpha = protocol.alpha / len(tested)
                verdict = _verdict(protocol, base, arm, differences, looks[arm], result, judged, bank, alpha)
                verdicts[arm] = replace(verdict, chance=chance, most_pairs=protocol.looks[-1])
    if protocol.worth_pairs and any(verdict.outcome in ("better", "worse") for verdict in verdicts.values()):
        pairs = protocol.pairs(0, protocol.worth_pairs)
        train([base], pairs, tokens // 2)
        half, full = (judged.measure(bits(base, pairs, count)[..., mask]) for count in (tokens // 2, tokens))
        verdicts = {arm: _with_worth(verdict, half, full) for arm, verdict in verdicts.items()}
    for rank, (arm, _) in enumerate(screening[len(tested) :], len(tested) + 1):
        verdicts[arm] = Verdict(
            arm,
            base,
            "screened out",
            protocol.level,
            1,
            protocol.learning_rates,
            rank=rank,
            candidates=len(candidates),
        )
    sentences = tuple(
        replace(
            verdicts[arm],
            conditions=conditions,
            hosts=judged.effective_units,
            host_unit=judged.unit_name,
            one_host=tuple(name for name in judged.alone if name not in judged.hostless),
            hostless=tuple(name for name in judged.judged if name in judged.hostless),
        )
        for arm in candidates
    )
    return Decision(base, tokens, protocol, sentences, tuple(losses), tuple(screening), conditions)


def _screened(protocol: Protocol, arm: str, tokens: int) -> list[RunRequest]:
    """The screening runs of an arm: one at each learning rate, with the pair number before the test's first."""
    return [RunRequest(arm, protocol.first_pair - 1, rate, tokens) for rate in protocol.learning_rates]


def _with_worth(verdict: Verdict, half: np.ndarray, full: np.ndarray) -> Verdict:
    if verdict.outcome not in ("better", "worse"):
        return verdict
    effect = cast(tuple[float, float, float], (verdict.low, verdict.effect, verdict.high))
    return replace(verdict, worth=worth(effect, half, full, verdict.level))


def tested_documents(
    protocol: Protocol, evaluation: EvaluationSet, candidates: int
) -> tuple[np.ndarray, EvaluationSet]:
    """The evaluation documents of the test: all that screening, if any, does not use."""
    mask = np.ones(len(evaluation.size), dtype=bool)
    if protocol.tested(candidates) < candidates:
        _, mask = evaluation.split(SCREENING_STRIDE)
    return mask, evaluation.take(mask)


def _pooled(bank: Bank | None, base: str, pairs: Sequence[int], judged: EvaluationSet) -> tuple[float, int, int] | None:
    if bank is None:
        return None
    shared = len(set(bank.pairs) & set(pairs)) if bank.arm == base else 0
    return bank.variance(judged_units(judged)), bank.degrees, shared


def _look(result: Estimate, limit: float) -> Look:
    if result.variance == 0:
        raise ValueError("decision: all pairs gave the same difference; use the pair number as the seed of the runs.")
    return Look(
        result.pairs, result.effect, float(np.sqrt(result.variance)), result.degrees, 1 / result.variance, limit
    )


def _verdict(
    protocol: Protocol,
    base: str,
    arm: str,
    differences: np.ndarray,
    looks: Sequence[Look],
    result: Estimate,
    judged: EvaluationSet,
    bank: Bank | None,
    alpha: float,
) -> Verdict:
    """differences: bits (pairs, documents)."""
    # Shares of information follow from the final variances.
    looks = [replace(look, information=1 / result.variance_at(look.pairs)) for look in looks]
    low, effect, high = stagewise(looks, protocol.level)
    groups = protocol.groups(protocol.pairs(0, result.pairs))
    by_rate = tuple(
        _at_learning_rate(protocol, rate, judged.measure(differences[groups == number]), result)
        for number, rate in enumerate(protocol.learning_rates)
    )
    last, outcome, needed = looks[-1], "inconclusive", None
    limited = unlikely = False
    if last.crossed:
        agree = all(np.sign(one.effect) == np.sign(last.effect) for one in by_rate)
        outcome = ("better" if last.effect > 0 else "worse") if agree else "withheld"
    else:
        noise = _noise(protocol, result, bank)
        needed = pairs_needed(effect, alpha, noise, WANTED_POWER)
        limited = needed is None and pairs_needed(effect, alpha, replace(noise, shared_variance=0.0)) is not None
        rates = len(protocol.learning_rates)
        needed = None if needed is None else max(-(-needed // rates), 2) * rates
        unlikely = needed is not None and chance_to_tell(effect, result.variance, alpha, noise, needed) < ADVISED
    return Verdict(
        candidate=arm,
        base=base,
        outcome=cast(Outcome, outcome),
        level=protocol.level,
        pairs=result.pairs,
        learning_rates=protocol.learning_rates,
        effect=effect,
        low=low,
        high=high,
        p_value=p_value(looks),
        look=len(looks) if last.crossed else None,
        by_learning_rate=by_rate,
        pairs_needed=None if unlikely else needed,
        first_pair=protocol.first_pair,
        limited_by_documents=limited,
        may_be_noise=unlikely,
    )


def _noise(protocol: Protocol, result: Estimate, bank: Bank | None) -> Noise:
    """The noise for recommending new pairs."""
    bank_variance, degrees = (0 if bank is None or protocol.resample else bank.degrees), result.document_degrees
    if result.half_variance:
        of_both = result.half_variance**2 / result.pair_degrees + result.document_variance**2 / result.document_degrees
        degrees = result.shared_variance**2 / of_both
    rates = len(protocol.learning_rates)
    return Noise(result.pair_variance, bank_variance, result.shared_variance, degrees, rates)


def _chance(protocol: Protocol, result: Estimate, bank: Bank | None, limit: float) -> float:
    """The probability of a verdict at the last look, for the effect that this look detects."""
    noise, last = _noise(protocol, result, bank), protocol.looks[-1]
    variances, reach = (noise.pair_variance, noise.shared_variance), t_value(limit, noise.freedom(last))
    return float(conditional_power(result.effect, result.pairs, last, reach, *variances))


def _at_learning_rate(protocol: Protocol, rate: float, effects: np.ndarray, result: Estimate) -> AtLearningRate:
    """effects: bits per byte of the pairs at this rate (pairs,)."""
    effect, variance = float(effects.mean()), result.variance_at(len(effects))
    reach = float(stdtrit(result.degrees, (1 + protocol.level) / 2) * np.sqrt(variance))
    return AtLearningRate(rate, effect, effect - reach, effect + reach)
