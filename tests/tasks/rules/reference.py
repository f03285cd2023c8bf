"""Every rule in plain Python, written from the words of the publications and configurations: slow, and plain to read.

A rule is a function of a `Document`; `RULES` has them by rule set and name. Words, lines, paragraphs and sentences are
those of `segmentation`; a document can be given the words of another tokenizer, to see what the choice of words costs.
Quantities of a text that has none of what they divide by are 0.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import punkt

from tests.tasks.rules import dclm_reference, segmentation


class Document:
    """A text and its parts, each found once; words and tokens may be given."""

    def __init__(self, text: str, words: list[str] | None = None, tokens: list[str] | None = None):
        self.text = text
        if words is not None:
            self.words = words
        if tokens is not None:
            self.tokens = tokens

    @cached_property
    def words(self) -> list[str]:
        return segmentation.words(self.text)

    @cached_property
    def tokens(self) -> list[str]:
        return [token for field in segmentation.fields(self.text) for token in tokens(field)]

    @cached_property
    def real_words(self) -> list[str]:
        return [word for word in self.words if any(map(plain, word))]

    @cached_property
    def lines(self) -> list[str]:
        return segmentation.lines(self.text)

    @cached_property
    def full_lines(self) -> list[str]:
        """The lines that are not blank."""
        return [line for line in self.lines if stripped(line)]

    @cached_property
    def paragraphs(self) -> list[str]:
        return segmentation.paragraphs(self.text)

    @cached_property
    def sentences(self) -> list[str]:
        return segmentation.sentences(self.text)


Measure = Callable[..., float]
RULES: dict[str, dict[str, Measure]] = {}


def rule(rule_set: str, name: str = "") -> Callable[[Measure], Measure]:
    def add(function: Measure) -> Measure:
        RULES.setdefault(rule_set, {})[name or function.__name__] = function
        return function

    return add


def plain(character: str) -> bool:
    """Whether it is a letter, a mark or a number."""
    return unicodedata.category(character)[0] in "LMN"


ZERO_WIDTH_SPACE = "\u200b"  # parts words, as white space does


def stripped(line: str) -> str:
    return re.sub(rf"^[\s{ZERO_WIDTH_SPACE}]+|[\s{ZERO_WIDTH_SPACE}]+$", "", line)


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def share(where: Iterable[bool]) -> float:
    found = list(where)
    return ratio(sum(found), len(found))


def lettered(word: str) -> bool:
    return word[0] in "0123456789" or any(map(str.isalpha, word))


def tokens(field: str) -> list[str]:
    """The tokens of a run without white space.

    From its first word with a letter, mark or number to its last it is cut at hyphens between two such words, and at
    apostrophes of words with a letter, and where two words touch, as they do in scripts without spaces. Each hyphen cut
    at is a token, each East Asian sign, which cuts as well, and each word of symbols at either end; but not, in front,
    the symbols that commands and names begin with, and, behind, the full stop of an initial.
    """
    words = segmentation.words(field)
    real = [any(map(plain, word)) for word in words]
    if not any(real):
        return words
    first, last = real.index(True), len(real) - 1 - real[::-1].index(True)
    found = [word for word in words[:first] if word[0] not in "-./@~|\\^"]
    token = ""
    for i in range(first, last + 1):
        if words[i] == "-" and real[i - 1] and real[i + 1]:
            found += [token, "-"]
            token = ""
        elif token and real[i] and real[i - 1] and lettered(words[i]) and lettered(words[i - 1]):
            found.append(token)
            token = words[i]
        elif "\u3000" <= words[i][0] <= "\u3fff" and not real[i] or "\uf000" <= words[i][0] <= "\uffff" and not real[i]:
            found += [token, words[i]] if token else [words[i]]
            token = ""
        elif real[i] or token:
            token += words[i]
        if any(map(str.isalpha, words[i])):
            # each counts as one more token with a letter
            found += ["n't" for c in words[i] if c in "'’"]
    found += [token] if token else []
    behind = words[last + 1 :]
    if behind and behind[0] == "." and re.search("(^|[^A-Z])[A-Z]$", words[last]):
        behind = behind[1:]
    return found + behind


# Gopher, quality: Rae et al. 2021 (arXiv 2112.11446), A1.1.


@rule("gopher_quality")
def words(text: Document) -> int:
    """ "between 50 and 100,000 words"; words of symbols do not count (datatrove)."""
    return len(text.real_words)


@rule("gopher_quality")
def mean_word_length(text: Document) -> float:
    """ "mean word length is outside of the range of 3 to 10 characters" """
    return ratio(sum(map(len, text.real_words)), len(text.real_words))


@rule("gopher_quality")
def hash_ratio(text: Document) -> float:
    """ "symbol-to-word ratio greater than 0.1 for either the hash symbol or the ellipsis" """
    return ratio(text.text.count("#"), len(text.words))


@rule("gopher_quality")
def ellipsis_ratio(text: Document) -> float:
    """As above; an ellipsis is three dots or the character for it (datatrove)."""
    return ratio(text.text.count("...") + text.text.count("…"), len(text.words))


@rule("gopher_quality")
def symbol_ratio(text: Document) -> float:
    """Both together (DCLM), by the words of the two before."""
    return ratio(text.text.count("#") + text.text.count("...") + text.text.count("…"), len(text.words))


@rule("gopher_quality")
def bullet_lines(text: Document) -> float:
    """ "more than 90% of lines starting with a bullet point": • or - (datatrove), behind white space."""
    return share(stripped(line).startswith(("•", "-")) for line in text.lines)


@rule("gopher_quality")
def ellipsis_lines(text: Document) -> float:
    """ "more than 30% ending with an ellipsis", before white space"""
    return share(stripped(line).endswith(("...", "…")) for line in text.lines)


@rule("gopher_quality")
def alpha_words(text: Document) -> float:
    """ "80% of words in a document contain at least one alphabetic character"; of tokens, see `tokens`."""
    return share(any(map(str.isalpha, token)) for token in text.tokens)


@rule("gopher_quality")
def stop_words(
    text: Document, stop_words: Iterable[str] = ("the", "be", "to", "of", "and", "that", "have", "with")
) -> int:
    """ "at least two of the following English words", different ones (datatrove), as they are written"""
    return len(set(text.words) & set(stop_words))


# Gopher, repetition: Rae et al. 2021, Table A1, as datatrove's gopher_repetition_filter.py computes it.


def copies(parts: Iterable[str]) -> list[str]:
    """The parts that are equal to an earlier one."""
    seen: set[str] = set()
    return [part for part in parts if part in seen or seen.add(part)]


def characters_of(parts: Iterable[str]) -> int:
    return sum(map(len, parts))


@rule("gopher_repetition")
def dup_paragraphs(text: Document) -> float:
    """ "duplicate paragraph fraction" """
    return ratio(len(copies(text.paragraphs)), len(text.paragraphs))


@rule("gopher_repetition")
def dup_paragraph_chars(text: Document) -> float:
    """ "duplicate paragraph character fraction" """
    return ratio(characters_of(copies(text.paragraphs)), len(text.text))


@rule("gopher_repetition")
def dup_lines(text: Document) -> float:
    """ "duplicate line fraction" """
    return ratio(len(copies(text.full_lines)), len(text.full_lines))


@rule("gopher_repetition")
def dup_line_chars(text: Document) -> float:
    """ "duplicate line character fraction" """
    return ratio(characters_of(copies(text.full_lines)), len(text.text))


def top_gram(text: Document, n: int) -> float:
    """Characters of the most frequent n-gram, joined by spaces, times its occurrences; of several the first."""
    grams = Counter(" ".join(text.words[i : i + n]) for i in range(len(text.words) - n + 1))
    if not grams:
        return 0.0
    gram, times = grams.most_common(1)[0]
    return len(gram) * times / len(text.text)


def dup_grams(text: Document, n: int) -> float:
    """Characters, without white space, of n-grams equal to an earlier one; "we take care not to count characters that
    occur in overlapping n-grams more than once": behind a duplicate the search goes on at its end (datatrove)."""
    seen: set[tuple[str, ...]] = set()
    found = i = 0
    while i + n <= len(text.words):
        gram = tuple(text.words[i : i + n])
        if gram in seen:
            found += characters_of(gram)
            i += n
        else:
            seen.add(gram)
            i += 1
    return ratio(found, len(text.text))


