"""A model learned from annotations of some documents, which scores all of them in the same run.

An annotation is a value in a column on some documents, null on the others: grades of a language model, or a column of
the source's files. After FineWeb-Edu (Penedo et al. 2024, arXiv 2406.17557), where a regression on the vectors of an
embedder learned from 450,000 grades, and DCLM (Li et al. 2024), where fastText learned from two kinds of documents.

Documents of one host are alike, so a host is either learned from or held out. The held-out annotations measure the
model, and choose the cut.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from gristmill.storage.settings import Address
from gristmill.tasks.documents.step import Problem, Settings, Signal
from gristmill.tasks.models.classifiers import FastText
from gristmill.tasks.models.distillation.held_out import CutRule
from gristmill.tasks.models.embedders import Embedder
from gristmill.tasks.models.embedding import Embedding
from gristmill.tasks.models.filter import LearnedFilter

SCORE = "distill_score"
HELD_OUT = "distill_held_out"
HOST = "distill_host"  # of a held-out document, else null
WEIGHT = "distill_weight"  # the same, with the setting `weight`
_SHARES = "scores are probabilities from 0 to 1, so no document is kept; set `min_score` to 1 or less"


class WordModel(FastText):
    """Training of a classifier on words: of a tenth of a size that fits hundreds of thousands of documents."""

    dimensions: int = Field(32, ge=1, description="Dimensions of the vectors of words and n-grams.")
    buckets: int = Field(
        200_000, ge=1, description="Size of the n-gram hash table. The model takes 4 * dimensions bytes per bucket."
    )


class Learning(Settings):
    """What the model learns from, besides the documents."""

    of: str = Field(
        description="Column with the annotations, null for documents without one: a signal of an earlier step or a "
        "column of the sources, of numbers or booleans."
    )
    weight: str | None = Field(
        None,
        description="Column with the number of documents that an annotated one counts as in measures and in the choice "
        "of the cut, such as `annotate_weight`. null: all count alike.",
        exclude_if=lambda name: name is None,
    )
    positive: float | None = Field(
        None, description="Annotation from which a document is good, for a column of numbers: 3 in FineWeb-Edu."
    )
    kind: Literal["fasttext", "head"] = Field(
        "fasttext",
        description="Type of the model. fasttext: a classifier on words. head: a small model on the vectors of the "
        "embedder in `model`, a regression for numbers and a classifier for booleans.",
    )
    annotations: int = Field(
        50_000,
        ge=10,
        description="Number of annotated documents that are used, about, or all if there are fewer. The model is "
        "trained in memory.",
    )
    held_out: float = Field(
        0.2, gt=0, le=0.5, description="Share of the hosts whose annotations measure the model and choose the cut."
    )
    fasttext: WordModel = Field(WordModel(), description="Training of `kind: fasttext`.")
    penalty: float | None = Field(
        None, gt=0, description="L2 penalty of `kind: head`; null: the best of eight in cross-validation."
    )
    seed: int = Field(1, description="Seed of the sample of annotations, of the held-out hosts and of the model.")


class Thresholds(Settings):
    """Which documents are kept."""

    cut: CutRule | None = Field(None, description="Rule that chooses the lowest kept score on held-out annotations.")
    min_score: float | None = Field(None, description="Lowest score that is kept.")
    keep_top: float | None = Field(
        None, gt=0, le=100, description="Percentage of the scored documents to keep: those with the highest scores."
    )

    @model_validator(mode="after")
    def _one_cut(self) -> Self:
        names = [name for name in Thresholds.model_fields if getattr(self, name) is not None]
        if len(names) > 1:
            raise ValueError(f"has {' and '.join(names)}; give one of them")
        return self


class Distill(Thresholds, Learning, LearnedFilter):
    """Train a model on annotations of some documents, score all documents, and keep those with high scores.

    Without `cut`, `min_score` and `keep_top` it drops nothing.
    """

    # 2: measures of good and other documents are unknown if either are of fewer than ten hosts
    work_version: ClassVar = 2
    work: ClassVar = "gristmill.tasks.models.distillation.learn"
    decision_fields: ClassVar = ("cut", "min_score", "keep_top")
    signals: ClassVar = (
        Signal(
            SCORE,
            "float64",
            "probability of a good document; with `kind: head` and numbers, unit of the annotations",
            "Penedo et al. 2024, section 4; Li et al. 2024",
            description="The score that the model learned from annotations gives the document.",
        ),
        Signal(
            HELD_OUT,
            "float64",
            "1 or 0",
            "",
            description="Whether an annotation that measures the model is good; null for all other documents.",
        ),
    )

    step: Literal["distill"] = "distill"
    model: Address | None = Field(
        None, description="Folder or address of the sentence embedder of `kind: head`, as in the step `embedding`."
    )
    embedder: Embedder = Field(Embedder(), description="How the embedder in `model` is used.")
    reference: tuple[str, ...] = Field(
        (), description="Names of sources that are kept and neither learned from nor scored."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.kind == "head" and self.model is None:
            raise ValueError("has `kind: head` without an embedder; set `model` to its folder")
        if self.kind == "fasttext" and self.min_score is not None and self.min_score > 1:
            raise ValueError(f"has min_score {self.min_score:g}, but {_SHARES}")
        unused = ("fasttext",) if self.kind == "head" else ("model", "embedder", "penalty")
        for name in unused:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"has `kind: {self.kind}`, which does not use `{name}`; remove it")
        return self

    @property
    def libraries(self) -> tuple[str, ...]:  # type: ignore[override]  # they depend on the settings
        return ("fasttext-ng",) if self.kind == "fasttext" else ("scikit-learn", *self.embedder.libraries)

    @property
    def scores(self) -> tuple[str, ...]:
        return columns_of(self)

    @property
    def groups(self) -> tuple[str, ...]:
        return (HOST,)

    @property
    def has_unknown_speed(self) -> bool:  # type: ignore[override]  # it depends on the settings
        return self.kind == "head"

    @property
    def disk_bytes(self) -> int:
        return 4 * self.fasttext.dimensions * self.fasttext.buckets if self.kind == "fasttext" else 0

    @property
    def embedding(self) -> Embedding:
        """The step that makes the vectors of `kind: head`: a recipe that has it too embeds once."""
        assert self.model is not None
        return Embedding(model=self.model, reference=self.reference, **self.embedder.model_dump())

    def training_settings(self) -> Learning:
        return self.part(Learning)

    def decision_settings(self) -> Thresholds:
        return self.part(Thresholds)

    def problems(self, deep: bool) -> Iterator[Problem]:
        if self.kind == "head":
            yield from self.embedding.problems(deep)


def columns_of(settings: Learning) -> tuple[str, ...]:
    """The columns of numbers that are stored of each document."""
    return (SCORE, HELD_OUT) if settings.weight is None else (SCORE, HELD_OUT, WEIGHT)


def column_problem(settings: Learning, kind: str) -> str:
    """What is wrong with a column of annotations of a kind: `bool`, `string`, or a number; "" where nothing is."""
    if kind == "string":
        return (
            f"the column {settings.of} has strings; annotate with numbers or booleans, or convert the column in the "
            "files of the source"
        )
    if kind == "bool" and settings.positive is not None:
        return f"the column {settings.of} has booleans, which have no threshold; remove `positive`"
    if kind == "bool" and (getattr(settings, "min_score", None) or 0) > 1:
        return f"the column {settings.of} has booleans, and {_SHARES}"
    if kind != "bool" and settings.positive is None:
        cut = getattr(settings, "cut", None)
        if settings.kind == "fasttext" or cut is not None:
            what = "`kind: fasttext`" if cut is None else "`cut`"
            return f"the column {settings.of} has numbers, and {what} needs good documents; set `positive`, such as 3"
    return ""
