"""Whether the runs of a decision meet the duplicates that a recipe leaves in."""

from collections.abc import Iterator

from gristmill.flows.decisions.arm_data import ComparisonData
from gristmill.flows.decisions.plan import Arms

STEP = "minhash"
FEW = 0.1  # of the pairs: where a run meets fewer, what it says of duplicates is about a tenth of what there is


def met(pairs: int, share: float) -> float:
    """How many of so many pairs of copies are both among the documents of a run, expected, if it reads this share of
    them at random."""
    return pairs * min(share, 1.0) ** 2


def seldom_met(compared: Arms, data: ComparisonData, pairs: int | None) -> Iterator[str]:
    """What is to be said of each recipe without the base's step `minhash` whose runs meet few of the pairs that it
    found. `pairs`: None where the base has no such step."""
    if not pairs:
        return
    for name in compared.candidates:
        if STEP in [step.step for step in compared.recipes[name].steps]:
            continue
        tokens = sum(data.arms[name].source_tokens.values())
        alone = "" if data.half is None else ", without --resample,"
        expected = met(pairs, data.budget_tokens / tokens)
        if expected < FEW * pairs:
            yield (
                f"warning: {name} keeps the {pairs:,} pairs of copies that `{STEP}` finds, but a run reads "
                f"{data.budget_tokens / tokens:.1%} of its tokens, where {expected:.1f} of these pairs are expected to "
                f"meet: its verdict says little of duplicates. `--tokens {tokens}`, or a `--proxy` of so many tokens"
                f"{alone} reads them all"
            )
