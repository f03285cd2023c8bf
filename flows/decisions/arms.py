"""The recipes of a comparison, by the names that verdicts call them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gristmill.flows.recipe import variants
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.recipe.variants import Variant


@dataclass(frozen=True)
class Arms:
    """`base`: its name; `recipes`: by name, the base first; `steps`: the step that a candidate of leave-one-out is
    without, by the candidate's name; `fixed`: steps that cannot be left out, each with the reason."""

    base: str
    recipes: dict[str, Recipe]
    steps: dict[str, str]
    fixed: dict[str, str]

    @property
    def candidates(self) -> tuple[str, ...]:
        return tuple(name for name in self.recipes if name != self.base)


def arms(
    recipe: Any,
    against: Iterable[Any] = (),
    settings: Iterable[str] = (),
    without: Iterable[str] = (),
    leave_one_out: bool = False,
    raw: bool = False,
) -> Arms:
    """The base and its candidates: other recipes (as `gristmill.flows.recipe.recipe.load` takes them), the base with
    one other setting each (`minhash.threshold=0.9`), without one step each, without each step in turn, and as raw
    extraction.

    Raises ValueError for no candidate at all, or one that is the base itself, and what `load` and `variant` raise.
    """
    base = load(recipe)
    candidates = [Variant(other.name, other) for other in map(load, against)]
    candidates += [variants.variant(base, setting) for setting in settings]
    candidates += [variants.without(base, step) for step in without]
    steps: dict[str, str] = {}
    fixed: dict[str, str] = {}
    if leave_one_out:
        for step in (*base.before, *base.after):
            try:
                candidate = variants.without(base, step.step)
            except RecipeError as error:
                fixed[step.step] = f"{error}"
                continue
            candidates.append(candidate)
            steps[candidate.label] = step.step
    if raw:
        candidates.append(variants.raw(base))
    if not candidates:
        raise ValueError(
            f"nothing to compare {base.name} with: name a recipe by --against, a setting by --set or a step by "
            "--without, or ask for --leave-one-out or --raw"
        )
    recipes = {base.name: base}
    for candidate in candidates:
        if candidate.recipe == base:
            raise ValueError(f"{candidate.label} is no other recipe than {base.name}: there is nothing to compare")
        if recipes.setdefault(candidate.label, candidate.recipe) != candidate.recipe:
            raise ValueError(f"two of the recipes are called {candidate.label}: give one of them another `name`")
    return Arms(base.name, recipes, steps, fixed)
