"""The columns of a source's files that are read: as texts, URLs, ids and dates, and those that documents carry."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.tasks.documents.step import DOCUMENT_COLUMNS, PAGE_COLUMNS

# Columns that a source gives by a key of their own, and those that steps give in every export.
_PLACED = ("text", "url", "id", "date")
TAKEN = frozenset({*DOCUMENT_COLUMNS, "language", "cluster_size"} - {*PAGE_COLUMNS})
OWN_NAME = re.compile(r"\w[\w -]*")


@dataclass(frozen=True)
class Columns:
    """Names of the columns, or keys, that are read; None for one that there is not. `own`: those that documents carry,
    as (name there, name in the file); `every`: all that have no other use; `pages`: whether the column `text` holds the
    bytes of pages, which are extracted, and no texts."""

    text: str = "text"
    url: str | None = None
    id: str | None = None
    date: str | None = None
    own: tuple[tuple[str, str], ...] = ()
    every: bool = False
    pages: bool = False

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that are read as text, URL, id or date."""
        return tuple(name for name in (self.text, self.url, self.id, self.date) if name)

    def own_of(self, there: Sequence[str]) -> list[tuple[str, str]]:
        """Those of a file's columns that documents carry: the name that they have there, and that in the file."""
        if self.every:
            return [(name, name) for name in there if name not in self.named]
        return [(ours, theirs) for ours, theirs in self.own if theirs in there]


NO_COLUMNS = Columns()


def check_own_names(columns: Mapping[str, str]) -> None:
    """Raise ValueError for a name of a column, by which documents carry one of a file's, that they cannot have."""
    for ours, theirs in columns.items():
        if ours in _PLACED:
            raise ValueError(
                f"names {ours}, which documents have already: write `{ours}_column: {theirs}` in the source, and name "
                f"the others one by one in `columns`{_renamed(ours, theirs).replace('; give', '; or give')}"
            )
        if ours in TAKEN:
            raise ValueError(f"names {ours}, which documents have already{_renamed(ours, theirs)}")
        if not OWN_NAME.fullmatch(ours):
            raise ValueError(
                f"names {ours!r}, which has other characters than letters, digits, _, - and spaces; give it a name of "
                f"its own, as `columns: {{my_name: {theirs!r}}}`"
            )


def _renamed(ours: str, theirs: str) -> str:
    return f"; give it a name of its own, as `columns: {{their_{ours}: {theirs}}}`"


def columns_of(own: Any, text: str, url: str | None, id: str | None, date: str | None) -> Columns:
    """The columns of a source whose setting `columns` is `own`: "*" for all, names, or names by the file's names."""
    if own == "*":
        return Columns(text, url, id, date, every=True)
    return Columns(text, url, id, date, tuple(by_name(own).items()))


def by_name(columns: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """The names in the file of the columns that documents carry, by their names there."""
    return dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
