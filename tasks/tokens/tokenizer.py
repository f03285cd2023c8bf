"""The tokenizer: trained on a sample that follows the mixture, or read from a file."""

import io
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import wrapt
from pydantic import Field, model_validator

from gristmill.storage import files, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.settings import Address
from gristmill.tasks.documents.selection import select, uniform
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.tokens.fill_in_the_middle import FillInTheMiddle
from gristmill.tasks.tokens.grouping import group_names, with_columns
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.strategies import sample_shares

if TYPE_CHECKING:
    import sentencepiece
    import tokenizers

    from gristmill.storage import tokenizer_files
else:
    sentencepiece = wrapt.lazy_import("sentencepiece")
    tokenizers = wrapt.lazy_import("tokenizers")
    tokenizer_files = wrapt.lazy_import("gristmill.storage.tokenizer_files")

log = logging.getLogger(__name__)

# Of a shard: documents, the selection, and the parts with the signals that the mixture's groups need.
ShardParts = tuple[str, ...]
_TEXT = pa.schema([pa.field("text", pa.large_string(), nullable=False)])


def sample_folder(folder: str) -> str:
    return files.join(folder, "sample")


def _sample_file(folder: str, shard: int) -> str:
    return files.join(sample_folder(folder), f"{shard:05d}.parquet")


def measure_texts(folder: str, shard: int, source: str, parts: ShardParts, mixture: Mixture) -> dict:
    """Bytes of text of each group in a shard. Holds its texts."""
    table, names = _grouped_texts(source, parts, mixture)
    return {"bytes": _sums(names, pc.binary_length(table["text"]).to_numpy())}


def group_sizes(measured: Iterable[tuple[str, Mapping[str, int]]]) -> dict[str, int]:
    """Bytes of each group, from the source of each shard and what was measured of it. Raises ValueError if a source
    has none."""
    sizes: dict[str, int] = {}
    of_source: dict[str, int] = {}
    for source, size_of in measured:
        of_source[source] = of_source.get(source, 0) + sum(size_of.values())
        for name, size in size_of.items():
            sizes[name] = sizes.get(name, 0) + size
    for source in (source for source, size in of_source.items() if not size):
        raise ValueError(
            f"mixture.weights has {source}, but no documents of it are left to train on: loosen the steps "
            "that drop its documents, lower mixture.heldout_fraction, or remove it from mixture.weights"
        )
    return sizes


def sample_rates(sizes: Mapping[str, int], mixture: Mixture, sample_bytes: int) -> dict[str, float]:
    """What share of each group's documents is drawn; a group that has less than its share of the bytes gives all.

    Raises ValueError for a weight whose group does not exist.
    """
    rates = {}
    for name, share in sample_shares(mixture, dict(sizes)).items():
        target = sample_bytes * share
        if sizes[name] < target:
            log.info("%s has %d bytes, less than the %d of its share of the sample", name, sizes[name], target)
        rates[name] = target / sizes[name]
    return rates


def sample_texts(
    folder: str, shard: int, source: str, parts: ShardParts, mixture: Mixture, rates: dict[str, float], seed: int
) -> dict:
    """Write the texts of a shard that are drawn by a keyed hash of their ids, in the shard's order; the record has
    their bytes by group. Holds the shard's texts."""
    table, names = _grouped_texts(source, parts, mixture)
    is_drawn = uniform(table["id"], seed, "tokenizer") < np.array([rates.get(name, 0.0) for name in names])
    texts = table.filter(pa.array(is_drawn))["text"]
    if len(texts):
        parquet.write_table(_sample_file(folder, shard), pa.table([texts], schema=_TEXT))
    return {"bytes": _sums(names[is_drawn], pc.binary_length(texts).to_numpy())}


def sampled_texts(folder: str, shards: Sequence[int]) -> Iterator[str]:
    """The samples drawn from some shards, in their order. Holds the sample of one shard."""
    there = set(parquet.paths_in(sample_folder(folder)))
    for path in (path for shard in shards if (path := _sample_file(folder, shard)) in there):
        yield from parquet.read_table(path)["text"].to_pylist()


def _sums(names: np.ndarray, lengths: np.ndarray) -> dict[str, int]:
    distinct, inverse = np.unique(names.astype(str), return_inverse=True)
    sums = np.bincount(inverse, lengths, len(distinct)).astype(np.int64)
    return dict(zip(distinct.tolist(), sums.tolist(), strict=True))


def _grouped_texts(source: str, parts: ShardParts, mixture: Mixture) -> tuple[pa.Table, np.ndarray]:
    """`id` and `text` of a shard's documents, and the name of each one's group."""
    documents, kept, *signals = parts
    table = select(documents, kept, ["text"])
    return table, group_names(with_columns(table, mixture.by, source, (documents, *signals), kept), mixture.by)


