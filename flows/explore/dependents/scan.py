"""Search all files of a home and of exports for texts that are known only by marks: hashes of their phrases.

A mark is the hash of eight words in a row, as shingles are hashed for near-duplicates, so case and punctuation do not
count. Of each document there are up to MARKS, those with the smallest hashes among those that no other document of the
home has: so a part with a tenth of its words has one of 64 with a probability of .999, wherever it is, and a phrase of
a license, or of a menu, is no mark. A receipt keeps the marks and not the text.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from gristmill.flows.explore.dependents.texts import Decode, NotSearchedError, texts_of
from gristmill.flows.reports.dependents.graph import HomeGraph
from gristmill.storage import files
from gristmill.storage.remote.addresses import file_system
from gristmill.storage.tokenizer_files import read_tokenizer
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.dedup.near.sign import shingle_sets
from gristmill.tasks.kernels.ngrams import bit_table, possible_members
from gristmill.tasks.search.index import BYTE_TOKENIZER

WORDS = 8
PHRASES = Shingling(shingle=WORDS)
MARKS = 64


@dataclass(frozen=True, eq=False)
class Marks:
    """`hashes`: sorted, uint64, (n,); `owners`: the place of the document of each in `ids`."""

    ids: tuple[str, ...]
    hashes: np.ndarray
    owners: np.ndarray

    @classmethod
    def of(cls, marks: dict[str, Sequence[int]]) -> "Marks":
        """Of the marks of each document, by id."""
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
class Remnant:
    """A file that has marks of a document. `marks`, `of`: how many, and how many the document has."""

    path: str
    document: str
    marks: int
    of: int


@dataclass
class Scanned:
    """`files`, `bytes`: what was searched; `remnants`: what was found; `skipped`: by the reason, how many files were
    not searched, with an example; `unread`: files that could not be read, a sentence each."""

    files: int = 0
    bytes: int = 0
    remnants: list[Remnant] = field(default_factory=list)
    skipped: dict[str, tuple[int, str]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


def scan(
    graph: HomeGraph,
    marks: Marks,
    folders: Iterable[str],
    without: Collection[str] = (),
    progress: Callable[[str], None] = lambda path: None,
) -> Scanned:
    """Search every file below some folders for marks. `without`: paths that are left out, such as the receipt.

    Reads all files once; holds some megabytes of text.
    """
    scanned = Scanned()
    decoders: dict[str, Decode | None] = {}
    for folder in folders:
        for path, size in _files_below(folder):
            if path in without:
                continue
            progress(path)
            found = np.empty(0, np.int64)
            try:
                for texts in texts_of(path, partial(_decoder, graph, path, decoders)):
                    found = np.union1d(found, marks.places(texts)).astype(np.int64)
            except NotSearchedError as error:
                why = str(error)
                if why.startswith("a damaged"):
                    scanned.unread.append(f"{path}: {why}")
                else:
                    count, example = scanned.skipped.get(why, (0, path))
                    scanned.skipped[why] = count + 1, example
            except (OSError, RuntimeError, ValueError) as error:
                scanned.unread.append(f"{path} cannot be read: {error}")
            else:
                scanned.files, scanned.bytes = scanned.files + 1, scanned.bytes + size
            counts = np.bincount(marks.owners[found], minlength=len(marks.ids))
            scanned.remnants += [
                Remnant(path, marks.ids[at], int(counts[at]), int(marks.totals[at])) for at in np.flatnonzero(counts)
            ]
    return scanned


def _files_below(folder: str) -> Iterator[tuple[str, int]]:
    """All files below a folder with their sizes, sorted."""
    fs, inner = file_system(folder)
    fs.invalidate_cache()
    entries = fs.find(inner, detail=True)
    is_local = files.is_local(folder)
    for path in sorted(entries):
        yield (path if is_local else fs.unstrip_protocol(path)), int(entries[path]["size"])


def _decoder(graph: HomeGraph, path: str, known: dict[str, Decode | None]) -> Decode | None:
    """What decodes the token shards of a stage: the tokenizer that it was made with."""
    label = path.rpartition("/stages/")[2].partition("/")[0]
    if label not in known:
        known[label] = None
        names = [name for name in graph.origins([label]) if graph.stages[name].name == "tokenizer"]
        if label in graph.stages and not names:  # of a recipe without a mixture
            known[label] = read_tokenizer(BYTE_TOKENIZER.read_bytes(), str(BYTE_TOKENIZER)).decode
        elif len(names) == 1 and names[0] not in graph.collected:
            tokenizer = graph.stages[names[0]]
            name = tokenizer.result["tokenizer"]["file"]
            known[label] = read_tokenizer(tokenizer.file(name).read(), files.join(tokenizer.folder, name)).decode
    return known[label]
