"""SentencePiece BPE with byte fallback, trained on a sample that follows the mixture."""

import io
import json
import logging
import re
from collections.abc import Iterator
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
import sentencepiece as spm

from storage import files
from storage.recorded_file import RecordedFile
from storage.text_tokens import SPACE
from tasks.documents.sampling import uniform
from tasks.documents.selection import select
from tasks.tokens.tokenizer import END_OF_TEXT, LARGEST_VOCABULARY, Tokenizer

log = logging.getLogger(__name__)

UNK, BOS = 0, 1
_SENTENCE = 4000

Inputs = dict[str, list[tuple[str, str]]]


def train_tokenizer(
    folder: str,
    shard: int,
    inputs: Inputs,
    weights: dict[str, float],
    settings: Tokenizer,
    seed: int,
) -> dict:
    """Train on a sample of (documents, selection) shards by source; writes `tokenizer.model`.

    Each source gives documents worth its share of `sample_bytes`, drawn by a keyed hash; a source that has less gives
    all. SentencePiece holds the sample in memory.
    Raises ValueError for a source without text, and if the vocabulary does not fit the text.
    """
    total = sum(weights.values())
    sizes = text_sizes(inputs)
    taken: dict[str, int] = {}
    model = io.BytesIO()
    texts = sample(inputs, sizes, {n: w / total for n, w in weights.items()}, settings, seed, taken)
    try:
        spm.SentencePieceTrainer.train(
            sentence_iterator=texts,
            model_writer=model,
            model_type="bpe",
            vocab_size=settings.vocab_size,
            character_coverage=settings.character_coverage,
            byte_fallback=True,
            split_digits=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            allow_whitespace_only_pieces=True,
            max_sentence_length=1 << 20,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=END_OF_TEXT,
            pad_id=-1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explained(error, settings, sum(taken.values())) from None
    files.write_bytes(files.join(folder, "tokenizer.model"), model.getvalue())
    processor = spm.SentencePieceProcessor(model_proto=model.getvalue())
    files.write_bytes(files.join(folder, "token_bytes.json"), json.dumps(token_bytes(processor)).encode())
    return {"sample_bytes": taken, "vocab_size": processor.vocab_size()}


def take_tokenizer(folder: str, shard: int, tokenizer: RecordedFile) -> dict:
    """Write `tokenizer.model` and `token_bytes.json` of a tokenizer that is there. Raises ValueError for one whose
    end-of-text token has another id, or that knows no bytes."""
    processor = spm.SentencePieceProcessor(model_file=tokenizer.local())
    if processor.eos_id() != END_OF_TEXT or not processor.is_byte(processor.piece_to_id("<0x00>")):
        raise ValueError(
            f"{tokenizer.path} ends a text by the token {processor.eos_id()}, not {END_OF_TEXT}, or has no bytes for "
            "what it does not know; give a folder that `gristmill export model` wrote as training.init_from"
        )
    if processor.vocab_size() > LARGEST_VOCABULARY:
        raise ValueError(
            f"{tokenizer.path} has {processor.vocab_size()} tokens, and token shards hold {LARGEST_VOCABULARY} at "
            "most; name weights of a smaller vocabulary as training.init_from"
        )
    files.write_bytes(files.join(folder, "tokenizer.model"), tokenizer.read())
    files.write_bytes(files.join(folder, "token_bytes.json"), json.dumps(token_bytes(processor)).encode())
    return {"sample_bytes": {}, "vocab_size": processor.vocab_size()}


def text_sizes(inputs: Inputs) -> dict[str, int]:
    """Bytes of text of each source. Raises ValueError if a source has none."""
    sizes = dict.fromkeys(inputs, 0)
    for name, parts in inputs.items():
        for part in parts:
            sizes[name] += pc.sum(_sizes(select(*part, ["text"]))).as_py() or 0
        if not sizes[name]:
            raise ValueError(
                f"mixture.weights names {name}, but no document of it is left to train on: loosen the steps that drop "
                "its documents, lower mixture.heldout_fraction, or take it out of mixture.weights"
            )
    return sizes


def _explained(error: RuntimeError, settings: Tokenizer, sampled: int) -> Exception:
    """What SentencePiece says of a vocabulary that does not fit its text, with the recipe's keys."""
    words = str(error)
    if found := re.search(r"value <= (\d+)", words):
        return ValueError(
            f"tokenizer.vocab_size is {settings.vocab_size}, but a text of {sampled:,} bytes gives {found[1]} tokens "
            "at most: lower tokenizer.vocab_size to that, or give the sources more text"
        )
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", words):
        return ValueError(
            f"tokenizer.vocab_size is {settings.vocab_size}, but the characters alone are {found[1]} tokens: "
            f"raise it above that, or lower tokenizer.character_coverage ({settings.character_coverage})"
        )
    return error


def sample(
    inputs: Inputs,
    sizes: dict[str, int],
    shares: dict[str, float],
    settings: Tokenizer,
    seed: int,
    taken: dict[str, int],
) -> Iterator[str]:
    for name in sorted(inputs):
        wanted = settings.sample_bytes * shares[name]
        if sizes[name] < wanted:
            log.info("source %s has %d bytes, less than the %d of its share of the sample", name, sizes[name], wanted)
        taken[name] = 0
        for part in inputs[name]:
            table = select(*part, ["text"])
            chosen = table.filter(pa.array(uniform(table["id"], seed, "tokenizer") < wanted / sizes[name]))
            for text in chosen["text"].to_pylist():
                taken[name] += len(text.encode())
                yield from _sentences(text)


def _sizes(table: pa.Table) -> pa.ChunkedArray:
    return pc.binary_length(table["text"])


def _sentences(text: str) -> Iterator[str]:
    """Lines with their line break, cut where SentencePiece would refuse a longer one."""
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), _SENTENCE):
            yield line[start : start + _SENTENCE]


@cache
def load(model: RecordedFile) -> spm.SentencePieceProcessor:
    return spm.SentencePieceProcessor(model_file=model.local())


def token_bytes(processor: spm.SentencePieceProcessor) -> list[int]:
    """Bytes of UTF-8 that each token stands for, 0 for control tokens: what bits per byte are counted by."""
    return [
        0
        if processor.is_control(i) or processor.is_unknown(i)
        else 1
        if processor.is_byte(i)
        else len(processor.id_to_piece(i).replace(SPACE, " ").encode())
        for i in range(processor.vocab_size())
    ]
