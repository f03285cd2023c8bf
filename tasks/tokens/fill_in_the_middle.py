"""Fill-in-the-middle: documents whose middle is moved to their end, so that a model learns to fill a gap.

Bavarian et al. 2022 (arXiv 2207.14255): a document is cut at two places that are drawn uniformly among its characters,
and its parts are encoded separately, each after its special token: prefix, suffix, middle (PSM), or suffix before
prefix and middle (SPM, in the form of the paper's appendix D that PSM is trained together with).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import xxhash
from pydantic import Field, model_validator

from gristmill.tasks.documents.step import Settings

TOKEN = r"^\S+$"


class FillInTheMiddle(Settings):
    """How documents are rearranged for fill-in-the-middle when they are encoded. The tokens are added to the vocabulary
    of a trained tokenizer."""

    rate: float = Field(0.5, ge=0, le=1, description="Fraction of documents whose middle is moved to the end.")
    spm: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Fraction of these in the order suffix, prefix, middle (SPM). The others are in the order "
        "prefix, suffix, middle (PSM).",
    )
    prefix: str = Field("<fim_prefix>", pattern=TOKEN, description="Token before the text that precedes the gap.")
    middle: str = Field("<fim_middle>", pattern=TOKEN, description="Token before the text that fills the gap.")
    suffix: str = Field("<fim_suffix>", pattern=TOKEN, description="Token before the text that follows the gap.")
    seed: int = Field(1, ge=0, description="Seed that decides, with the document's id, how a document is rearranged.")

    @model_validator(mode="after")
    def _differ(self) -> "FillInTheMiddle":
        if len({self.prefix, self.middle, self.suffix}) < 3:
            raise ValueError("prefix, middle and suffix are one token; give three different ones")
        return self

    @property
    def tokens(self) -> tuple[str, str, str]:
        return self.prefix, self.middle, self.suffix


@dataclass(frozen=True)
class Part:
    """A special token, and the text after it, which may be empty."""

    token: str
    text: str


def parts(settings: FillInTheMiddle, document: str, text: str) -> list[Part] | None:
    """How a document is encoded, given its id; None if it stays as it is. Depends only on seed, id and text."""
    bits = xxhash.xxh3_128_intdigest(f"{settings.seed} {document}".encode())
    chance, order, one, other = (bits >> shift & 0xFFFFFFFF for shift in (0, 32, 64, 96))
    if chance >= settings.rate * 2**32:
        return None
    first, last = sorted(cut * (len(text) + 1) >> 32 for cut in (one, other))
    prefix, middle, suffix = text[:first], text[first:last], text[last:]
    if order < settings.spm * 2**32:
        return [Part(settings.prefix, ""), Part(settings.suffix, suffix), Part(settings.middle, prefix + middle)]
    return [Part(settings.prefix, prefix), Part(settings.suffix, suffix), Part(settings.middle, middle)]


def whole(settings: FillInTheMiddle, pieces: Sequence[Part]) -> str:
    """The document that `parts` cut, from the texts after its three tokens."""
    texts = {part.token: part.text for part in pieces}
    return texts[settings.prefix] + texts[settings.middle] + texts[settings.suffix]
