"""A sample of documents that is the same for any number of shards and workers, stratified by columns.

Documents are ordered by a keyed hash of their ids. Each stratum has the same number of documents, and what a small one
lacks is divided among the others. A sample is known by one number per stratum: the highest hash in it.

A column with few different numbers, such as a grade, has a stratum for each of them. Numbers of other columns are
grouped by powers of four, or by the ends of strata that the settings give: with two ends around the cut of a score, the
documents of which a model is uncertain have a third of the sample, however few they are.

The weight of a document of the sample is the number of documents in its stratum for each in the sample, the inverse of
the probability with which it was drawn (Horvitz and Thompson 1952).
"""

import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import orjson
import pyarrow as pa
from pydantic import Field, model_validator

from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.selection import gather, uniform
from gristmill.tasks.documents.step import Settings

Thresholds = Mapping[str, float]
"""The highest hash of the sample by stratum."""

MAX_STRATA = 10_000
MAX_NUMBERS = 32  # different ones of a column that has a stratum for each
SAMPLE, WEIGHTS = "sample.json", "weights.json"  # in the stage's folder: the thresholds; weights, by stratum
_PURPOSE = "annotate"
_SHOWN = 20  # strata in a line of the log


class Sampling(Settings):
    """Which documents a model is asked about."""

    of: int | None = Field(None, gt=0, description="Number of documents to ask about. null: all.")
    by: tuple[str, ...] = Field(
        (),
        description="Columns by whose values the sample is stratified: each combination has the same number of "
        f"documents. Numbers of a column with more than {MAX_NUMBERS} different ones are grouped by powers of four.",
    )
    bounds: dict[str, tuple[float, ...]] = Field(
        {},
        description="Ends of the strata of columns of numbers in `by`, such as `{edu_score: [0.4, 0.6]}` for three.",
        exclude_if=lambda bounds: not bounds,
    )
    seed: int = Field(0, description="Seed of the sample.")

    @model_validator(mode="after")
    def _ends_of_columns(self) -> Self:
        for name, ends in self.bounds.items():
            if name not in self.by:
                raise ValueError(f"has `bounds` of {name}, which is not in `by`; add it there")
            if not ends or list(ends) != sorted(set(ends)):
                raise ValueError(f"has `bounds` of {name} that do not ascend; give numbers such as [0.4, 0.6]")
        return self


Bounds = Mapping[str, Sequence[float]]
"""The ends of the strata by column."""


def strata(table: pa.Table, by: Sequence[str], single: Collection[str] = (), bounds: Bounds | None = None) -> list[str]:
    """The stratum of each document: its values as JSON, numbers as their power of four. `single`: columns whose numbers
    are strata of their own; `bounds`: the ends of strata, each of which begins the next one."""
    bounds = bounds or {}
    columns = [
        [
            _between(value, bounds[name]) if name in bounds else _group(value, name in single)
            for value in table[name].to_pylist()
        ]
        for name in by
    ]
    if not columns:
        return [""] * len(table)
    return [json.dumps(values, ensure_ascii=False) for values in zip(*columns, strict=True)]


def _group(value: Any, is_single: bool) -> Any:
    if not _is_number(value):
        return value
    if is_single and math.isfinite(value):
        return int(value) if value == int(value) else value
    if not math.isfinite(value) or value < 1:
        return "below 1" if value < 1 else str(value)
    power = math.frexp(value)[1] - 1
    return f"from {4 ** (power // 2)}"


def _between(value: Any, ends: Sequence[float]) -> Any:
    if not _is_number(value) or math.isnan(value):
        return None if _is_number(value) else value
    place = bisect_right(ends, value)
    low, high = (f"{end:g}" for end in (ends[place - 1], ends[min(place, len(ends) - 1)]))
    if place == 0:
        return f"below {high}"
    return f"from {low}" if place == len(ends) else f"from {low} to {high}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def single_columns(thresholds: Thresholds, by: Sequence[str]) -> set[str]:
    """The columns whose numbers are strata of their own, which only the strata of such columns have."""
    labels = [json.loads(stratum) for stratum in thresholds] if by else []
    return {name for at, name in enumerate(by) if any(_is_number(label[at]) for label in labels)}


def sampled(
    table: pa.Table, by: Sequence[str], seed: int, thresholds: Thresholds | None, bounds: Bounds | None = None
) -> np.ndarray:
    """Which rows of a table with `id` and the columns of `by` are in the sample, bool. None: all."""
    if thresholds is None:
        return np.ones(len(table), bool)
    labels = strata(table, by, single_columns(thresholds, by), bounds)
    highest = np.array([thresholds.get(stratum, -1.0) for stratum in labels], np.float64)
    return uniform(table["id"], seed, _PURPOSE) <= highest


def numbers_shard(
    folder: str, number: int, documents: str, kept: str, signals: tuple[str, ...], by: tuple[str, ...]
) -> dict:
    """The different finite numbers of each column of a shard, at most one more than MAX_NUMBERS."""
    table = gather((documents, kept, *signals), kept, list(by))
    return {name: _numbers(table[name])[: MAX_NUMBERS + 1] for name in by}


def _numbers(column: pa.ChunkedArray) -> list[float]:
    values = (value for value in column.unique().to_pylist() if _is_number(value))
    return sorted(value for value in values if math.isfinite(value))


