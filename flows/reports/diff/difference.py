"""All that differs between the finished corpora of two recipes, or what two stages keep."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.reports import pages
from gristmill.flows.reports.diff.columns import Columns, Shares, columns, shares
from gristmill.flows.reports.diff.matching import Alone, Matched, Side, match
from gristmill.flows.reports.marking import Passage, first_difference
from gristmill.flows.reports.tables import Table
from gristmill.storage import files, parquet
from gristmill.tasks.documents.selection import read_rows

_WORDS = 400  # of either text: beyond, lines are compared, since difflib's time grows with the square
_LINES = 2000  # of either text: beyond, all between the first and the last difference counts as changed
_SHOWN = 5  # documents whose first different passage is shown


@dataclass(frozen=True)
class ChangedText:
    """A document with another text; `removed`, `added`: characters of A that B does not have, and of B; `passages`: the
    first one that differs, on both sides, None where they differ only in white space."""

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


@dataclass(frozen=True)
class About:
    """A side: its name, its last stage, and what it keeps."""

    name: str
    stage: str
    documents: int
    characters: int


@dataclass(frozen=True)
class Difference:
    """`only_a`, `only_b`: documents that only one side keeps, by the reason of the other, most first; `both`: how many
    both keep, of which `by_url` have different ids; `changed`: those with another text; `columns`: what is distributed
    otherwise; `shares`: of tokens or characters."""

    a: About
    b: About
    only_a: list[Alone]
    only_b: list[Alone]
    both: int
    by_url: int
    changed: Changed
    columns: Columns
    shares: Shares

    @property
    def empty(self) -> bool:
        """Whether nothing differs."""
        alone = self.only_a or self.only_b or self.changed.documents
        measured = self.columns.numbers or self.columns.values or self.columns.only_a or self.columns.only_b
        return not (alone or measured or self.shares.sources.differing or self.shares.hosts.differing)

    @property
    def sentence(self) -> str:
        """How many documents both sides keep, and how many of them have another text."""
        return f"{self.both:,} documents are in both, {self.changed.documents:,} of them with different text"

    def _repr_html_(self) -> str:
        sides = [(name, one.name, one.documents, one.characters) for name, one in (("A", self.a), ("B", self.b))]
        one_sided = [
            (side, one.reason, one.documents, one.characters)
            for side, some in (("only A", self.only_a), ("only B", self.only_b))
            for one in some
        ]
        columns = ("side", "corpus", "#documents", "#characters"), ("side", "reason", "#documents", "#characters")
        shown = [Table(names, rows) for names, rows in zip(columns, (sides, one_sided), strict=True) if rows]
        return pages.notebook([self.sentence], shown)


def between(one: Side, other: Side) -> Difference:
    """Compare two sides.

    Reads shard by shard, and texts only where the sides have them from different stages. Rows of corpora of other files
    are matched by DuckDB, which spills what exceeds memory to the system's temporary folder.
    """
    matched = match(one, other)
    about = _about(one)
    return Difference(
        about,
        _about(other),
        matched.alone_a,
        matched.alone_b,
        about.documents - sum(some.documents for some in matched.alone_a),
        matched.by_url,
        changed(one, other, matched),
        columns(one, other),
        shares(one, other),
    )


def _about(side: Side) -> About:
    documents = characters = 0
    for shard in side.shards:
        kept = parquet.read_table(side.kept.part(shard), ["characters"])["characters"]
        documents += len(kept)
        characters += int(kept.to_numpy().sum())
    return About(side.label, side.kept.label, documents, characters)


# The page of a comparison: what differs between two corpora, on one HTML page that needs no server and no network.


def write(found: Difference, to: str) -> str:
    """Write the page to a file, and return its path."""
    files.write_bytes(to, page(found).encode())
    return to


def page(found: Difference) -> str:
    """The page; the same difference gives the same bytes. It holds first passages of texts that differ."""
    return pages.render("diff.html", found=found, **_tables(found))


def _tables(found: Difference) -> dict[str, Any]:
    """Rows of the page's tables: sides, documents of one side, columns with numbers, shares of groups."""

    def form(value: float | None) -> str:
        return "-" if value is None else f"{value:.4g}"

    whole_a, whole_b = found.shares.total
    sides = [(letter, *vars(side).values()) for letter, side in (("A", found.a), ("B", found.b))]
    alone = [[(one.reason, one.documents, one.characters) for one in some] for some in (found.only_a, found.only_b)]
    numbers = [
        (f"{one.name[:80]}, {letter}", one.documents[side], one.missing[side], form(one.mean[side]),
         *(form(both[side]) for both in one.quantiles.values()))
        for one in found.columns.numbers for side, letter in enumerate("AB")
    ]  # fmt: skip
    groups = {
        what: [
            (one.name[:80], *one.documents, one.amount[0], pages.share(one.amount[0], whole_a), one.amount[1],
             pages.share(one.amount[1], whole_b), f"{one.amount[1] - one.amount[0]:+,}")
            for one in some.most
        ]
        for what, some in (("source", found.shares.sources), ("host", found.shares.hosts))
    }  # fmt: skip
    quantiles = [f"#{name}" for name in found.columns.numbers[0].quantiles] if numbers else []
    values = [[(f"{value}"[:60], *both) for value, both in one.values.items()] for one in found.columns.values]
    shown = {"numbers": numbers, "quantiles": quantiles, "values": values, "groups": groups}
    return {"sides": sides, "alone": alone} | shown
