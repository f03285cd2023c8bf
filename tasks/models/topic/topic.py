"""The topic of a document, by a fastText classifier of several labels."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from gristmill.storage.address import Address
from gristmill.tasks.documents.file_problems import file_problems
from gristmill.tasks.documents.step import DocumentStep, Member, Problem, Signal

OTHER = "other"


class Topic(DocumentStep):
    """Name the most probable topic of each document, and keep some topics or all.

    The model is a fastText file. `mixture.by` may name the column, alone or with `quality_bucket`, so that a mixture
    weighs topics, as in WebOrganizer (Wettig et al. 2025, arXiv 2502.10341).
    """

    work: ClassVar = "gristmill.tasks.models.topic.topic_work"
    libraries: ClassVar = ("fasttext-ng",)
    pins_files: ClassVar = True

    step: Literal["topic"] = "topic"
    model: Address = Field(description="path or address of a fastText classifier, whose labels are the topics")
    model_checksum: str = Field("", description="xxh3-128 that the model must have; see `pinned`")
    characters: int = Field(20_000, gt=0, description="of each document are read")
    lowercase: bool = Field(False, description="whether the model reads texts in lower case")
    least_probability: float = Field(
        0.0, ge=0, le=1, description=f"a document whose topic is less probable has the topic `{OTHER}`"
    )
    keep: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description=f"topics that are kept, labels of the model without `__label__` or `{OTHER}`; null: all",
    )
    drop: tuple[str, ...] | None = Field(None, min_length=1, description="topics that are dropped; null: none")

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
        dropped = [] if self.drop is None else [f"not about {' or '.join(self.drop)}"]
        return f"Is it {' and '.join((*kept, *dropped)) or 'about its topic'}?"

    def decisions(self) -> Sequence[Member]:
        return [Member("topic", "topic", self.keep, self.drop)]