def columns_of_few(shards: Iterable[Mapping[str, Sequence[float]]], by: Sequence[str]) -> tuple[str, ...]:
    """The columns of `by` with at most MAX_NUMBERS different numbers in all shards."""
    numbers: dict[str, set[float]] = {name: set() for name in by}
    for each in shards:
        for name, values in numbers.items():
            if len(values) <= MAX_NUMBERS:
                values.update(each[name])
    return tuple(name for name in by if 0 < len(numbers[name]) <= MAX_NUMBERS)


def candidates_shard(
    folder: str,
    number: int,
    documents: str,
    kept: str,
    signals: tuple[str, ...],
    by: tuple[str, ...],
    of: int,
    seed: int,
    single: tuple[str, ...] = (),
    bounds: Bounds | None = None,
) -> dict:
    """Write the `of` lowest hashes of each stratum of a shard. Returns the number of documents by stratum. `single`,
    `bounds`: as of `strata`."""
    table = gather((documents, kept, *signals), kept, list(by))
    labels, hashes = strata(table, by, single, bounds), uniform(table["id"], seed, _PURPOSE)
    counts = Counter(labels)
    check_strata(counts, by)
    kept_labels, kept_hashes = lowest(labels, hashes, dict.fromkeys(counts, of))
    columns = {"stratum": pa.array(kept_labels, pa.string()), "hash": pa.array(kept_hashes, pa.float64())}
    parquet.write_table(layout.part(folder, number), pa.table(columns))
    return {"counts": dict(sorted(counts.items()))}


def check_strata(counts: Mapping[str, int], by: Sequence[str]) -> None:
    """Raise ValueError for more than MAX_STRATA strata."""
    if len(counts) > MAX_STRATA:
        raise ValueError(
            f"{', '.join(by)} have more than {MAX_STRATA:,} different values; use fewer columns in `by`, or columns "
            "with fewer values"
        )


def lowest(labels: Sequence[str], hashes: np.ndarray, most: Mapping[str, int]) -> tuple[list[str], np.ndarray]:
    """The lowest hashes of each stratum, at most as many as `most` has for it, with their strata, sorted by both."""
    names, codes = np.unique(np.array(labels, object), return_inverse=True) if labels else (np.empty(0, object), [])
    codes = np.asarray(codes, np.int64)
    order = np.lexsort((hashes, codes))
    begins = np.searchsorted(codes[order], np.arange(len(names)))
    ranks = np.arange(len(order)) - begins[codes[order]]
    quota = np.array([most.get(name, 0) for name in names.tolist()], np.int64)
    order = order[ranks < quota[codes[order]]]
    return names[codes[order]].tolist(), hashes[order]


def quotas(counts: Mapping[str, int], of: int) -> dict[str, int]:
    """How many documents of each stratum a sample of `of` has: as equal as the sizes of the strata permit."""
    result: dict[str, int] = {}
    left = of
    for done, (label, count) in enumerate(sorted(counts.items(), key=lambda item: (item[1], item[0]))):
        share = left // (len(counts) - done) + (left % (len(counts) - done) > 0)
        result[label] = min(count, share)
        left -= result[label]
    return dict(sorted(result.items()))


def described_sample(by: Sequence[str], counts: Mapping[str, int], sizes: Mapping[str, int]) -> str:
    """A sentence with the strata of a sample, the largest first, and how many documents of each are in it."""
    strata = sorted(counts, key=lambda label: -counts[label])
    shown = [
        f"{', '.join(map(_shown, json.loads(label)))}: {sizes.get(label, 0):,} of {counts[label]:,}"
        for label in strata[:_SHOWN]
    ]
    more = [f"{len(strata) - _SHOWN:,} more strata"] if len(strata) > _SHOWN else []
    return f"sample by {', '.join(by)}: {'; '.join([*shown, *more])}"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def find_thresholds(
    folder: str,
    number: int,
    candidates: Sequence[str],
    quotas: Mapping[str, int],
    counts: Mapping[str, int] | None = None,
) -> dict:
    """Write the thresholds, by stratum the highest hash of its quota, and with `counts`, the documents by stratum, the
    weights. Holds a quota of each stratum, and one part."""
    labels: list[str] = []
    hashes = np.empty(0)
    for path in candidates:
        table = parquet.read_table(path)
        more = np.asarray(table["hash"], np.float64)
        labels, hashes = lowest([*labels, *table["stratum"].to_pylist()], np.concatenate([hashes, more]), quotas)
    thresholds = dict(zip(labels, hashes.tolist(), strict=True))  # the last one of a stratum is its highest
    files.write_json(files.join(folder, SAMPLE), thresholds)
    if counts is not None:
        files.write_json(files.join(folder, WEIGHTS), {label: counts[label] / quotas[label] for label in thresholds})
    return {"strata": len(thresholds)}


def thresholds_of(sample: tuple[RecordedFile, ...]) -> Thresholds | None:
    """The thresholds that `find_thresholds` wrote into the file of a sample; None without a sample."""
    return orjson.loads(sample[0].read()) if sample else None


def weights_of(
    table: pa.Table, by: Sequence[str], bounds: Bounds, sample: tuple[RecordedFile, ...]
) -> dict[str, float | None]:
    """The weight, by id, that each document of a table has if it is in the sample. `sample`: also with the weights."""
    weights = orjson.loads(sample[1].read())
    labels = strata(table, by, single_columns(weights, by), bounds)
    return dict(zip(table["id"].to_pylist(), map(weights.get, labels), strict=True))
