"""Options of decisions, and those that they share with other experiments: what is compared, and what judges."""

from dataclasses import dataclass
from typing import Any

from gristmill.flows.recipe.forms import RecipeLike
from gristmill.flows.recipe.options import integers, option
from gristmill.training.hardware import MFU


@dataclass(frozen=True)
class Candidates:
    """Recipes that are compared with a base."""

    against: list[RecipeLike] = option("another recipe; repeatable", list, metavar="RECIPE", shell=list[str])
    settings: list[str] = option(
        "the base with another value, as minhash.threshold=0.9; repeatable", list, flag="--set", metavar="KEY=VALUE"
    )
    without: list[str] = option("the base without a step; repeatable", list, metavar="STEP")
    raw: bool = option("raw extraction, without the steps after it", False)


@dataclass(frozen=True)
class Judging:
    """The small model that is trained, and the texts that it is judged by."""

    proxy: str | dict[str, Any] = option(
        "the small model: a YAML file, or the name of a shipped one", "small", metavar="FILE", shell=str
    )
    clean: str | None = option(
        "texts to judge by: JSON Lines, Parquet, a folder of .txt files, or `reference`", None, metavar="PATH"
    )
    judge: list[str] = option(
        "an evaluation set that counts: a source, clean, task:NAME, or extracted for all sources; repeatable",
        list,
        metavar="SET",
    )


@dataclass(frozen=True)
class DecisionOptions(Judging, Candidates):
    """What is compared, by how many runs of which model, and what judges."""

    leave_one_out: bool = option("the base without each of its steps in turn: what each is worth", False)
    tasks: str | None = option(
        "tasks that the trained models are scored on: a folder, or lm-eval:NAME,NAME", None, metavar="FOLDER"
    )
    tokens: int | None = option(
        "tokens of each run; then an arm may repeat its documents, and decisions share a recipe's runs. Default: one "
        "epoch of the smallest recipe, at most the proxy's",
        None,
        min=1,
    )
    pairs: list[int] = option(
        "pairs of runs at each interim analysis, instead of the proxy's", list, metavar="N,N,...", parser=integers
    )
    bank_pairs: int = option("A/A pairs, which measure how much runs differ before a verdict", 0, min=0)
    first_pair: int = option("number of the first pair: a decision after an inconclusive one takes new ones", 1, min=1)
    tokenizer: str | None = option(
        "tokenizer file that all recipes share; default: trained on the sources of all", None, metavar="FILE"
    )
    resample: bool = option(
        "each pair reads its own half of the hosts: the interval covers which pages were crawled", False
    )


@dataclass(frozen=True)
class OtherDevice:
    """A device that this machine does not have, for the plan of a decision."""

    device: str = option("--plan for a GPU that is not here, as h100; default: this machine", "", metavar="NAME")
    devices: int = option("number of GPUs of --device", 1, min=1)
    mfu: float = option("share of its data sheet's rate that --device trains with", MFU)
    price: float = option("price of a device for an hour: --plan prints what the runs cost", 0.0, min=0)
