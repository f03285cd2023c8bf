"""A mixture that a method found: what it asks of the text, and the recipe with it."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from gristmill.flows.recipe.recipe import Recipe
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.plan import shares as capped_shares

LEAST_WEIGHT = 5e-4  # which the three decimals of a recipe show as 0


@dataclass(frozen=True)
class SourceWeight:
    """`weight`: what the method found, with an interval or a range; `uniform`, `proportional`: other mixtures' shares;
    `tokens`: of the source; `epochs`: how often the recipe's training would read it, before any cap; `share`: what
    the cap of `mixture.max_epochs` leaves of the weight."""

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
class FoundMixture:
    """`found`: how, in a few sentences; `interval`: what low and high are; `max_epochs`, `budget`: those of the recipe,
    in epochs and tokens; `refusal`: why the mixture is not worth taking, or empty."""

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
        """Three decimals, which sum to about one; sources that have none of them are left out."""
        return {one.name: round(one.weight, 3) for one in self.sources if one.weight >= LEAST_WEIGHT}

    def remarks(self) -> list[str]:
        """A sentence for each source that is asked for more often than its text allows, or not at all."""
        said = []
        for one in self.sources:
            if one.epochs > self.max_epochs:
                said.append(
                    f"{one.name}: a share of {one.weight:.3f} of {self.budget:,} tokens is its text {one.epochs:.1f} "
                    f"times, mixture.max_epochs allows {self.max_epochs:g}: training takes {one.share:.3f} of it; "
                    "give it more text, or train on fewer tokens"
                )
            elif one.weight < LEAST_WEIGHT:
                said.append(f"{one.name}: its weight rounds to 0, so the recipe leaves it out")
        return said


def found_mixture(
    recipe: Recipe,
    method: str,
    weights: dict[str, tuple[float, float, float]],
    tokens: dict[str, int],
    found: tuple[str, ...],
    interval: str,
    refusal: str = "",
) -> FoundMixture:
    """`weights`: by source, with low and high; `tokens`: by source. Raises ValueError for weights that are negative or
    do not sum to one."""
    total = sum(weight for weight, _, _ in weights.values())
    if abs(total - 1) > 1e-6 or any(weight < 0 for weight, _, _ in weights.values()):
        raise ValueError(f"weights {weights} do not sum to 1, or are below 0")
    settings = recipe.mixture or Mixture(weights=dict.fromkeys(tokens, 1.0))
    budget = recipe.training.token_budget(recipe.model.seq_len)
    positive = {name: weight for name, (weight, _, _) in weights.items() if weight >= LEAST_WEIGHT}
    # more than all the text there is: each source then gives all that it may
    reachable = min(budget, int(settings.max_epochs * sum(tokens[name] for name in positive)))
    shares = capped_shares(positive, tokens, reachable, settings.max_epochs)
    return FoundMixture(
        recipe,
        method,
        tuple(
            SourceWeight(
                name,
                weight,
                low,
                high,
                1 / len(weights),
                tokens[name] / sum(tokens.values()),
                tokens[name],
                weight * budget / tokens[name],
                shares.get(name, 0.0),
            )
            for name, (weight, low, high) in weights.items()
        ),
        found,
        interval,
        settings.max_epochs,
        budget,
        refusal,
    )


def written(mixture: FoundMixture) -> str:
    """The recipe with this mixture, as YAML with comments that say where the weights are from."""
    recipe = mixture.recipe
    given = recipe.model_dump(mode="json", exclude_unset=True)
    for step, values in zip(recipe.steps, given["steps"], strict=True):
        given["steps"][given["steps"].index(values)] = {"step": step.step} | values
    old = given.pop("mixture", None) or {}
    given["name"] = f"{recipe.name}-{mixture.method}"
    lines = [f"# {recipe.name} with the mixture that {mixture.method} found.", *(f"# {one}" for one in mixture.found)]
    lines += [f"# {remark}" for remark in mixture.remarks()]
    lines += ["", _yaml(given), "mixture:", f"  weights: # with {mixture.interval}"]
    for one in mixture.sources:
        if one.name in mixture.weights:
            lines.append(
                f"    {json.dumps(one.name)}: {mixture.weights[one.name]:.3f} # {one.low:.3f} to {one.high:.3f}; "
                f"uniform {one.uniform:.3f}, by tokens {one.proportional:.3f}"
            )
    # the weights that were found stand in place of a strategy
    rest = {
        name: value for name, value in old.items() if name in ("max_epochs", "heldout_fraction", "heldout_documents")
    }
    lines += ["  " + line for line in _yaml(rest).splitlines()] if rest else []
    return "\n".join(lines) + "\n"


def command(mixture: FoundMixture, path: Path, options: Sequence[str] = ()) -> str:
    """The command that compares the recipe at `path` with the uniform and the proportional mixture."""
    uniform = ", ".join(f"{one.name}: 1" for one in mixture.sources)
    proportional = ", ".join(f"{one.name}: {one.tokens}" for one in mixture.sources)
    settings = (f"mixture.weights={{{weights}}}" for weights in (uniform, proportional))
    given = [part for setting in settings for part in ("--set", setting)]
    return shlex.join(["gristmill", "ablate", str(path), *given, *options])


def _yaml(values: dict) -> str:
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100).rstrip()
