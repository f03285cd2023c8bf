"""What a stage has for each shard, as folders and runs of shards: of one size, however many shards there are.

They are sequences whose items are made when they are asked for. A flow holds them and a job is given them, where tuples
of paths would grow with the corpus.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from typing import TypeVar, overload

from gristmill.storage import layout

T = TypeVar("T", covariant=True)


class _ByShard(Sequence[T]):
    """Items that `_item` makes, of 0 up to the length."""

    def _item(self, index: int) -> T:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return [self._item(i) for i in range(len(self))[index]]
        return self._item(range(len(self))[index])


@dataclass(frozen=True)
class Shards(_ByShard[int]):
    """Numbers of shards in their order, as `runs`: (the first, one past the last)."""

    runs: tuple[tuple[int, int], ...]

    @classmethod
    def joined(cls, runs: Iterable[tuple[int, int]]) -> "Shards":
        """Runs in their order, those that follow each other without a gap as one."""
        ranges: list[tuple[int, int]] = []
        for begin, end in runs:
            if ranges and ranges[-1][1] == begin:
                begin = ranges.pop()[0]
            if begin < end:
                ranges.append((begin, end))
        return cls(tuple(ranges))

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(end - begin for begin, end in self.runs))

    def __len__(self) -> int:
        return self._ends[-1] if self.runs else 0

    def __iter__(self) -> Iterator[int]:
        for begin, end in self.runs:
            yield from range(begin, end)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and any(begin <= number < end for begin, end in self.runs)

    def _item(self, index: int) -> int:
        run = bisect_right(self._ends, index)
        return self.runs[run][1] - (self._ends[run] - index)


@dataclass(frozen=True)
class Names(_ByShard[str]):
    """A name for each shard, as `runs` of shards that share one: (name, how many)."""

    runs: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> "Names":
        """The names of shards with one name each."""
        if isinstance(names, cls):
            return names
        return cls(tuple((name, sum(1 for _ in run)) for name, run in groupby(names)))

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(count for _, count in self.runs))

    def __len__(self) -> int:
        return self._ends[-1] if self.runs else 0

    def __iter__(self) -> Iterator[str]:
        for name, count in self.runs:
            for _ in range(count):
                yield name

    def _item(self, index: int) -> str:
        return self.runs[bisect_right(self._ends, index)][0]

    def distinct(self) -> list[str]:
        """The names in the order in which they come first."""
        return list(dict.fromkeys(name for name, _ in self.runs))

    def shards(self, names: Iterable[str]) -> Shards:
        """The shards with one of some names."""
        selection = set(names)
        ends = zip(self.runs, self._ends, strict=True)
        return Shards.joined((end - count, end) for (name, count), end in ends if name in selection)


@dataclass(frozen=True)
class Parts(_ByShard[str]):
    """The parts of some shards in a folder, by path."""

    folder: str
    shards: Shards

    def __len__(self) -> int:
        return len(self.shards)

    def _item(self, index: int) -> str:
        return layout.part(self.folder, self.shards[index])


@dataclass(frozen=True)
class PartsOfSeveral(_ByShard[tuple[str, ...]]):
    """The parts of each of some shards in several folders, by path."""

    folders: tuple[str, ...]
    shards: Shards

    def __len__(self) -> int:
        return len(self.shards)

    def _item(self, index: int) -> tuple[str, ...]:
        shard = self.shards[index]
        return tuple(layout.part(folder, shard) for folder in self.folders)