MAX_VOCABULARY = 1 << 20
NAMES = ("<unk>", "<s>", "</s>", "<|endoftext|>")  # special tokens of the tokenizers that are trained here


class Tokenizer(Settings):
    """A lossless tokenizer: no normalization, spaces and line breaks preserved, digits split, unknown characters as
    bytes."""

    kind: Literal["bpe", "unigram", "byte_bpe"] = Field(
        "bpe",
        description="Algorithm. `bpe` and `unigram` are SentencePiece's, on characters with a byte fallback. "
        "`byte_bpe` is GPT-2's, on bytes. `unigram` encodes more slowly and has no exact tokenizer.json.",
    )
    vocab_size: int = Field(
        32_000,
        gt=300,
        le=MAX_VOCABULARY,
        description="Vocabulary size: 256 bytes, a few special tokens, and learned tokens. Up to 65,536, a "
        "token is stored in two bytes, otherwise in four.",
    )
    sample_bytes: int = Field(100_000_000, gt=0, le=1 << 40, description="Text to train on, over all sources (bytes).")
    character_coverage: float = Field(
        0.9995,
        ge=0.98,
        le=1,
        description="Fraction of characters in the vocabulary, at least 0.98, as SentencePiece requires. The rest "
        "fall back to bytes. Not used by "
        "`byte_bpe`, which has only bytes.",
    )
    symbols: tuple[Annotated[str, Field(pattern=r"^\S+$")], ...] = Field(
        (), description="Strings that are always one token, such as `<|user|>`."
    )
    fim: FillInTheMiddle | None = Field(
        None, description="Fill-in-the-middle: move the middle of some documents to the end. null: off."
    )
    path: Address | None = Field(
        None,
        description="Local file of an existing tokenizer, used instead of training one: a Hugging Face "
        "`tokenizer.json` or a SentencePiece model.",
    )
    end_of_text: str | None = Field(
        None, description="With path: the special token of a tokenizer.json that ends a text. Default: "
                "`<|endoftext|>`, `<|end_of_text|>`, `</s>` or `<eos>`, whichever it has."
    )  # fmt: skip

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.path is not None:
            trained = ("kind", "vocab_size", "sample_bytes", "character_coverage", "symbols")
            for name in trained:
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"path is {self.path}, so no tokenizer is trained: remove {name}, or path")
            return self
        if self.end_of_text is not None:
            raise ValueError(f"end_of_text is {self.end_of_text}, but there is no path: remove it, or set path")
        for index, symbol in enumerate(self.symbols):
            if symbol in NAMES or symbol in self.symbols[:index]:
                raise ValueError(f"symbols has {symbol}, which is already a token; remove it")
        if (needed := BYTES + _special_tokens(self)) > self.vocab_size:
            raise ValueError(
                f"vocab_size is {self.vocab_size}, but {BYTES} bytes and {_special_tokens(self)} special tokens and "
                f"symbols are {needed} tokens. Raise vocab_size above that, or give fewer symbols"
            )
        # a learned token is at least two bytes that occur together
        if self.sample_bytes < 2 * self.vocab_size:
            raise ValueError(
                f"sample_bytes {self.sample_bytes} cannot give a vocabulary of vocab_size {self.vocab_size}; give "
                f"sample_bytes of at least {2 * self.vocab_size}, better a thousand times the vocabulary"
            )
        return self


BYTES = 256


def _special_tokens(settings: Tokenizer) -> int:
    """Number of tokens that do not depend on the text, except bytes: `END`, or <unk>, <s> and </s>; and symbols."""
    return (1 if settings.kind == "byte_bpe" else 3) + len(settings.symbols)


END = "<|endoftext|>"

# What no token goes beyond: words with the character before them, single digits, marks, line breaks. Of Qwen2
# (https://huggingface.co/Qwen/Qwen2-7B/blob/main/tokenizer.json), after OpenAI's cl100k_base: its digits are by threes.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_byte_bpe(texts: Iterator[str], vocab_size: int, symbols: tuple[str, ...]) -> tuple[bytes, int]:
    """The content of tokenizer.json, and the size of its vocabulary, which is smaller where the texts have no more
    pairs.

    The same texts in the same order give the same bytes: merges are counted, and ties go to the smaller ids.
    Held: each distinct piece of the texts with its count.
    """
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    splitter = tokenizers.pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated")
    to_bytes = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([splitter, to_bytes])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END, *symbols],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    described = json.loads(tokenizer.to_str())
    for token in described["added_tokens"]:
        token["special"] = token["content"] == END
    return tokenizer_files.prepared(
        json.dumps(described, ensure_ascii=False).encode(), END, "tokenizer.json"
    ), tokenizer.get_vocab_size()


UNK, BOS, EOS = 0, 1, 2  # of SentencePiece models that are trained here
MODEL, JSON = "tokenizer.model", "tokenizer.json"
_SENTENCE = 4000
THREADS = 16  # SentencePiece's default: sums of a unigram model depend on how many there are


