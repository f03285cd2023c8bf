"""A fastText classifier that separates reference documents from raw ones, after DCLM (Li et al. 2024).

DCLM trains on unigrams and bigrams and keeps documents by their probability of the label `hq`.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator
from wrapt import lazy_import

from gristmill.storage import files
from gristmill.storage.address import Address
from gristmill.tasks.documents.step import Problem, Settings, Signal
from gristmill.tasks.models.filter import LearnedFilter

if TYPE_CHECKING:
    from gristmill.tasks.models.classifier import classifier_file
else:
    classifier_file = lazy_import("gristmill.tasks.models.classifier.classifier_file")

# Li et al. 2024: baselines/baselines_configs/fasttext_filter.yaml
MIN_SCORE = 0.018112
SCORED_BY = "quality_model"  # the column that says which of the two models has scored a document


class Scoring(Settings):
    """What decides the scores, besides the documents and the models."""

    characters: int
    lowercase: bool
    seed: int
    label: str | None


class Threshold(Settings):
    """Which documents are kept."""

    min_score: float | None = Field(
        None, ge=0, le=1, description=f"the lowest that is kept; where keep_top is not given either: {MIN_SCORE} (DCLM)"
    )
    keep_top: float | None = Field(
        None,
        gt=0,
        le=100,
        description="percent of the documents that each model has scored: those with the highest scores are kept",
    )

    @model_validator(mode="after")
    def _one_cut(self) -> Self:
        if self.min_score is not None and self.keep_top is not None:
            raise ValueError(f"has min_score {self.min_score} and keep_top {self.keep_top}; give one of them")
        return self


class Texts(Settings):
    """What a model reads of a document."""

    characters: int = Field(20_000, gt=0, description="of each document are read")
    lowercase: bool = Field(True, description="whether the model reads texts in lower case; DCLM's own model: false")


class Classifier(Texts):
    """What decides the models, besides the documents."""

    documents: int = Field(
        200_000,
        gt=1,
        description="each of two models learns from about so many of either kind, or all (DCLM: 200k)",
    )
    word_ngrams: int = Field(2, ge=1, le=5, description="longest n-gram that is a feature, in words")
    epochs: int = Field(5, ge=1, description="passes over the documents")
    learning_rate: float = Field(0.1, gt=0, description="of the first update; it falls to 0")
    dimensions: int = Field(100, ge=1, description="of the vectors of words and n-grams")
    buckets: int = Field(2_000_000, ge=1, description="of the n-gram hash; a model takes 4 * dimensions bytes each")
    seed: int = Field(1, description="of the first vectors, of the sample of documents and of its two folds")


class Quality(Classifier, Threshold, LearnedFilter):
    """Keep documents by the probability that a classifier gives them of being a good example.

    Two models learn from `reference` against the other sources, and each document is scored by the one that has not
    seen it; or `model` names a fastText file. Reference documents are kept unscored.
    """

    work: ClassVar = "gristmill.tasks.models.quality.quality_work"
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
    decision_fields: ClassVar = ("min_score", "keep_top")

    step: Literal["quality"] = "quality"
    reference: tuple[str, ...] = Field((), description="names of the sources that are good examples")
    against: tuple[str, ...] = Field((), description="names of the sources that are bad examples; none: all others")
    model: Address | None = Field(None, description="path or address of a fastText classifier, instead of `reference`")
    label: str | None = Field(None, description="of `model`, whose probability is the score; none: hq")

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if bool(self.reference) == bool(self.model):
            raise ValueError("needs either `reference`, the sources of good examples, or `model`, a file; give one")
        if self.model is None and self.label is not None:
            raise ValueError(f"has the label {self.label}, but no `model` that could have it; leave it out")
        if self.model is not None and self.against:
            raise ValueError(f"has a model, which learns from no source, and `against` {list(self.against)}; drop one")
        trained = {**Classifier().model_dump(), **self.part(Texts).model_dump()}
        if self.model is not None and (changed := dict(self.part(Classifier).model_dump().items() - trained.items())):
            raise ValueError(f"has a model, which is trained already, and {', '.join(sorted(changed))}; drop it")
        if both := sorted(set(self.reference) & set(self.against)):
            raise ValueError(f"has {', '.join(both)} both in `reference` and in `against`; leave it out of one")
        return self

    @property
    def groups(self) -> tuple[str, ...]:
        return (SCORED_BY,)

    @property
    def named_models(self) -> tuple[str, ...]:
        return () if self.model is None else (self.model,)

    @property
    def fasttext_classifier(self) -> str | None:
        return self.model

    @property
    def disk_bytes(self) -> int:
        # fastText's matrices of two models; a model that is named is not stored again
        return 0 if self.model is not None else 2 * 4 * self.dimensions * self.buckets

    def problems(self, deep: bool) -> Iterator[Problem]:
        if self.model is not None:
            yield from classifier_file.problems(self.model, self, self.label, deep)

    def remarks(self) -> Iterator[str]:
        if self.min_score is None and self.keep_top is None and self._is_trained_here():
            yield (
                f"steps.quality has no cut of its own: at DCLM's {MIN_SCORE}, found for DCLM's own model, a classifier "
                "that learns here from as many good as bad examples drops next to nothing; give `keep_top: 10`, the "
                "percentage that is kept, or `min_score: 0` where nothing is to be dropped"
            )

    def _is_trained_here(self) -> bool:
        """Whether the classifier is trained in the run, or with `gristmill train classifier`, which describes it."""
        if self.model is None:
            return True
        description = classifier_file.description(self.model)
        return files.is_local(description) and files.exists(description)

    def raw(self, sources: Sequence[str]) -> tuple[str, ...]:
        return tuple(sorted(self.against)) or super().raw(sources)

    def training_settings(self) -> Classifier:
        return self.part(Classifier)

    def scoring_settings(self) -> Scoring:
        return Scoring.model_validate({name: getattr(self, name) for name in Scoring.model_fields})

    def decision_settings(self) -> Threshold:
        return self.part(Threshold)
