"""Texts to token ids: by gigatoken where its ids are the tokenizer's own, else by the tokenizer's own library."""

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import islice

import gigatoken
import numpy as np

from gristmill.storage.recorded_file import RecordedFile
from gristmill.storage.sentencepiece_model import SPACE, SentencePieceTokenizer
from gristmill.storage.training_manifest import token_dtype
from gristmill.tasks.tokens.tokenizer_work import load

log = logging.getLogger(__name__)

CHECKED_TEXTS = 50  # the first of each shard, compared one by one
CHECKED_CHARACTERS = 4_000  # of each of them

Encode = Callable[[str], np.ndarray]


@dataclass(frozen=True)
class Encoder:
    """Texts to ids of the type `dtype`, which holds the vocabulary. `end_of_text`: the id that ends a document."""

    ids: Encode
    end_of_text: int
    dtype: np.dtype

    def __call__(self, text: str) -> np.ndarray:
        """The ids of a text, without special tokens: their names in it are text."""
        return self.ids(text).astype(self.dtype)

    def document(self, text: str) -> np.ndarray:
        """The ids of a text, and the token that ends it."""
        ids = self.ids(text)
        ended = np.empty(len(ids) + 1, self.dtype)
        ended[:-1] = ids
        ended[-1] = self.end_of_text
        return ended


def encoder(tokenizer: RecordedFile, texts: Iterable[str]) -> Encoder:
    """What encodes with a tokenizer.

    gigatoken encodes ten to a hundred times as fast as SentencePiece and `tokenizers`. It is used if it gives the same
    ids for the first of `texts`; otherwise the tokenizer's own library is, with a warning.
    """
    exact = load(tokenizer)

    def own(text: str) -> np.ndarray:
        return np.array(exact.encode(text), np.uint32)

    def made(ids: Encode) -> Encoder:
        return Encoder(ids, exact.end_of_text, np.dtype(token_dtype(exact.vocab_size)))

    if (given := _fast(tokenizer)) is None:
        return made(own)
    encode, apart = given

    def fast(text: str) -> np.ndarray:
        return own(text) if apart is not None and apart.search(text) else encode(text)

    for text in islice(texts, CHECKED_TEXTS):
        start = text[:CHECKED_CHARACTERS]
        if not np.array_equal(fast(start), own(start)):
            log.warning("gigatoken gives other ids than %s for %.60r, so the latter encodes", _library(exact), start)
            return made(own)
    return made(fast)


@cache
def _fast(file: RecordedFile) -> tuple[Encode, re.Pattern[str] | None] | None:
    """gigatoken's function, and what finds the texts that it would read otherwise, None for no such; None for a
    tokenizer that it cannot read."""
    exact = load(file)
    try:
        if isinstance(exact, SentencePieceTokenizer):
            return gigatoken.Tokenizer.from_sentencepiece(file.read()).encode, _apart(exact)

        from gristmill.storage.tokenizer_json import JsonTokenizer  # here, since most do without its library

        assert isinstance(exact, JsonTokenizer), "there are two kinds of files"
        return gigatoken.Tokenizer.from_json(exact.plain).encode, None
    except Exception as error:  # of several types, by what it cannot read
        log.warning("gigatoken cannot read %s (%s), so %s encodes", file.path, error, _library(exact))
        return None


def _apart(tokenizer: SentencePieceTokenizer) -> re.Pattern[str]:
    """Finds a control token's name, which gigatoken takes for the token; a symbol, of which it cuts the surroundings
    otherwise; and a literal `▁`, taken for a space."""
    names = [tokenizer.names[i] for i in sorted(tokenizer.special)]
    return re.compile("|".join(map(re.escape, [*names, *tokenizer.symbols, SPACE])))


def _library(tokenizer: object) -> str:
    return "SentencePiece" if isinstance(tokenizer, SentencePieceTokenizer) else "tokenizers"