def train_tokenizer(folder: str, shard: int, shards: Sequence[int], settings: Tokenizer) -> dict:
    """Train on the sample of these shards, in their order; writes `tokenizer.model`, of SentencePiece, or
    `tokenizer.json`.

    SentencePiece holds the sample in memory, `tokenizers` its distinct words. Raises ValueError if the vocabulary does
    not fit the text.
    """
    texts = sampled_texts(folder, shards)
    if settings.kind == "byte_bpe":
        name, data = JSON, _byte_bpe(texts, settings)
    else:
        name, data = MODEL, _sentencepiece(texts, settings)
    return _write(folder, name, data)


def take_tokenizer(folder: str, shard: int, tokenizer: RecordedFile, end_of_text: str | None = None) -> dict:
    """Write the files of a tokenizer that is there. `end_of_text`: the name of that token in a tokenizer.json, None for
    a usual one.

    Raises ValueError, which names the file, for one that is damaged, loses characters or ends no text.
    """
    data, name = given_tokenizer(tokenizer.read(), tokenizer.path, end_of_text)
    return _write(folder, name, data)


def given_tokenizer(data: bytes, path: str, end_of_text: str | None) -> tuple[bytes, str]:
    """Content and name of the file as a stage keeps it. Raises ValueError as `take_tokenizer`."""
    if data.lstrip()[:1] == b"{":
        data, name = tokenizer_files.prepared(data, end_of_text, path), JSON
        size = tokenizer_files.read_tokenizer(data, name).vocab_size
    else:
        if end_of_text is not None:
            raise ValueError(
                f"tokenizer.end_of_text is {end_of_text}, but {path} already defines the end of a text; remove it"
            )
        size, name = tokenizer_files.SentencePieceTokenizer(data, path).vocab_size, MODEL
    if size > MAX_VOCABULARY:
        raise ValueError(f"{path} has {size:,} tokens; give one of at most {MAX_VOCABULARY:,}")
    return data, name


def _write(folder: str, name: str, data: bytes) -> dict:
    tokenizer = tokenizer_files.read_tokenizer(data, name)
    files.write_bytes(files.join(folder, name), data)
    files.write_bytes(files.join(folder, "token_bytes.json"), json.dumps(tokenizer.token_bytes()).encode())
    return {"file": name, "vocab_size": tokenizer.vocab_size, "end_of_text": tokenizer.end_of_text}


def _byte_bpe(texts: Iterator[str], settings: Tokenizer) -> bytes:
    counter = _Counted(texts)
    data, size = train_byte_bpe(counter, settings.vocab_size, settings.symbols)
    if size < settings.vocab_size:
        raise _too_large(settings, counter.bytes, size)
    return data


class _Counted(Iterator[str]):
    """Texts, and how many bytes of them have been read."""

    def __init__(self, texts: Iterator[str]) -> None:
        self._texts, self.bytes = texts, 0

    def __next__(self) -> str:
        text = next(self._texts)
        self.bytes += len(text.encode())
        return text


def _sentencepiece(texts: Iterator[str], settings: Tokenizer) -> bytes:
    model, counter = io.BytesIO(), _Counted(texts)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line for text in counter for line in sentences(text)),
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
        raise _explained(error, settings, counter.bytes) from None
    return model.getvalue()


def _explained(error: RuntimeError, settings: Tokenizer, sampled: int) -> Exception:
    """What SentencePiece says of a vocabulary that does not fit its text, with the keys of the settings."""
    words = str(error)
    if match := re.search(r"value <= (\d+)", words):
        return _too_large(settings, sampled, int(match[1]))
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", words):
        special = _special_tokens(settings)
        characters = int(match[1]) - BYTES - special
        return ValueError(
            f"vocab_size is {settings.vocab_size}, but {characters:,} characters of the text, {BYTES} bytes and "
            f"{special} special tokens and symbols are {match[1]} tokens. Raise it to at least that "
            "(`tokenizer.vocab_size` of a recipe, `vocab_size` of a proxy), or lower the recipe's "
            f"tokenizer.character_coverage ({settings.character_coverage})"
        )
    return error


def _too_large(settings: Tokenizer, sampled: int, most: int) -> ValueError:
    return ValueError(
        f"vocab_size is {settings.vocab_size}, but a text of {sampled:,} bytes gives {most} tokens at most: lower "
        "vocab_size to that (`tokenizer.vocab_size` of a recipe, `vocab_size` of a proxy), or give the sources more "
        "text"
    )


def sentences(text: str) -> Iterator[str]:
    """Lines with their line break, cut where SentencePiece would refuse a longer one."""
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), _SENTENCE):
            yield line[start : start + _SENTENCE]


@cache
def load(file: RecordedFile) -> "tokenizer_files.TextTokenizer":
    return tokenizer_files.read_tokenizer(file.read(), file.path)
