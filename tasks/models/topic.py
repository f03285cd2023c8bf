"""The topic of a document, by a fastText classifier of several labels."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from gristmill.storage import files
from gristmill.storage.settings import Address
from gristmill.tasks.documents.file_problems import file_problems
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import DocumentStep, Member, Problem, Signal
from gristmill.tasks.models import classifiers
from gristmill.tasks.models.classifiers import line
from gristmill.tasks.models.model_files import LABEL, ModelFileError

OTHER = "other"


class Topic(DocumentStep):
    """Assign the most probable topic to each document, and keep all topics or some.

    The model is a fastText file. `mixture.by` may name the column, with or without `quality_bucket`, so that a mixture
    weights topics, as in WebOrganizer (Wettig et al. 2025, arXiv 2502.10341).
    """

    libraries: ClassVar = ("fasttext-ng",)
    pins_files: ClassVar = True

    step: Literal["topic"] = "topic"
    model: Address = Field(description="Path or address of a fastText classifier whose labels are the topics.")
    model_checksum: str = Field("", description="Expected xxh3-128 of the model; see `pinned`.")
    characters: int = Field(20_000, gt=0, description="Maximum number of characters read from each document.")
    lowercase: bool = Field(False, description="Lowercase texts before they are classified.")
    least_probability: float = Field(
        0.0, ge=0, le=1, description=f"Probability below which a document has the topic `{OTHER}`."
    )
    keep: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description=f"Topics to keep: labels of the model without `__label__`, or `{OTHER}`. null: all.",
    )
    drop: tuple[str, ...] | None = Field(None, min_length=1, description="Topics to drop. null: none.")

    certainty: ClassVar = "topic_score"
    signal_fields: ClassVar = ("model", "model_checksum", "characters", "lowercase", "least_probability")
    signals: ClassVar = (
        Signal("topic", "string", "label", "fastText model, most probable label", description="The topic."),
        Signal(
            "topic_score",
            "float32",
            "probability",
            "fastText model, clipped to [0, 1]",
            description="How probable the model takes its most probable topic to be.",
        ),
    )

    @property
    def fasttext_classifier(self) -> str:
        return self.model

    def problems(self, deep: bool) -> Iterator[Problem]:
        yield from file_problems(self.model, ("model",), deep, self.pinned)

    @property
    def question(self) -> str:
        kept = [] if self.keep is None else [f"about {' or '.join(self.keep)}"]
        excluded = [] if self.drop is None else [f"not about {' or '.join(self.drop)}"]
        return f"Is it {' and '.join((*kept, *excluded)) or 'about its topic'}?"

    def decisions(self) -> Sequence[Member]:
        return [Member("topic", "topic", self.keep, self.drop)]


def measure(step: Topic, documents: Batch) -> dict[str, pa.Array]:
    """The most probable topic of each text, and its probability. A text without a word that the model knows has the
    topic `other`."""
    model = classifiers.load(classifiers.recorded(step.model, step.model_checksum))
    lines = [line(text, step.characters, step.lowercase) for text in documents["text"].to_pylist()]
    labels, scores = model.predict(lines, k=1) if lines else ([], [])
    probable = np.array([min(1.0, float(row[0])) if len(row) else 0.0 for row in scores], np.float32)
    topics = [
        row[0].removeprefix(LABEL) if len(row) and score >= step.least_probability else OTHER
        for row, score in zip(labels, probable.tolist(), strict=True)
    ]
    return {"topic": pa.array(topics, pa.string()), "topic_score": pa.array(probable)}


def pinned(step: Topic) -> Topic:
    """The step with the checksum of its model. Raises FileNotFoundError, and ModelFileError for a file that is no whole
    model, or has no label that `keep` names."""
    topics = [*classifiers.labels(step.model), OTHER]
    for key in ("keep", "drop"):
        if unknown := [topic for topic in getattr(step, key) or () if topic not in topics]:
            there = ", ".join(topics[:12])
            raise ModelFileError(f"{step.model} has no topic {unknown[0]}; use some of {there} in `{key}`")
    classifiers.check(step.model, step)
    return step.model_copy(update={"model_checksum": files.checksum(step.model)})
