"""Third phase: connected components of the edges, by one union-find pass in one process.

    labels/00000.parquet   by `doc`: doc, label: the documents with an edge, of some shards that follow each other

All documents with which one may be compared have its label: the number of the component, counted by smallest ids. So
labels depend on the edges alone, not on the files in which they are.
"""

from itertools import pairwise

import numpy as np
import pyarrow as pa

from gristmill.storage import files, sorted_files
from gristmill.storage.damage import damaged
from gristmill.tasks.dedup.near.documents import Location, row_of, shard_of, shard_range
from gristmill.tasks.kernels.union_find import label, mark, ranks, unite

_MOST = 1 << 32  # documents that a parent of 32 bits can name


def labels_file(folder: str, number: int, shards: int, partitions: int) -> str:
    """The file with the labels of a shard, the `number`-th of all `shards` of all crawls."""
    return files.join(folder, "labels", f"{number * min(partitions, shards) // shards:05d}.parquet")


def label_documents(
    folder: str, _: int, edges: list[str], shards: list[Location], partitions: int, memory: int
) -> dict:
    """Write the label of each document that has an edge. `shards`: those of all crawls, in the order of their ids.

    Held: 2 bits for each document of all crawls and 4 bytes for each that has an edge; beside these one file of
    edges, or a file of labels, twice. Returns how many labels each shard has. Raises ValueError, which names `memory`,
    where the documents need more; DamagedFileError for an edge that is none.
    """
    bits, begins = _marked(edges, shards)
    before = ranks(bits)
    documents = int(before[-1])
    needed = bits.nbytes + before.nbytes + 4 * documents
    if needed > memory or documents >= _MOST:
        raise ValueError(
            f"labels of {documents:,} documents that share bands need {needed:,} bytes, `memory` allows {memory:,}: "
            f"set GRISTMILL_MEMORY to {needed} or more, or use bands of more rows, which fewer documents share"
        )
    parent = np.arange(documents, dtype=np.uint32)
    for path in edges:
        unite(parent, bits, before, *(_positions(ids, shards, begins, path) for ids in _edges(path)))
    components = label(parent)
    counts: list[int] = []
    tables: dict[str, list[pa.Table]] = {}
    for number, (shard, (low, high)) in enumerate(zip(shards, pairwise(begins.tolist()), strict=True)):
        rows = np.flatnonzero(np.unpackbits(bits[low // 64 : high // 64].view(np.uint8), bitorder="little"))
        labels = parent[before[low // 64] : before[high // 64]].astype(np.int64)
        path = labels_file(folder, number, len(shards), partitions)
        if path not in tables:
            _write(tables)
        docs = shard_range(shard.crawl, shard.shard)[0] + rows
        tables.setdefault(path, []).append(pa.table({"doc": docs, "label": labels}))
        counts.append(len(rows))
    _write(tables)
    return {"documents": documents, "components": components, "shards": counts}


def _marked(edges: list[str], shards: list[Location]) -> tuple[np.ndarray, np.ndarray]:
    """A bit for each document, set where it has an edge; and where each shard's bits begin, n+1 multiples of 64."""
    rows = np.array([shard.rows for shard in shards], np.int64)
    begins = np.append(0, np.cumsum(-(-rows // 64) * 64))
    bits = np.zeros(begins[-1] // 64, np.uint64)
    for path in edges:
        for ids in _edges(path):
            mark(bits, _positions(ids, shards, begins, path))
    return bits, begins


def _edges(path: str) -> tuple[np.ndarray, np.ndarray]:
    table = sorted_files.read(path, *sorted_files.EVERYTHING)
    return table["first"].to_numpy(), table["second"].to_numpy()


def _positions(ids: np.ndarray, shards: list[Location], begins: np.ndarray, path: str) -> np.ndarray:
    """The bits of documents. Raises DamagedFileError for one that no shard has."""
    first = np.array([shard_range(shard.crawl, shard.shard)[0] for shard in shards], np.int64)
    of = np.searchsorted(first, ids, side="right") - 1
    rows = np.array([shard.rows for shard in shards], np.int64)
    wrong = (of < 0) | (shard_of(ids) != shard_of(first)[of]) | (row_of(ids) >= rows[of])
    if wrong.any():
        raise damaged(path, f"has an edge of {ids[wrong.argmax()]}, which is no document")
    return begins[of] + row_of(ids)


def _write(tables: dict[str, list[pa.Table]]) -> None:
    """Write the file of labels that is complete, and forget it."""
    for path, some in tables.items():
        sorted_files.write(path, pa.concat_tables(some), "doc")
    tables.clear()
