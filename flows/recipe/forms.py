"""A recipe as a flow's parameter: by name, in short form, as YAML text, or field by field.

Prefect creates a form from the schema, and validates values before it creates a run. Errors that a schema cannot
express, such as settings that exclude each other, are raised when the run begins.
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
    """Load the recipe parameter of a flow: an argument of `gristmill.flows.recipe.recipe.load`, or the values of a
    short form.

    The snapshot `newest` is looked up. Raises RecipeError, and what `load` and `newest_snapshot` raise.
    """
    if isinstance(form, Mapping) and "yaml" in form:
        text = _checked(WrittenRecipe, form).yaml
        return validated(*settings_file.parse_yaml(text.encode(), "recipe"))
    if isinstance(form, Mapping) and "recipe" in form:
        return _from_short(_checked(ShortRecipe, form))
    return load(form)


def pinned(form: Any, recipe: Recipe) -> Any:
    """The parameter with the name of the snapshot instead of `newest`, so that a retry reads the same crawl.

    `recipe`: the result of `from_form`.
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


# Prefect validates parameters with the schema before they are loaded. Short forms are first, because the form in the
# user interface opens with the first one.
RecipeLike = Annotated[
    Recipe, BeforeValidator(from_form, json_schema_input_type=ShortRecipe | RecipeName | WrittenRecipe | Recipe)
]
