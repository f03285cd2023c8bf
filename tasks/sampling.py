"""Choices made by a keyed hash of the document id: the same for any order, number of workers, and after any crash."""

import numpy as np
import pyarrow as pa
import xxhash


def uniform(ids: pa.ChunkedArray, seed: int, purpose: str) -> np.ndarray:
    """A number in [0, 1) for each id, float64, shape (n,), fixed by the seed, the purpose and the id alone."""
    prefix = f"{seed}:{purpose}:".encode()
    hashes = np.fromiter(
        (xxhash.xxh3_64_intdigest(prefix + i.encode()) for i in ids.to_pylist()), np.uint64, len(ids)
    )
    return (hashes >> np.uint64(11)) * 2.0**-53


def heldout(ids: pa.ChunkedArray, seed: int, fraction: float) -> np.ndarray:
    """Mask of the documents that no training step may see."""
    return uniform(ids, seed, "heldout") < fraction
