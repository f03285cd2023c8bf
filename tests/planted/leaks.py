"""Benchmark items inside pages: word for word, or with one word in twelve replaced."""

from random import Random

from tests.planted.text import Block, joined, phrase, prose, word

VARIANTS = ("verbatim", "edited")
_EVERY = 12


def made_up(seed: int, count: int = 20) -> tuple[str, ...]:
    """Questions of 25 to 60 words with four answers each, of a benchmark that does not exist."""
    rng = Random(f"{seed}/benchmark")
    items = []
    for _ in range(count):
        question = " ".join(prose(rng, "en", rng.randint(20, 50))).rstrip(".") + "?"
        answers = " ".join(f"({letter}) {phrase(rng, 'en', 2)}" for letter in "ABCD")
        items.append(f"{question} {answers}")
    return tuple(items)


def leak(
    rng: Random, parts: tuple[Block, ...], item: int, text: str, edited: bool
) -> tuple[tuple[Block, ...], list[dict]]:
    """The page with the item as a paragraph of its own, and where it lies in the joined text."""
    words = text.split()
    edits = 0
    if edited:
        for i in range(rng.randrange(_EVERY), len(words), _EVERY):
            words[i] = word(rng, "en")
            edits += 1
        text = " ".join(words)
    at = rng.randint(0, len(parts) - 1)
    parts = (*parts[:at], Block("p", text), *parts[at:])
    start = len(joined(parts[:at])) + (2 if at else 0)
    return parts, [{"item": item, "start": start, "end": start + len(text), "edits": edits}]
