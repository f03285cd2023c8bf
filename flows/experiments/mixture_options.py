"""Options of `mix`. Separate: commands read them without the flow, which imports Prefect."""

from dataclasses import dataclass
from enum import StrEnum

from gristmill.flows.experiments.decisions.options import Judging
from gristmill.flows.recipe.forms import RecipeLike
from gristmill.flows.recipe.options import option

DOREMI_RUNS = 3
# The paper's 1 is for 200,000 steps of 512 sequences each. A proxy here has hundreds of steps of a few sequences: at 1
# a single batch would decide.
ETA = 0.1
REGMIX_RUNS = 32  # mixtures
REGMIX_SEEDS = 2


class Method(StrEnum):
    """How a mixture is looked for."""

    DOREMI = "doremi"
    REGMIX = "regmix"


@dataclass(frozen=True)
class MixOptions(Judging):
    """How a mixture is looked for, by how many runs."""

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
