"""How rows come from many jobs to many others: in sorted files, by ranges of their key, merged where they are many.

Each of n jobs writes one sorted file, and each of m jobs reads its range of all of them. That are n times m ranges. So
more than `FAN_IN` files are merged first, as in an external merge sort, until a job reads at most that many. Where m is
the number of shards, as on the way back, one job for many shards writes a file for them, of which each shard reads its
row groups. So the files that are opened grow with n + m, and a job is told a folder and a number of files.

The number of ranges depends only on the rows, not on the machine: it is the same on a laptop and on 6,400 cores.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from gristmill.storage import files, sorted_files
from gristmill.storage.parquet import CheckedFile, open_checked

# Sorted files that one job reads, at most; and of those that are merged into one, at least.
FAN_IN, MIN_FAN_IN = 512, 32
# What a job holds of a partition, about: half of what a job may hold (`gristmill.tasks.engine.options`). So a crawl of
# 2.5 billion documents has some 7,000 partitions of band hashes, and no core of 6,400 idles.
JOB_BYTES = 1 << 29
# Small corpora have smaller partitions, up to this many, for machines of as many cores.
SMALL_BYTES, FEW = 1 << 24, 64
# A row group of a file that is merged: every file has some of each slab.
MERGED_BYTES = 1 << 18


def partitions_of(rows: int, row_bytes: int) -> int:
    """The number of partitions of `rows` rows, of which a job holds `row_bytes` each."""
    n_bytes = rows * row_bytes
    return max(-(-n_bytes // JOB_BYTES), min(FEW, 1 + n_bytes // SMALL_BYTES))


def partition_bytes(n_bytes: int, partitions: int | None) -> int:
    """Bytes that a job holds of one of `partitions`, where all of them take `n_bytes`; None: partitions by size."""
    return min(n_bytes, JOB_BYTES) if partitions is None else n_bytes // partitions


@dataclass(frozen=True)
class SortedFiles:
    """The files 00000.parquet, ... of a folder, `files` of them."""

    folder: str
    files: int

    def path(self, number: int) -> str:
        return files.join(self.folder, f"{number:05d}.parquet")

    def paths(self, begin: int = 0, end: int | None = None) -> list[str]:
        return [self.path(number) for number in range(self.files)[begin:end]]

    def each(self, low: int, high: int, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The rows with low <= key < high of each file in turn; see `sorted_files.read_each`."""
        return sorted_files.read_each(self.paths(), low, high, columns)


@dataclass(frozen=True)
class KeyRanges:
    """`units` of `each` keys, from the key `first` on, divided into `ranges` ranges. A unit is a shard; of hashes it is
    one hash."""

    ranges: int
    units: int = 1 << 64
    first: int = 0
    each: int = 1

    def begin(self, number: int) -> int:
        """The first key of a range, or, of the number of ranges, the end of the last."""
        return self.first + number * self.units // self.ranges * self.each

    def bounds(self, number: int) -> tuple[int, int]:
        """The first key of a range, and the first key after it."""
        return self.begin(number), self.begin(number + 1)

    def ends(self) -> list[int]:
        """The n+1 ends of the ranges."""
        return [self.begin(number) for number in range(self.ranges + 1)]

    def of(self, unit: int) -> int:
        """The range that has a unit."""
        return ((unit + 1) * self.ranges - 1) // self.units

    def unit_ends(self, number: int) -> list[int]:
        """Where the units of a range begin, and where the last ends."""
        low, high = self.bounds(number)
        return [*range(low, high, self.each), high]

    def unit_bounds(self, unit: int) -> tuple[int, int]:
        """The first key of a unit, and the first key after it."""
        low = self.first + unit * self.each
        return low, low + self.each


def write(path: str, table: pa.Table, key: str, ranges: KeyRanges | None) -> None:
    """Write the file of one job. `ranges`: those that other jobs read it by, None where it is merged first."""
    if ranges is None:
        sorted_files.write(path, table, key, group_bytes=MERGED_BYTES)
    else:
        sorted_files.write(path, table, key, ranges.ends())


def unless_merged(n_files: int, ranges: KeyRanges) -> KeyRanges | None:
    """`ranges` for `write`, by which other jobs read the files; None if there are so many files that they are
    merged."""
    return ranges if n_files <= FAN_IN else None


