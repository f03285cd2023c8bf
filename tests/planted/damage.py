"""Steps that damage a share of the documents, for comparisons whose outcome is known.

A recipe names them where GRISTMILL_STEPS=tests.planted.damage, as `{step: "tests.planted.damage:Shuffled", dose: 0.5}`.
Which documents are damaged, and how, follows from their ids, so that the damaged ones of a dose are among those of a
larger one.
"""

from collections.abc import Callable
from random import Random
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from gristmill.tasks.documents.edits import Edits
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.selection import uniform
from gristmill.tasks.documents.step import Bound, EditStep, Signal
from tests.planted.text import prose, pydoc_paragraphs


class Damage(EditStep):
    """`dose`: the share of the documents that are damaged."""

    dose: float = Field(0.5, ge=0, le=1)
    signal_fields: ClassVar = ("dose",)

    def decisions(self) -> list[Bound]:
        return [self.not_empty()]


def _left(name: str) -> tuple[Signal, ...]:
    return (
        Signal(f"{name}_characters", "int64", "code points", "tests/planted/damage.py", description="What is left."),
    )


class Shuffled(Damage):
    """The words of a damaged document stand in a drawn order."""

    step: Literal["shuffled"] = "shuffled"
    signals: ClassVar = _left("shuffled")


class Duplicated(Damage):
    """A damaged document has one of a few texts of real English, each of which many have."""

    step: Literal["duplicated"] = "duplicated"
    texts: int = Field(4, gt=0, description="how many unlike ones there are")
    signals: ClassVar = _left("duplicated")
    signal_fields: ClassVar = ("dose", "texts")


class Foreign(Damage):
    """A damaged document has a text of invented words of another language, about as long as its own."""

    step: Literal["foreign"] = "foreign"
    language: str = "ru"
    signals: ClassVar = _left("foreign")
    signal_fields: ClassVar = ("dose", "language")


def shuffled(step: Shuffled, id: str, text: str) -> str:
    words = text.split()
    Random(id).shuffle(words)
    return " ".join(words)


def duplicated(step: Duplicated, id: str, text: str) -> str:
    drawn = Random(f"duplicated/{Random(id).randrange(step.texts)}")
    return "\n\n".join(drawn.sample(pydoc_paragraphs(), 8))


def foreign(step: Foreign, id: str, text: str) -> str:
    return "\n\n".join(prose(Random(id), step.language, max(4, len(text.split()))))


_DAMAGED: dict[str, Callable[..., str]] = {"shuffled": shuffled, "duplicated": duplicated, "foreign": foreign}


def edit(step: Damage, documents: Batch) -> tuple[Edits, dict[str, pa.Array]]:
    """The damaged documents, each one cut of its whole text with another one in its place."""
    [damaged] = np.nonzero(uniform(documents["id"], 0, step.step) < step.dose)
    ids, texts = (documents[name].take(pa.array(damaged)).to_pylist() for name in ("id", "text"))
    stop = np.array([len(text.encode()) for text in texts], np.int64)
    put = pa.array([_DAMAGED[step.step](step, id, text) for id, text in zip(ids, texts, strict=True)], pa.string())
    return Edits(damaged, stop * 0, stop, np.zeros(len(damaged), np.int32), (step.step,), put), {}
