"""Prose that nobody wrote: real function words, real and made-up content words, Zipf's law, sentences, paragraphs.

A page's words are drawn one by one, so two pages share word 5-grams by chance only. Everything is drawn from
`random.Random`, whose numbers are the same in every Python.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pydoc_data import topics
from random import Random

import numpy as np

from tests.planted.words import WORDS

_VOCABULARY = 8000
_DRAW_BITS = 15  # tables of drawn numbers that stay in the processor's cache
# Where sentences and paragraphs end is read from a tape, at a random place; longer texts would go past its end.
_TAPE = 1 << 18
MAX_WORDS = _TAPE // 4
_CAPITAL, _COMMA, _STOP = 1, 2, 3
# How likely a function word is after one and after a content word: together 45% of a text, as in English.
_FUNCTION_AFTER_FUNCTION, _FUNCTION_AFTER_CONTENT = 0.25, 0.62
_PHRASES = 600


@dataclass(frozen=True)
class Block:
    """A part of the main text: `kind` is p, h2, list (an item per line), table (cells between tabs) or code."""

    kind: str
    text: str


@dataclass(frozen=True)
class _Language:
    """`forms[k * size + i]`: word i plain, capitalised, before a comma, at a sentence's end.

    `function` and `content` turn a drawn number into a word.
    """

    joiner: str
    forms: list[str]
    size: int
    function: np.ndarray
    content: np.ndarray


@dataclass(frozen=True)
class _Tape:
    """Place by place: whether a function word stands there, in which form; and where sentences and paragraphs end."""

    is_function: np.ndarray
    form: np.ndarray
    sentence_starts: list[int]
    sentence_ends: list[int]
    paragraph_ends: list[int]


def prose(rng: Random, language: str, words: int) -> list[str]:
    """Paragraphs of about `words` words (to the end of a sentence); `pydoc` gives English that people wrote."""
    if language == "pydoc":
        return _pydoc(rng, words)
    lang, tape = _language(language), _tape()
    start = tape.sentence_starts[int(rng.random() * len(tape.sentence_starts) / 2)]
    stop = tape.sentence_ends[bisect_left(tape.sentence_ends, start + min(words, MAX_WORDS))]
    drawn = np.frombuffer(rng.randbytes(2 * (stop - start)), "<u2") >> (16 - _DRAW_BITS)
    ids = np.where(tape.is_function[start:stop], lang.function[drawn], lang.content[drawn])
    ids = ids + lang.size * tape.form[start:stop]
    strings = list(map(lang.forms.__getitem__, ids.tolist()))
    first, last = bisect_right(tape.paragraph_ends, start), bisect_left(tape.paragraph_ends, stop)
    bounds = [0, *(end - start for end in tape.paragraph_ends[first:last]), stop - start]
    return [lang.joiner.join(strings[a:b]).rstrip() for a, b in zip(bounds, bounds[1:], strict=False)]


def phrase(rng: Random, language: str, words: int) -> str:
    """A heading: no full stop, first word capitalised."""
    lang = _language("en" if language == "pydoc" else language)
    strings = []
    for _ in range(words):
        table = lang.function if rng.random() < 0.3 else lang.content
        strings.append(lang.forms[table.item(rng.getrandbits(_DRAW_BITS))])
    return lang.joiner.join([strings[0][0].upper() + strings[0][1:], *strings[1:]])


def word(rng: Random, language: str) -> str:
    """A content word."""
    lang = _language("en" if language == "pydoc" else language)
    return lang.forms[lang.content.item(rng.getrandbits(_DRAW_BITS))]


@cache
def phrases(language: str) -> tuple[list[str], list[str]]:
    """(titles, sentences) of which boilerplate is made: each many times on many pages, as on the web."""
    rng = Random(f"phrases/{language}")
    titles = [phrase(rng, language, rng.randint(3, 9)) for _ in range(_PHRASES)]
    sentences = [prose(rng, language, rng.randint(4, 20))[0] for _ in range(_PHRASES)]
    return titles, sentences


def length(rng: Random, median: int, sigma: float, low: int, high: int) -> int:
    """Words of a page: log-normal, cut at both ends."""
    return int(min(high, max(low, rng.lognormvariate(0, sigma) * median)))


def blocks(rng: Random, language: str, words: int) -> tuple[Block, ...]:
    """Main text of a page: paragraphs, here and there a heading, a list, a table, code; last comes a paragraph."""
    parts = [Block("p", text) for text in prose(rng, language, words)]
    if len(parts) > 3 and rng.random() < 0.3:
        for at in range(len(parts) - 1, 1, -3):
            parts.insert(at, Block("h2", phrase(rng, language, rng.randint(2, 6))))
    for share, make in ((0.12, _list), (0.05, _table), (0.04, _code)):
        if rng.random() < share:
            parts.insert(rng.randrange(1, len(parts)) if len(parts) > 1 else 0, make(rng, language))
    return tuple(parts)


def joined(parts: tuple[Block, ...]) -> str:
    """The main text as one string; every offset in the truth counts its code points."""
    return "\n\n".join(block.text for block in parts)


def _list(rng: Random, language: str) -> Block:
    return Block("list", "\n".join(phrase(rng, language, rng.randint(3, 9)) for _ in range(rng.randint(3, 7))))


def _table(rng: Random, language: str) -> Block:
    rows = [[word(rng, language), *(str(rng.randrange(1000)) for _ in range(3))] for _ in range(rng.randint(3, 6))]
    return Block("table", "\n".join("\t".join(row) for row in rows))


def _code(rng: Random, language: str) -> Block:
    names = [word(rng, "en") for _ in range(4)]
    lines = [f"def {names[0]}({names[1]}, {names[2]}=None):"]
    lines += [f"    {rng.choice(names)} = {rng.choice(names)}[{rng.randrange(99)}] + {word(rng, 'en')}" for _ in "123"]
    return Block("code", "\n".join([*lines, f"    return {names[3]} < {rng.randrange(9999)}"]))


@cache
def _language(code: str) -> _Language:
    """About 3 MB and 0.1 s each, once per process."""
    words = WORDS[code]
    rng = Random(f"vocabulary/{code}")
    function = list(dict.fromkeys(words.function.split()))
    real = [w for w in dict.fromkeys(words.content.split()) if w not in function]
    content = [*real, *_made_up(rng, code, real, set(function))]
    vocabulary = function + content
    size = len(vocabulary)
    forms = vocabulary + [w[0].upper() + w[1:] for w in vocabulary]
    forms += [w + words.comma for w in vocabulary] + [w + words.stop for w in vocabulary]
    return _Language(words.joiner, forms, size, _zipf(len(function), 2), _zipf(len(content), 12) + len(function))


def _zipf(n: int, shift: float) -> np.ndarray:
    """Drawn number -> rank, by Zipf's law as Mandelbrot wrote it: frequency ~ 1 / (rank + shift)."""
    weights = np.cumsum(1 / (np.arange(1, n + 1) + shift))
    drawn = (np.arange(1 << _DRAW_BITS) + 0.5) / (1 << _DRAW_BITS)
    return np.searchsorted(weights / weights[-1], drawn).astype(np.int32)


