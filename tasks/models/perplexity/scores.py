"""Perplexities of documents under a KenLM model, each distinct line scored once for all documents of a batch.

A line is written as words or pieces separated by one space, in one of two ways: `sentences`, for models of whole words
that are trained within a run; `fold` and SentencePiece, as CCNet's models of one language have it.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import kenlm
import numpy as np
import sentencepiece

from gristmill.storage.damage import RecordedFile
from gristmill.tasks.models.model_files import check_kenlm, check_sentencepiece

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


# Writes some distinct lines as words or pieces separated by one space, in UTF-8, which KenLM reads.
Written = Callable[[list[str]], list[bytes]]


@dataclass(frozen=True)
class Scored:
    """Of some documents the perplexities, float64; and those of all their lines, float32, one document's after the
    other's, `lengths` for each."""

    perplexity: np.ndarray
    lines: np.ndarray
    lengths: np.ndarray


@cache
def load(model: RecordedFile) -> kenlm.Model:
    """The model, mapped into memory once per process."""
    local = model.local()
    check_kenlm(local)
    return kenlm.Model(local)


@cache
def load_pieces(model: RecordedFile) -> sentencepiece.SentencePieceProcessor:
    """The SentencePiece model, loaded once per process."""
    local = model.local()
    check_sentencepiece(local)
    return sentencepiece.SentencePieceProcessor(model_file=local)


def score_words(model: kenlm.Model, texts: Sequence[str]) -> Scored:
    """Perplexities per word under a model of words."""
    return _scored(model, [sentences(text) for text in texts], lambda distinct: [line.encode() for line in distinct])


def score_pieces(
    model: kenlm.Model, pieces: sentencepiece.SentencePieceProcessor, texts: Sequence[str], by_line: bool
) -> Scored:
    """Perplexities per piece under a model of CCNet's kind: each line is a sentence, or the whole text with its lines
    joined, as CCNet's own run has it."""
    lines = [_filled_lines(text) if by_line else [text] * bool(text.strip()) for text in texts]
    return _scored(model, lines, lambda distinct: as_pieces(pieces, distinct))


def as_pieces(pieces: sentencepiece.SentencePieceProcessor, lines: list[str]) -> list[bytes]:
    """Lines as CCNet's models read them: folded, in pieces, in UTF-8."""
    encoded = pieces.encode([fold(line) for line in lines], out_type=bytes, num_threads=1)
    return [b" ".join(each) for each in encoded]


def _filled_lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def _scored(model: kenlm.Model, documents: Sequence[list[str]], write: Written) -> Scored:
    """A document without a line is an empty sentence. CCNet's formula: pp = 10 ** (-log10 score / length), where length
    counts the words of every line and one end of sentence a line."""
    lengths = np.array([len(lines) or 1 for lines in documents], np.int64)
    places: dict[str, int] = {}
    indices = np.array(
        [places.setdefault(line, len(places)) for lines in documents for line in lines or [""]], np.int64
    )
    distinct = write(list(places))
    scores = np.array([model.score(line, bos=True, eos=True) for line in distinct], np.float64)[indices]
    words = np.array([len(line.decode().split()) + 1 for line in distinct], np.int64)[indices]
    document = np.repeat(np.arange(len(documents)), lengths)
    # added up in the order of the lines, whatever other documents the batch has
    score, length = (np.bincount(document, each, minlength=len(documents)) for each in (scores, words))
    return Scored(_raised(score, length), _raised(scores, words).astype(np.float32), lengths)


def _raised(scores: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    # by Python: numpy's powers may depend on where in an array a number stands
    return np.array([10**exponent for exponent in (-scores / lengths).tolist()], np.float64)
