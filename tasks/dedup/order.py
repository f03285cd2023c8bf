"""Keep order: which of several duplicates is kept. All steps of deduplication that drop documents share its settings.

An order is a list of criteria, each of which decides where those before it do not; in the end the smallest id decides,
so that no two documents are equal.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from gristmill.tasks.documents.step import Settings

Criterion = Literal["source", "newest", "oldest", "longest", "best"]


class KeepOrder(Settings):
    """The settings of a step that drops duplicates: in which order documents come, of which the first is kept."""

    renamed: ClassVar[Mapping[str, str]] = {"survivor": "`keep`"}

    keep: tuple[Criterion, ...] = Field(
        (),
        description="what decides which duplicate is kept, the first criterion first, at last the smallest id. source: "
        "the recipe's order of sources; newest, oldest: when it was crawled; longest: most characters; best: see there",
    )
    best: str | None = Field(
        None, description="the signal, a number, whose highest value the criterion `best` takes, as `quality`"
    )

    @model_validator(mode="after")
    def _one_order(self) -> Self:
        if len(set(self.keep)) != len(self.keep):
            raise ValueError(f"`keep` names a criterion twice: {', '.join(self.keep)}; remove one")
        if {"newest", "oldest"} <= set(self.keep):
            raise ValueError(
                f"`keep` has newest and oldest: {', '.join(self.keep)}; the second never decides, remove it"
            )
        if "best" in self.keep and self.best is None:
            raise ValueError("`keep` has `best`: name the signal that decides in the setting `best`")
        if self.best is not None and "best" not in self.keep:
            raise ValueError(f"`best` is {self.best}, but `keep` does not have `best`: add it, or drop the setting")
        return self
