"""What was changed in the texts that both sides have, in characters, of documents that were drawn by a hash."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.diff.matching import Matched
from gristmill.flows.diff.sides import Side
from gristmill.flows.reports.marking import Passage, first_difference
from gristmill.storage import parquet
from gristmill.tasks.documents.selection import read_rows

_WORDS = 400  # of either text: beyond, lines are compared, since difflib's time grows with the square
_LINES = 2000  # likewise: beyond, all between the first and the last difference counts as changed
_SHOWN = 5  # documents whose first different passage is shown


@dataclass(frozen=True)
class ChangedText:
    """A document with another text; `removed`, `added`: characters of A that B does not have, and of B; `passages`: the
    first one that differs, on both sides, None where they differ in white space alone."""

    id_a: str
    id_b: str
    url: str | None
    removed: int
    added: int
    passages: tuple[Passage, Passage] | None


@dataclass(frozen=True)
class Changed:
    """Documents that both sides have with another text, and all their characters on both sides.

    `counted`: how many of them were drawn and compared, all where there are few; `removed`, `added`: characters that
    changed in those; `examples`: some of them.
    """

    documents: int
    characters_a: int
    characters_b: int
    counted: int
    removed: int
    added: int
    examples: list[ChangedText] = field(default_factory=list)


def changed(a: Side, b: Side, matched: Matched) -> Changed:
    """What was changed. Holds the texts of the documents that were drawn, up to `matching.DRAWN` of either side."""
    rows = matched.drawn.to_pylist()
    texts_a = _texts(a, matched.drawn["shard_a"], matched.drawn["id_a"])
    texts_b = _texts(b, matched.drawn["shard_b"], matched.drawn["id_b"])
    removed = added = 0
    examples: list[ChangedText] = []
    for row in rows:
        one, other = texts_a[row["id_a"]], texts_b[row["id_b"]]
        gone, new = changed_characters(one, other)
        removed, added = removed + gone, added + new
        if len(examples) < _SHOWN:
            passages = first_difference(one, other)
            examples.append(ChangedText(row["id_a"], row["id_b"], row["url"], gone, new, passages))
    return Changed(matched.changed, matched.characters_a, matched.characters_b, len(rows), removed, added, examples)


def _texts(side: Side, shards: pa.ChunkedArray, ids: pa.ChunkedArray) -> Mapping[str, str]:
    """The texts of some documents, by id. Reads the row groups that have one."""
    found: dict[str, str] = {}
    for shard in pc.unique(shards).to_pylist():
        part = side.documents.part(shard)
        wanted = ids.filter(pc.equal(shards, shard)).combine_chunks()
        at = np.flatnonzero(pc.is_in(parquet.read_table(part, ["id"])["id"], wanted))
        table = read_rows(part, at, ["id", "text"])
        found |= dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    return found


def changed_characters(one: str, other: str) -> tuple[int, int]:
    """How many code points of a text the other does not have, and of the other the first, by words between their first
    and their last difference; of longer texts by lines, of very long ones all between these."""
    start = next((at for at, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))
    most = min(len(one), len(other)) - start
    end = next((at for at in range(most) if one[-1 - at] != other[-1 - at]), most)
    left, right = one[start : len(one) - end], other[start : len(other) - end]
    if not left or not right:
        return len(left), len(right)
    words = list(_by_words(left)), list(_by_words(right))
    if max(map(len, words)) <= _WORDS:
        return _unlike(*words)
    start = one.rfind("\n", 0, start) + 1  # whole lines
    end = len(one) - (one.find("\n", len(one) - end) + 1 or len(one))
    lines = one[start : len(one) - end].splitlines(True), other[start : len(other) - end].splitlines(True)
    return _unlike(*lines) if max(map(len, lines)) <= _LINES else (len(left), len(right))


def _unlike(one: list[str], other: list[str]) -> tuple[int, int]:
    same = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    kept = sum(len(piece) for block in same for piece in one[block.a : block.a + block.size])
    return sum(map(len, one)) - kept, sum(map(len, other)) - kept


def _by_words(text: str) -> Iterator[str]:
    return (found[0] for found in re.finditer(r"\s+|\w+|[^\w\s]", text))
