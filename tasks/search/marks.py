"""Marks of documents: hashes of their phrases, by which copies of their texts are found in any file without the texts.

A mark is the hash of eight words in a row, as shingles are hashed for near-duplicates, so case and punctuation do not
count. Of each document there are up to MARKS, those with the smallest hashes among those that no other document of the
home has: so a part with a tenth of its words has one of 64 with a probability of .999, wherever it is, and a phrase of
a license, or of a menu, is not a mark.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, parquet
from gristmill.storage.tokenizer_files import read_tokenizer
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.dedup.near.sign import shingle_sets
from gristmill.tasks.engine import options
from gristmill.tasks.engine.jobs import Code, check_code
from gristmill.tasks.engine.options import JobOptions
from gristmill.tasks.kernels.ngrams import bit_table, possible_members
from gristmill.tasks.search.file_texts import Decode, NotSearchedError, texts_of
from gristmill.tasks.search.index import BYTE_TOKENIZER

WORDS = 8
PHRASES = Shingling(shingle=WORDS)
MARKS = 64
BYTES = "bytes"  # the tokenizer of a recipe without a mixture, which each machine has in the package


@dataclass(frozen=True, eq=False)
class Marks:
    """`hashes`: sorted, uint64, (n,); `owners`: the place of the document of each in `ids`."""

    ids: tuple[str, ...]
    hashes: np.ndarray
    owners: np.ndarray

    @classmethod
    def of(cls, marks: dict[str, Sequence[int]]) -> "Marks":
        """Build from the marks of each document, by id."""
        ids = tuple(sorted(marks))
        hashes = np.array([value for name in ids for value in marks[name]], np.uint64)
        owners = np.repeat(np.arange(len(ids)), [len(marks[name]) for name in ids]).astype(np.int64)
        order = np.argsort(hashes, kind="stable")
        return cls(ids, hashes[order], owners[order])

    @cached_property
    def _table(self) -> np.ndarray:
        return bit_table(self.hashes)

    @cached_property
    def totals(self) -> np.ndarray:
        """How many marks each document has."""
        return np.bincount(self.owners, minlength=len(self.ids))

    def places(self, texts: Iterable[str]) -> np.ndarray:
        """The places in `hashes` of the marks that are in some texts; sorted, each once."""
        array = pa.array([text.encode("utf-8", "ignore").decode() for text in texts], pa.large_string())
        if not len(array) or not len(self.hashes):
            return np.empty(0, np.int64)
        values, _ = shingle_sets(pa.chunked_array([array]), PHRASES)
        values = values[possible_members(values, self._table)]
        first = np.searchsorted(self.hashes, values)
        last = np.searchsorted(self.hashes, values, side="right")
        ranges = [np.arange(a, b) for a, b in zip(first, last, strict=True) if b > a]
        return np.unique(np.concatenate(ranges)) if ranges else np.empty(0, np.int64)


def phrases(texts: Sequence[str]) -> list[np.ndarray]:
    """The hashes of the phrases of each text, sorted. A text with fewer words has one for all of it."""
    array = pa.chunked_array([pa.array(texts, pa.large_string())])
    values, offsets = shingle_sets(array, PHRASES)
    return [values[a:b] for a, b in zip(offsets[:-1], offsets[1:], strict=True)]


@dataclass(frozen=True)
class SearchedFile:
    """A file to search. `tokenizer`: the file of the tokenizer of its stage, BYTES, or "" where that is unknown."""

    path: str
    size: int
    tokenizer: str = ""


@dataclass(frozen=True)
class FileResult:
    """What was found in a file. `places`: of its marks; `skipped`: why it was not searched; `unread`: why it could not
    be read, a sentence."""

    file: SearchedFile
    places: tuple[int, ...] = ()
    skipped: str = ""
    unread: str = ""


@dataclass(frozen=True)
class FileSearch:
    """A search for marks in files, as it is sent to workers. `code`: the code of the process that asks, None where it
    works itself; a worker with another raises RuntimeError."""

    marks: Marks
    code: Code | None = None
    options: JobOptions = field(default_factory=options.current)

    def __call__(self, some: Sequence[SearchedFile]) -> list[FileResult]:
        _begin(self.options, self.code)
        return [self._search(one) for one in some]

    def _search(self, one: SearchedFile) -> FileResult:
        places = np.empty(0, np.int64)
        try:
            for texts in texts_of(one.path, partial(_decoder, one.tokenizer)):
                places = np.union1d(places, self.marks.places(texts)).astype(np.int64)
        except NotSearchedError as error:
            why = str(error)
            if why.startswith("a damaged"):
                return FileResult(one, tuple(places.tolist()), unread=f"{one.path}: {why}")
            return FileResult(one, tuple(places.tolist()), skipped=why)
        except (OSError, RuntimeError, ValueError) as error:
            return FileResult(one, tuple(places.tolist()), unread=f"{one.path} cannot be read: {error}")
        return FileResult(one, tuple(places.tolist()))


@dataclass(frozen=True, eq=False)
class OtherPhrases:
    """Finds which of some phrases (`hashes`, sorted) documents have whose ids are not among `ids`. As FileSearch, for
    parts of `documents` stages."""

    hashes: np.ndarray
    ids: tuple[str, ...]
    code: Code | None = None
    options: JobOptions = field(default_factory=options.current)

    def __call__(self, part: str) -> np.ndarray:
        """The places in `hashes`. Reads a row group at a time."""
        _begin(self.options, self.code)
        left_out, common = pa.array(sorted(self.ids), pa.string()), np.zeros(len(self.hashes), bool)
        for table in parquet.groups(part, ["id", "text"]):
            texts = table.filter(pc.invert(pc.is_in(table["id"], left_out)))["text"]
            if not len(texts):
                continue
            values, _ = shingle_sets(texts, PHRASES)
            at = np.searchsorted(self.hashes, values)
            at[at == len(self.hashes)] = 0
            common[at[self.hashes[at] == values]] = True
        return np.flatnonzero(common)


def _begin(given: JobOptions, code: Code | None) -> None:
    options.configure(given)
    if code is not None:
        check_code(code)


@lru_cache(8)
def _decoder(tokenizer: str) -> Decode | None:
    """What decodes token shards; None without a tokenizer. Of several ends of a job one reads the file."""
    if not tokenizer:
        return None
    path = str(BYTE_TOKENIZER) if tokenizer == BYTES else tokenizer
    decode: Callable[[list[int]], str] = read_tokenizer(files.read_bytes(path), path).decode
    return decode
