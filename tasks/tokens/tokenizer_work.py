"""A tokenizer, trained on a sample that follows the mixture, or taken from a file."""

import io
import json
import logging
import re
from collections.abc import Iterator
from functools import cache

import sentencepiece as spm

from gristmill.storage import files
from gristmill.storage.recorded_file import RecordedFile
from gristmill.storage.text_tokens import TextTokenizer, read_tokenizer
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.tokenizer import LARGEST_VOCABULARY, Tokenizer
from gristmill.tasks.tokens.tokenizer_sample import Inputs, sample

log = logging.getLogger(__name__)

UNK, BOS, EOS = 0, 1, 2  # of SentencePiece models that are trained here
MODEL, JSON = "tokenizer.model", "tokenizer.json"
_SENTENCE = 4000
THREADS = 16  # SentencePiece's default: sums of a unigram model depend on how many there are


def train_tokenizer(
    folder: str,
    shard: int,
    inputs: Inputs,
    mixture: Mixture,
    settings: Tokenizer,
    seed: int,
) -> dict:
    """Train on a sample of the documents; writes `tokenizer.model`, of SentencePiece, or `tokenizer.json`.

    Each group of the mixture gives documents worth its share of `sample_bytes`, see
    `gristmill.tasks.tokens.tokenizer_sample`. SentencePiece holds the sample in memory, `tokenizers` its distinct
    words. Raises ValueError for a source without text, and if the vocabulary does not fit the text.
    """
    taken: dict[str, int] = {}
    texts = sample(inputs, mixture, settings.sample_bytes, seed, taken)
    if settings.kind == "byte_bpe":
        name, data = JSON, _byte_bpe(texts, settings, taken)
    else:
        name, data = MODEL, _sentencepiece(texts, settings, taken)
    return {"sample_bytes": taken, **_written(folder, name, data)}


def take_tokenizer(folder: str, shard: int, tokenizer: RecordedFile, end_of_text: str | None = None) -> dict:
    """Write the files of a tokenizer that is there. `end_of_text`: the name of that token in a tokenizer.json, None for
    a usual one.

    Raises ValueError, which names the file, for one that is damaged, loses characters or ends no text.
    """
    data, name = given_tokenizer(tokenizer.read(), tokenizer.path, end_of_text)
    return {"sample_bytes": {}, **_written(folder, name, data)}


def given_tokenizer(data: bytes, path: str, end_of_text: str | None) -> tuple[bytes, str]:
    """Content and name of the file as a stage keeps it. Raises ValueError as `take_tokenizer`."""
    if data.lstrip()[:1] == b"{":
        from gristmill.storage.tokenizer_json import prepared  # here, since most do without its library

        data, name = prepared(data, end_of_text, path), JSON
        size = read_tokenizer(data, name).vocab_size
    else:
        if end_of_text is not None:
            raise ValueError(
                f"tokenizer.end_of_text is {end_of_text}, but {path} says itself what ends a text; take it out"
            )
        size, name = read_tokenizer(data, path.removesuffix(".json")).vocab_size, MODEL
    if size > LARGEST_VOCABULARY:
        raise ValueError(f"{path} has {size:,} tokens; give one of at most {LARGEST_VOCABULARY:,}")
    return data, name


def _written(folder: str, name: str, data: bytes) -> dict:
    tokenizer = read_tokenizer(data, name)
    files.write_bytes(files.join(folder, name), data)
    files.write_bytes(files.join(folder, "token_bytes.json"), json.dumps(tokenizer.token_bytes()).encode())
    return {"file": name, "vocab_size": tokenizer.vocab_size, "end_of_text": tokenizer.end_of_text}


def _byte_bpe(texts: Iterator[str], settings: Tokenizer, taken: dict[str, int]) -> bytes:
    from gristmill.tasks.tokens.byte_bpe import train_byte_bpe  # here, since others do without its library

    data, size = train_byte_bpe(texts, settings.vocab_size, settings.symbols)
    if size < settings.vocab_size:
        raise _too_large(settings, sum(taken.values()), size)
    return data


def _sentencepiece(texts: Iterator[str], settings: Tokenizer, taken: dict[str, int]) -> bytes:
    model = io.BytesIO()
    try:
        spm.SentencePieceTrainer.train(
            sentence_iterator=(line for text in texts for line in sentences(text)),
            model_writer=model,
            model_type=settings.kind,
            vocab_size=settings.vocab_size,
            character_coverage=settings.character_coverage,
            user_defined_symbols=list(settings.symbols),
            byte_fallback=True,
            split_digits=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            allow_whitespace_only_pieces=True,
            max_sentence_length=1 << 20,
            num_threads=THREADS,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            pad_id=-1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explained(error, settings, sum(taken.values())) from None
    return model.getvalue()


def _explained(error: RuntimeError, settings: Tokenizer, sampled: int) -> Exception:
    """What SentencePiece says of a vocabulary that does not fit its text, with the recipe's keys."""
    words = str(error)
    if found := re.search(r"value <= (\d+)", words):
        return _too_large(settings, sampled, int(found[1]))
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", words):
        return ValueError(
            f"tokenizer.vocab_size is {settings.vocab_size}, but the characters alone are {found[1]} tokens: "
            f"raise it above that, or lower tokenizer.character_coverage ({settings.character_coverage})"
        )
    return error


def _too_large(settings: Tokenizer, sampled: int, most: int) -> ValueError:
    return ValueError(
        f"tokenizer.vocab_size is {settings.vocab_size}, but a text of {sampled:,} bytes gives {most} tokens "
        "at most: lower tokenizer.vocab_size to that, or give the sources more text"
    )


def sentences(text: str) -> Iterator[str]:
    """Lines with their line break, cut where SentencePiece would refuse a longer one."""
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), _SENTENCE):
            yield line[start : start + _SENTENCE]


@cache
def load(file: RecordedFile) -> TextTokenizer:
    return read_tokenizer(file.read(), file.path)