for size in (2, 3, 4):
    rule("gopher_repetition", f"top_{size}gram")(lambda text, n=size: top_gram(text, n))
for size in range(5, 11):
    rule("gopher_repetition", f"dup_{size}gram")(lambda text, n=size: dup_grams(text, n))


# FineWeb's own rules: Penedo et al. 2024 (arXiv 2406.17557), 3.6; fineweb_quality_filter.py of datatrove.


@rule("fineweb_quality")
def line_punctuation(text: Document) -> float:
    """ "the fraction of lines ending with punctuation": the last word is terminal punctuation."""
    ends = [segmentation.words(line)[-1] for line in text.full_lines]
    return share(all(c in segmentation.TERMINAL for c in end) for end in ends)


@rule("fineweb_quality")
def short_lines(text: Document) -> float:
    """ "the fraction of lines shorter than 30 characters": at most 30 (code)"""
    return share(len(line) <= 30 for line in text.full_lines)


@rule("fineweb_quality")
def char_dup_lines(text: Document) -> float:
    """ "the fraction of characters in duplicated lines", of those that are no line breaks (code)"""
    return ratio(characters_of(copies(text.full_lines)), characters_of(text.lines))


@rule("fineweb_quality")
def newlines(text: Document) -> float:
    """Line breaks per word (code)."""
    return ratio(text.text.count("\n"), len(text.words))


