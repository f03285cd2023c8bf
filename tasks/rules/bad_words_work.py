"""The rules of `gristmill.tasks.rules.bad_words`, which describes them, as functions."""

import re
from functools import lru_cache
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files
from gristmill.tasks.documents.batch import Batch, schema
from gristmill.tasks.kernels.pieces import strings
from gristmill.tasks.kernels.scan import Scan
from gristmill.tasks.rules.bad_words import ANY, BadWords
from gristmill.tasks.rules.rule_work import Parts, counted
from gristmill.tasks.url.list_files import ListError, list_files
from gristmill.tasks.url.lists import read_entries
from gristmill.tasks.url.matching import alternations, matches

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


def hits(text: Scan, settings: BadWords, language: pa.ChunkedArray | None) -> Parts:
    marks = np.zeros(len(text.word_start) + 1, np.int64)
    count = np.zeros(len(text.chars), np.int64)
    texts = strings(text.data, text.documents)
    for name, address in settings.lists.items():
        entries = entries_of(
            address, dict(settings.checksums).get(address), settings.allowed, name in settings.unspaced
        )
        asked = np.arange(len(texts)) if name == ANY else np.flatnonzero(pc.equal(language, name))
        for d in asked[entries.somewhere(texts.take(pa.array(asked)))].tolist():
            spans = entries.spans(texts[d].as_py())
            count[d] += len(spans)
            begin, end = text.documents[d], text.documents[d + 1]
            places = begin + np.append(np.flatnonzero((text.data[begin:end] & 0xC0) != 0x80), end - begin)
            np.add.at(marks, np.searchsorted(text.word_stop, places[spans[:, 0]], side="right"), 1)
            np.add.at(marks, np.searchsorted(text.word_start, places[spans[:, 1]]), -1)
    return Parts("words", np.cumsum(marks)[:-1] > 0, value=count)


def word_share(text: Scan, settings: BadWords, language: pa.ChunkedArray | None) -> Parts:
    return _share(text, hits(text, settings, language))


def _share(text: Scan, found: Parts) -> Parts:
    return Parts("words", found.where, of=np.diff(text.words))


def measure(step: BadWords, documents: Batch) -> dict[str, pa.Array]:
    """A column for each rule, by one search."""
    found = counted(step, step.rules[0], documents)
    assert isinstance(found, Parts)
    values = (found.values(documents.scan), _share(documents.scan, found).values(documents.scan))
    return {field.name: pa.array(each, field.type) for field, each in zip(schema(step), values, strict=True)}


def pinned(step: BadWords) -> BadWords:
    """The step with the checksums of its lists. Raises ListError for one that is not there."""
    # by language: a key has the names without folders, and the place alone says whose content it is
    paths = [path for name in sorted(step.lists) for path in list_files(step.lists[name])]
    return step.model_copy(update={"checksums": tuple((path, files.checksum(path)) for path in paths)})


class _Entries:
    """A list's entries: an expression of RE2 that misses no text with a hit, and one of Python that finds the hits."""

    def __init__(self, entries: list[str], unspaced: bool) -> None:
        # of two that begin alike the longer comes first; by first letters, so that few are tried at each place
        groups = groupby(sorted(set(map(_lower, entries)), key=lambda e: (e[0], -len(e), e)), key=lambda e: e[0])
        each = "|".join(
            f"{re.escape(first)}(?:{'|'.join(re.escape(entry[1:]) for entry in group)})" for first, group in groups
        )
        self.exact = re.compile(each if unspaced else rf"(?<!\w)(?:{each})(?!\w)")
        some = alternations([_PUNCTUATION.sub(r"\\\1", entry) for entry in entries])
        # RE2's \W is all but ASCII's word characters: never less than Python's, and a small automaton
        self.some = some if unspaced else [rf"(?:^|\W)(?:{part})(?:\W|$)" for part in some]

    def somewhere(self, texts: pa.Array) -> np.ndarray:
        """The texts that may have an entry, in time linear in them."""
        return np.flatnonzero(matches(texts, self.some))

    def spans(self, text: str) -> np.ndarray:
        """(start, stop) of the hits in characters: int64, shape (hits, 2)."""
        return np.array([match.span() for match in self.exact.finditer(_lower(text))], np.int64).reshape(-1, 2)


def _lower(text: str) -> str:
    """In lower case, character by character, so that places stay."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(c if len(c.lower()) > 1 else c.lower() for c in text)


@lru_cache(64)
def entries_of(address: str, checksum: str | None, allowed: tuple[str, ...], unspaced: bool) -> _Entries:
    """A list, read once per process. Raises ListError for one that is empty or has changed."""
    found = {
        line.decode("utf-8", "replace").strip()
        for path in list_files(address)
        for part in read_entries(path, checksum=checksum)
        for lines in part.lines
        for line in lines
    }
    if not found - {*allowed}:
        raise ListError(f"the list {address} has no entry; write one a line")
    return _Entries(sorted(found - {*allowed}), unspaced)
