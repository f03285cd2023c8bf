"""Options of the experiments, which flows, functions and commands share. Importing them loads nothing that trains."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from gristmill.flows.recipe.forms import RecipeLike
from gristmill.flows.recipe.options import integers, option
from gristmill.training.hardware import DEVICE_HOURS, MFU

_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}


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
    """The small model to train, and the texts to judge it by."""

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
    """What is compared, the model and the number of its runs, and what judges."""

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


DOREMI_RUNS = 3
# The paper's 1 is for 200,000 steps of 512 sequences each. A proxy here has hundreds of steps of a few sequences: at 1
# a single batch would decide.
ETA = 0.1
REGMIX_RUNS = 32  # mixtures
REGMIX_SEEDS = 2


class Method(StrEnum):
    """How the mixture is searched."""

    DOREMI = "doremi"
    REGMIX = "regmix"


@dataclass(frozen=True)
class MixOptions(Judging):
    """How the mixture is searched, and the number of runs."""

    method: Method = option("doremi: weights learned by a proxy; regmix: regression over many proxies", Method.REGMIX)
    runs: int | None = option(
        f"doremi: seeds, default {DOREMI_RUNS}; regmix: mixtures, default {REGMIX_RUNS}", None, min=1
    )
    seeds: int = option("regmix: runs of each mixture, and of the best one again", REGMIX_SEEDS, min=2)
    keep: RecipeLike | None = option(
        "regmix: recipe by `decide mix` whose relative weights are kept, to find the share of new sources in few runs",
        None,
        metavar="RECIPE",
        shell=str | None,
    )
    tokens: int | None = option("tokens of a run; default: as in the proxy", None, min=1)
    eta: float = option("doremi: step size of the weights; 1 in the paper, for 200,000 steps", ETA)
    smoothing: float = option("doremi: share of uniform weights", 1e-3)


def number(text: str) -> int:
    """A count as people write it: `250k`, `2.5M`, `1e6`, `200_000`. Raises ValueError with the fix."""
    match = re.fullmatch(r"([\d_,.]+(?:e\d+)?)\s*([kmbgt]?)", text.strip().lower())
    try:
        value = float(match[1].replace("_", "").replace(",", "")) * _SUFFIXES[match[2]] if match else 0.0
    except ValueError:
        value = 0.0
    if value < 1:
        raise ValueError(f"{text!r} is not a count; write 250k, 2.5M, 1e6 or 200000")
    return round(value)


def numbers(text: str) -> list[int]:
    """Counts separated by commas. Raises ValueError."""
    return [number(part) for part in text.split(",") if part.strip()]


@dataclass(frozen=True)
class Sizes:
    """Sizes of models and their training tokens."""

    sizes: list[int] = option(
        "parameters of the models, smallest first, such as 80k,150k", metavar="N,N,...", parser=numbers
    )
    tokens: list[int] = option("tokens of the runs, such as 100k,200k", metavar="N,N,...", parser=numbers)


@dataclass(frozen=True)
class Repeating:
    """Whether text may be repeated."""

    repeat: bool = option("repeated documents, if a run needs more tokens", False)


@dataclass(frozen=True)
class ScaleOptions(Repeating, Judging, Sizes):
    """The grid: each size is trained on each number of tokens."""

    most_flops: float | None = option("maximum floating-point operations of a run", None)
    forecasts: list[str] = option(
        "forecast of a run, then trained: N parameters on D tokens; repeatable", list, flag="--forecast", metavar="N:D"
    )
    budgets: list[float] = option(
        "operations to divide between parameters and tokens; repeatable", list, flag="--budget"
    )
    seeds: int = option("runs of each cell", 1, min=1)
    rate_sweeps: int = option("number of sizes with half and twice the learning rate", 2, min=0)


@dataclass(frozen=True)
class AgreementOptions(Repeating, Judging, Candidates, Sizes):
    """The ladder: each recipe is trained at each size, on the tokens of that size."""

    seeds: int = option("runs of each recipe at each size", 2, min=2)
    tasks: str | None = option("tasks to score models on: folder, or lm-eval:NAME,NAME", None, metavar="FOLDER")


class Size(NamedTuple):
    """The size of a model."""

    dim: int
    layers: int


@dataclass(frozen=True)
class TransferOptions:
    """A sweep of learning rates. Sizes are all pairs of widths and layers; the first is the base."""

    widths: list[int] = option(
        "model.dim of each size, base first", lambda: [64, 256], metavar="N,N,...", parser=numbers
    )
    layers: list[int] = option("model.layers of each size, base first", lambda: [4], metavar="N,N,...", parser=numbers)
    rate: float = option("middle learning rate; each rate is twice the previous one", 0.016, min=1e-9)
    rates: int = option("number of learning rates", 5, min=1)
    seeds: int = option("runs of each size at each rate", 3, min=1)
    steps: int = option("steps of each run", 60, min=10)
    batch: int = option("sequences per step", 8, min=1)
    seq_len: int = option("tokens per sequence", 32, min=4)
    optimizer: str = option("optimizer: adamw or muon", "adamw")
    block: str = option("model.block: llama or nanochat", "llama")
    mixture: str | None = option(
        "mixture.json of a finished run's tokens; default: synthetic tokens", None, metavar="FILE"
    )

    @property
    def models(self) -> list[Size]:
        """The sizes, the base first."""
        return [Size(dim, depth) for dim in self.widths for depth in self.layers]

    @property
    def learning_rates(self) -> list[float]:
        """Powers of two apart, with `rate` in the middle."""
        return [self.rate * 2.0 ** (i - self.rates // 2) for i in range(self.rates)]


@dataclass(frozen=True)
class StudyOptions(Judging):
    """What is varied, the model and the number of its runs, and what judges."""

    pairs: int = option("pairs of runs of each arm with the base", 6, min=4)
    tokens: int | None = option("tokens of each run; default: as for a decision", None, min=1)
    column: str = option("with order: column that documents are ordered by", "characters", metavar="COLUMN")
    schedule: str | None = option("with batch: training.schedule of all runs", None, metavar="SCHEDULE")


# Pages of the crawl of December 2024, CC-MAIN-2024-51, as Common Crawl has published it:
# https://commoncrawl.org/blog/december-2024-crawl-archive-now-available
SNAPSHOT_PAGES = 2_640_000_000
SHARD_PAGES = SNAPSHOT_PAGES // 90_000  # of each of its WARC files
NETWORK = 400.0  # Gbit/s of a device to other machines: one adapter of NDR InfiniBand each, as in NVIDIA's DGX H100


@dataclass(frozen=True)
class CrawlOptions:
    """A whole crawl, the machines that work on it, and prices in one currency."""

    pages: int = option("pages of the crawl, as in CC-MAIN-2024-51", SNAPSHOT_PAGES, min=1)
    shard_pages: int = option("pages of a file of the crawl", SHARD_PAGES, min=1)
    machines: int = option("number of machines", 1, min=1)
    cores: int = option("cores of a machine", 1000, min=1)
    memory: float | None = option("memory of a machine in GB; default: as required", None, min=0)
    core_hour: float = option("price of a core hour", 0.0, min=0)
    terabyte_month: float = option("price of a terabyte month in the home", 0.0, min=0)
    million_requests: float = option("price of a million requests to the store", 0.0, min=0)

    @property
    def memory_bytes(self) -> int | None:
        """Memory of a machine in bytes; None: as much as jobs require."""
        return None if self.memory is None else round(self.memory * 1e9)


@dataclass(frozen=True)
class TrainingOptions:
    """The devices of a training, their prices, and the assumptions of the plan."""

    device: str = option("GPU: h100, h200, b200, a100 or mi300x", "h100", metavar="NAME")
    devices: int = option("number of GPUs", 8, min=1)
    machine_devices: int = option("GPUs of a machine", 8, min=1)
    network: float = option("network rate of a GPU in Gbit/s", NETWORK, min=0)
    mfu: float = option("share of the peak rate that training reaches", MFU)
    device_memory: float | None = option("memory of a GPU in GB; default: as in its data sheet", None, min=0)
    price: float = option("price of a GPU hour", 0.0, min=0)
    failure_hours: float = option("GPU hours between failures, as for Llama 3", float(round(DEVICE_HOURS)), min=0)
    tensor: int = option("maximum number of GPUs that divide each matrix", 1, min=1)
    pipeline: int = option("maximum number of pipeline stages", 1, min=1)
    corpus_tokens: float | None = option("unique tokens of the corpus; default: as in the finished run", None, min=1)
    served: float | None = option("tokens to generate in service, for the inference-aware law", None, min=1)
    law: str | None = option("file of a law by `decide scale`; default: law in the home", None, metavar="FILE")


@dataclass(frozen=True)
class PlanOptions(CrawlOptions, TrainingOptions):
    """A training, and the crawl that its corpus is made from."""


@dataclass(frozen=True)
class ImportRequest:
    """A training by another program."""

    losses: Path = option("metrics file: JSON Lines, or CSV with a header")
    name: str = option("name of the run and of the model's folder")
    trainer: str = option("program, such as olmo-core; prefix of its metrics")
    model: Path | None = option(
        "trained model in Hugging Face format (Llama, Qwen3, NanoChat), to evaluate on the recipe's held-out text",
        None,
    )
    step: str | None = option("column of the step; default: a common name", None, metavar="COLUMN")
    loss: str | None = option("column of the loss in nats per token; default: a common name", None, metavar="COLUMN")
