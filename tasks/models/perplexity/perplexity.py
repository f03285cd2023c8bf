"""Perplexity under KenLM models of prose known to be good: how far a document is from it.

After CCNet (Wenzek et al. 2020, `cc_net/perplexity.py`): pp = 10 ** (-log10 score / length), where length counts the
words or pieces of every line and one end of sentence a line. The model is one of words that is trained on `reference`
in the run (sequences of word characters and single marks of punctuation, in lower case, digits folded to 0), or one for
each language that is named in `models`, of SentencePiece's pieces as CCNet has them.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator
from wrapt import lazy_import

from gristmill.storage.address import Address
from gristmill.tasks.documents.file_problems import file_problems, own_sentence
from gristmill.tasks.documents.step import Problem, Settings, Signal
from gristmill.tasks.models.filter import LearnedFilter

if TYPE_CHECKING:
    from gristmill.tasks.models.perplexity import models_by_language
else:
    models_by_language = lazy_import("gristmill.tasks.models.perplexity.models_by_language")

Bucket = Literal["head", "middle", "tail"]
BUCKETS: tuple[Bucket, ...] = ("head", "middle", "tail")
UNSCORED = "all"  # cc_net/perplexity.py: PerplexityBucket
_MODEL, _PIECES = ".arpa.bin", ".sp.model"  # as cc_net names them


def pieces_of(model: str) -> str:
    """The address of the SentencePiece model that belongs to a KenLM model, `en.sp.model` to `en.arpa.bin`."""
    return model.removesuffix(_MODEL) + _PIECES


class LanguageModel(Settings):
    """What decides the model that is trained, besides the reference."""

    order: int = Field(5, ge=2, le=6, description="longest n-gram of the model that is trained, in words")


class Scoring(Settings):
    """What decides the scores, besides the models and the texts.

    `languages`: of each pair of models, KenLM's and SentencePiece's; none: there is one model, trained in the run.
    """

    languages: tuple[str, ...] = ()
    unit: Literal["line", "document"] = "line"
    lines: bool = False


class Percentiles(Settings):
    """Which documents are kept, by their place among the scores of all, or of all in their language."""

    min_percentile: float = Field(0, ge=0, le=100, description="documents with a lower perplexity are dropped")
    max_percentile: float = Field(95, ge=0, le=100, description="documents with a higher perplexity are dropped")
    head_percentile: float = Field(30, ge=0, le=100, description="up to it a document is in the bucket `head`")
    middle_percentile: float = Field(60, ge=0, le=100, description="up to it in `middle`, above in `tail`")
    min_documents: int = Field(
        20,
        ge=1,
        description="of a language that has models: with fewer scored documents none is dropped by a percentile, and "
        "all are in the bucket `all`",
    )
    keep_buckets: tuple[Bucket, ...] = Field(BUCKETS, min_length=1, description="documents in others are dropped")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for low, high in (("min_percentile", "max_percentile"), ("head_percentile", "middle_percentile")):
            if (least := getattr(self, low)) >= (most := getattr(self, high)):
                raise ValueError(f"{low} {least} is not below {high} {most}; lower it")
        if set(self.keep_buckets) == {"head", "tail"}:
            raise ValueError("keep_buckets is head and tail, between which lies middle; add `middle`, or drop one")
        return self


class Cuts(Percentiles):
    """What decides which documents are kept. `by_language`: the scores have the column `language`, and each language
    its own percentiles. `cutoffs`: where a file has them, by language the lowest perplexities of `middle` and of
    `tail`."""

    by_language: bool
    cutoffs: dict[str, tuple[float, float]] | None


class Perplexity(Percentiles, LanguageModel, LearnedFilter):
    """Keep documents whose perplexity lies between two percentiles, or in some buckets, of all in their language.

    Documents of the reference itself, which the model has seen, and those in languages without a model are not scored:
    they are kept, in the bucket `all`.
    """

    work: ClassVar = "gristmill.tasks.models.perplexity.perplexity_work"
    libraries: ClassVar = ("kenlm", "sentencepiece")
    pins_files: ClassVar = True
    signals: ClassVar = (
        Signal(
            "perplexity",
            "float64",
            "perplexity per word, or piece",
            "Wenzek et al. 2020, perplexity.py",
            description="Perplexity under the model of the reference, or of the language: lower is more like it.",
        ),
        Signal(
            "perplexity_bucket",
            "string",
            "head, middle, tail or all",
            "Wenzek et al. 2020, perplexity.py",
            description="The part of the scores of all, or of all in the language, in which the perplexity lies.",
        ),
    )
    decision_fields: ClassVar = (*Percentiles.model_fields, "cutoffs")

    step: Literal["perplexity"] = "perplexity"
    reference: tuple[str, ...] = Field((), description="names of the sources the model is trained on, in the run")
    models: dict[str, Address] = Field(
        {},
        description="for each language, by the column `language`, its KenLM model, LANGUAGE.arpa.bin, with "
        "LANGUAGE.sp.model beside it: `gristmill train lm` makes them, CCNet's have the same form",
    )
    unit: Literal["line", "document"] = Field(
        "line",
        description="what is one sentence to the models in `models`; `document`: the whole text with its lines joined, "
        "as CCNet's own run scores it and its cutoff.csv has it",
    )
    lines: bool = Field(False, description="the perplexity of every line is stored, too, as `line_perplexities`")
    cutoffs: Address | None = Field(
        None,
        description="CSV file with perplexities by percentile (first column) and language, as CCNet's cutoff.csv: the "
        "buckets end at these, not at those of this corpus",
    )
    cutoffs_read: dict[str, tuple[float, float]] | None = Field(None, description="what the file has; see `pinned`")

    @field_validator("models")
    @classmethod
    def _named(cls, models: dict[str, str]) -> dict[str, str]:
        for language, path in models.items():
            if not path.endswith(_MODEL):
                raise ValueError(f"names {path} for {language}, whose name does not end in {_MODEL}; rename it")
        return models

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if bool(self.reference) == bool(self.models):
            both = "both `reference` and" if self.models else "neither `reference` nor"
            raise ValueError(
                f"has {both} `models`; give one: sources to train a model on, or the models of some languages"
            )
        if self.cutoffs is not None and not self.models:
            raise ValueError(f"has `cutoffs` {self.cutoffs}, which hold for models of languages; give `models`")
        if self.models and self.order != LanguageModel().order:
            raise ValueError(f"has order {self.order}, which a model in `models` has of its own; drop it")
        if self.unit == "document" and not self.models:
            raise ValueError("has `unit: document`, which is for models of languages; give `models`, or drop it")
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        return ("language",) if self.models else ()

    @property
    def named_models(self) -> tuple[str, ...]:
        return tuple(path for each in sorted(self.models) for path in (self.models[each], pieces_of(self.models[each])))

    def training_settings(self) -> LanguageModel:
        return self.part(LanguageModel)

    def scoring_settings(self) -> Scoring:
        return Scoring(languages=tuple(sorted(self.models)), unit=self.unit, lines=self.lines)

    def decision_settings(self) -> Cuts:
        if self.cutoffs is not None and self.cutoffs_read is None:
            raise ValueError(f"the cut-offs {self.cutoffs} have not been read: the step is not `pinned`")
        given = self.part(Percentiles).model_dump()
        return Cuts(**given, by_language=bool(self.models), cutoffs=self.cutoffs_read)

    def problems(self, deep: bool) -> Iterator[Problem]:
        for language, model in self.models.items():
            check = partial(models_by_language.check, model)
            yield from file_problems(model, ("models", language), deep, check, own_sentence)
        if self.cutoffs is not None:
            yield from file_problems(self.cutoffs, ("cutoffs",), deep, self.pinned)
