"""Settings of the guard against filters that wipe a group of documents out, as all of one source, host or language."""

from typing import Literal

from pydantic import Field

from gristmill.tasks.documents.step import Settings

Grouping = Literal["source", "host", "language", "topic"]
STEP = "group_losses"


class Limits(Settings):
    """Which groups are judged, and from where on a group has lost too much. It decides nothing of the corpus."""

    by: tuple[Grouping, ...] = Field(
        ("source", "host", "language", "topic"),
        description="what makes the groups; hosts of URLs, and of what is not measured there are none",
    )
    least: int = Field(100, ge=10, description="documents that a group must have to be judged")
    kept: float = Field(
        0.25,
        gt=0,
        lt=1,
        description="a group has lost too much that keeps less than this of the share that its like keep",
    )


class GroupLosses(Limits):
    """What is done where the steps took far more from a group than from its like: see docs/quality.md."""

    then: Literal["warn", "stop", "ignore"] = Field(
        "warn",
        description="warn: behind the last step a line in the log names it; stop: the run ends behind the step that "
        "did it, with the page of the steps so far",
    )
