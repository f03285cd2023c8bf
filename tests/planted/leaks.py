"""Benchmark items inside pages: word for word, or with words replaced."""

import re
from random import Random

from tests.planted.text import Block, joined, phrase, prose, word

VARIANTS = ("verbatim", "edited")
_RNG = Random("benchmark")
# Questions of a benchmark that does not exist.
ITEMS = tuple(f"{prose(_RNG, 'en', 30)[0].rstrip('.')}? (A) {phrase(_RNG, 'en', 4)}" for _ in range(20))


def leak(rng: Random, parts: tuple[Block, ...], item: int, variant: str) -> tuple[tuple[Block, ...], list[dict]]:
    """The page with the item as a paragraph of its own, and where it lies in the joined text."""
    words = ITEMS[item].split()
    changed = range(rng.randrange(12), len(words), 12) if variant == "edited" else ()
    for i in changed:
        words[i] = f"other-{word(rng, 'en')}"
    at, text = rng.randint(0, len(parts) - 1), " ".join(words)
    start = len(joined(parts[:at])) + (2 if at else 0)
    span = {"item": item, "start": start, "end": start + len(text), "edits": len(changed)}
    return (*parts[:at], Block("p", text), *parts[at:]), [span]


def leaked(question: str, answer: str, form: str, vocabulary: list[str], rng: Random) -> str:
    """An item as a page has it: `verbatim`, `question` or `answer` alone, in `capitals` without punctuation, or with so
    many percent of its words replaced (`20`)."""
    whole = f"{question}\n{answer}".strip()
    match form:
        case "verbatim":
            return whole
        case "question":
            return question
        case "answer":
            return answer
        case "capitals":
            return re.sub(r"[^\w\s]+", " ", whole).upper()
    pieces = re.split(r"(\W+)", whole)
    words = [at for at, piece in enumerate(pieces) if re.match(r"\w", piece)]
    for at in rng.sample(words, round(int(form) / 100 * len(words))):
        pieces[at] = rng.choice(vocabulary)
    return "".join(pieces)
