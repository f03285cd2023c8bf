"""Text as language models read it: lines, and how each is written as words or pieces separated by one space.

Two ways: `sentences`, for models of whole words that are trained within a run; `fold` and SentencePiece, as CCNet's
models of one language have it.
"""

import re
import unicodedata

_WORDS = re.compile(r"\w+|[^\w\s]")
_DIGITS = re.compile(r"\d")
# Wenzek et al. 2020, cc_net/text_normalizer.py: UNICODE_PUNCT; its entry for the digit one in full width is left out,
# since digits are folded before.
_MARKS = {
    ",": "，、",
    ".": "。",
    '"': "„”“«»」「《》",
    "'": "´’",
    ":": "∶：",
    "?": "？",
    "!": "！",
    "(": "（",
    ")": "）",
    ";": "；",
    "-": "–━►",
    " - ": "—",
    ". ": "．",
    "~": "～",
    "...": "…",
    "<": "〈",
    ">": "〉",
    "[": "【",
    "]": "】",
    "%": "％",
}
PUNCTUATION = {mark: ascii for ascii, marks in _MARKS.items() for mark in marks}


class _Folding(dict[int, str | None]):
    """What becomes of a character, by its code point: found once for each that occurs."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        folded: str | None = character
        if unicodedata.category(character) in ("Mn", "Cc"):
            folded = None
        elif _DIGITS.match(character):
            folded = "0"
        self[code] = folded
        return folded


_FOLDING = _Folding({ord(mark): ascii for mark, ascii in PUNCTUATION.items()})


def fold(text: str) -> str:
    """A text as CCNet's models read it before SentencePiece does: in lower case, without accents, every digit 0, marks
    of punctuation those of ASCII, no control characters, and so no line ends."""
    text = text.strip().lower()
    return (text if text.isascii() else unicodedata.normalize("NFD", text)).translate(_FOLDING)


def sentences(text: str) -> list[str]:
    """The lines of a document as models of words read it: words separated by one space, no empty lines."""
    folded = _DIGITS.sub("0", text.lower())
    return [" ".join(words) for line in folded.split("\n") if (words := _WORDS.findall(line))]
