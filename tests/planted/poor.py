"""English texts each made to fail one published rule; some fail others too."""

from collections.abc import Callable
from random import Random

from tests.planted.text import Block, phrase, prose, word

Texts = list[str]


def _sentences(rng: Random, count: int) -> Texts:
    return [prose(rng, "en", 1)[0] for _ in range(count)]


def _words(rng: Random, count: int) -> Texts:
    return " ".join(prose(rng, "en", count)).split()


def _lines(words: list[str], size: int = 60) -> Texts:
    return [" ".join(words[i : i + size]) for i in range(0, len(words), size)]


def _every(rng: Random, step: int, token: str, count: int = 300) -> Texts:
    """Prose with a token after every `step` words."""
    words = _words(rng, count)
    return _lines([w for i, plain in enumerate(words) for w in ([plain, token] if i % step == 0 else [plain])])


def _mixed(rng: Random, bad: Texts, good: int) -> Texts:
    lines = [*bad, *_sentences(rng, good)]
    rng.shuffle(lines)
    return lines


def _long_words(rng: Random) -> Texts:
    return _lines(["".join(word(rng, "en") for _ in range(3)) for _ in range(150)])


def _no_stop_words(rng: Random) -> Texts:
    stop = {"the", "be", "to", "of", "and", "that", "have", "with"}
    return _lines([w for w in (word(rng, "en") for _ in range(250)) if w.lower() not in stop])


def _without_stops(rng: Random) -> Texts:
    return [line.rstrip(".") for line in _sentences(rng, 60)]


def _counters(rng: Random) -> Texts:
    return [f"{rng.randrange(2, 999)} {rng.choice(('likes', 'shares', 'comments', 'retweets'))}" for _ in range(12)]


# Name: family and rule, as Gopher (Rae et al. 2021), C4 (Raffel et al. 2020), FineWeb, RefinedWeb, CCNet have them.
VARIANTS: dict[str, Callable[[Random], Texts]] = {
    "gopher.min_words": lambda rng: [" ".join(_words(rng, 20)[:40])],
    "gopher.min_mean_word_length": lambda rng: _lines(rng.choices(("a", "of", "to", "is", "it", "I"), k=200)),
    "gopher.max_mean_word_length": _long_words,
    "gopher.hash_ratio": lambda rng: _every(rng, 4, "#"),
    "gopher.ellipsis_ratio": lambda rng: _every(rng, 5, "..."),
    "gopher.bullet_lines": lambda rng: [f"• {phrase(rng, 'en', rng.randint(4, 9))}" for _ in range(40)],
    "gopher.ellipsis_lines": lambda rng: _mixed(rng, [s.rstrip(".") + "..." for s in _sentences(rng, 30)], 20),
    "gopher.alpha_words": lambda rng: _every(rng, 2, str(rng.randrange(10**6))),
    "gopher.stop_words": _no_stop_words,
    "gopher.dup_lines": lambda rng: _mixed(rng, _sentences(rng, 8) * 4, 20),
    "gopher.top_2gram": lambda rng: _every(rng, 5, "Cheap Watches", 250),
    "gopher.top_4gram": lambda rng: _every(rng, 9, "Cheap Watches Free Shipping", 250),
    "gopher.dup_5grams": lambda rng: _every(rng, 30, "order it here and it comes to your door today", 400),
    "gopher.dup_10grams": lambda rng: _every(rng, 40, " ".join(_sentences(rng, 2)), 300),
    "textbook.min_characters": lambda rng: [_sentences(rng, 1)[0][:150]],
    "textbook.special_characters": lambda rng: _every(rng, 1, "$%&*!+=~<>"),
    "textbook.symbol_words": lambda rng: _every(rng, 5, "|"),
    "textbook.repeated_lines": lambda rng: [*_sentences(rng, 10), *_sentences(rng, 1) * 6, *_sentences(rng, 10)],
    "c4.min_sentences": lambda rng: _sentences(rng, 2),
    "c4.lorem_ipsum": lambda rng: _mixed(rng, ["Lorem ipsum dolor sit amet, consectetur adipiscing elit."], 12),
    "c4.curly_bracket": lambda rng: _mixed(rng, ["function open() { return 1; }"], 12),
    "c4.javascript": lambda rng: _mixed(rng, ["Please enable Javascript in your browser to see this."], 12),
    "c4.policy": lambda rng: _mixed(rng, ["By staying here you accept our privacy policy and our use of cookies."], 12),
    "c4.terminal_punctuation": _without_stops,
    "c4.long_word": lambda rng: _mixed(rng, ["x" * 1001 + " is a long word."], 12),
    "c4.short_lines": lambda rng: [phrase(rng, "en", 2) + "." for _ in range(50)],
    "fineweb.line_punctuation": _without_stops,
    "fineweb.short_lines": lambda rng: [phrase(rng, "en", 3)[:28] + "." for _ in range(40)],
    "fineweb.duplicate_line_characters": lambda rng: _mixed(rng, _sentences(rng, 2) * 3, 20),
    "fineweb.newlines": lambda rng: [phrase(rng, "en", 2) for _ in range(80)],
    "refinedweb.uppercase": lambda rng: [s.upper() for s in _sentences(rng, 30)],
    "refinedweb.numeric": lambda rng: _mixed(rng, [str(rng.randrange(10**9)) for _ in range(20)], 10),
    "refinedweb.counters": lambda rng: _mixed(rng, _counters(rng), 10),
    "ccnet.min_length": lambda rng: [" ".join(_sentences(rng, 3))[:250]],
}


def poor(rng: Random, variant: str) -> tuple[Block, ...]:
    """The main text of a page that fails this rule: one paragraph for each line."""
    return tuple(Block("p", line) for line in VARIANTS[variant](rng))
