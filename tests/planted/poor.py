"""English texts each made to fail one published rule; some fail others too."""

from collections.abc import Callable
from random import Random

from tests.planted.text import Block, phrase, prose, word


def _sentences(rng: Random, count: int) -> list[str]:
    return [prose(rng, "en", 1)[0] for _ in range(count)]


def _lines(words: list[str]) -> list[str]:
    return [" ".join(words[i : i + 60]) for i in range(0, len(words), 60)]


def _every(rng: Random, step: int, token: str, count: int = 300) -> list[str]:
    """Prose with a token after every `step` words."""
    words = " ".join(prose(rng, "en", count)).split()
    return _lines([f"{plain} {token}" if i % step == 0 else plain for i, plain in enumerate(words)])


def _among(rng: Random, bad: list[str], good: int = 12) -> list[str]:
    lines = [*bad, *_sentences(rng, good)]
    return rng.sample(lines, len(lines))


def _without_stops(rng: Random) -> list[str]:
    return [line.rstrip(".") for line in _sentences(rng, 60)]


# Name: family and rule, as Gopher (Rae et al. 2021), C4 (Raffel et al. 2020), FineWeb, RefinedWeb, CCNet have them.
VARIANTS: dict[str, Callable[[Random], list[str]]] = {
    "gopher.min_words": lambda rng: [" ".join(" ".join(prose(rng, "en", 20)).split()[:40])],
    "gopher.min_mean_word_length": lambda rng: _lines(rng.choices(("a", "of", "to", "is", "it", "I"), k=200)),
    "gopher.max_mean_word_length": lambda rng: _lines(["".join(word(rng, "en") for _ in "123") for _ in range(150)]),
    "gopher.hash_ratio": lambda rng: _every(rng, 4, "#"),
    "gopher.ellipsis_ratio": lambda rng: _every(rng, 5, "..."),
    "gopher.bullet_lines": lambda rng: [f"• {phrase(rng, 'en', rng.randint(4, 9))}" for _ in range(40)],
    "gopher.ellipsis_lines": lambda rng: _among(rng, [s.rstrip(".") + "..." for s in _sentences(rng, 30)], 20),
    "gopher.alpha_words": lambda rng: _every(rng, 2, str(rng.randrange(10**6))),
    "gopher.stop_words": lambda rng: _lines([word(rng, "en") for _ in range(250)]),
    "gopher.dup_lines": lambda rng: _among(rng, _sentences(rng, 8) * 4, 20),
    "gopher.top_2gram": lambda rng: _every(rng, 5, "Cheap Watches", 250),
    "gopher.top_4gram": lambda rng: _every(rng, 9, "Cheap Watches Free Shipping", 250),
    "gopher.dup_5grams": lambda rng: _every(rng, 30, "order it here and it comes to your door today", 400),
    "gopher.dup_10grams": lambda rng: _every(rng, 40, " ".join(_sentences(rng, 2)), 300),
    "textbook.min_characters": lambda rng: [_sentences(rng, 1)[0][:150]],
    "textbook.special_characters": lambda rng: _every(rng, 1, "$%&*!+=~<>"),
    "textbook.symbol_words": lambda rng: _every(rng, 5, "|"),
    "textbook.repeated_lines": lambda rng: [*_sentences(rng, 10), *_sentences(rng, 1) * 6, *_sentences(rng, 10)],
    "c4.min_sentences": lambda rng: _sentences(rng, 2),
    "c4.lorem_ipsum": lambda rng: _among(rng, ["Lorem ipsum dolor sit amet, consectetur adipiscing elit."]),
    "c4.curly_bracket": lambda rng: _among(rng, ["function open() { return 1; }"]),
    "c4.javascript": lambda rng: _among(rng, ["Please enable Javascript in your browser to see this."]),
    "c4.policy": lambda rng: _among(rng, ["By staying here you accept our privacy policy and our use of cookies."]),
    "c4.terminal_punctuation": _without_stops,
    "c4.long_word": lambda rng: _among(rng, ["x" * 1001 + " is a long word."]),
    "c4.short_lines": lambda rng: [phrase(rng, "en", 2) + "." for _ in range(50)],
    "fineweb.line_punctuation": _without_stops,
    "fineweb.short_lines": lambda rng: [phrase(rng, "en", 3)[:28] + "." for _ in range(40)],
    "fineweb.duplicate_line_characters": lambda rng: _among(rng, _sentences(rng, 2) * 3, 20),
    "fineweb.newlines": lambda rng: [phrase(rng, "en", 2) for _ in range(80)],
    "refinedweb.uppercase": lambda rng: [s.upper() for s in _sentences(rng, 30)],
    "refinedweb.numeric": lambda rng: _among(rng, [str(rng.randrange(10**9)) for _ in range(20)], 10),
    "refinedweb.counters": lambda rng: _among(rng, [f"{rng.randrange(2, 999)} likes" for _ in range(12)], 10),
    "ccnet.min_length": lambda rng: [" ".join(_sentences(rng, 3))[:250]],
}


def poor(rng: Random, variant: str) -> tuple[Block, ...]:
    """The main text of a page that fails this rule: one paragraph for each line."""
    return tuple(Block("p", line) for line in VARIANTS[variant](rng))
