"""Documents cut for fill-in-the-middle, as `gristmill.tasks.tokens.fill_in_the_middle` describes it."""

from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from gristmill.tasks.tokens.fill_in_the_middle import FillInTheMiddle


@dataclass(frozen=True)
class Part:
    """A special token, and the text behind it, which may be empty."""

    token: str
    text: str


def parts(settings: FillInTheMiddle, document: str, text: str) -> list[Part] | None:
    """How a document is encoded, given its id; None if it stays as it is. A function of seed, id and text alone."""
    drawn = xxhash.xxh3_128_intdigest(f"{settings.seed} {document}".encode())
    chance, order, one, other = (drawn >> shift & 0xFFFFFFFF for shift in (0, 32, 64, 96))
    if chance >= settings.rate * 2**32:
        return None
    first, last = sorted(cut * (len(text) + 1) >> 32 for cut in (one, other))
    prefix, middle, suffix = text[:first], text[first:last], text[last:]
    if order < settings.spm * 2**32:
        return [Part(settings.prefix, ""), Part(settings.suffix, suffix), Part(settings.middle, prefix + middle)]
    return [Part(settings.prefix, prefix), Part(settings.suffix, suffix), Part(settings.middle, middle)]


def whole(settings: FillInTheMiddle, found: Sequence[Part]) -> str:
    """The document that `parts` cut: what a reader of tokens makes of the texts behind the three tokens."""
    texts = {part.token: part.text for part in found}
    return texts[settings.prefix] + texts[settings.middle] + texts[settings.suffix]
