"""A fastText classifier that separates reference documents from raw ones, after DCLM (Li et al. 2024).

DCLM trains on unigrams and bigrams and keeps documents by their probability of the label `hq`.
"""

from typing import ClassVar, Literal

from pydantic import Field

from tasks.documents.step import Settings, Signal
from tasks.models.filter import LearnedFilter


class Scoring(Settings):
    """What decides the scores, besides the documents and the model."""

    characters: int


class Threshold(Settings):
    """Which documents are kept."""

    min_score: float = Field(0.018112, ge=0, le=1, description="default: DCLM's fasttext_filter.yaml")


class Classifier(Settings):
    """What decides the model, besides the documents."""

    documents: int = Field(200_000, gt=1, description="at most so many of either kind are trained on (DCLM: 200k)")
    characters: int = Field(20_000, gt=0, description="of each document are read")
    word_ngrams: int = Field(2, ge=1, le=5, description="longest n-gram that is a feature, in words")
    epochs: int = Field(5, ge=1, description="passes over the documents")
    learning_rate: float = Field(0.1, gt=0, description="of the first update; it falls to 0")
    dimensions: int = Field(100, ge=1, description="of the vectors of words and n-grams")
    buckets: int = Field(2_000_000, ge=1, description="of the n-gram hash; the model takes 4 * dimensions bytes each")
    seed: int = Field(1, description="of the first vectors and of the sample of documents")


class Quality(Classifier, Threshold, LearnedFilter):
    """Keep documents that the classifier gives at least `min_score`. Reference documents are kept unscored."""

    work: ClassVar = "tasks.models.quality_work"
    libraries: ClassVar = ("fasttext-ng",)
    signals: ClassVar = (
        Signal(
            "quality",
            "float64",
            "probability",
            "Li et al. 2024, fasttext_filter.yaml",
            description="How probable the classifier takes it to be that the document is a reference document.",
        ),
    )
    decision_fields: ClassVar = ("min_score",)

    step: Literal["quality"] = "quality"
    reference: tuple[str, ...] = Field(min_length=1, description="names of the sources that are good examples")

    def training_settings(self) -> Classifier:
        return self.part(Classifier)

    def scoring_settings(self) -> Scoring:
        return Scoring(characters=self.characters)

    def decision_settings(self) -> Threshold:
        return self.part(Threshold)
