"""A sample of documents that is the same for any number of shards and workers, stratified by columns.

Documents are ordered by a keyed hash of their ids. Each stratum has the same number of documents, and what a small one
lacks is divided among the others. A sample is known by one number per stratum: the highest hash in it.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from pydantic import Field

from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.selection import gather, uniform
from gristmill.tasks.documents.step import Settings

Thresholds = Mapping[str, float]
"""By stratum the highest hash of the sample."""

MAX_STRATA = 10_000
SAMPLE = "sample.json"  # in the stage's folder: the thresholds
_PURPOSE = "annotate"


class Sampling(Settings):
    """Which documents a model is asked about."""

    of: int | None = Field(None, gt=0, description="Number of documents to ask about. null: all.")
    by: tuple[str, ...] = Field(
        (),
        description="Columns by whose values the sample is stratified: each combination has the same number of "
        "documents. Numbers are grouped by powers of four.",
    )
    seed: int = Field(0, description="Seed of the sample.")


def strata(table: pa.Table, by: Sequence[str]) -> list[str]:
    """The stratum of each document: its values as JSON, numbers as their power of four."""
    columns = [[_group(value) for value in table[name].to_pylist()] for name in by]
    if not columns:
        return [""] * len(table)
    return [json.dumps(values, ensure_ascii=False) for values in zip(*columns, strict=True)]


def _group(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if not math.isfinite(value) or value < 1:
        return "below 1" if value < 1 else str(value)
    power = math.frexp(value)[1] - 1
    return f"from {4 ** (power // 2)}"


def sampled(table: pa.Table, by: Sequence[str], seed: int, thresholds: Thresholds | None) -> np.ndarray:
    """Which rows of a table with `id` and the columns of `by` are in the sample, bool. None: all."""
    if thresholds is None:
        return np.ones(len(table), bool)
    highest = np.array([thresholds.get(stratum, -1.0) for stratum in strata(table, by)], np.float64)
    return uniform(table["id"], seed, _PURPOSE) <= highest


def candidates_shard(
    folder: str,
    number: int,
    documents: str,
    kept: str,
    signals: tuple[str, ...],
    by: tuple[str, ...],
    of: int,
    seed: int,
) -> dict:
    """Write the `of` lowest hashes of each stratum of a shard. Returns the number of documents by stratum."""
    table = gather((documents, kept, *signals), kept, list(by))
    labels, hashes = strata(table, by), uniform(table["id"], seed, _PURPOSE)
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


def find_thresholds(folder: str, number: int, candidates: Sequence[str], quotas: Mapping[str, int]) -> dict:
    """Write the thresholds, by stratum the highest hash of its quota. Holds a quota of each stratum, and one part."""
    labels: list[str] = []
    hashes = np.empty(0)
    for path in candidates:
        table = parquet.read_table(path)
        more = np.asarray(table["hash"], np.float64)
        labels, hashes = lowest([*labels, *table["stratum"].to_pylist()], np.concatenate([hashes, more]), quotas)
    thresholds = dict(zip(labels, hashes.tolist(), strict=True))  # the last one of a stratum is its highest
    files.write_json(files.join(folder, SAMPLE), thresholds)
    return {"strata": len(thresholds)}


def thresholds_of(sample: tuple[RecordedFile, ...]) -> Thresholds | None:
    """The thresholds that `find_thresholds` wrote into the file of a sample; None without a sample."""
    return orjson.loads(sample[0].read()) if sample else None
