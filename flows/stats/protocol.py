"""How two or more recipes are compared, declared before the first run.

1. *Pairs.* Every arm trains with the same pair number, which seeds weights and order; the effect is the mean over
   pairs of base minus candidate, in bits per byte, averaged over the judged evaluation sets. What a pair adds to all
   arms cancels.
2. *Two learning rates*, a small and the tuned one, since verdicts of proxy models flip with it (arXiv 2512.24503). A
   pair's value is its mean over learning rates, so whatever the runs of a pair share does not count as replication.
   Learning rates are a fixed choice: a verdict is about these. They *disagree* if, where a boundary is crossed, the
   effect at one of them has the other sign than the mean. The verdict is then withheld, and sampling of this
   candidate ends. That can only take verdicts away, so no error rate rises. At the boundary it costs about one true
   verdict in twenty if runs are all noise, at an effect that is seen with probability .8 about one in a hundred.
3. *Interval.* A t interval over pairs; with 3 or 4 pairs a percentile bootstrap covers far less than it says. The
   variance of a pair is pooled with that of the A/A bank of the same proxy, tokens and learning rates, with its
   degrees of freedom, unless the decision's own pairs vary more (an F test at 10%). Evaluation documents are a random
   sample too: pairs and documents are crossed random effects, their variances are added with Satterthwaite's degrees of
   freedom (`crossed`). Documents of one host are alike, so hosts are drawn, and documents only with them.
4. *Looks.* After declared numbers of pairs the statistic is compared with a boundary that spends a two-sided error of
   alpha t^2 up to the share t of the pairs (Lan and DeMets 1983; Kim and DeMets 1987; Jennison and Turnbull, Group
   Sequential Methods, 2000, chapter 7). A t statistic is compared through its tail probability (section 3.8). A
   decision ends at its last look: more pairs afterwards, because the result was not clear, are a new decision on new
   pair numbers (`first_pair`).
5. *After stopping* a plain interval covers too little. Interval, effect and p value follow from the stage-wise ordering
   of outcomes (`sequential`); the effect is median-unbiased.
6. *Many candidates.* They are screened by one run of each at each learning rate, with a pair number and with evaluation
   documents that the test does not use (hosts with about a fourth of each set's documents), so the test is not biased
   by the selection. A set of too few hosts to spare one is split by documents. The best go on, and alpha is
   split evenly over them (Bonferroni).
7. *Worth.* The base trains on half of the tokens too, and the effect is expressed by its learning curve (`worth`).
8. *These files or the method* (`resample`). Without it all pairs read the same training documents, and a verdict is on
   these. With it each pair reads its own half of the hosts of every source, the same half for all arms. Halves of N
   hosts vary about the N as the N vary about all hosts there are (delete-half jackknife, Shao and Wu 1989; exact for
   halves drawn without replacement: both variances are S^2/N for hosts of variance S^2). So the mean effect of n pairs
   has, as an estimate for all hosts, the variance

       (V_half + V_seed) / n + V_half

   where V_half + V_seed is the variance of the own pairs, and V_seed that of the A/A bank, both runs of whose pairs
   read one half. Averaging pairs leaves the last term. V_half is taken as the own variance less half of the bank's, at
   least 0, and the variance of a pair as the larger of the two; both with the degrees of the own pairs. To subtract
   all of the bank's is unbiased, but a difference of two variances that few pairs know is too often near 0
   (`SEED_SHARE` has the figures). Without a bank V_half is the whole own variance. Bank and own pairs are not pooled.

The A/A bank (`Bank`) holds pairs of runs of one arm that differ in the sample of its text: how much runs differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from scipy.special import stdtrit

from gristmill.flows.stats.crossed import Estimate, estimate, interaction
from gristmill.flows.stats.runs import EvaluationSet, Run, RunRequest, asked
from gristmill.flows.stats.sequential import Look, Noise, chance_to_tell, declared, p_value, pairs_needed, stagewise
from gristmill.flows.stats.verdict import AtLearningRate, Conditions, Outcome, Verdict, worth


class Bank(BaseModel):
    """Differences of A/A pairs, for one proxy, number of tokens and list of learning rates.

    differences: bits per byte of salt 0 minus salt 1, a row a pair, a column a learning rate. interaction: what
    evaluation documents that react to single pairs add to the variance of a pair's difference. units: how many hosts
    these documents are of, or documents where each counts alone.
    `model_dump(mode="json")` and `Bank.model_validate` are its JSON.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    arm: str
    tokens: int
    learning_rates: tuple[float, ...]
    pairs: tuple[int, ...]
    differences: tuple[tuple[float, ...], ...]
    interaction: float
    units: int

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if len(self.pairs) < 2 or len(self.differences) != len(self.pairs):
            raise ValueError(
                f"bank: {len(self.differences)} differences for {len(self.pairs)} pairs; it needs 2 or more."
            )
        if any(len(row) != len(self.learning_rates) for row in self.differences):
            raise ValueError(f"bank: each row needs {len(self.learning_rates)} differences, one per learning rate.")
        return self

    @property
    def degrees(self) -> int:
        return len(self.pairs) - 1

    def variance(self, units: int) -> float:
        """Of a pair's difference, averaged over learning rates, on evaluation documents of so many units."""
        means = np.array(self.differences).mean(axis=1)
        return float(max(means.var(ddof=1) + self.interaction * (self.units / units - 1), 0.0))

    def variance_at(self, learning_rate: float) -> float:
        """Of a pair's difference at one learning rate."""
        column = self.learning_rates.index(learning_rate)
        return float(np.var([row[column] for row in self.differences], ddof=1))