@cache
def _tape() -> _Tape:
    rng = Random("tape")
    lengths, total = [], 0
    while total < _TAPE:
        lengths.append(max(4, min(60, round(rng.lognormvariate(2.75, 0.5)))))  # median 16 words
        total += lengths[-1]
    ends = list(accumulate(lengths))
    form = np.zeros(total, np.int32)
    for start, stop in zip([0, *ends], ends, strict=False):
        if stop - start > 9:
            form[start + rng.randint(3, stop - start - 4)] = _COMMA
        form[start], form[stop - 1] = _CAPITAL, _STOP
    paragraphs, sentence = [], 0
    while sentence < len(ends):
        paragraphs.append(ends[sentence])
        sentence += rng.choice((2, 3, 3, 4, 4, 5, 6))
    is_function, last = [], False
    for _ in range(total):
        last = rng.random() < (_FUNCTION_AFTER_FUNCTION if last else _FUNCTION_AFTER_CONTENT)
        is_function.append(last)
    return _Tape(np.array(is_function), form, [0, *ends[:-1]], ends, paragraphs)


def _made_up(rng: Random, code: str, real: list[str], taken: set[str]) -> list[str]:
    """Words with the letter statistics of the real ones: an order-2 Markov chain; strings of Chinese or Korean
    characters, of which one is a syllable."""
    made: dict[str, None] = {}
    characters = sorted({c for w in real for c in w if "\u4e00" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7a3"})
    follows: dict[str, list[str]] = defaultdict(list)
    for w in real:
        marked = f"^^{w}$"
        for i in range(len(marked) - 2):
            follows[marked[i : i + 2]].append(marked[i + 2])
    for _ in range(_VOCABULARY):
        if characters:
            w = "".join(rng.sample(characters, rng.choice((2, 3, 3, 4)) if code == "ko" else 2))
        else:
            letters = "^^"
            while not letters.endswith("$") and len(letters) < 16:
                letters += rng.choice(follows[letters[-2:]])
            w = letters.strip("^$")
        if 2 <= len(w) <= 13 and not re.search(r"(.)\1\1", w):
            made[w] = None
    return [w for w in made if w not in taken and w not in real]


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


def _pydoc(rng: Random, words: int) -> list[str]:
    """Paragraphs of the language reference, each once in a page but again in other pages."""
    pool, found, have = pydoc_paragraphs(), [], 0
    for text in rng.sample(pool, len(pool)):
        found.append(text)
        have += len(text.split())
        if have >= words:
            break
    return found
