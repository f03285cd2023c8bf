"""Mixtures in files of their own: published ones that ship, and a user's."""

from pathlib import Path
from typing import Any

from flows import recipe_syntax
from flows.recipe_errors import did_you_mean

MIXTURES = Path(__file__).with_name("mixtures")


def names() -> list[str]:
    """Of the mixtures that ship."""
    return sorted(path.stem for path in MIXTURES.glob("*.yaml"))


def by_name(value: Any) -> Any:
    """The values of a mixture that is given by the name of one that ships, or by the path of a YAML file; any other
    value as it is.

    Raises ValueError, which lists what ships, and RecipeError for a file that is not YAML.
    """
    if not isinstance(value, str):
        return value
    path = MIXTURES / f"{value}.yaml" if value in names() else Path(value)
    if not path.is_file():
        hint = f"{did_you_mean(value, names())} there are: {', '.join(names())}".strip()
        raise ValueError(f"no mixture file {value}, and none shipped by that name ({hint})")
    with path.open("rb") as f:
        values, _ = recipe_syntax.parse(f.read(recipe_syntax.MOST_BYTES + 1), str(path))
    return values
