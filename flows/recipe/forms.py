"""A recipe as a flow's parameter: by name, in short, as YAML text, or field by field.

Prefect makes a form of the schema, and holds what a person gives against it before there is a run. What the schema
cannot say, as settings that exclude each other, is refused when the run begins.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from gristmill.flows.recipe import settings_file
from gristmill.flows.recipe.errors import Finding, RecipeError, findings_of
from gristmill.flows.recipe.errors import Origin as RecipeOrigin
from gristmill.flows.recipe.recipe import Recipe, load, read, shipped_names, validated
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.reading.formats.crawls import SNAPSHOT, Range
from gristmill.tasks.reading.index import LISTING, newest_snapshot

NEWEST = "newest"
if TYPE_CHECKING:
    Shipped = str  # a type checker cannot follow a type made of files
else:
    Shipped = Literal[tuple(shipped_names())]
Part = Range | Literal["all"] | None


class ShortRecipe(Settings):
    """A shipped recipe, on a Common Crawl snapshot or a part of one."""

    model_config = ConfigDict(title="In short")

    recipe: Shipped = Field(description="name of a shipped recipe")
    snapshot: str | None = Field(
        None,
        pattern=f"^({NEWEST}|{SNAPSHOT})$",
        description="snapshot for the recipe's Common Crawl sources, such as CC-MAIN-2024-22; `newest`: "
        "the last one in the index when the run begins; None: as in the recipe",
    )
    segments: Part = Field(
        None, description="segments of the snapshot, [first, last] from 0; `all`; None: as in the recipe"
    )
    files: Part = Field(None, description="files of the segments, [first, last] from 0; `all`; None: as in the recipe")
    limit: int | None = Field(None, gt=0, description="read only the first N documents of each source, for a trial")
    base: str | None = Field(None, description="mirror of Common Crawl's files; None: as in the recipe")
    listing: str = Field(LISTING, description="where snapshots are listed, for `newest`")


class WrittenRecipe(Settings):
    """A recipe as text. It may name your own steps."""

    model_config = ConfigDict(title="As YAML text")

    yaml: str = Field(min_length=1, description="the recipe, as in a file")


RecipeName = Annotated[
    str,
    Field(title="Name or path", description="name of a shipped recipe (`demo`), or path of a YAML file", min_length=1),
]


def from_form(form: Any) -> Recipe:
    """The recipe that a flow is given: what `gristmill.flows.recipe.recipe.load` takes, or the values of one of the
    short forms.

    A newest snapshot is looked up. Raises RecipeError, and what `load` and `newest_snapshot` raise.
    """
    if isinstance(form, Mapping) and "yaml" in form:
        text = _checked(WrittenRecipe, form).yaml
        return validated(*settings_file.parse_yaml(text.encode(), "recipe"))
    if isinstance(form, Mapping) and "recipe" in form:
        return _from_short(_checked(ShortRecipe, form))
    return load(form)


def pinned(form: Any, recipe: Recipe) -> Any:
    """What was given, with the name of the snapshot in place of `newest`: so a retry reads the same crawl.

    `recipe`: what `from_form` made of it.
    """
    if not (isinstance(form, Mapping) and form.get("snapshot") == NEWEST):
        return form
    snapshot = next(source.snapshot for source in recipe.sources if hasattr(source, "snapshot"))
    return {**form, "snapshot": snapshot}


def _checked(form: Any, values: Mapping) -> Any:
    try:
        return form.model_validate(dict(values))
    except ValidationError as error:
        raise RecipeError(findings_of(error, form, values, RecipeOrigin())) from None


def _from_short(form: ShortRecipe) -> Recipe:
    data, origin = read(form.recipe)
    changes: dict[str, Any] = {"snapshot": form.snapshot, "base": form.base}
    changes |= {"segments": form.segments, "files": form.files}
    changes = {key: value for key, value in changes.items() if value is not None}
    crawls = [source for source in data["sources"] if "snapshot" in source]
    if changes and not crawls:
        key = next(iter(changes))
        message = f"is set, but {form.recipe} has no Common Crawl source; leave it empty, or choose another recipe"
        raise RecipeError([Finding("recipe", key, message)])
    if form.snapshot == NEWEST:
        changes["snapshot"] = newest_snapshot(form.listing)
    for source in crawls:
        source |= changes
        for key in ("segments", "files"):
            if source.get(key) == "all":
                del source[key]
    if form.limit is not None:
        data["limit"] = form.limit
    return validated(data, origin)


# Prefect holds parameters against the schema before they are loaded. Short forms first: a form opens on the first.
RecipeLike = Annotated[
    Recipe, BeforeValidator(from_form, json_schema_input_type=ShortRecipe | RecipeName | WrittenRecipe | Recipe)
]
