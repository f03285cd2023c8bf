"""Toxic and adult content, by fastText classifiers: a probability for each document, and its share of such lines.

As Dolma has it (Soldaini et al. 2024, arXiv 2402.00159): two classifiers trained on Jigsaw's comments, one of hate and
one of adult content; Dolma asks them of sentences, here it is lines, and takes more than 0.4 for too much.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from gristmill.storage import layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.settings import Address
from gristmill.tasks.documents.selection import select
from gristmill.tasks.documents.step import Bound, Problem, Settings, Signal
from gristmill.tasks.models import classifiers
from gristmill.tasks.models.classifiers import line, probabilities
from gristmill.tasks.models.filter import LearnedFilter
from gristmill.tasks.models.model_files import label_of
from gristmill.tasks.models.percentiles import percentiles

LINE_SCORE = 0.4  # of Dolma 1.6, of a sentence
_DOLMA = "Soldaini et al. 2024, arXiv 2402.00159"


def lines_of(signal: str) -> str:
    """The column with the share of a text in lines of which the score `signal` would be too high."""
    return f"{signal}_lines"


def _signals(name: str, what: str) -> tuple[Signal, ...]:
    return (
        Signal(name, "float64", "probability", _DOLMA, description=f"How probable the model takes {what} to be."),
        Signal(
            lines_of(name),
            "float64",
            "fraction of characters",
            _DOLMA,
            description="The share of the text in lines of which the model takes it to be more probable than "
            "`line_score`.",
        ),
    )


class HarmTexts(Settings):
    """What the model is asked."""

    label: str = Field(description="Label of the model whose probability is the score, with or without `__label__`.")
    characters: int = Field(20_000, gt=0, description="Maximum number of characters read from each document.")
    lowercase: bool = Field(False, description="Lowercase texts before they are scored; false for Dolma's two models.")
    line_score: float = Field(
        LINE_SCORE, ge=0, le=1, description="Score above which a line is counted for `max_lines`."
    )


class HarmCuts(Settings):
    """Which documents are kept."""

    max_score: float | None = Field(None, ge=0, le=1, description="Highest score that is kept; null: no limit.")
    drop_top: float | None = Field(
        None, gt=0, lt=100, description="Percentage of the scored documents to drop: those with the highest scores."
    )
    max_lines: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Largest share of counted lines (fraction of characters) that is kept; null: no limit.",
    )

    @model_validator(mode="after")
    def _one_cut(self) -> Self:
        if self.max_score is not None and self.drop_top is not None:
            raise ValueError(f"has max_score {self.max_score} and drop_top {self.drop_top}; give one of them")
        return self


class HarmScoring(HarmTexts):
    """What decides the scores, besides the documents and the model. `signal`: the column of the documents' scores."""

    signal: str


class HarmThresholds(HarmCuts):
    """The thresholds on the scores in the column `signal`."""

    signal: str


class Harm(HarmTexts, HarmCuts, LearnedFilter):
    """Settings of `toxicity` and `adult_content`: a model, its label, and what of it is too much.

    Dolma gives its models a text as it is, in upper and lower case, with a space for each end of a line
    (`python/dolma/taggers/jigsaw.py`: `text.replace("\\n", " ").strip()`), and so does the default.
    """

    libraries: ClassVar = ("fasttext-ng",)
    decision_fields: ClassVar = tuple(HarmCuts.model_fields)

    model: Address = Field(description="Path or address of a fastText classifier.")
    reference: tuple[str, ...] = Field((), description="Names of sources that are kept and not scored.")

    @property
    def named_models(self) -> tuple[str, ...]:
        return (self.model,)

    @property
    def fasttext_classifier(self) -> str:
        return self.model

    def problems(self, deep: bool) -> Iterator[Problem]:
        yield from classifiers.problems(self.model, self, self.label, deep)

    @property
    def scores(self) -> tuple[str, ...]:
        return self.signal, lines_of(self.signal)

    def scoring_settings(self) -> HarmScoring:
        return HarmScoring(signal=self.signal, **self.part(HarmTexts).model_dump())

    def decision_settings(self) -> HarmThresholds:
        return HarmThresholds(signal=self.signal, **self.part(HarmCuts).model_dump())


class Toxicity(Harm):
    """Score documents for toxicity with a classifier, and drop those above a limit if you set one.

    `bad_words` with `max_hits: null` counts words of lists beside it.
    """

    step: Literal["toxicity"] = "toxicity"
    signals: ClassVar = _signals("toxicity", "the document to be toxic")


class AdultContent(Harm):
    """Score documents for adult content with a classifier, and drop those above a limit if you set one."""

    step: Literal["adult_content"] = "adult_content"
    signals: ClassVar = _signals("adult_content", "the document to be adult content")


def score_shard(
    folder: str, shard: int, documents: str, kept: str, models: Sequence[RecordedFile], settings: HarmScoring
) -> dict:
    """Write `id`, the probability of the label for each text, and the share of its characters in lines above
    `line_score`. `models`: one."""
    table = select(documents, kept, ["text"])
    [model] = map(classifiers.load, models)
    label = label_of(model.labels, settings.label)
    texts = [text[: settings.characters] for text in table["text"].to_pylist()]
    lines = [[part for part in text.split("\n") if part.strip()] for text in texts]
    distinct = list(dict.fromkeys(part for parts in lines for part in parts))
    model_lines = [line(text, settings.characters, settings.lowercase) for text in (*texts, *distinct)]
    scores = probabilities(model, model_lines, label)
    above = {
        part: len(part)
        for part, score in zip(distinct, scores[len(texts) :], strict=True)
        if score > settings.line_score
    }
    harmful = np.array([sum(above.get(part, 0) for part in parts) for parts in lines], np.float64)
    whole = np.array([sum(map(len, parts)) for parts in lines], np.float64)
    shares = np.divide(harmful, whole, out=np.zeros(len(texts)), where=whole > 0)
    columns = {"id": table["id"], settings.signal: scores[: len(texts)], lines_of(settings.signal): shares}
    parquet.write_table(layout.part(folder, shard), pa.table(columns))
    return {"rows": len(table)}


def bounds(settings: HarmThresholds, scores: Sequence[str]) -> list[Bound]:
    """At most `max_score`; or at most the score that all but `drop_top` percent of the documents with a score have, so
    that documents with equal scores stay together. And at most `max_lines`. `scores`: the parts with scores."""
    of_document = [Bound("max_score", settings.signal, high=settings.max_score)]
    if settings.drop_top is not None:
        cuts = percentiles(scores, settings.signal, [100 - settings.drop_top])
        of_document = [Bound("drop_top", settings.signal, high=high) for [high] in cuts.values()]
    return [*of_document, Bound("max_lines", lines_of(settings.signal), high=settings.max_lines)]
