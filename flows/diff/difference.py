"""All that differs between the finished corpora of two recipes, or what two stages keep."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gristmill.flows.diff.changes import Changed, changed
from gristmill.flows.diff.columns import Columns, columns
from gristmill.flows.diff.matching import Alone, match
from gristmill.flows.diff.shares import Shares, shares
from gristmill.flows.diff.sides import Side, side_of
from gristmill.flows.machine.settings import MachineSettings
from gristmill.storage import parquet


@dataclass(frozen=True)
class About:
    """A side: its name, its last stage, and what it keeps."""

    name: str
    stage: str
    documents: int
    characters: int


@dataclass(frozen=True)
class Difference:
    """`only_a`, `only_b`: documents that one side keeps alone, by the reason of the other, most first; `both`: how many
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


def diff(a: Any, b: Any, settings: MachineSettings | None = None) -> Difference:
    """Compare two finished recipes, or stages of the home named `name-key`.

    Reads shard by shard, and texts only where the sides have them from different stages. Rows of corpora of other files
    are matched in a temporary folder beside the databases of this machine, about 200 bytes for each record. Raises
    NotFinishedError for a recipe that is not finished, LookupError and ValueError as `side_of` does.
    """
    settings = settings or MachineSettings()
    return between(side_of(a, settings), side_of(b, settings), Path(settings.local_folder))


def between(one: Side, other: Side, scratch: Path) -> Difference:
    """The same of two sides; `scratch`: a folder for temporary files."""
    scratch.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="diff-", dir=scratch) as folder:
        matched = match(one, other, Path(folder))
        divided = shares(one, other, Path(folder))
    return Difference(
        _about(one),
        _about(other),
        _ranked(matched.alone_a),
        _ranked(matched.alone_b),
        matched.both,
        matched.by_url,
        changed(one, other, matched),
        columns(one, other),
        divided,
    )


def _about(side: Side) -> About:
    documents = characters = 0
    for shard in side.shards:
        kept = parquet.read_table(side.kept.part(shard), ["characters"])["characters"]
        documents += len(kept)
        characters += int(kept.to_numpy().sum())
    return About(side.label, side.kept.label, documents, characters)


def _ranked(alone: dict[str, Alone]) -> list[Alone]:
    return sorted(alone.values(), key=lambda one: (-one.documents, one.reason))
