"""Several scorers as one: the best of the places that a document has among all by each of them.

After Nemotron-CC (Su et al. 2024, arXiv 2412.02595): the scores of each scorer are cut into 20 buckets of equally many
documents, and a document is in the highest of its buckets, since scorers prefer different kinds of good documents.
"""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from gristmill.tasks.documents.step import CorpusStep, Settings, Signal


class Scorers(Settings):
    """What decides the buckets, besides the scores."""

    scores: tuple[str, ...] = Field((), description="signals of steps before it of which more is better")
    inverse: tuple[str, ...] = Field((), description="signals of which less is better, as perplexity")
    buckets: int = Field(20, ge=2, le=100, description="of equally many documents; Nemotron-CC: 20")


class QualityBucket(Scorers, CorpusStep):
    """Number documents from 0, the worst, by the best place that they have by one of several scores.

    Drops nothing: `mixture.by` names its column. A document without any of the scores has no number.
    """

    work: ClassVar = "gristmill.tasks.models.quality.bucket_work"
    signals: ClassVar = (
        Signal(
            "quality_bucket",
            "int32",
            "number of the bucket",
            "Su et al. 2024, section 2.2",
            description="The highest of the document's buckets by the scores; 0 is the lowest.",
        ),
    )

    step: Literal["quality_bucket"] = "quality_bucket"

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.reads or len(set(self.reads)) < len(self.reads):
            raise ValueError(
                f"has the scores {list(self.reads)}; name at least one in `scores` or `inverse`, each once"
            )
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.scores, *self.inverse)
