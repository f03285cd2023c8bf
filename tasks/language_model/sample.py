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

from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.selection import gather, uniform

Thresholds = Mapping[str, float]
"""By stratum the highest hash of the sample."""

MAX_STRATA = 10_000
SAMPLE = "sample.json"  # in the stage's folder: the thresholds
_PURPOSE = "annotate"


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
    labels, hashes = np.array(strata(table, by), object), uniform(table["id"], seed, _PURPOSE)
    counts = Counter(labels.tolist())
    lowest = {label: np.sort(hashes[labels == label])[:of] for label in sorted(counts)}
    columns = {
        "stratum": pa.array([label for label, values in lowest.items() for _ in values], pa.string()),
        "hash": pa.array(np.concatenate([np.empty(0), *lowest.values()]), pa.float64()),
    }
    parquet.write_table(layout.part(folder, number), pa.table(columns))
    return {"counts": dict(sorted(counts.items()))}


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
    lowest = {label: np.empty(0) for label, quota in quotas.items() if quota}
    for path in candidates:
        table = parquet.read_table(path)
        labels, hashes = np.array(table["stratum"].to_pylist(), object), np.asarray(table["hash"], np.float64)
        for label in lowest:
            if len(more := hashes[labels == label]):
                lowest[label] = np.sort(np.concatenate([lowest[label], more]))[: quotas[label]]
    files.write_json(files.join(folder, SAMPLE), {label: float(values[-1]) for label, values in lowest.items()})
    return {"strata": len(lowest)}


def load(file: RecordedFile) -> Thresholds:
    """The thresholds that `find_thresholds` has written."""
    return orjson.loads(file.read())
