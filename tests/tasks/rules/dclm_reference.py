"""Gopher's rules in plain Python as DCLM defines them: baselines/mappers/filters/content_filters.py and core_utils.py.

A rule is a function of a text, or of a `reference.Document` of it. Words of n-grams are those of `segmentation`, which
differ from uniseg's in scripts without spaces. Quantities of a text that has none of what they divide by are 0.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
ELLIPSES = ("...", ". . .", "\u2026")


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def share(units: Sequence[str], counts: Callable[[str], bool]) -> float:
    return ratio(sum(map(counts, units)), len(units))


def characters(units: Sequence[str]) -> int:
    return sum(len(unit) for unit in units)


def stripped(text: str, feeds: str) -> list[str]:
    """`split_paragraphs`: between so many line feeds, without white space at the ends; what is empty is left out."""
    return [part.strip() for part in text.split(feeds) if part.strip()]


def lines(text: str) -> list[str]:
    return stripped(text, "\n")


def paragraphs(text: str) -> list[str]:
    return stripped(text, "\n\n")


def words(document) -> int:
    """`page_length_filter`, fastText's tokenizer, `ignore_punctuation`: a word begins with a letter or number."""
    return sum(word[:1].isalnum() for word in re.split("[ \n\r\t\v\f\0]", document.text))


def mean_word_length(document) -> float:
    """`word_length_filter`"""
    return ratio(characters(document.text.split()), len(document.text.split()))


def symbols(*signs: str) -> Callable[..., float]:
    """`symbol_ratio_filter`: each sign is counted for itself, and they are added up."""
    return lambda document: ratio(sum(map(document.text.count, signs)), len(document.text.split()))


def bullet_lines(document) -> float:
    """`bullet_count_filter`"""
    return share(lines(document.text), lambda line: line[0] in "●•*-")


def ellipsis_lines(document) -> float:
    """`ellipsis_count_filter`"""
    return share(lines(document.text), lambda line: line.endswith(ELLIPSES))


def alpha_words(document) -> float:
    """`alphabetic_word_ratio_filter`, of which 0.2 is the most of the others."""
    return share(document.text.split(), lambda word: any(map(str.isalpha, word)))


def stop_words(document) -> int:
    """`stop_word_filter`, `count_unique=False`"""
    return sum(word.lower() in STOP_WORDS for word in document.text.split())


QUALITY = {
    "words": words,
    "mean_word_length": mean_word_length,
    "hash_ratio": symbols("#"),
    "ellipsis_ratio": symbols(*ELLIPSES),
    "symbol_ratio": symbols("#", *ELLIPSES),
    "bullet_lines": bullet_lines,
    "ellipsis_lines": ellipsis_lines,
    "alpha_words": alpha_words,
    "stop_words": stop_words,
}


def copied(units: Sequence[str]) -> list[str]:
    """Those that are there twice, every copy."""
    return [unit for unit in units if units.count(unit) > 1]


def in_copies(split: Callable[[str], list[str]], size: Callable[[Sequence[str]], int]) -> Callable[..., float]:
    """`repetition_filter`, by lines or paragraphs, by their number or their characters."""
    return lambda document: ratio(size(copied(split(document.text))), size(split(document.text)))


def grams(document, n: int) -> tuple[list[str], list[tuple[str, ...]]]:
    """The words that begin with a letter or number, and their n-grams, as they overlap."""
    found = [word for word in document.words if word[0].isalnum()]
    return found, [tuple(found[i : i + n]) for i in range(len(found) - n + 1)]


def top_gram(document, n: int) -> float:
    """Most common: of those that are as frequent the one with the most characters; 0 if none comes again."""
    found, all_grams = grams(document, n)
    times = Counter(all_grams)
    most = max(times.values(), default=1)
    if most == 1:
        return 0.0
    return max(characters(gram) for gram in times if times[gram] == most) * most / characters(found)


def dup_grams(document, n: int) -> float:
    """All: the words whose places are in an n-gram that is there twice."""
    found, all_grams = grams(document, n)
    times = Counter(all_grams)
    places = {i + k for i, gram in enumerate(all_grams) if times[gram] > 1 for k in range(n)}
    return ratio(characters([found[i] for i in places]), characters(found))


REPETITION = {
    "dup_paragraphs": in_copies(paragraphs, len),
    "dup_paragraph_chars": in_copies(paragraphs, characters),
    "dup_lines": in_copies(lines, len),
    "dup_line_chars": in_copies(lines, characters),
    **{f"top_{n}gram": lambda document, n=n: top_gram(document, n) for n in (2, 3, 4)},
    **{f"dup_{n}gram": lambda document, n=n: dup_grams(document, n) for n in range(5, 11)},
}
