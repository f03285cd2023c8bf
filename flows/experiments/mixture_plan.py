"""What `mix` needs and trains: checked and counted before any work."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gristmill.flows.experiments.decisions.device import Device, time_sentence
from gristmill.flows.experiments.options import DOREMI_RUNS, REGMIX_RUNS, Method, MixOptions
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.proxy import ProxyConfig, load_proxy
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.stages.evaluation.judge import check_judges
from gristmill.flows.stats.regmix import check_runs


@dataclass(frozen=True)
class MixPlan:
    """`kept`: weights of sources that keep their proportions; `groups`: shares that are searched, those sources counted
    once; `searches`: mixtures of RegMix, or seeds of DoReMi; `tokens`: of a run; `judged`: sets that judge."""

    recipe: Recipe
    options: MixOptions
    proxy: ProxyConfig
    kept: dict[str, float] | None
    groups: int
    searches: int
    tokens: int
    judged: tuple[str, ...]

    @property
    def runs(self) -> int:
        """Of the search, and of the mixtures that are compared by new runs."""
        if self.options.method == Method.DOREMI:
            return 2 * self.searches
        compared = 3 + (self.recipe.mixture is not None)  # the best one, by tokens, uniform, and as in the recipe
        return self.options.seeds * (max(self.searches, compared - 1) + compared)

    def lines(self, device: Callable[[ProxyConfig], Device]) -> Iterator[str]:
        """A sentence each. `device`: what a proxy is trained on."""
        proxy, tokens = self.proxy, self.tokens
        yield f"mixture of {self.groups} shares, by {self.options.method}, with the proxy {proxy.name}"
        if self.options.method == Method.DOREMI:
            yield (
                f"runs: {self.searches} of the reference and {self.searches} of DoReMi, which also compute the losses "
                "of the reference and take longer than the time below"
            )
        else:
            yield (
                f"runs: {self.runs}, {self.options.seeds} of each mixture, of {self.searches} mixtures and of the best "
                f"one and the usual ones again; judged by {', '.join(self.judged)}"
            )
        yield (
            f"at most {tokens:,} tokens per run, {tokens * self.runs:,} in total; "
            f"{time_sentence(device(proxy), [(proxy, tokens, self.runs)])}; runs that are already in the home are "
            "reused"
        )


def planned_mixture(settings: MachineSettings, recipe: Recipe, options: MixOptions) -> MixPlan:
    """Raises ValueError for options that the method does not have, too few runs or tokens, unknown evaluation sets and
    sources of `keep` that do not fit, and what `load_proxy` raises."""
    check_options(options)
    proxy = load_proxy(options.proxy)
    kept = None if options.keep is None else kept_weights(recipe, load(options.keep))
    tokens = options.tokens or proxy.tokens
    proxy.run_training(tokens, proxy.learning_rates[-1], 0, 0)  # raises for fewer than two steps
    names = searched_sources(recipe)
    groups = len(names) if not kept else 1 + len(names - {*kept})
    judged: tuple[str, ...] = ()
    if options.method == Method.REGMIX:
        judged = check_judges(settings, [recipe], options.clean, options.judge)
        check_runs(options.runs or REGMIX_RUNS, groups)
    searches = options.runs or (DOREMI_RUNS if options.method == Method.DOREMI else REGMIX_RUNS)
    return MixPlan(recipe, options, proxy, kept, groups, searches, tokens, judged)


def check_options(options: MixOptions) -> None:
    """Raises ValueError for what DoReMi would not heed, and for RegMix with fewer than two seeds."""
    if options.method == Method.REGMIX and options.seeds < 2:
        raise ValueError("seeds: one run of a mixture does not measure its noise; use 2 or more")
    given = (("--keep", options.keep is not None), ("--judge or --clean", bool(options.clean or options.judge)))
    named = [name for name, there in given if there]
    if options.method == Method.DOREMI and named:
        raise ValueError(f"{' and '.join(named)}: only for regmix, because doremi has no evaluation; remove it")


def searched_sources(recipe: Recipe) -> set[str]:
    """The sources whose weights are searched: no run reads those without a weight in a mixture."""
    own = recipe.mixture.weights if recipe.mixture and recipe.mixture.by_source else {}
    return {*own} or {source.name for source in recipe.sources}


def kept_weights(recipe: Recipe, before: Recipe) -> dict[str, float]:
    """The weights of the sources that `recipe` has from an earlier one, which sum to one. Raises ValueError where
    that has no weights, shares no source, or has all of them."""
    weights = before.mixture.weights if before.mixture and before.mixture.by_source else {}
    names = searched_sources(recipe)
    kept = {name: weight for name, weight in weights.items() if name in names and weight > 0}
    if not kept:
        raise ValueError(
            f"--keep {before.name}: it has no weights for sources of {recipe.name}; give the recipe that "
            "`gristmill decide mix` wrote before the sources changed"
        )
    if not names - {*kept}:
        raise ValueError(
            f"--keep {before.name}: it has weights for all sources of {recipe.name}, so there is no weight "
            "to find; remove --keep, or add a source to the recipe"
        )
    return {name: weight / sum(kept.values()) for name, weight in kept.items()}
