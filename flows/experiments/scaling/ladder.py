"""A ladder of sizes: from which one on do small models say of recipes what the largest say, and by which measure?"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gristmill.flows.stats.agreement import RankAgreement, rank_agreement

JUDGED = "judged"  # the measure of a decision: the mean over the sets that judge
ERROR = "error:"  # begins the name of a measure: the share of a task's examples that are answered wrong


@dataclass(frozen=True, repr=False)
class AgreementReport:
    """Whether recipes keep their order from smaller sizes to the largest.

    `parameters`, `tokens`: of the runs at each size, parameters rising. `losses`: by measure, float64 (sizes, arms,
    seeds): bits per byte of JUDGED and of each evaluation set alone, wrong answers of each task (ERROR). The order that
    counts is that of the largest models by JUDGED. `judged`: the sets that judge.
    """

    recipe: str
    arms: tuple[str, ...]
    parameters: tuple[int, ...]
    tokens: tuple[int, ...]
    losses: dict[str, np.ndarray]
    judged: tuple[str, ...]

    @cached_property
    def agreements(self) -> dict[str, list[RankAgreement]]:
        """By measure, that of each size but the largest, with the largest."""
        target = self.losses[JUDGED][-1]
        return {name: [rank_agreement(size, target) for size in sizes[:-1]] for name, sizes in self.losses.items()}

    def smallest(self, measure: str = JUDGED) -> int | None:
        """The parameters of the smallest size from which on no pair of recipes that both it and the largest tell apart
        changes its order, and some pair is told apart by both; None if there is none."""
        found = None
        for parameters, agreement in zip(
            reversed(self.parameters[:-1]), reversed(self.agreements[measure]), strict=True
        ):
            same, pairs = agreement.counted(small=True, large=True)
            if not pairs or same < pairs:
                break
            found = parameters
        return found

    @property
    def sentence(self) -> str:
        """What was found by the measure of a decision, as one sentence."""
        least, most = self.parameters[0], self.parameters[-1]
        first = self.agreements[JUDGED][0]
        low, share, high = first.accuracy
        both, sure = first.counted(small=True, large=True)
        found = self.smallest()
        which = f"the smallest size that agrees is {found:,} parameters" if found else "no smaller size agrees"
        return (
            f"by bits per byte of {', '.join(self.judged)}, models of {least:,} parameters order {share:.0%} of the "
            f"pairs of {len(self.arms)} recipes as those of {most:,} do (90% interval {low:.0%} to {high:.0%}, "
            f"Kendall's tau {first.tau:.2f}, p {first.p_value:.3f}); of the {sure} pairs that both tell apart {both}; "
            f"{which}"
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each measure and size but the largest."""
        for measure, agreements in self.agreements.items():
            for parameters, tokens, one in zip(self.parameters, self.tokens, agreements, strict=False):
                low, share, high = one.accuracy
                same, pairs = one.counted(small=True, large=True)
                yield {
                    "measure": measure,
                    "parameters": parameters,
                    "tokens": tokens,
                    "accuracy": share,
                    "low": low,
                    "high": high,
                    "tau": one.tau,
                    "told_apart": pairs,
                    "same": same,
                }

    def arm_rows(self) -> Iterator[dict[str, Any]]:
        """A row for each arm, the best of the largest models first: its mean loss and its rank at each size."""
        means = self.losses[JUDGED].mean(axis=2)
        ranks = 1 + means.argsort(axis=1).argsort(axis=1)
        for at in means[-1].argsort(kind="stable"):
            yield {"arm": self.arms[at], "losses": means[:, at].tolist(), "ranks": ranks[:, at].tolist()}

    def as_json(self) -> dict[str, Any]:
        largest = zip(self.parameters, self.agreements[JUDGED], strict=False)
        return {
            "recipe": self.recipe,
            "judged": list(self.judged),
            "parameters": list(self.parameters),
            "tokens": list(self.tokens),
            "smallest": {measure: self.smallest(measure) for measure in self.losses},
            "measures": list(self.rows()),
            "arms": list(self.arm_rows()),
            "losses": {measure: losses.tolist() for measure, losses in self.losses.items()},
            "pairs": [
                asdict(pair)
                | {
                    "parameters": parameters,
                    "arms": [self.arms[number] for number in pair.arms],
                    "same": pair.same,
                    "told_apart": pair.told_apart,
                }
                for parameters, agreement in largest
                for pair in agreement.pairs
            ],
        }
