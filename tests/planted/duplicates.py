"""Copies of a text at a chosen Jaccard similarity of their sets of word 5-grams."""

import re
from random import Random

from tests.planted.text import prose, word

N = 5
_TOKEN = re.compile(r"\S+\s*")


def grams(text: str) -> set[tuple[str, ...]]:
    """Word 5-grams; words are runs of non-white-space as they are written. Shorter texts have none."""
    words = text.split()
    return set(zip(*(words[i:] for i in range(N)), strict=False))


def jaccard(text: str, other: str) -> float:
    """Similarity of two texts: exact, by brute force; 1.0 for two texts without grams."""
    one, two = grams(text), grams(other)
    return len(one & two) / len(one | two) if one or two else 1.0


def near_copy(rng: Random, text: str, language: str, wanted: float) -> str:
    """A copy with the similarity `wanted` within about one gram: words replaced here and there, the end cut off, or
    a paragraph put after it.

    With S different grams of which d are replaced by others, J = (S - d) / (S + d); with d cut off, J = (S - d) / S;
    with d added, J = S / (S + d). What came of it is measured afterwards.
    """
    size, tokens = len(grams(text)), _TOKEN.findall(text)
    how = rng.choice(("replace", "replace", "cut", "add"))
    if how == "add":
        count = round(size * (1 / wanted - 1))
        return "\n\n".join([text, " ".join(" ".join(prose(rng, language, count)).split()[:count])]).rstrip()
    if how == "cut":
        return "".join(tokens[: len(tokens) - round(size * (1 - wanted))]).rstrip()
    inside, at_end = divmod(round(size * (1 - wanted) / (1 + wanted)), N)
    return _replace(rng, tokens, language, _spread(rng, len(tokens) - at_end, inside), at_end)


def template_copy(rng: Random, text: str, language: str) -> str:
    """The text with three words of its own, at the same places in each copy."""
    tokens = _TOKEN.findall(text)
    return _replace(rng, tokens, language, _spread(Random(0), len(tokens), 3), 0)


def _spread(rng: Random, words: int, count: int) -> list[int]:
    """Places, each `N` or more from the next and from both ends: a word replaced there changes exactly `N` grams."""
    span = words - 2 * (N - 1)
    return [N - 1 + span * k // count + rng.randrange(max(1, span // count - N)) for k in range(count)]


def _replace(rng: Random, tokens: list[str], language: str, places: list[int], at_end: int) -> str:
    """Other words at these places and at the last `at_end`; punctuation and white space stay."""
    for i in (*places, *range(len(tokens) - at_end, len(tokens))):
        rest = re.search(r"\W*$", tokens[i])[0]
        new = old = tokens[i].removesuffix(rest).lower()
        while new.lower() == old:
            new = word(rng, language)
        tokens[i] = new + rest
    return "".join(tokens)
