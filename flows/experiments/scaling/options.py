"""Options of the grid, the ladder and the sweep of sizes, which flows and commands share."""

from dataclasses import dataclass
from typing import NamedTuple

from gristmill.flows.experiments.decisions.options import Candidates, Judging
from gristmill.flows.experiments.scaling.grid import numbers
from gristmill.flows.recipe.options import option


@dataclass(frozen=True)
class Sizes:
    """Models, and the tokens that they are trained on."""

    sizes: list[int] = option(
        "parameters of the models, smallest first, such as 80k,150k", metavar="N,N,...", parser=numbers
    )
    tokens: list[int] = option("tokens of the runs, such as 100k,200k", metavar="N,N,...", parser=numbers)


@dataclass(frozen=True)
class Repeating:
    """Whether text may be read again."""

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
    """Of a model."""

    dim: int
    layers: int


@dataclass(frozen=True)
class TransferOptions:
    """The sweep. Sizes are all pairs of widths and layers; the first is the base."""

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
        """Each twice the one before, with `rate` in the middle."""
        return [self.rate * 2.0 ** (i - self.rates // 2) for i in range(self.rates)]
