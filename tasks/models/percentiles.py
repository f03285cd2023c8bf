"""Percentiles of a score over all documents of a corpus, for each group of them by itself, without holding the scores.

A percentile is between two order statistics. These are found digit by digit, the highest 16 bits first: bit patterns
of floats, suitably turned, sort as the floats do. For each digit the scores are read once, and those that share the
digits found so far are counted by their next one. Counts are added up, so that neither the order of the parts nor how
documents are divided among them changes a bit. The result is exactly `numpy.percentile` of all scores.
Sketches of quantiles (KLL, t-digest) take one pass, but their result depends on random numbers or on the order.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import parquet

_DIGIT = 16
_SHIFTS = (48, 32, 16, 0)
_AT_ONCE = 256  # parts whose counts are held before they are added up
_MAX_GROUPS = 1 << 16

T = TypeVar("T")


@dataclass
class _OrderStatistic:
    """The score with `rank` scores of its group before it: `digits`, its highest bits that are known; `rank` counts
    among the scores that share these."""

    group: int
    rank: int
    digits: int = 0

    def slot(self) -> int:
        return self.group << 48 | self.digits


def percentiles(
    parts: Sequence[str], signal: str, levels: Sequence[float], group: str | None = None, least: int = 1
) -> dict[str, list[float]]:
    """The values at the percentiles `levels`, in [0, 100], of the column `signal`, by linear interpolation.

    `parts`: Parquet files with the float column `signal` and, if it is given, the string column `group`, whose every
    value is a group with its own percentiles; without it there is one group, "". Documents whose score is null are left
    out. Returns the groups that have a score, in the order of their names, each with one value a level, or with
    none if it has fewer than `least` scores.

    Reads the parts five times. Holds one row group and at most 65,536 counts for each group and value: never all
    scores. Raises ValueError for a score that is not finite, and for more than 65,536 groups.
    """
    sizes: Counter[str] = Counter()
    for part_sizes in _of_parts(parts, lambda part: _sizes(part, signal, group)):
        sizes.update(part_sizes)
    names = sorted(sizes)
    levels_of = {name: levels if sizes[name] >= least else () for name in names}
    if len(names) > _MAX_GROUPS:
        raise ValueError(
            f"the column {group} has {len(names)} values; percentiles are supported for at most {_MAX_GROUPS} groups"
        )
    places = {name: [(sizes[name] - 1) * (each / 100) for each in levels_of[name]] for name in names}
    statistics = {
        (number, rank): _OrderStatistic(number, rank)
        for number, name in enumerate(names)
        for place in places[name]
        for rank in (int(place), min(int(place) + 1, sizes[name] - 1))
    }
    for shift in _SHIFTS if statistics else ():
        _find_digit(parts, signal, group, names, list(statistics.values()), shift)
    values = {key: _float(each.digits) for key, each in statistics.items()}
    return {
        name: [
            _interpolate(values[number, int(place)], values[number, min(int(place) + 1, sizes[name] - 1)], place % 1)
            for place in places[name]
        ]
        for number, name in enumerate(names)
    }


def _interpolate(low: float, high: float, share: float) -> float:
    """Interpolate as numpy does, to the last bit."""
    return high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share


def _find_digit(
    parts: Sequence[str],
    signal: str,
    group: str | None,
    names: Sequence[str],
    statistics: Sequence[_OrderStatistic],
    shift: int,
) -> None:
    """Append to each order statistic its digit at `shift`."""
    slots = np.unique(np.array([each.slot() for each in statistics], np.uint64))

    def count(part: str) -> tuple[np.ndarray, np.ndarray]:
        return _add_histograms([_counts(*read, slots, shift) for read in _read(part, signal, group, names)])

    bins, counts = np.empty(0, np.uint64), np.empty(0, np.int64)
    histograms = [(bins, counts)]
    for part_counts in _of_parts(parts, count):
        histograms.append(part_counts)
        if len(histograms) > _AT_ONCE:
            histograms = [_add_histograms(histograms)]
    bins, counts = _add_histograms(histograms)
    ends = np.searchsorted(bins, np.arange(len(slots) + 1, dtype=np.uint64) << np.uint64(_DIGIT))
    for each in statistics:
        slot = int(np.searchsorted(slots, np.uint64(each.slot())))
        begin, end = ends[slot : slot + 2].tolist()
        before = np.cumsum(counts[begin:end])
        index = int(np.searchsorted(before, each.rank, side="right"))
        each.rank -= int(before[index - 1]) if index else 0
        each.digits = each.digits << _DIGIT | int(bins[begin + index]) & 0xFFFF


def _counts(numbers: np.ndarray, keys: np.ndarray, slots: np.ndarray, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """How many of some scores have each next digit, of those in a slot: (slot << 16 | digit, count), sorted."""
    keys = keys >> np.uint64(shift)
    slot_keys = numbers << np.uint64(48) | keys >> np.uint64(_DIGIT)
    indices = np.searchsorted(slots, slot_keys)
    here = slots[np.minimum(indices, len(slots) - 1)] == slot_keys
    return np.unique(
        indices[here].astype(np.uint64) << np.uint64(_DIGIT) | keys[here] & np.uint64(0xFFFF), return_counts=True
    )


def _add_histograms(histograms: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    bins, inverse = np.unique(np.concatenate([each for each, _ in histograms]), return_inverse=True)
    counts = np.zeros(len(bins), np.int64)
    np.add.at(counts, inverse, np.concatenate([each for _, each in histograms]))
    return bins, counts


def _of_parts(parts: Sequence[str], work: Callable[[str], T]) -> Iterator[T]:
    """What `work` gives for each part. Holds what it gives for 256 parts."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(parts), _AT_ONCE):
            yield from pool.map(work, parts[start : start + _AT_ONCE])


def _columns(part: str, signal: str, group: str | None) -> Iterator[tuple[pa.ChunkedArray, pa.ChunkedArray]]:
    """The scores that are there and the names of their groups, row group by row group."""
    for table in parquet.groups(part, [signal] if group is None else [signal, group]):
        table = table.filter(pc.is_valid(table[signal]))
        names = pa.chunked_array([pa.repeat("", len(table))]) if group is None else pc.fill_null(table[group], "")
        yield table[signal], names


def _sizes(part: str, signal: str, group: str | None) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for scores, names in _columns(part, signal, group):
        if not pc.all(pc.is_finite(scores)).as_py() and len(scores):
            raise ValueError(f"{part} has a {signal} that is not a finite number: it has no place among the others")
        for each in pc.value_counts(names).to_pylist():
            sizes[each["values"]] += each["counts"]
    return sizes


def _read(part: str, signal: str, group: str | None, names: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The numbers of the groups and the keys of the scores, both uint64, row group by row group."""
    values = pa.array(names, pa.string())
    for scores, groups in _columns(part, signal, group):
        numbers = np.asarray(pc.index_in(groups, values)).astype(np.uint64)
        yield numbers, _keys(np.asarray(scores, np.float64))


def _keys(scores: np.ndarray) -> np.ndarray:
    """Numbers that sort as the scores do: uint64."""
    bits = (scores + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)


def _float(key: int) -> float:
    bits = key & ~(1 << 63) if key >> 63 else ~key & (1 << 64) - 1
    return float(np.uint64(bits).view(np.float64))
