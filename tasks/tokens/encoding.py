"""Texts to token ids: by gigatoken where its ids are the tokenizer's own, else by the tokenizer's own library."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

import gigatoken
import numpy as np
import pyarrow.compute as pc

from gristmill.storage import files, parquet
from gristmill.storage.damage import DamagedFileError, RecordedFile
from gristmill.storage.token_shards import SPLIT, bin_path, index_path, recorded, write_tokens
from gristmill.storage.tokenizer_files import SPACE, JsonTokenizer, SentencePieceTokenizer
from gristmill.storage.training_manifest import token_dtype
from gristmill.tasks.documents.selection import select
from gristmill.tasks.tokens.fill_in_the_middle import FillInTheMiddle, Part, parts
from gristmill.tasks.tokens.tokenizer import load

log = logging.getLogger(__name__)

CHECKED_TEXTS = 50  # the first of each shard, compared one by one
CHECKED_CHARACTERS = 4_000  # of each of them

Encode = Callable[[str], np.ndarray]


@dataclass(frozen=True)
class Encoder:
    """Texts to ids of the type `dtype`, which holds the vocabulary. `end_of_text`: the id that ends a document;
    `names`: the ids of tokens by their names."""

    ids: Encode
    end_of_text: int
    dtype: np.dtype
    names: Mapping[str, int]

    def __call__(self, text: str) -> np.ndarray:
        """The ids of a text, without special tokens: their names in it are text."""
        return self.ids(text).astype(self.dtype)

    def document(self, text: str, parts: Sequence[Part] | None = None) -> np.ndarray:
        """The ids of a text, and the token that ends it. `parts`: how it is cut for fill-in-the-middle, if it is.
        Raises ValueError for a special token that the vocabulary does not have."""
        ids = self.ids(text) if parts is None else self._parts(parts)
        document_ids = np.empty(len(ids) + 1, self.dtype)
        document_ids[:-1] = ids
        document_ids[-1] = self.end_of_text
        return document_ids

    def _parts(self, parts: Sequence[Part]) -> np.ndarray:
        ids: list[np.ndarray] = []
        for part in parts:
            if part.token not in self.names:
                raise ValueError(
                    f"tokenizer.fim has {part.token}, which the tokenizer does not have: use tokens of its "
                    "file, or remove `path`, so that a tokenizer is trained with them"
                )
            ids += [np.array([self.names[part.token]], np.uint32), *([self.ids(part.text)] if part.text else [])]
        return np.concatenate(ids)


def encoder(tokenizer: RecordedFile, texts: Iterable[str]) -> Encoder:
    """What encodes with a tokenizer.

    gigatoken encodes ten to a hundred times as fast as SentencePiece and `tokenizers`. It is used if it gives the same
    ids for the first of `texts`; otherwise the tokenizer's own library is, with a warning.
    """
    exact = load(tokenizer)

    def own(text: str) -> np.ndarray:
        return np.array(exact.encode(text), np.uint32)

    def encoder_of(ids: Encode) -> Encoder:
        names = {name: index for index, name in enumerate(exact.names)}
        return Encoder(ids, exact.end_of_text, np.dtype(token_dtype(exact.vocab_size)), names)

    if (functions := _fast(tokenizer)) is None:
        return encoder_of(own)
    encode, apart = functions

    def fast(text: str) -> np.ndarray:
        return own(text) if apart is not None and apart.search(text) else encode(text)

    for text in islice(texts, CHECKED_TEXTS):
        start = text[:CHECKED_CHARACTERS]
        if not np.array_equal(fast(start), own(start)):
            log.warning("gigatoken gives other ids than %s for %.60r, so the latter encodes", _library(exact), start)
            return encoder_of(own)
    return encoder_of(fast)


@cache
def _fast(file: RecordedFile) -> tuple[Encode, re.Pattern[str] | None] | None:
    """gigatoken's function, and what finds the texts that it would read otherwise, None for no such; None for a
    tokenizer that it cannot read."""
    exact = load(file)
    try:
        if isinstance(exact, SentencePieceTokenizer):
            return gigatoken.Tokenizer.from_sentencepiece(file.read()).encode, _apart(exact)

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


def encode_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    tokenizer: RecordedFile,
    earlier: tuple[str, ...] = (),
    fim: FillInTheMiddle | None = None,
) -> dict:
    """Encode a shard's documents that are trained on.

    `kept`: the part that names them. `earlier`: folders of stages that had the same texts, tokenizer and code: where
    one has the same documents, too, its files are taken as they are. `fim`: how some documents are rearranged. Holds
    the texts and tokens of the shard.
    """
    ids = select(documents, kept, ["id"])["id"].to_pylist()
    if not any(_copy_earlier(folder, shard, set_folder, ids) for set_folder in earlier):
        texts = select(documents, kept, ["text"])["text"].to_pylist()
        encode = encoder(tokenizer, texts)
        cut = [parts(fim, id, text) if fim else None for id, text in zip(ids, texts, strict=True)]
        encoded = [encode.document(text, pieces) for text, pieces in zip(texts, cut, strict=True)]
        write_tokens(bin_path(folder, SPLIT, shard), ids, encoded, encode.dtype)
    lengths = parquet.read_table(index_path(folder, shard), ["length"])["length"]
    return {"rows_in": len(ids), SPLIT: {"tokens": pc.sum(lengths).as_py() or 0, "documents": len(lengths)}}


def _copy_earlier(folder: str, shard: int, earlier: str, ids: list[str]) -> bool:
    """Take over the files that a shard has in an earlier stage, if they are of these documents."""
    try:
        recorded_files = recorded(earlier, shard)
        if parquet.read_table(index_path(earlier, shard), ["id"])["id"].to_pylist() != ids:
            return False
        for name, file in recorded_files.items():
            target = files.join(folder, name)
            if target.endswith(".parquet"):  # which has its name in itself
                parquet.write_table(target, parquet.read_table(file.path))
            else:
                files.write_bytes(target, file.read())
    except (FileNotFoundError, DamagedFileError) as error:
        log.warning("encoding shard %d again, because an earlier stage cannot be read: %s", shard, error)
        return False
    return True
