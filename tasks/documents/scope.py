"""Settings that a recipe holds, and the sources that a step of it applies to."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar

from pydantic import Field, create_model, model_validator

from gristmill.storage.settings import CheckedSettings

S = TypeVar("S", bound="Settings")


class Settings(CheckedSettings):
    """Settings that a recipe holds. `renamed`: keys of older recipes, and what to write instead; such a key is an
    error."""

    renamed: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _no_old_keys(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            for old, new in cls.renamed.items():
                if old in values:
                    raise ValueError(f"the key `{old}` is no longer used; use instead: {new}")
        return values

    def part(self, kind: type[S]) -> S:
        """The fields of this record that `kind`, one of its base classes, declares. Raises TypeError for another."""
        if not isinstance(self, kind):
            raise TypeError(f"{kind.__name__} is not a base class of {type(self).__name__}")
        return kind.model_validate({name: getattr(self, name) for name in kind.model_fields})


SCOPE = ("only", "except")  # the settings of every step


def _sources(description: str) -> Any:
    """A list of sources. It is in no record where it is not set, so steps for all sources keep their keys."""
    return Field(None, description=description, exclude_if=lambda names: names is None)


if TYPE_CHECKING:

    class _Sources(Settings):
        only: tuple[str, ...] | None = None

else:
    # `except` is a keyword of Python, so no class statement can declare the field
    _NAMES = Annotated[tuple[str, ...], Field(min_length=1)] | None
    _Sources = create_model(
        "_Sources",
        __base__=Settings,
        __module__=__name__,
        only=(_NAMES, _sources("Sources that the step applies to. null: all.")),
        **{"except": (_NAMES, _sources("Sources that the step does not apply to. null: none."))},
    )


class Scope(_Sources):
    """Which sources a step applies to: the sources in `only`, or all except the sources in `except`."""

    @model_validator(mode="after")
    def _one_list_of_sources(self) -> Self:
        if self.only is not None and self.left_out is not None:
            raise ValueError(
                f"has both `only: [{', '.join(self.only)}]` and `except: [{', '.join(self.left_out)}]`: remove one"
            )
        return self

    @property
    def left_out(self) -> tuple[str, ...] | None:
        """The setting `except`, which Python cannot name as an attribute."""
        return getattr(self, "except")

    def applies_to(self, source: str) -> bool:
        """Whether the step applies to the documents of a source."""
        return source in self.only if self.only is not None else source not in (self.left_out or ())

    def exempt(self, sources: Iterable[str]) -> tuple[str, ...]:
        """The sources, of these, that the step does not apply to, sorted."""
        return tuple(sorted({source for source in sources if not self.applies_to(source)}))

    def everywhere(self) -> Self:
        """The same step for all sources."""
        return self.model_copy(update={"only": None, "except": None})
