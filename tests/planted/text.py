"""Prose that nobody wrote: real words drawn one by one, so that two pages share word 5-grams by chance only.

Everything is drawn from `random.Random`, whose numbers are the same in every Python.
"""

import re
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pydoc_data import topics
from random import Random

from tools.harvest.texts import POINTS, UNSPACED, WORDS

_FUNCTION_SHARE = 0.45  # as in English


@dataclass(frozen=True)
class Block:
    """A part of the main text: `kind` is p, h2 or list (an item per line)."""

    kind: str
    text: str


def prose(rng: Random, language: str, words: int) -> list[str]:
    """Paragraphs of about `words` words, to the end of a sentence."""
    joiner = "" if language in UNSPACED else " "
    found = []
    while words > 0:
        sentences = []
        for _ in range(rng.choice((2, 3, 3, 4, 4, 5, 6))):
            size = max(4, min(60, round(rng.lognormvariate(2.75, 0.5))))  # median 16 words
            sentences.append(_sentence(rng, language, size))
            words -= size
            if words <= 0:
                break
        found.append(joiner.join(sentences).rstrip())
    return found


def phrase(rng: Random, language: str, words: int) -> str:
    """A heading: no full stop, first word capitalised."""
    drawn = _draw(rng, language, words)
    return ("" if language in UNSPACED else " ").join([drawn[0][0].upper() + drawn[0][1:], *drawn[1:]])


def word(rng: Random, language: str) -> str:
    """A content word."""
    return rng.choice(_vocabulary(language)[2])


@cache
def phrases(language: str) -> tuple[list[str], list[str]]:
    """(titles, sentences) of which boilerplate is made: each many times on many pages, as on the web."""
    rng = Random(f"phrases/{language}")
    titles = [phrase(rng, language, rng.randint(3, 9)) for _ in range(600)]
    return titles, [prose(rng, language, rng.randint(4, 20))[0] for _ in range(600)]


def blocks(rng: Random, language: str, words: int) -> tuple[Block, ...]:
    """Main text of a page: paragraphs, here and there a heading, a list; last comes a paragraph."""
    parts = [Block("p", text) for text in prose(rng, language, words)]
    if len(parts) > 3 and rng.random() < 0.3:
        for at in range(len(parts) - 1, 1, -3):
            parts.insert(at, Block("h2", phrase(rng, language, rng.randint(2, 6))))
    if rng.random() < 0.12:
        items = [phrase(rng, language, rng.randint(3, 9)) for _ in range(rng.randint(3, 7))]
        parts.insert(rng.randrange(len(parts)), Block("list", "\n".join(items)))
    return tuple(parts)


def joined(parts: tuple[Block, ...]) -> str:
    """The main text as one string; every offset in the truth counts its code points."""
    return "\n\n".join(block.text for block in parts)


def _draw(rng: Random, language: str, count: int) -> list[str]:
    words, weights, _ = _vocabulary(language)
    return rng.choices(words, cum_weights=weights, k=count)


def _sentence(rng: Random, language: str, size: int) -> str:
    comma, stop = POINTS.get(language, (",", "."))
    drawn = _draw(rng, language, size)
    drawn[0] = drawn[0][0].upper() + drawn[0][1:]
    if size > 9:
        drawn[rng.randint(3, size - 4)] += comma
    return ("" if language in UNSPACED else " ").join(drawn) + stop


@cache
def _vocabulary(language: str) -> tuple[list[str], list[float], list[str]]:
    """(words, cumulated weights, the content words among them), by Zipf's law: frequency ~ 1 / (rank + shift)."""
    function, content = (part.split() for part in WORDS[language])
    parts = [1 / (i + 2) for i, _ in enumerate(function)], [1 / (i + 12) for i, _ in enumerate(content)]
    shares = _FUNCTION_SHARE, 1 - _FUNCTION_SHARE
    weights = accumulate(share * w / sum(of) for share, of in zip(shares, parts, strict=True) for w in of)
    return function + content, list(weights), content


@cache
def pydoc_paragraphs() -> list[str]:
    """Real English prose that every Python brings: the paragraphs of the language reference's help topics."""
    found = []
    for topic in sorted(topics.topics):
        for paragraph in re.split(r"\n\s*\n", topics.topics[topic]):
            words = paragraph.split()
            if len(words) >= 25 and sum(w.isalpha() for w in words) > 0.75 * len(words):
                found.append(" ".join(words))
    return list(dict.fromkeys(found))
