"""A document's place as one number, by which places can be sorted and cut into ranges.

A node is an int64 that is not negative: 11 bits for the segment, an earlier crawl or this one, which is the last; 20
for the shard; 32 for the row of the signatures' shard.
"""

import numpy as np

SEGMENTS, SHARDS, ROWS = 1 << 11, 1 << 20, 1 << 32


def node(segment: int, shard: int, row: np.ndarray) -> np.ndarray:
    """The nodes of rows of one shard, int64. Raises ValueError for a segment or shard beyond what a node can name."""
    if not (0 <= segment < SEGMENTS and 0 <= shard < SHARDS):
        raise ValueError(f"segment {segment}, shard {shard}: a node names {SEGMENTS} segments of {SHARDS:,} shards")
    return shard_range(segment, shard)[0] + row.astype(np.int64)


def shard_range(segment: int, shard: int) -> tuple[int, int]:
    """The nodes of a shard: from the first up to, but without, the second."""
    first = (segment * SHARDS + shard) * ROWS
    return first, first + ROWS


def segment_of(nodes: np.ndarray) -> np.ndarray:
    return nodes // (SHARDS * ROWS)


def row_of(nodes: np.ndarray) -> np.ndarray:
    return nodes % ROWS


def shard_of(nodes: np.ndarray) -> np.ndarray:
    """The shards, counted through all segments."""
    return nodes // ROWS