# The rules that introductions teach first: tasks/rules/textbook.py.


@rule("ccnet")
@rule("textbook")
def characters(text: Document) -> int:
    """Code points. CCNet: Wenzek et al. 2020 (arXiv 1911.00359), at least 300 (cc_net/mine.py, min_len)."""
    return len(text.text)


@rule("textbook")
def special_characters(text: Document) -> float:
    return share(not plain(c) and not c.isspace() for c in text.text)


@rule("textbook")
def symbol_word_ratio(text: Document) -> float:
    symbols = [field for field in segmentation.fields(text.text) if not any(map(plain, field))]
    return len(symbols) / max(1, len(segmentation.fields(text.text)) - len(symbols))


@rule("textbook")
def repeated_lines(text: Document) -> int:
    """The most equal lines in a row, white space at their ends and blank lines aside."""
    best = run = 0
    last = None
    for line in map(stripped, text.full_lines):
        run = run + 1 if line == last else 1
        last, best = line, max(best, run)
    return best


# C4: Raffel et al. 2020 (arXiv 1910.10683), 2.2. The defaults are those of datatrove's c4_filters.py, which differs.


@dataclass(frozen=True)
class C4:
    """What C4 makes of a text: the lines that stay, and the numbers that its page rules judge."""

    kept: list[str]
    lorem_ipsum: int
    curly_bracket: int
    sentences: int
    long_lines: int


POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


def c4_sentences(line: str) -> list[str]:
    if any(set(word) <= set(segmentation.TERMINAL) and not word.isascii() for word in segmentation.words(line)):
        return segmentation.sentences(line)
    return punkt.sent_tokenize(line)