def fan_ins(n_files: int) -> list[int]:
    """How many files are merged into one in each pass, until there are at most FAN_IN; the same in all passes, so that
    each has as many jobs as it can."""
    passes = 0
    while n_files > FAN_IN ** (passes + 1):
        passes += 1
    fan_in = MIN_FAN_IN
    while passes and n_files > FAN_IN * fan_in**passes:
        fan_in += 1
    counts = []
    while n_files > FAN_IN:
        counts.append(fan_in)
        n_files = -(-n_files // fan_in)
    return counts


def collect_shards(folder: str, number: int, source: SortedFiles, target: str, ranges: KeyRanges, key: str) -> dict:
    """Write the rows of a range of shards as one file of the folder `target`, a row group begun at each shard. Holds
    the rows of the range twice."""
    table = pa.concat_tables(source.each(*ranges.bounds(number)))
    path = SortedFiles(files.join(folder, target), 0).path(number)
    sorted_files.write(path, table, key, ranges.unit_ends(number))
    return {"rows": len(table)}


@dataclass(frozen=True)
class CollectedShards:
    """What `collect_shards` has written: the folder and its ranges of shards."""

    folder: str
    ranges: KeyRanges

    def read(self, shard: int, columns: list[str] | None = None) -> pa.Table:
        """The rows of a shard."""
        path = SortedFiles(self.folder, self.ranges.ranges).path(self.ranges.of(shard))
        return sorted_files.read(path, *self.ranges.unit_bounds(shard), columns)


# Sorted files merged into one, with bounded memory: a pass of an exchange between more than `FAN_IN` of them.


# What of all files is merged at once.
_SLAB_BYTES = 1 << 27


def merge_files(
    folder: str, number: int, source: SortedFiles, fan_in: int, target: str, ranges: KeyRanges | None
) -> dict:
    """Merge `fan_in` sorted files, the `number`-th such group, into one of the folder `target`. Held: see `merge`."""
    paths = source.paths(number * fan_in, (number + 1) * fan_in)
    path = SortedFiles(files.join(folder, target), 0).path(number)
    return {"rows": merge(paths, path, ranges.ends() if ranges else None)}


def merge(paths: list[str], target: str, ends: list[int] | None = None) -> int:
    """Write the rows of several sorted files into one; rows of one key in the order of the files. Returns how many
    there are. `ends`: as in `sorted_files.write`.

    Held: some six times `_SLAB_BYTES`, the footers, and a row group of each file; also where one key has more rows.
    """
    with ExitStack() as stack, ThreadPoolExecutor(sorted_files.AT_ONCE) as pool:
        inputs = list(pool.map(stack.enter_context, map(open_checked, paths)))
        key = sorted_files.key_of(inputs[0], paths[0])
        fields = [
            field.with_nullable(any(file.schema.field(field.name).nullable for file in inputs))
            for field in inputs[0].schema
        ]
        rows = 0
        with sorted_files.create(target, pa.schema(fields), key, ends, group_bytes=MERGED_BYTES) as append:
            for low, high in pairwise(_cuts(inputs, paths)):
                for table in _slab(inputs, paths, low, high, key, pool):
                    append(table)
                    rows += len(table)
    return rows


def _slab(
    inputs: list[CheckedFile], paths: list[str], low: int, high: int, key: str, pool: ThreadPoolExecutor
) -> Iterator[pa.Table]:
    """The rows of a range of keys, in their order. Rows of a single key are in the order of the files."""
    if high - low == 1:
        for file, path in zip(inputs, paths, strict=True):
            yield from sorted_files.each_group(file, path, low, high)
    else:
        tables = pool.map(lambda file, path: sorted_files.read_range(file, path, low, high), inputs, paths)
        yield sorted_files.sorted_by(pa.concat_tables(tables), key)


def _cuts(inputs: list[CheckedFile], paths: list[str]) -> list[int]:
    """Ends of ranges of keys that have about `_SLAB_BYTES` each. A key that has more by itself is a range."""
    groups = sorted(
        group for file, path in zip(inputs, paths, strict=True) for group in sorted_files.ends_of_groups(file, path)
    )
    if not groups:
        return []
    cuts, n_bytes, of_one = {groups[0][0], max(largest for _, largest, _ in groups) + 1}, 0, dict[int, int]()
    last = groups[0][0]
    for smallest, largest, size in groups:
        if n_bytes >= _SLAB_BYTES and smallest > last:
            cuts.add(smallest)
            last, n_bytes = smallest, 0
        n_bytes += size
        if smallest == largest:
            of_one[smallest] = of_one.get(smallest, 0) + size
    for one, size in of_one.items():
        if size >= _SLAB_BYTES:
            cuts |= {one, one + 1}
    return sorted(cuts)
