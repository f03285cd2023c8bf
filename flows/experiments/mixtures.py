"""The flow `mix`: find the mixture of its sources that a recipe should train on, with DoReMi or with RegMix.

`MixtureResult` is the result: the weights, how much text they need, and the recipe with them (`written`).
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from scipy.stats import chi2, t

from gristmill.flows.experiments.decisions.arm_data import ComparisonData, proxy_data
from gristmill.flows.experiments.mixture_plan import planned_mixture
from gristmill.flows.experiments.options import REGMIX_SEEDS, Method, MixOptions
from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.forms import RecipeLike
from gristmill.flows.recipe.options import spread
from gristmill.flows.recipe.proxy import ProxyConfig
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports import pages
from gristmill.flows.reports.tables import Table
from gristmill.flows.run.artifacts import flow_run_name
from gristmill.flows.run.flow import recorded_flow
from gristmill.flows.run.runner import run_context
from gristmill.flows.stages.evaluation.documents import sets_of
from gristmill.flows.stages.evaluation.judge import judged_sets
from gristmill.flows.stages.mixture import mixture
from gristmill.flows.stages.proxy import DoReMi, ProxyResult, ProxyRun, doremi, train_proxies
from gristmill.flows.stages.tokens import evaluation_tokens
from gristmill.flows.stats.regmix import LEVEL, MIN_CORRELATION, Optimum, check_runs, chosen, chosen_of, drawn, optimum
from gristmill.flows.stats.runs import EvaluationSet
from gristmill.tasks.engine.extras import require
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.plan import shares as capped_shares

MIN_WEIGHT = 5e-4  # rounds to 0 with the three decimals of a recipe


@dataclass(frozen=True)
class SourceWeight:
    """`weight`: the result of the method, with an interval or a range; `uniform`, `proportional`: the shares in other
    mixtures; `tokens`: of the source; `epochs`: how often the recipe's training would read it, without a cap; `share`:
    the weight after the cap `mixture.max_epochs`."""

    name: str
    weight: float
    low: float
    high: float
    uniform: float
    proportional: float
    tokens: int
    epochs: float
    share: float


@dataclass(frozen=True)
class MixtureResult:
    """`found`: a few sentences on the method; `interval`: the meaning of low and high; `max_epochs`, `budget`: of the
    recipe, in epochs and tokens; `refusal`: why the mixture is not recommended, or empty."""

    recipe: Recipe
    method: str
    sources: tuple[SourceWeight, ...]
    found: tuple[str, ...]
    interval: str
    max_epochs: float
    budget: int
    refusal: str = ""

    @property
    def weights(self) -> dict[str, float]:
        """The weights with three decimals, which sum to about one, without weights that round to 0."""
        return {one.name: round(one.weight, 3) for one in self.sources if one.weight >= MIN_WEIGHT}

    @property
    def table(self) -> Table:
        """A row for each source."""
        columns = ("source", "#weight|.3f", f"#{self.interval}|.3f", "#uniform|.3f", "#by tokens|.3f", "#tokens")
        rows = [
            (
                one.name,
                one.weight,
                (one.low, one.high),
                one.uniform,
                one.proportional,
                one.tokens,
                one.epochs,
                one.share,
            )
            for one in self.sources
        ]
        title = f"mixture of {self.recipe.name} by {self.method}"
        return Table((*columns, "#epochs|.2f", "#share taken|.3f"), rows, title)

    def _repr_html_(self) -> str:
        return pages.notebook([*self.found, *self.remarks()], [self.table])

    def remarks(self) -> list[str]:
        """A sentence for each source whose weight exceeds its text, or is 0."""
        lines = []
        for one in self.sources:
            if one.epochs > self.max_epochs:
                lines.append(
                    f"{one.name}: a share of {one.weight:.3f} of {self.budget:,} tokens needs "
                    f"{one.epochs:.1f} epochs of its text, but mixture.max_epochs is {self.max_epochs:g}, so "
                    f"training uses a share of {one.share:.3f}; add text, or train on fewer tokens"
                )
            elif one.weight < MIN_WEIGHT:
                lines.append(f"{one.name}: its weight rounds to 0, so it is not in the recipe")
        return lines


def found_mixture(
    recipe: Recipe,
    method: str,
    weights: dict[str, tuple[float, float, float]],
    tokens: dict[str, int],
    reasons: tuple[str, ...],
    interval: str,
    refusal: str = "",
) -> MixtureResult:
    """`weights`: by source, with low and high; `tokens`: by source. Raises ValueError for negative weights, and for
    weights that do not sum to one."""
    total = sum(weight for weight, _, _ in weights.values())
    if abs(total - 1) > 1e-6 or any(weight < 0 for weight, _, _ in weights.values()):
        raise ValueError(f"weights {weights} do not sum to 1, or are below 0")
    settings = recipe.mixture or Mixture(weights=dict.fromkeys(tokens, 1.0))
    budget = recipe.training.token_budget(recipe.model.seq_len)
    positive = {name: weight for name, (weight, _, _) in weights.items() if weight >= MIN_WEIGHT}
    # the budget exceeds all text, so each source contributes its maximum
    reachable = min(budget, int(settings.max_epochs * sum(tokens[name] for name in positive)))
    shares = capped_shares(positive, tokens, reachable, settings.max_epochs)
    uniform, whole = 1 / len(weights), sum(tokens.values())
    found = tuple(
        SourceWeight(
            name, weight, low, high, uniform, size / whole, size, weight * budget / size, shares.get(name, 0.0)
        )
        for name, (weight, low, high) in weights.items()
        for size in [tokens[name]]
    )
    return MixtureResult(recipe, method, found, reasons, interval, settings.max_epochs, budget, refusal)


def written(mixture: MixtureResult) -> str:
    """The recipe with this mixture, as YAML with comments on the origin of the weights."""
    recipe = mixture.recipe
    document = recipe.model_dump(mode="json", exclude_unset=True)
    for step, values in zip(recipe.steps, document["steps"], strict=True):
        document["steps"][document["steps"].index(values)] = {"step": step.step} | values
    old = document.pop("mixture", None) or {}
    document["name"] = f"{recipe.name}-{mixture.method}"
    lines = [f"# {recipe.name} with the mixture computed by {mixture.method}.", *(f"# {one}" for one in mixture.found)]
    lines += [f"# {remark}" for remark in mixture.remarks()]
    lines += ["", _yaml(document), "mixture:", f"  weights: # with {mixture.interval}"]
    for one in mixture.sources:
        if one.name in mixture.weights:
            lines.append(
                f"    {json.dumps(one.name)}: {mixture.weights[one.name]:.3f} # {one.low:.3f} to {one.high:.3f}; "
                f"uniform {one.uniform:.3f}, by tokens {one.proportional:.3f}"
            )
    # the computed weights replace a strategy
    rest = {
        name: value for name, value in old.items() if name in ("max_epochs", "heldout_fraction", "heldout_documents")
    }
    lines += ["  " + line for line in _yaml(rest).splitlines()] if rest else []
    return "\n".join(lines) + "\n"


def command(mixture: MixtureResult, path: Path, options: Sequence[str] = ()) -> str:
    """The command that compares the recipe at `path` with the uniform and the proportional mixture."""
    uniform = ", ".join(f"{one.name}: 1" for one in mixture.sources)
    proportional = ", ".join(f"{one.name}: {one.tokens}" for one in mixture.sources)
    settings = (f"mixture.weights={{{weights}}}" for weights in (uniform, proportional))
    set_options = [part for setting in settings for part in ("--set", setting)]
    return shlex.join(["gristmill", "decide", "ablate", str(path), *set_options, *options])


def _yaml(values: dict) -> str:
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100).rstrip()


CONFIDENCE = 0.95  # one-sided: one false gain in twenty cases
_EFFICIENCY = 0.37  # of a median of absolute deviations relative to a standard deviation, for two seeds; more is better


@dataclass(frozen=True)
class Gain:
    """The gain of the chosen mixture over another one, in bits per byte: the other's `measured` loss, the `gain`, and
    the `least` gain that exceeds the noise of runs at LEVEL."""

    measured: float
    gain: float
    least: float

    @property
    def beyond_error(self) -> bool:
        return self.gain > self.least


def run_noise(losses: np.ndarray) -> tuple[float, int]:
    """The variance of the loss of a run of a usual mixture, and its degrees of freedom, from float64 (mixtures, seeds).

    It is the median over mixtures of the residuals after subtracting the means of mixtures and of seeds, scaled for a
    normal distribution, since runs in a corner, which differ only by noise, vary several times as much. Raises
    ValueError for fewer than two mixtures or seeds.
    """
    mixtures, seeds = losses.shape
    if mixtures < 2 or seeds < 2:
        raise ValueError(f"seeds: {seeds} of {mixtures} mixtures do not measure the noise of a run; use 2 or more")
    residuals = losses - losses.mean(axis=1, keepdims=True)
    of_mixtures = ((residuals - np.median(residuals, axis=0)) ** 2).sum(
        axis=1
    )  # chi2 of seeds - 1 degrees, for a variance of 1
    degrees = max(1, int(_EFFICIENCY * (mixtures - 1) * (seeds - 1)))
    return float(np.median(of_mixtures) / chi2.median(seeds - 1)), degrees


def gains(chosen: np.ndarray, others: np.ndarray, noise: tuple[float, int]) -> tuple[Gain, ...]:
    """Gains over each of the other mixtures. `chosen`: losses of new runs, float64 (seeds,); `others`: losses of the
    other mixtures with the same seeds, (n, seeds); `noise`: result of `run_noise`."""
    variance, degrees = noise
    least = float(t.ppf(CONFIDENCE, degrees) * np.sqrt(2 * variance / len(chosen)))
    return tuple(Gain(float(row.mean()), float(row.mean() - chosen.mean()), least) for row in others)


SEED = 0  # of the random mixtures and of the resampled runs


@recorded_flow(name="mix", flow_run_name=flow_run_name, persist_result=False)
@spread
def mix(recipe: RecipeLike, options: MixOptions) -> MixtureResult:
    """Find weights for the recipe's sources: the sources in its mixture, or all if it has none.

    Args:
        recipe: the recipe whose sources are weighted
    """
    require("train", "looking for a mixture")
    with run_context(recipe) as context:
        plan = planned_mixture(context.settings, recipe, options)
        small, one = plan.proxy, {recipe.name: recipe}
        data = proxy_data(context, small, one, plan.tokens, clean=options.clean, repeat=True)
        if options.method == Method.DOREMI:
            return by_doremi(context, recipe, small, data, plan.searches, options.eta, options.smoothing)
        return by_regmix(context, recipe, small, data, plan.searches, options.judge, options.seeds, plan.kept)


def by_doremi(
    context: RunContext,
    recipe: Recipe,
    proxy: ProxyConfig,
    data: ComparisonData,
    runs: int,
    eta: float,
    smoothing: float,
) -> MixtureResult:
    """The mean of the weights over `seeds` seeds."""
    arm, budget, rate = data.arms[recipe.name], data.budget_tokens, proxy.learning_rates[-1]
    pairs = range(1, runs + 1)
    references = train_proxies(context, [ProxyRun(proxy, arm.mixture, pair, rate, budget) for pair in pairs])
    requests = [
        DoReMi(proxy, arm.mixture, reference, pair, rate, budget, eta, smoothing)
        for pair, reference in zip(pairs, references, strict=True)
    ]
    each = [stage.result["weights"] for stage in doremi(context, requests)]
    weights = {
        name: (float(np.mean(values)), min(values), max(values))
        for name, values in ((name, [one[name] for one in each]) for name in arm.shares)
    }
    reasons = (
        f"DoReMi (arXiv 2305.10429): mean over {runs} seeds of the weights of a proxy `{proxy.name}` over its",
        f"{proxy.steps(budget):,} steps of {proxy.training.batch} x {proxy.model.seq_len} tokens, eta "
        f"{eta:g}, smoothing {smoothing:g}; the reference was trained on the recipe's own weights.",
    )
    tokens = {name: arm.source_tokens[name] for name in arm.shares}
    return found_mixture(recipe, "doremi", weights, tokens, reasons, "the minimum and maximum over the seeds")


def source_groups(names: Sequence[str], kept: dict[str, float] | None) -> np.ndarray:
    """The groups of sources whose shares are optimized, float64 (groups, sources); rows sum to 1: each source by
    itself, or the kept sources together, in their proportions, and each other source by itself."""
    alone = np.eye(len(names))
    if not kept:
        return alone
    together = np.array([kept.get(name, 0.0) for name in names])
    return np.vstack([together, alone[[index for index, name in enumerate(names) if name not in kept]]])


def by_regmix(
    context: RunContext,
    recipe: Recipe,
    proxy: ProxyConfig,
    data: ComparisonData,
    runs: int,
    judge: Sequence[str],
    seeds: int = REGMIX_SEEDS,
    kept: dict[str, float] | None = None,
) -> MixtureResult:
    """The optimum of a regression over random mixtures, each trained with several seeds, according to the judged
    evaluation sets; it and the usual mixtures are then trained again. `kept`: weights of sources that keep their
    proportions. Raises ValueError for fewer than two seeds."""
    arm, budget, rate = data.arms[recipe.name], data.budget_tokens, proxy.learning_rates[-1]
    tokens = {name: arm.source_tokens[name] for name in arm.shares}
    names, counts = list(tokens), np.array([*tokens.values()], float)
    groups = source_groups(names, kept)
    check_runs(runs, len(groups))
    members = (groups > 0).T  # (sources, groups)
    # the usual mixtures and the current one are among the runs
    run_losses = {
        "by tokens": counts / counts.sum() @ members,
        "uniform": np.full(len(groups), 1 / len(groups)),
    }
    if recipe.mixture is not None:
        run_losses["as in the recipe"] = np.array([arm.shares[name] for name in names]) @ members
    first = max(runs - chosen_of(runs, len(groups)), len(run_losses))
    wanted = np.concatenate([[*run_losses.values()], drawn(run_losses["by tokens"], first - len(run_losses), SEED)])

    def trained(mixtures: np.ndarray, pairs: range) -> tuple[np.ndarray, np.ndarray, EvaluationSet]:
        """The trained shares of the groups, (mixtures, groups), and the losses, (mixtures, seeds)."""
        plans = [_plan(context, recipe, data, dict(zip(names, row, strict=True))) for row in mixtures @ groups]
        requests = [ProxyRun(proxy, plan, pair, rate, budget) for plan in plans for pair in pairs]
        results = train_proxies(context, requests)
        evaluation = evaluation_set(results[0], judge)
        each = evaluation.measure(np.stack([result.bits for result in results])).reshape(len(plans), len(pairs))
        taken = np.array([[_share(plan, name) for name in names] for plan in plans])
        return taken @ members, each, evaluation

    searched, new = range(1, seeds + 1), range(seeds + 1, 2 * seeds + 1)
    shares, losses, evaluation = trained(wanted, searched)
    if more := max(0, runs - first):
        further, lost, _ = trained(chosen(shares, losses.mean(axis=1), more, SEED), searched)
        shares, losses = np.vstack([shares, further]), np.vstack([losses, lost])
    best = optimum(shares, losses.mean(axis=1), SEED)
    _, again, _ = trained(np.vstack([best.shares, wanted[: len(run_losses)]]), new)
    over = dict(zip(run_losses, gains(again[0], again[1:], run_noise(losses)), strict=True))
    in_groups = zip(names, (groups > 0).argmax(axis=0), groups.max(axis=0), strict=True)
    weights = {
        name: (float(best.shares[index] * of), float(best.low[index] * of), float(best.high[index] * of))
        for name, index, of in in_groups
    }
    measured = [f"{gain.measured:.4f} {name}" for name, gain in over.items()]
    reasons = (
        f"RegMix (arXiv 2407.01492): lowest predicted loss of a Gaussian process over {len(shares)} mixtures, with",
        f"{seeds} runs each of the proxy `{proxy.name}`, {budget:,} tokens per run, judged by bits per byte of "
        f"{', '.join(evaluation.judged)}.",
        f"Rank correlation between losses and leave-one-out predictions: {best.rank_correlation:.2f}.",
        f"Measured with {seeds} new runs of each, bits per byte: {again[0].mean():.4f} for this mixture "
        f"(predicted {best.loss:.4f}), {', '.join(measured)}.",
    )
    interval = f"its {LEVEL:.0%} interval over resampled runs"
    return found_mixture(recipe, "regmix", weights, tokens, reasons, interval, refusal(best, over, runs))


def refusal(best: Optimum, gains: Mapping[str, Gain], mixtures: int) -> str:
    """Why a mixture is not recommended, or empty. `gains`: over other mixtures, by their names."""
    if not best.rank_correlation >= MIN_CORRELATION:  # also true for NaN, the correlation of equal losses
        return (
            "the losses of mixtures cannot be predicted from each other (rank correlation "
            f"{best.rank_correlation:.2f}, below {MIN_CORRELATION:g}), so this optimum is noise: train more mixtures "
            f"(--runs {2 * mixtures}), more seeds, or on more tokens; until then, keep the current mixture"
        )
    near = {name: gain for name, gain in gains.items() if not gain.beyond_error}
    if near:
        sentence = " and ".join(
            f"{name} ({gain.gain:+.4f}, {gain.least:.4f} is beyond noise)" for name, gain in near.items()
        )
        return (
            f"no improvement beyond noise: in new runs, this mixture gains too little over {sentence}: keep "
            "the current mixture, or use more seeds"
        )
    return ""


def _plan(context: RunContext, recipe: Recipe, data: ComparisonData, weights: dict[str, float]) -> StageResult:
    """`mixture.json` of a run on other shares of the same token shards."""
    arm, sets = data.arms[recipe.name], dict.fromkeys(sets_of(data.evaluation), "")
    most = {} if recipe.mixture is None else {"max_epochs": recipe.mixture.max_epochs}
    settings = Mixture(weights={name: float(weight) for name, weight in weights.items() if weight}, **most)
    shards = evaluation_tokens(context, (data.evaluation,), data.tokenizer)
    return mixture(context, settings, data.budget_tokens, arm.corpus.sources, data.tokenizer, arm.tokens, sets, shards)


def _share(plan: StageResult, name: str) -> float:
    return plan.result["sources"].get(name, {"share": 0.0})["share"]


def evaluation_set(result: ProxyResult, judge: Sequence[str]) -> EvaluationSet:
    """The evaluation documents of a run. `judge`: as in `judged_sets`. Raises the errors of `judged_sets`."""
    return EvaluationSet(result.sets, result.set_of, result.sizes, judged_sets(result.sets, judge))
