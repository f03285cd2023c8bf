"""Copies of a text at a chosen Jaccard similarity of their sets of word 5-grams."""

import re
from random import Random

from tests.planted.text import Block, prose, word

N = 5
_TOKEN = re.compile(r"\S+\s*")


def grams(text: str) -> set[tuple[str, ...]]:
    """Word 5-grams; words are runs of non-white-space as they are written. Shorter texts have none."""
    words = text.split()
    return set(zip(*(words[i:] for i in range(N)), strict=False))


def jaccards(text: str, others: list[str]) -> list[float]:
    """Similarity of a text to each of the others: exact, by brute force; 1.0 for two texts without grams."""
    one = grams(text)
    found = []
    for other in map(grams, others):
        common = len(one & other)
        union = len(one) + len(other) - common
        found.append(common / union if union else 1.0)
    return found


def near_copy(rng: Random, parts: tuple[Block, ...], size: int, language: str, wanted: float) -> tuple[Block, ...]:
    """A copy of a text that has `size` different grams, its similarity `wanted` within about one gram: words replaced
    here and there, the end cut off, or a paragraph put after it.

    With S = `size` and d grams replaced by others, J = (S - d) / (S + d); with d cut off, J = (S - d) / S;
    with d added, J = S / (S + d). What came of it is measured afterwards.
    """
    how = rng.choice(("replace", "replace", "cut", "add"))
    if how == "add":
        count = round(size * (1 / wanted - 1))
        added = " ".join(_exactly(rng, language, count))
        return (*parts, Block("p", added)) if count else parts
    if how == "cut":
        return _cut(parts, round(size * (1 - wanted)))
    changed = round(size * (1 - wanted) / (1 + wanted))
    inside, at_end = divmod(changed, N)
    return _replace(rng, parts, language, _spread(rng, parts, inside, at_end), at_end)


def template_copy(rng: Random, parts: tuple[Block, ...], language: str) -> tuple[Block, ...]:
    """The text with three words of its own, at the same places in each copy."""
    return _replace(rng, parts, language, _spread(Random(0), parts, 3, 0), 0)


def _exactly(rng: Random, language: str, count: int) -> list[str]:
    return " ".join(prose(rng, language, count)).split()[:count]


def _cut(parts: tuple[Block, ...], count: int) -> tuple[Block, ...]:
    """Without the last `count` words."""
    kept = list(parts)
    while count:
        tokens = _TOKEN.findall(kept[-1].text)
        if len(tokens) > count:
            kept[-1] = Block(kept[-1].kind, "".join(tokens[:-count]).rstrip())
            break
        count -= len(tokens)
        kept.pop()
    return tuple(kept)


def _spread(rng: Random, parts: tuple[Block, ...], count: int, at_end: int) -> list[int]:
    """`count` places in paragraphs, each `N` or more from the next, from the text's start and from its last words:
    a word replaced there changes exactly `N` grams."""
    places, at = [], 0
    for block in parts:
        size = len(block.text.split())
        if block.kind == "p":
            places += range(at, at + size)
        at += size
    places = [p for p in places if N - 1 <= p < at - at_end - (N - 1)]
    step = len(places) / max(count, 1)
    free = max(0, int(step) - N)
    return [places[int(k * step) + rng.randint(0, free)] for k in range(min(count, len(places) // N))]


def _replace(rng: Random, parts: tuple[Block, ...], language: str, places: list[int], at_end: int) -> tuple[Block, ...]:
    """Other words at these places and at the last `at_end`; capitals and punctuation stay."""
    total = sum(len(b.text.split()) for b in parts)
    chosen = {*places, *range(total - at_end, total)}
    copied, at = [], 0
    for block in parts:
        tokens = _TOKEN.findall(block.text)
        for i in range(len(tokens)):
            if at + i in chosen:
                tokens[i] = _other(rng, tokens[i], language)
        at += len(tokens)
        copied.append(Block(block.kind, "".join(tokens)))
    return tuple(copied)


def _other(rng: Random, token: str, language: str) -> str:
    before = re.fullmatch(r"(.*?)([^\w]*)", token, re.DOTALL)
    new = before[1]
    while new.lower() == before[1].lower():
        new = word(rng, language)
    return (new[0].upper() + new[1:] if token[0].isupper() else new) + before[2]
