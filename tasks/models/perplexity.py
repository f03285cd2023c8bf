"""Perplexity under a KenLM model of a reference source: how far a document is from prose known to be good.

After CCNet (Wenzek et al. 2020, `cc_net/perplexity.py`): pp = 10 ** (-log10 score / length), where length counts the
words of every line and one end of sentence a line. Here words are sequences of word characters and single marks of
punctuation, in lower case, digits folded to 0.
"""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasks.documents.step import Settings, Signal
from tasks.models.filter import LearnedFilter


class LanguageModel(Settings):
    """What decides the model, besides the reference."""

    order: int = Field(5, ge=2, le=6, description="longest n-gram of the language model, in words")


class Scoring(Settings):
    """Nothing decides the scores but the model and the texts."""


class Percentiles(Settings):
    """Which documents are kept, by their place among the scores of all."""

    min_percentile: float = Field(0, ge=0, le=100, description="documents with a lower perplexity are dropped")
    max_percentile: float = Field(95, ge=0, le=100, description="documents with a higher perplexity are dropped")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min_percentile >= self.max_percentile:
            raise ValueError(
                f"min_percentile {self.min_percentile} is not below max_percentile {self.max_percentile}; lower it"
            )
        return self


class Perplexity(Percentiles, LanguageModel, LearnedFilter):
    """Keep documents whose perplexity lies between two percentiles of all that were scored.

    Documents of the reference itself are not scored, since the model has seen them: they are kept.
    """

    work: ClassVar = "tasks.models.perplexity_work"
    libraries: ClassVar = ("kenlm",)
    signals: ClassVar = (
        Signal(
            "perplexity",
            "float64",
            "perplexity per word",
            "Wenzek et al. 2020, perplexity.py",
            description="Perplexity under the model of the reference: lower is more like it.",
        ),
    )
    decision_fields: ClassVar = ("min_percentile", "max_percentile")

    step: Literal["perplexity"] = "perplexity"

    def training_settings(self) -> LanguageModel:
        return self.part(LanguageModel)

    def scoring_settings(self) -> Scoring:
        return Scoring()

    def decision_settings(self) -> Percentiles:
        return self.part(Percentiles)
