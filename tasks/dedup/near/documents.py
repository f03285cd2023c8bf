"""Documents of all crawls: their global ids, and where the files of their shards are.

A global document id is an int64 that is not negative, by which documents can be sorted and cut into ranges: 11 bits for
the crawl, an earlier one or this one, which is the last; 20 for the shard; 32 for the row of the signatures' shard.
"""

from dataclasses import dataclass

import numpy as np

from gristmill.storage import files, layout
from gristmill.storage.damage import missing
from gristmill.tasks.kernels.shingles import MIX_1, MIX_2

CRAWLS, SHARDS, ROWS = 1 << 11, 1 << 20, 1 << 32


@dataclass(frozen=True)
class Location:
    """Where a shard's texts and signatures are; `rows`: how many documents were signed."""

    crawl: int
    shard: int
    rows: int
    documents: str
    signatures: str


@dataclass(frozen=True)
class EarlierShard(Location):
    """A shard of an earlier crawl. `kept`: the file with what is known of its kept documents."""

    kept: str


@dataclass(frozen=True)
class OwnShard(Location):
    """A shard of this crawl. `selection`: which documents arrive; `signals`: parts with the signal `best`; `source`:
    the number of its source in the recipe; `exempt`: whether that is one without the step, so nothing is signed."""

    selection: str
    signals: tuple[str, ...]
    source: int
    exempt: bool = False


def signed_rows(signatures: str) -> list[int]:
    """How many documents each shard of a finished stage `signatures` has, as it has recorded it. Raises
    MissingFileError for a stage that is not finished."""
    manifest = layout.manifest(signatures)
    if manifest is None:
        raise missing(files.join(signatures, "manifest.json"))
    return [part.record["documents"] for part in layout.parts(signatures, manifest) if part.phase == "sign"]


def document_ids(crawl: int, shard: int, rows: np.ndarray) -> np.ndarray:
    """Global ids, int64, of rows of one shard. Raises ValueError for a crawl or shard beyond what an id can name."""
    if not (0 <= crawl < CRAWLS and 0 <= shard < SHARDS):
        raise ValueError(f"crawl {crawl}, shard {shard}: a document id names {CRAWLS} crawls of {SHARDS:,} shards")
    return shard_range(crawl, shard)[0] + rows.astype(np.int64)


def shard_range(crawl: int, shard: int) -> tuple[int, int]:
    """The global ids of a shard: from the first up to, but without, the second."""
    first = (crawl * SHARDS + shard) * ROWS
    return first, first + ROWS


def crawl_of(ids: np.ndarray) -> np.ndarray:
    return ids // (SHARDS * ROWS)


def row_of(ids: np.ndarray) -> np.ndarray:
    return ids % ROWS


def shard_of(ids: np.ndarray) -> np.ndarray:
    """The shards, counted through all crawls."""
    return ids // ROWS


def hash_ids(ids: np.ndarray) -> np.ndarray:
    """Hashes, uint64, of numbers, int64: any range of hashes holds its share of them (`kernels.shingles.mix`)."""
    x = ids.view(np.uint64) ^ (ids.view(np.uint64) >> np.uint64(30))
    x *= MIX_1
    x ^= x >> np.uint64(27)
    x *= MIX_2
    x ^= x >> np.uint64(31)
    return x
