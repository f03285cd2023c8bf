"""What recipes are judged by: the sources of all that are compared as they are extracted, and a clean text set.

No recipe has an advantage: a source that several recipes read in the same way gives one set, whatever its names, and
each other source gives its own set.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.machine.wrong_values import did_you_mean
from gristmill.flows.recipe.check import before_run
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.variants import texts_alone

TASK = "task:"  # begins the name of a set of right answers of a task
CLEAN = "clean"  # the set of texts that no recipe trains on
EXTRACTED = "extracted"  # to judge by: the sets of all sources
REFERENCE = (
    "reference"  # a clean text set that a machine can make without a network: `gristmill demo --crawl-only` writes it
)


@dataclass(frozen=True)
class SourceSet:
    """The set of a source. `recipe`: the place of the first recipe that reads it; `source`: what that one calls it."""

    name: str
    recipe: int
    source: str


def source_sets(recipes: Sequence[Recipe]) -> tuple[SourceSet, ...]:
    """The sets of the sources of recipes, in order. A set has the name of its source, with a number if another source
    has the same name."""
    sets: list[SourceSet] = []
    earlier: list[tuple] = []
    for index, recipe in enumerate(recipes):
        reading = _reading(recipe)
        for source, read in zip(recipe.sources, reading, strict=True):
            if read in earlier:
                continue
            names, number, name = {CLEAN, *(each.name for each in sets)}, 1, source.name
            while name in names:
                number, name = number + 1, f"{source.name}-{number + 1}"
            sets.append(SourceSet(name, index, source.name))
        earlier += reading
    return tuple(sets)


def renamed_sets(recipes: Mapping[str, Recipe]) -> Iterator[str]:
    """A sentence for each set that does not have the name of its source. `recipes`: by name."""
    names = [*recipes]
    for each in source_sets([*recipes.values()]):
        if each.name != each.source:
            yield (
                f"the evaluation set {each.name} is the source {each.source} as the recipe "
                f"{names[each.recipe]} reads it"
            )


def of_other_sources(recipes: Iterable[Recipe]) -> list[Recipe]:
    """The first of each of the recipes that read the same sources alike."""
    readings: list[tuple[list[tuple], Recipe]] = []
    for recipe in recipes:
        reading = sorted(_reading(recipe), key=repr)
        if reading not in [read for read, _ in readings]:
            readings.append((reading, recipe))
    return [recipe for _, recipe in readings]


def _reading(recipe: Recipe) -> list[tuple]:
    """Of each source all that decides its documents as they are extracted, but for its name."""
    alike = (recipe.extract, recipe.normalize, recipe.limit)
    return [(source.model_dump(exclude={"name"}), *alike) for source in recipe.sources]


def set_names(recipes: Sequence[Recipe], clean: str | None) -> tuple[str, ...]:
    """The sets that these recipes and a clean text set can have, sorted."""
    return tuple(sorted([*(each.name for each in source_sets(recipes)), *([CLEAN] if clean else [])]))


def judged_sets(names: Sequence[str], judge: Sequence[str], tasks: Sequence[str] = ()) -> tuple[str, ...]:
    """The sets that count, out of these names: those in `judge`, where EXTRACTED means all sources, or else the clean
    text set. `tasks`: sets of right answers, which count if they are named. Raises ValueError for an unknown set, and
    if no set is chosen."""
    sources = [name for name in names if name != CLEAN]
    if not judge and CLEAN not in names:
        raise ValueError(without_judge(sources))
    for name in judge:
        if name.startswith(TASK) and not tasks:
            raise ValueError(f"--judge {name}: there are no tasks; add a folder with --tasks")
        if name not in (*names, *tasks, EXTRACTED):
            hint = did_you_mean(name, [*names, *tasks, EXTRACTED]) or f"the sets are {', '.join([*names, *tasks])}"
            raise ValueError(f"unknown evaluation set {name}; {hint}")
    named = [each for name in judge or (CLEAN,) for each in (sources if name == EXTRACTED else [name])]
    return tuple(dict.fromkeys(named))


def without_judge(sources: Sequence[str]) -> str:
    """The error if no set to judge by is chosen."""
    return (
        f"no evaluation set to judge by. Extracted documents of {', '.join(sources)} are available, but they contain "
        "what filters remove, such as menus and spam, so they favor recipes that keep it. Choose what counts: --judge "
        f"SET for one of these sources, --clean PATH for texts like those that the model is for (--clean {REFERENCE}: "
        f"edited prose that `gristmill demo --crawl-only` writes), or --judge {EXTRACTED} for all sources as extracted"
    )


def check_judges(
    settings: MachineSettings,
    recipes: Sequence[Recipe],
    clean: str | None,
    judge: Sequence[str],
    tasks: Sequence[str] = (),
) -> tuple[str, ...]:
    """The sets that count. Raises RecipeError, ValueError or FileNotFoundError before any work if the clean text set
    cannot be read, a set to judge by does not exist, or no set is chosen. `tasks`: see `judged_sets`."""
    names = set_names(recipes, clean)
    if EXTRACTED in names:
        raise ValueError(f"a source is called {EXTRACTED}, which is reserved for all sources as extracted: rename it")
    if clean:
        before_run(clean_recipe(settings, recipes[0], clean), settings)
    return judged_sets(names, judge, tasks)


def clean_recipe(settings: MachineSettings, base: Recipe, clean: str) -> Recipe:
    """A recipe that reads the clean text set, normalized as the base normalizes. `clean`: a path or address, or
    REFERENCE, of which a file or folder of that name is `./reference`."""
    if CLEAN in [source.name for source in base.sources]:
        raise ValueError(
            f"a source of the recipe {base.name} is called {CLEAN}, which is reserved for the clean text set: rename it"
        )
    if clean != REFERENCE:
        return texts_alone(base, {CLEAN: clean})
    path = Path(settings.local_folder, "harvest", f"{REFERENCE}.jsonl")
    if not path.is_file():
        raise FileNotFoundError(f"the reference text {path} does not exist: `gristmill demo --crawl-only` writes it")
    return texts_alone(base, {CLEAN: str(path)})