def requests(arm: str, pairs: Sequence[int], learning_rates: Sequence[float], tokens: int) -> list[RunRequest]:
    """The runs of a bank. Those of salt 0 are also the runs of a decision whose base is this arm."""
    return [RunRequest(arm, pair, rate, tokens, salt) for pair in pairs for rate in learning_rates for salt in (0, 1)]


def calibrate(
    run: Run, evaluation: EvaluationSet, arm: str, pairs: Sequence[int], learning_rates: Sequence[float], tokens: int
) -> Bank:
    """Train A/A pairs of one arm. ValueError if there are under two pairs."""
    if len(pairs) < 2:
        raise ValueError(f"calibrate: {len(pairs)} pairs have no variance; use 2 or more, better 12.")
    wanted = requests(arm, pairs, learning_rates, tokens)
    losses = asked(run, wanted, len(evaluation.size))
    bits = np.array([losses[request] for request in wanted]).reshape(len(pairs), len(learning_rates), 2, -1)
    differences = bits[:, :, 0] - bits[:, :, 1]
    return Bank(
        arm=arm,
        tokens=tokens,
        learning_rates=tuple(learning_rates),
        pairs=tuple(pairs),
        differences=tuple(tuple(float(x) for x in row) for row in evaluation.measure(differences)),
        interaction=interaction(differences.mean(axis=1), evaluation)[0],
        units=judged_units(evaluation),
    )


def judged_units(evaluation: EvaluationSet) -> int:
    return len(np.unique(evaluation.units[evaluation.weights > 0]))


# Raised when the same losses may give another verdict than before: by another estimate, boundary, interval or sentence.
VERSION = 3
WANTED_POWER = 0.8
# New pairs are advised if they would tell with this probability at least, by what was seen and how unsure that is.
ADVISED = 0.5
# One evaluation document in so many is for screening.
SCREENING_STRIDE = 4


