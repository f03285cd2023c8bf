"""Toxic and adult content, by fastText classifiers: a probability for each document, and its share of such lines.

As Dolma has it (Soldaini et al. 2024, arXiv 2402.00159): two classifiers trained on Jigsaw's comments, one of hate and
one of adult content; Dolma asks them of sentences, here it is lines, and takes more than 0.4 for too much.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from tasks.documents.step import Bound, DocumentStep, Signal

LINE_SCORE = 0.4  # of Dolma 1.6, of a sentence
_DOLMA = "Soldaini et al. 2024, arXiv 2402.00159"


def _signals(name: str, what: str) -> tuple[Signal, ...]:
    return (
        Signal(name, "float32", "probability", _DOLMA, description=f"How probable the model takes {what} to be."),
        Signal(
            f"{name}_lines",
            "float32",
            "fraction of characters",
            _DOLMA,
            description="The share of the text in lines of which the model takes it to be more probable than "
            "`line_score`.",
        ),
    )


class Harm(DocumentStep):
    """Settings of `toxicity` and `adult_content`: a model, its label, and what of it is too much."""

    work: ClassVar = "tasks.models.harm_work"
    libraries: ClassVar = ("fasttext-ng",)
    pins_files: ClassVar = True

    model: str = Field(description="path or address of a fastText classifier")
    label: str = Field(description="of the model, whose probability is the score; with or without `__label__`")
    model_checksum: str = Field("", description="xxh3-128 that the model must have; see `pinned`")
    characters: int = Field(20_000, gt=0, description="of each document are read")
    lowercase: bool = Field(False, description="whether the model reads texts in lower case")
    line_score: float = Field(LINE_SCORE, ge=0, le=1, description="lines with a higher score are counted")
    max_score: float | None = Field(None, ge=0, le=1, description="the highest that is kept; null: not bound")
    max_lines: float | None = Field(
        None, ge=0, le=1, description="the largest share of counted lines that is kept; null: not bound"
    )

    signal_fields: ClassVar = ("model", "label", "model_checksum", "characters", "lowercase", "line_score")

    def decisions(self) -> Sequence[Bound]:
        return [
            Bound("max_score", self.signals[0].name, high=self.max_score),
            Bound("max_lines", self.signals[1].name, high=self.max_lines),
        ]


class Toxicity(Harm):
    """Score documents by how toxic a classifier takes them to be, and drop those above a bound, if one is given.

    `bad_words` with `max_hits: null` counts words of lists beside it.
    """

    step: Literal["toxicity"] = "toxicity"
    signals: ClassVar = _signals("toxicity", "the document to be toxic")


class AdultContent(Harm):
    """Score documents by how much a classifier takes them for adult content, and drop those above a bound, if one is
    given."""

    step: Literal["adult_content"] = "adult_content"
    signals: ClassVar = _signals("adult_content", "the document to be adult content")
