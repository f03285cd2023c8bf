"""The step `bad_words`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from gristmill.storage import files
from gristmill.storage.settings import Address
from gristmill.tasks import kernels
from gristmill.tasks.documents.measure import Batch, schema
from gristmill.tasks.documents.step import Problem
from gristmill.tasks.rules.rule import Parts, RuleStep, counted, rule, rule_set
from gristmill.tasks.url.lists import ListError, entry_of, list_files, list_problems, read_entries
from gristmill.tasks.url.matching import alternations, matches

ANY = "any"
SOURCE = "Raffel et al. 2020 (arXiv 1910.10683), 2.2; definition: datatrove c4_filters.py"
RULES = (
    rule(
        "hits",
        "hits",
        r"""Words and phrases of the lists in a document, in either case, each time they stand there.

        As C4's code and datatrove's have it, a hit is flanked by what `\w` of Python does not match, of which
        combining marks are a part; not so in languages without spaces. A document in a language without a list has no
        hits, where datatrove stops by default. C4 itself looked only at the lines that its other rules left, and not
        at the ends of a line; datatrove looks at the whole document.
        """,
        high=0,
    ),
    rule(
        "word_share",
        "fraction of words",
        """Words that are part of a hit.

        By itself, with `max_hits: null`, it asks for how much of a document hits are, where one of them in a long text
        says little.
        """,
        high=None,
    ),
)


@rule_set(SOURCE, RULES)
class BadWords(RuleStep):
    """Drop documents that contain words or phrases of your lists, as C4 does."""

    pins_files: ClassVar = True

    step: Literal["bad_words"] = "bad_words"
    lists: dict[str, Address] = Field(
        min_length=1,
        description=f"Address of the list for each language (column `language`). `{ANY}` applies to every language.",
    )
    unspaced: tuple[str, ...] = Field(
        ("ja", "th", "zh"), description="Languages written without spaces, where an entry also matches inside words."
    )
    allowed: tuple[str, ...] = Field(
        ("sm", "グロ", "女の子", "性"),
        description="Entries to remove from all lists. Default: C4's, each of which matches over 10% of "
        "the documents in ja or zh.",
    )
    checksums: tuple[tuple[Address, str], ...] = Field(
        (),
        description="Expected content of each list, as (address, xxh3-128). A list with other content is "
        "an error; see `pinned`.",
    )

    signal_fields: ClassVar = ("lists", "unspaced", "allowed", "checksums")

    @property
    def reads(self) -> tuple[str, ...]:
        return ("language",) if self.lists.keys() - {ANY} else ()

    def problems(self, deep: bool) -> Iterator[Problem]:
        for language, address in self.lists.items():
            yield from list_problems(address, ("lists", language), deep)


_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


def hits(text: kernels.scan.Scan, settings: BadWords, language: pa.ChunkedArray | None) -> Parts:
    marks = np.zeros(len(text.word_start) + 1, np.int64)
    count = np.zeros(len(text.chars), np.int64)
    texts = kernels.pieces.strings(text.data, text.documents)
    for name, address in settings.lists.items():
        entries = entries_of(
            address, dict(settings.checksums).get(address), settings.allowed, name in settings.unspaced
        )
        rows = np.arange(len(texts)) if name == ANY else np.flatnonzero(pc.equal(language, name))
        for d in rows[entries.somewhere(texts.take(pa.array(rows)))].tolist():
            spans = entries.spans(texts[d].as_py())
            count[d] += len(spans)
            begin, end = text.documents[d], text.documents[d + 1]
            places = begin + np.append(np.flatnonzero((text.data[begin:end] & 0xC0) != 0x80), end - begin)
            np.add.at(marks, np.searchsorted(text.word_stop, places[spans[:, 0]], side="right"), 1)
            np.add.at(marks, np.searchsorted(text.word_start, places[spans[:, 1]]), -1)
    return Parts("words", np.cumsum(marks)[:-1] > 0, value=count)


def word_share(text: kernels.scan.Scan, settings: BadWords, language: pa.ChunkedArray | None) -> Parts:
    return _share(text, hits(text, settings, language))


def _share(text: kernels.scan.Scan, parts: Parts) -> Parts:
    return Parts("words", parts.where, of=np.diff(text.words))


def measure(step: BadWords, documents: Batch) -> dict[str, pa.Array]:
    """A column for each rule, by one search."""
    parts = counted(step, step.rules[0], documents)
    assert isinstance(parts, Parts)
    values = (parts.values(documents.scan), _share(documents.scan, parts).values(documents.scan))
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
    """A list, read once per process. Raises ListError for one that is empty, has changed or is not in UTF-8."""
    entries = {
        entry_of(line, path)
        for path in list_files(address)
        for part in read_entries(path, checksum=checksum)
        for lines in part.lines
        for line in lines
    }
    if not entries - {*allowed}:
        raise ListError(f"the list {address} has no entries; write one per line")
    return _Entries(sorted(entries - {*allowed}), unspaced)
