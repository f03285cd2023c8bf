"""Options of decisions, and those that they share with other experiments: what is compared, and what judges."""

from dataclasses import dataclass
from typing import Any

from gristmill.flows.recipe.forms import RecipeLike
from gristmill.flows.recipe.options import integers, option
from gristmill.training.hardware import MFU


@dataclass(frozen=True)
class Candidates:
    """Recipes that are compared with a base."""

    against: list[RecipeLike] = option("recipe to compare with; repeatable", list, metavar="RECIPE", shell=list[str])
    settings: list[str] = option(
        "setting to change, such as minhash.threshold=0.9; repeatable", list, flag="--set", metavar="KEY=VALUE"
    )
    without: list[str] = option("step to remove; repeatable", list, metavar="STEP")
    raw: bool = option("comparison with raw extraction, without later steps", False)


@dataclass(frozen=True)
class Judging:
    """The small model that is trained, and the texts that it is judged by."""

    proxy: str | dict[str, Any] = option(
        "small model: YAML file, or name of a shipped proxy", "small", metavar="FILE", shell=str
    )
    clean: str | None = option(
        "clean texts to judge by: JSON Lines, Parquet, folder of .txt files, or reference", None, metavar="PATH"
    )
    judge: list[str] = option(
        "evaluation set to judge by: source, clean, task:NAME, or extracted for all sources; repeatable",
        list,
        metavar="SET",
    )


@dataclass(frozen=True)
class DecisionOptions(Judging, Candidates):
    """What is compared, by how many runs of which model, and what judges."""

    leave_one_out: bool = option("comparison without each step in turn", False)
    tasks: str | None = option("tasks to score models on: folder, or lm-eval:NAME,NAME", None, metavar="FOLDER")
    tokens: int | None = option(
        "tokens of each run; default: one epoch of the smallest recipe, at most the proxy's tokens",
        None,
        min=1,
    )
    pairs: list[int] = option(
        "pairs of runs at each interim analysis; default: as in the proxy", list, metavar="N,N,...", parser=integers
    )
    futility: float | None = option(
        "probability of a verdict below which the decision ends early; 0: never; default: 0.2", None, min=0
    )
    bank_pairs: int = option("A/A pairs, to measure the noise before a verdict", 0, min=0)
    first_pair: int = option("number of the first pair, for new pairs after an inconclusive decision", 1, min=1)
    tokenizer: str | None = option(
        "tokenizer file for all recipes; default: trained on all sources", None, metavar="FILE"
    )
    resample: bool = option(
        "random halves of the hosts for each pair, so that intervals cover the choice of pages", False
    )


@dataclass(frozen=True)
class OtherDevice:
    """A device that this machine does not have, for the plan of a decision."""

    device: str = option("with --plan: GPU, such as h100; default: this machine", "", metavar="NAME")
    devices: int = option("with --device: number of GPUs", 1, min=1)
    mfu: float | None = option(
        f"with --device: share of the peak rate that training reaches; default: as measured, else {MFU}", None
    )
    price: float = option("with --plan: price of a GPU hour", 0.0, min=0)
