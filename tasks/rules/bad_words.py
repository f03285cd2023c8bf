"""Words and phrases of lists that the user gives, one of which drops a document, as in C4."""

import re
from functools import lru_cache
from itertools import groupby
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from storage import files
from tasks.kernels.pieces import strings
from tasks.kernels.scan import Scan
from tasks.rules.rule import Parts, Rules, RuleStep
from tasks.url.lists import ListError, list_files, read_entries
from tasks.url.matching import alternations, matches

_SOURCE = "Raffel et al. 2020 (arXiv 1910.10683), 2.2; definition: datatrove c4_filters.py"

ANY = "any"
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


class _Lists(RuleStep):
    """The lists are files with an entry a line; lines that begin with `#` are comments."""

    lists: dict[str, str] = Field(
        min_length=1,
        description=f"address of each language's list, by the column `language`; `{ANY}` holds for every language",
    )
    unspaced: tuple[str, ...] = Field(
        ("ja", "th", "zh"), description="languages without spaces: an entry is found inside of words, too"
    )
    allowed: tuple[str, ...] = Field(
        ("sm", "グロ", "女の子", "性"),
        description="entries left out of all lists; C4's, each of which hits over 10% of the documents in ja or zh",
    )
    checksums: tuple[tuple[str, str], ...] = Field(
        (), description="(address, xxh3-128) of each list, which must then have this content; see `pinned`"
    )

    signal_fields: ClassVar = ("lists", "unspaced", "allowed", "checksums")

    @property
    def reads(self) -> tuple[str, ...]:
        return ("language",) if self.lists.keys() - {ANY} else ()

    def pinned(self) -> Self:
        """The step with the checksums of its lists. Raises ListError for one that is not there."""
        paths = [path for address in self.lists.values() for path in list_files(address)]
        return self.model_copy(update={"checksums": tuple((path, files.checksum(path)) for path in paths)})


rules = Rules("bad_words", _SOURCE)


@rules.rule("hits", high=0)
def hits(text: Scan, settings: _Lists, language: pa.ChunkedArray | None) -> Parts:
    r"""Words and phrases of the lists in a document, in either case, each time they stand there.

    As C4's code and datatrove's have it, a hit is flanked by what `\w` of Python does not match, of which combining
    marks are a part; not so in languages without spaces. A document in a language without a list has no hits, where
    datatrove stops by default. C4 itself looked only at the lines that its other rules left, and not at the ends of a
    line; datatrove looks at the whole document.
    """
    marks = np.zeros(len(text.word_start) + 1, np.int64)
    count = np.zeros(len(text.chars), np.int64)
    texts = strings(text.data, text.documents)
    for name, address in settings.lists.items():
        entries = _entries(address, dict(settings.checksums).get(address), settings.allowed, name in settings.unspaced)
        asked = np.arange(len(texts)) if name == ANY else np.flatnonzero(pc.equal(language, name))
        for d in asked[entries.somewhere(texts.take(pa.array(asked)))].tolist():
            spans = entries.spans(texts[d].as_py())
            count[d] += len(spans)
            begin, end = text.documents[d], text.documents[d + 1]
            places = begin + np.append(np.flatnonzero((text.data[begin:end] & 0xC0) != 0x80), end - begin)
            np.add.at(marks, np.searchsorted(text.word_stop, places[spans[:, 0]], side="right"), 1)
            np.add.at(marks, np.searchsorted(text.word_start, places[spans[:, 1]]), -1)
    return Parts("words", np.cumsum(marks)[:-1] > 0, value=count)


BadWords = rules.step("BadWords", _Lists)


class _Entries:
    """A list's entries: an expression of RE2 that misses no text with a hit, and one of Python that tells the hits."""

    def __init__(self, entries: list[str], unspaced: bool):
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
def _entries(address: str, checksum: str | None, allowed: tuple[str, ...], unspaced: bool) -> _Entries:
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
