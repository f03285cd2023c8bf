"""Sorted files merged into one, with bounded memory: a pass of an exchange between more than `FAN_IN` of them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise

import pyarrow as pa

from gristmill.storage import files, sorted_files
from gristmill.storage.checked_parquet import CheckedFile, open_checked
from gristmill.tasks.dedup.exchange import MERGED_BYTES, KeyRanges, SortedFiles

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
    """Write the rows of several sorted files into one; those of one key in the order of the files. Returns how many
    there are. `ends`: as in `sorted_files.write`.

    Held: some six times `_SLAB_BYTES`, the footers, and a row group of each file; also where one key has more rows.
    """
    with ExitStack() as stack, ThreadPoolExecutor(sorted_files.AT_ONCE) as pool:
        opened = list(pool.map(stack.enter_context, map(open_checked, paths)))
        key = sorted_files.key_of(opened[0], paths[0])
        fields = [
            field.with_nullable(any(file.schema.field(field.name).nullable for file in opened))
            for field in opened[0].schema
        ]
        rows = 0
        with sorted_files.create(target, pa.schema(fields), key, ends, group_bytes=MERGED_BYTES) as append:
            for low, high in pairwise(_cuts(opened, paths)):
                for table in _slab(opened, paths, low, high, key, pool):
                    append(table)
                    rows += len(table)
    return rows


def _slab(
    opened: list[CheckedFile], paths: list[str], low: int, high: int, key: str, pool: ThreadPoolExecutor
) -> Iterator[pa.Table]:
    """The rows of a range of keys, in their order. Those of a single key are in the order of the files as they are."""
    if high - low == 1:
        for file, path in zip(opened, paths, strict=True):
            yield from sorted_files.each_group(file, path, low, high)
    else:
        tables = pool.map(lambda file, path: sorted_files.read_range(file, path, low, high), opened, paths)
        yield sorted_files.sorted_by(pa.concat_tables(tables), key)


def _cuts(opened: list[CheckedFile], paths: list[str]) -> list[int]:
    """Ends of ranges of keys that have about `_SLAB_BYTES` each. A key that has more by itself is a range."""
    groups = sorted(
        group for file, path in zip(opened, paths, strict=True) for group in sorted_files.ends_of_groups(file, path)
    )
    if not groups:
        return []
    cuts, held, of_one = {groups[0][0], max(largest for _, largest, _ in groups) + 1}, 0, dict[int, int]()
    last = groups[0][0]
    for smallest, largest, size in groups:
        if held >= _SLAB_BYTES and smallest > last:
            cuts.add(smallest)
            last, held = smallest, 0
        held += size
        if smallest == largest:
            of_one[smallest] = of_one.get(smallest, 0) + size
    for one, size in of_one.items():
        if size >= _SLAB_BYTES:
            cuts |= {one, one + 1}
    return sorted(cuts)
