"""Options of decisions, and those that they share with other experiments: what is compared, and what judges."""

from dataclasses import dataclass
from typing import Any

from gristmill.flows.recipe.forms import RecipeLike
from gristmill.flows.recipe.options import integers, option
from gristmill.training.hardware import MFU


@dataclass(frozen=True)
class Candidates:
    """Recipes that are compared with a base."""

    against: list[RecipeLike] = option(
        "recipe to compare with the base; repeatable", list, metavar="RECIPE", shell=list[str]
    )
    settings: list[str] = option(
        "the base with one changed value, such as minhash.threshold=0.9; repeatable",
        list,
        flag="--set",
        metavar="KEY=VALUE",
    )
    without: list[str] = option("the base without one step; repeatable", list, metavar="STEP")
    raw: bool = option("the base with only extraction, without the steps after it", False)


@dataclass(frozen=True)
class Judging:
    """The small model that is trained, and the texts that it is judged by."""

    proxy: str | dict[str, Any] = option(
        "small model to train: a YAML file, or the name of a shipped proxy", "small", metavar="FILE", shell=str
    )
    clean: str | None = option(
        "texts to judge by: JSON Lines, Parquet, a folder of .txt files, or `reference`", None, metavar="PATH"
    )
    judge: list[str] = option(
        "evaluation set that counts: a source, clean, task:NAME, or extracted for all sources; repeatable",
        list,
        metavar="SET",
    )


@dataclass(frozen=True)
class DecisionOptions(Judging, Candidates):
    """What is compared, by how many runs of which model, and what judges."""

    leave_one_out: bool = option("the base without each of its steps in turn, to measure what each contributes", False)
    tasks: str | None = option(
        "tasks to score the trained models on: a folder, or lm-eval:NAME,NAME", None, metavar="FOLDER"
    )
    tokens: int | None = option(
        "tokens of each run. If set, an arm may repeat documents, and decisions share a recipe's runs. "
        "Default: one epoch of the smallest recipe, at most the proxy's tokens",
        None,
        min=1,
    )
    pairs: list[int] = option(
        "pairs of runs at each interim analysis; default: the proxy's", list, metavar="N,N,...", parser=integers
    )
    bank_pairs: int = option("A/A pairs, which measure the variance between runs before a verdict", 0, min=0)
    first_pair: int = option("number of the first pair; a decision after an inconclusive one needs new pairs", 1, min=1)
    tokenizer: str | None = option(
        "tokenizer file for all recipes; default: trained on the sources of all recipes", None, metavar="FILE"
    )
    resample: bool = option(
        "let each pair read its own half of the hosts, so that the interval covers which pages were crawled", False
    )


@dataclass(frozen=True)
class OtherDevice:
    """A device that this machine does not have, for the plan of a decision."""

    device: str = option(
        "with --plan: a GPU that this machine does not have, such as h100; default: this machine", "", metavar="NAME"
    )
    devices: int = option("with --device: number of GPUs", 1, min=1)
    mfu: float = option("with --device: fraction of the data sheet's FLOP/s that training reaches", MFU)
    price: float = option("price of a device per hour; with --plan, prints the cost of the runs", 0.0, min=0)