def c4(
    text: str,
    ends: tuple[str, ...],
    fewest_words: int,
    citations_are_words: bool,
    split: Callable[[str], list[str]] | None = None,
) -> C4:
    """Paper: lines end in a terminal punctuation mark, have 5 words, do not name Javascript nor a phrase of the policy;
    citation markers go; pages with "lorem ipsum" or a curly bracket go. Code: no word above 1000 characters, no
    ellipsis at the end; in this order, and pages are judged by the lines that came so far. mC4 counts the lines of 200
    characters (Xue et al. 2021, 3.1). Sentences are Punkt's, but for a line with a terminal mark beyond ASCII."""
    split = split or c4_sentences
    kept = []
    lorem_ipsum = curly_bracket = sentences = 0
    for line in segmentation.lines(text):
        words = segmentation.fields(line)
        if any(len(word.replace(ZERO_WIDTH_SPACE, "")) > 1000 for word in words):
            continue
        clean = re.sub(r"\[\d*]|\[edit]|\[citation needed]", "", stripped(line))
        if ends and (not clean.endswith(ends) or clean.endswith("...")):
            continue
        if len(words if citations_are_words else segmentation.fields(clean)) < fewest_words:
            continue
        lorem_ipsum += "lorem ipsum" in clean.lower()
        if "javascript" in clean.lower():
            continue
        curly_bracket += "{" in clean
        if any(phrase in clean.lower() for phrase in POLICY):
            continue
        sentences += len(split(clean))
        kept.append(stripped(clean))
    long_lines = sum(len(line) >= 200 for line in segmentation.lines(text))
    return C4(kept, lorem_ipsum, curly_bracket, sentences, long_lines)


# RefinedWeb: Penedo et al. 2023 (arXiv 2306.01116), G.2, as dclm_baseline_refinedweb.yaml of DCLM has it.

COUNTER = (
    r"\W*\d(?:,|\.|\d)*[kmb]?\s+(?:likes|shares|comments|retweets|reposts|quotes|bookmarks|upvotes|downvotes|"
    r"downloads|views|followers)\W*"
)


def refinedweb(text: str) -> list[str]:
    """The lines that stay: not "mainly composed of uppercase characters" (more than half), "only of numerical
    characters", a counter or one word; less "items in cart", "Read more..." and "Sign-in" in lines up to 10 words."""
    kept = []
    for line in segmentation.lines(text):
        if not segmentation.words(line):
            kept.append("")
            continue
        if share(unicodedata.category(c) in ("Lu", "Lt") for c in line) > 0.5:
            continue
        if share(unicodedata.category(c)[0] == "N" for c in line) > 0.999999:
            continue
        if re.fullmatch(COUNTER, line.lower()) or len(segmentation.fields(line)) < 2:
            continue
        if len(segmentation.fields(line)) <= 10:
            for phrase in (r"\s?items in cart", r"\s?read more...$", r"^sign-in\s?"):
                line = re.sub(phrase, "", line, flags=re.IGNORECASE)
            if not line.strip():
                continue
        kept.append(line)
    return kept


def removed_words(text: str, left: str) -> float:
    """ "more than 5% of the words in the document": fastText's that begin with a letter or number (DCLM's
    `word_removal_ratio_filter`)."""
    before, after = dclm_reference.words(Document(text)), dclm_reference.words(Document(left))
    return ratio(before - after, before)


# MADLAD-400: Kudugunta et al. 2023 (arXiv 2309.04662), 2.3.


@rule("madlad")
def sentences(text: Document) -> int:
    """ "fewer than 5 sentences" """
    return len(text.sentences)


@rule("madlad")
def questionable(text: Document, cursed: Iterable[str]) -> float:
    """The share of questionable sentences."""
    return share(is_questionable(sentence, cursed) for sentence in text.sentences)


def is_questionable(sentence: str, cursed: Iterable[str]) -> bool:
    """List case: "over 50% of the tokens began in a capital letter", of at least 12 tokens. Abnormal lengths: "under 20
    characters or over 500". Technical characters: "over 20% of the characters in the sentence match [0-9{}+/()>]".
    Cursed regexes: the dataset card's list."""
    found = Document(sentence).real_words
    capitals = sum(unicodedata.category(word[0]) in ("Lu", "Lt") for word in found)
    return (
        (len(found) >= 12 and capitals / len(found) > 0.5)
        or not 20 <= len(sentence) <= 500
        or share(c in "0123456789{}+/()>" for c in sentence) > 0.2
        or any(re.search(expression, sentence) for expression in cursed)
    )