class Protocol(BaseModel):
    """The settings of a decision."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    learning_rates: tuple[float, ...] = Field(min_length=1, description="Learning rates of the proxy, smallest first.")
    looks: tuple[int, ...] = Field(
        (3, 6, 12), min_length=1, description="Numbers of pairs after which an interim analysis can end the decision."
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
        3, ge=0, description="Pairs of the base at half of the tokens; 0: worth in tokens is not measured."
    )
    resample: bool = Field(False, description="Each pair reads its own half of the hosts, the same for all arms.")

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.looks[0] < 2 or any(b <= a for a, b in pairwise(self.looks)):
            raise ValueError(f"looks: {list(self.looks)} must be ascending and begin with 2 or more pairs.")
        if len(set(self.learning_rates)) < len(self.learning_rates) or min(self.learning_rates) <= 0:
            raise ValueError(f"learning_rates: {list(self.learning_rates)} must differ and be above 0.")
        if self.worth_pairs == 1 or self.worth_pairs > self.looks[0]:
            raise ValueError(
                f"worth_pairs: {self.worth_pairs} must be 0, or from 2 to the pairs of the first interim "
                f"analysis, {self.looks[0]}."
            )
        return self

    def tested(self, candidates: int) -> int:
        """How many of so many candidates are tested."""
        return candidates if self.survivors is None else min(candidates, self.survivors)

    def limits(self, candidates: int) -> tuple[float, ...]:
        return declared(self.looks, self.alpha / self.tested(candidates))

    def pairs(self, start: int, end: int) -> range:
        """Pair numbers of the test from its start-th to before its end-th."""
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
    """Compare candidates with a base. `run` is asked for whole batches: screening, then look by look. `conditions`:
    what every verdict says it holds for; None for runs without a model.

    ValueError if arms have the same name, or if the bank is of other tokens or learning rates.
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
        wanted = [RunRequest(arm, p, rate, count) for p in pairs for rate in protocol.learning_rates for arm in arms]
        losses.update(asked(run, wanted, len(evaluation.size)))

    def bits(arm: str, pairs: Sequence[int], count: int = tokens) -> np.ndarray:
        """Of a trained arm, float64 (pairs, learning rates, documents)."""
        rows = [[losses[RunRequest(arm, p, rate, count)] for rate in protocol.learning_rates] for p in pairs]
        return np.array(rows)

    tested, screening = list(candidates), list[tuple[str, float]]()
    if protocol.tested(len(candidates)) < len(candidates):
        before = range(protocol.first_pair - 1, protocol.first_pair)
        train(candidates, before)
        mask, _ = evaluation.split(SCREENING_STRIDE)
        measured = {
            arm: float(evaluation.take(mask).measure(bits(arm, before)[..., mask]).mean()) for arm in candidates
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
            result = estimate(differences.mean(axis=1), judged, bank_variance, protocol.resample)
            looks[arm].append(_look(result, limits[k]))
            if looks[arm][-1].crossed or end == protocol.looks[-1]:
                alpha = protocol.alpha / len(tested)
                verdicts[arm] = _verdict(protocol, base, arm, differences, looks[arm], result, judged, bank, alpha)
    if protocol.worth_pairs and any(verdict.outcome in ("better", "worse") for verdict in verdicts.values()):
        pairs = protocol.pairs(0, protocol.worth_pairs)
        train([base], pairs, tokens // 2)
        half, full = (
            judged.measure(bits(base, pairs, count)[..., mask]).mean(axis=1) for count in (tokens // 2, tokens)
        )
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


def _with_worth(verdict: Verdict, half: np.ndarray, full: np.ndarray) -> Verdict:
    if verdict.outcome not in ("better", "worse"):
        return verdict
    effect = cast(tuple[float, float, float], (verdict.low, verdict.effect, verdict.high))
    return replace(verdict, worth=worth(effect, half, full, verdict.level))


def tested_documents(
    protocol: Protocol, evaluation: EvaluationSet, candidates: int
) -> tuple[np.ndarray, EvaluationSet]:
    """The documents that judge: those that screening, if there is any, does not use."""
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
    """differences: bits (pairs, learning rates, documents)."""
    # Shares of information follow from the variances as they are known in the end.
    looks = [replace(look, information=1 / result.variance_at(look.pairs)) for look in looks]
    low, effect, high = stagewise(looks, protocol.level)
    by_rate = tuple(
        _at_learning_rate(protocol, rate, differences[:, column], judged, bank)
        for column, rate in enumerate(protocol.learning_rates)
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
    """By which new pairs are advised."""
    bank_variance, degrees = (0 if bank is None or protocol.resample else bank.degrees), result.document_degrees
    if result.half_variance:
        of_both = result.half_variance**2 / (result.pairs - 1) + result.document_variance**2 / result.document_degrees
        degrees = result.shared_variance**2 / of_both
    return Noise(result.pair_variance, bank_variance, result.shared_variance, degrees)


def _at_learning_rate(
    protocol: Protocol, rate: float, differences: np.ndarray, judged: EvaluationSet, bank: Bank | None
) -> AtLearningRate:
    """differences: bits (pairs, documents)."""
    bank_variance = None if bank is None else (bank.variance_at(rate), bank.degrees, 0)
    result = estimate(differences, judged, bank_variance, protocol.resample)
    reach = float(stdtrit(result.degrees, (1 + protocol.level) / 2) * np.sqrt(result.variance))
    return AtLearningRate(rate, result.effect, result.effect - reach, result.effect + reach)
