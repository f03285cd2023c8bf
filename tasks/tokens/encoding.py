"""Texts to token ids: by gigatoken where its ids are SentencePiece's own, else by SentencePiece."""

import logging
import re
from collections.abc import Callable, Iterable
from functools import cache
from itertools import islice

import gigatoken
import numpy as np
import sentencepiece as spm

from storage.recorded_file import RecordedFile
from storage.text_tokens import SPACE, encode_text
from tasks.tokens.tokenizer import END_OF_TEXT
from tasks.tokens.tokenizer_work import load

log = logging.getLogger(__name__)

CHECKED_TEXTS = 50  # the first of each shard, compared one by one
CHECKED_CHARACTERS = 4_000  # of each of them

Encode = Callable[[str], np.ndarray]


def encoder(model: RecordedFile, texts: Iterable[str]) -> Encode:
    """A function that gives the ids of a text without control tokens, as uint16.

    gigatoken encodes some ten times as fast as SentencePiece. It is used if it gives the same ids for the first of
    `texts`; otherwise SentencePiece is, with a warning.
    """
    processor = load(model)

    def exact(text: str) -> np.ndarray:
        return np.array(encode_text(processor, text), np.uint16)

    if (given := _fast(model)) is None:
        return exact
    encode, apart = given

    def fast(text: str) -> np.ndarray:
        return exact(text) if apart.search(text) else encode(text).astype(np.uint16)

    for text in islice(texts, CHECKED_TEXTS):
        start = text[:CHECKED_CHARACTERS]
        if not np.array_equal(fast(start), exact(start)):
            log.warning("gigatoken gives other ids than SentencePiece for %.60r, so SentencePiece encodes", start)
            return exact
    return fast


def ended(ids: np.ndarray) -> np.ndarray:
    """The ids of a document with the token that ends it."""
    return np.append(ids, np.uint16(END_OF_TEXT))


@cache
def _fast(model: RecordedFile) -> tuple[Callable[[str], np.ndarray], re.Pattern[str]] | None:
    """gigatoken's function, and what finds the texts that it would read otherwise; None for a model that it cannot
    read."""
    try:
        tokenizer = gigatoken.Tokenizer.from_sentencepiece(model.local())
    except ValueError as error:
        log.warning("gigatoken cannot read %s (%s), so SentencePiece encodes", model.path, error)
        return None
    return tokenizer.encode, _apart(load(model))


def _apart(processor: spm.SentencePieceProcessor) -> re.Pattern[str]:
    """Finds a control token's name, which gigatoken takes for the token, and a literal `▁`, taken for a space."""
    names = [processor.id_to_piece(i) for i in range(processor.vocab_size()) if processor.is_control(i)]
    return re.compile("|".join(map(re.escape, [*names, SPACE])))
