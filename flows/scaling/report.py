"""Scaling laws of a recipe's runs: the law, its errors, optima of compute budgets, and forecasts."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gristmill.flows.scaling.agreement import RankAgreement
from gristmill.flows.scaling.forecast import Forecast, ForecastCheck, FutureErrors, leave_future_out
from gristmill.flows.scaling.law import Fit, Interval, ScalingRuns, bootstrap, fit
from gristmill.flows.scaling.optimum import OptimumIntervals, TokenCost, optimum_intervals, token_cost

DRAWS = 400  # of the bootstrap: a 5% point moves by a tenth of the interval's width
_SEED = 0
LEVEL = 0.9
LAW = ("E", "A", "alpha", "B", "beta")


@dataclass(frozen=True)
class GridRun:
    """A finished run. `flops`: of its training; `loss`: bits per byte of the judged evaluation documents; `key`: of its
    stage."""

    parameters: int
    tokens: int
    flops: float
    learning_rate: float
    pair: int
    loss: float
    key: str


@dataclass(frozen=True)
class CheckedForecast:
    """A forecast, the key of the run it is about, the id of its MLflow run, and what came. `earlier`: it was registered
    by an earlier command, perhaps from fewer runs."""

    key: str
    forecast: Forecast
    mlflow_run: str
    earlier: bool
    check: ForecastCheck


@dataclass(frozen=True, repr=False)
class ScalingReport:
    """A finished grid. `id`: 16 hexadecimal characters, of all that decides it; `budgets`: compute budgets whose
    optimum is asked for, in floating-point operations; `mlflow_run`: its id, empty before it is logged."""

    recipe: str
    id: str
    runs: tuple[GridRun, ...]
    judged: tuple[str, ...]
    budgets: tuple[float, ...] = ()
    forecasts: tuple[CheckedForecast, ...] = ()
    mlflow_run: str = ""

    @cached_property
    def fit(self) -> Fit:
        """The law. Raises ValueError for runs that do not determine one."""
        return fit(scaling_runs(self.runs))

    @cached_property
    def cost(self) -> TokenCost:
        n = np.array([run.parameters for run in self.runs], float)
        return token_cost(n, np.array([run.flops / run.tokens for run in self.runs]))

    @cached_property
    def compute(self) -> np.ndarray:
        """Floating-point operations of each run, float64 (runs,)."""
        return np.array([run.flops for run in self.runs])

    @cached_property
    def law_intervals(self) -> dict[str, Interval]:
        """The law's parameters with percentile intervals of the bootstrap by run."""
        found = {}
        for name in LAW:
            low, high = np.quantile([getattr(one, name) for one in self._laws], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
            found[name] = Interval(getattr(self.fit.law, name), float(low), float(high), LEVEL)
        return found

    @cached_property
    def future(self) -> list[FutureErrors]:
        return leave_future_out(scaling_runs(self.runs), self.compute, LEVEL)

    @cached_property
    def optima(self) -> list[OptimumIntervals]:
        """The best parameters and tokens of each budget."""
        return [optimum_intervals(self.fit.law, self._laws, self.cost, budget, LEVEL) for budget in self.budgets]

    @property
    def sentence(self) -> str:
        """The law, as one sentence."""
        law, intervals = self.fit.law, self.law_intervals
        alpha, beta = intervals["alpha"], intervals["beta"]
        return (
            f"bits per byte = {law.E:.3f} + {law.A:.3g} N^-{law.alpha:.3f} + {law.B:.3g} D^-{law.beta:.3f}, from "
            f"{len(self.runs)} runs (90% intervals: alpha {alpha.low:.2f} to {alpha.high:.2f}, beta {beta.low:.2f} to "
            f"{beta.high:.2f}); one run lies {self.fit.deviation:.2%} from it"
        )

    @property
    def forecast_sentence(self) -> str:
        """How many forecasts held; empty without forecasts."""
        if not self.forecasts:
            return ""
        inside = sum(one.check.inside for one in self.forecasts)
        return f"{inside} of {len(self.forecasts)} forecasts lie inside their {LEVEL:.0%} interval"

    def future_rows(self) -> Iterator[dict[str, Any]]:
        yield from map(asdict, self.future)

    def forecast_rows(self) -> Iterator[dict[str, Any]]:
        """A row for each forecast: the run, the claim, and what came."""
        for one in self.forecasts:
            claim = one.forecast
            yield {
                "parameters": claim.parameters,
                "tokens": claim.tokens,
                "reach": claim.reach,
                "forecast": claim.loss.value,
                "low": claim.loss.low,
                "high": claim.loss.high,
                "loss": one.check.loss,
                "inside": one.check.inside,
                "error": one.check.error,
                "outside": one.check.outside,
                "key": one.key,
                "mlflow_run": one.mlflow_run,
            }

    def as_json(self) -> dict[str, Any]:
        """All of it, for `--json` and for the file in the home."""
        return {
            "recipe": self.recipe,
            "id": self.id,
            "judged": list(self.judged),
            "law": {name: asdict(interval) for name, interval in self.law_intervals.items()},
            "deviation": self.fit.deviation,
            "token_cost": asdict(self.cost),
            "runs": [asdict(run) for run in self.runs],
            "leave_future_out": list(self.future_rows()),
            "optima": [asdict(one) for one in self.optima],
            "forecasts": list(self.forecast_rows()),
            "mlflow_run": self.mlflow_run,
        }

    @cached_property
    def _laws(self) -> list:
        return bootstrap(self.fit, DRAWS, _SEED)


@dataclass(frozen=True, repr=False)
class AgreementReport:
    """Whether recipes keep their order from one size to another. `parameters`, `tokens`: of the runs at both sizes;
    `losses`: bits per byte by arm, of each seed at both."""

    recipe: str
    arms: tuple[str, ...]
    parameters: tuple[int, int]
    tokens: tuple[int, int]
    losses: dict[str, tuple[tuple[float, ...], tuple[float, ...]]]
    agreement: RankAgreement

    @property
    def sentence(self) -> str:
        """What was found, as one sentence."""
        same, pairs = self.agreement.counted(small=False, large=False)
        held, told = self.agreement.counted(small=True, large=False)
        both, sure = self.agreement.counted(small=True, large=True)
        small, large = self.parameters
        return (
            f"from {small:,} to {large:,} parameters {same} of {pairs} pairs of recipes keep their order (Kendall's "
            f"tau {self.agreement.tau:.2f}, p {self.agreement.p_value:.3f}); of the {told} that the small models tell "
            f"apart {held} do, and of the {sure} that both sizes tell apart {both}"
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each arm, the best of the small models first."""
        means = {name: tuple(float(np.mean(side)) for side in both) for name, both in self.losses.items()}
        for name in sorted(means, key=lambda name: means[name][0]):
            ranks = [1 + sum(other[side] < means[name][side] for other in means.values()) for side in (0, 1)]
            yield {
                "arm": name,
                "small": means[name][0],
                "large": means[name][1],
                "rank_small": ranks[0],
                "rank_large": ranks[1],
            }

    def as_json(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe,
            "parameters": list(self.parameters),
            "tokens": list(self.tokens),
            "tau": self.agreement.tau,
            "p_value": self.agreement.p_value,
            "arms": [row | {"losses": self.losses[row["arm"]]} for row in self.rows()],
            "pairs": [
                asdict(pair)
                | {
                    "arms": [self.arms[number] for number in pair.arms],
                    "same": pair.same,
                    "told_apart": pair.told_apart,
                }
                for pair in self.agreement.pairs
            ],
        }


def scaling_runs(runs: Sequence[GridRun]) -> ScalingRuns:
    """The runs as arrays."""
    return ScalingRuns(
        np.array([run.parameters for run in runs], float),
        np.array([run.tokens for run in runs], float),
        np.array([run.loss for run in runs]),
    )
