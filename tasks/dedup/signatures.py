"""Stage one: shingle sets and signatures of a shard, and their bands, dealt out by hash."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage import files, shards
from tasks.dedup.minhash import MinHash
from tasks.kernels import minhash, shingles
from tasks.kernels.buffers import utf8


def signature_path(folder: str, shard: int) -> str:
    return files.join(folder, "signatures", f"part-{shard:05d}.parquet")


def band_path(folder: str, partition: int, shard: int) -> str:
    return files.join(folder, "bands", f"partition-{partition:02d}", f"part-{shard:05d}.parquet")


def sign(documents: pa.Table, folder: str, shard: int, settings: MinHash) -> dict[str, int]:
    """Write the signatures of a shard's documents (columns `id`, `text`); `signatures` has the columns.

    Returns counts: documents, those without a word, shingles. Held: see `signatures`.
    """
    table = signatures(documents, settings)
    shards.write_table(signature_path(folder, shard), table)
    sizes = table["size"]
    return {
        "documents": len(table),
        "wordless": pc.sum(pc.equal(sizes, 0)).as_py() or 0,
        "shingles": pc.sum(sizes).as_py() or 0,
    }


def signatures(documents: pa.Table, settings: MinHash) -> pa.Table:
    """One row per document, in their order:

    - `id`, string; `length`, int64, characters (code points) of the text;
    - `shingles`, large_list<uint64>, the sorted set of shingle hashes (`kernels.shingles`);
    - `size`, int64, how many; `content`, uint64, a hash of the set, by which equal sets are known;
    - `signature`, fixed_size_binary, `permutations` uint32 values in little-endian order.

    Held: the shingle sets, 8 bytes a word, and 4 bytes a permutation a document, beside the documents.
    """
    data, offsets = utf8(documents["text"])
    values, ends = shingles.shingle_sets(data, offsets, settings.shingle)
    signed = minhash.signatures(values, ends, settings.permutations, settings.seed)
    return pa.table(
        {
            "id": documents["id"].cast(pa.string()),
            "length": pc.cast(pc.utf8_length(documents["text"]), pa.int64()),
            "size": pa.array(np.diff(ends)),
            "content": pa.array(shingles.set_hashes(values, ends)),
            "signature": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(4 * settings.permutations),
                len(signed),
                [None, pa.py_buffer(signed.astype("<u4", copy=False))],
            ),
            "shingles": pa.LargeListArray.from_arrays(pa.array(ends), pa.array(values)),
        }
    )


def band(folder: str, signed: str, shard: int, settings: MinHash) -> dict[str, int]:
    """Write the band hashes of a shard, one file per partition, from its signature file in the folder `signed`.

    A row says that document `row` of `shard` has `hash` in `band`; the rows are sorted by band, hash and row.
    Partition `p` of `n` holds the hashes from p/n to (p+1)/n of 2^64. Documents without a word have no bands.
    A file is written for every partition, so one that is missing later is an error.

    Returns the number of band rows. Held: 4 bytes a permutation and about 50 bytes a band for each document.
    """
    table = shards.read_table(signature_path(signed, shard), ["size", "signature"])
    rows = np.flatnonzero(table["size"].to_numpy()).astype(np.int32)
    hashes = minhash.band_hashes(_values(table["signature"])[rows], settings.bands, settings.rows).ravel()
    bands = np.tile(np.arange(settings.bands, dtype=np.uint16), len(rows))
    rows = np.repeat(rows, settings.bands)
    partitions = ((hashes >> np.uint64(32)) * np.uint64(settings.partitions)) >> np.uint64(32)
    order = np.lexsort((rows, hashes, bands, partitions))
    bounds = np.searchsorted(partitions[order], np.arange(settings.partitions + 1, dtype=np.uint64))
    for p in range(settings.partitions):
        mine = order[bounds[p] : bounds[p + 1]]
        piece = {
            "band": bands[mine],
            "hash": hashes[mine],
            "shard": np.full(len(mine), shard, np.int32),
            "row": rows[mine],
        }
        shards.write_table(band_path(folder, p, shard), pa.table(piece))
    return {"bands": len(order)}


def _values(column: pa.ChunkedArray) -> np.ndarray:
    """uint32, (n, permutations), of a `signature` column."""
    array = column.combine_chunks()
    width = array.type.byte_width
    raw = np.frombuffer(array.buffers()[1], np.uint8) if len(array) else np.empty(0, np.uint8)
    return raw[array.offset * width : (array.offset + len(array)) * width].view("<u4").reshape(-1, width // 4)


def gather(signed: str, nodes: np.ndarray, columns: list[str]) -> pa.Table:
    """Columns of the signature files for the rows that sorted `nodes` name (`node`), in the order of `nodes`.

    Reads each shard that is named once. Held: these columns of one shard, and of all the rows asked for.
    """
    pieces = []
    owners = nodes >> 32
    for shard in np.unique(owners):
        rows = nodes[owners == shard] & 0xFFFFFFFF
        pieces.append(shards.read_table(signature_path(signed, int(shard)), columns).take(pa.array(rows)))
    return pa.concat_tables(pieces)


def node(shard: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Shard and row of a document as one int64, by which they can be sorted."""
    return (shard.astype(np.int64) << 32) | row.astype(np.int64)


def sets(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Values (uint64) and n+1 offsets (int64) of a `shingles` column."""
    array = column.combine_chunks()
    if not len(array):
        return np.empty(0, np.uint64), np.zeros(1, np.int64)
    offsets = array.offsets.to_numpy()
    return array.flatten().to_numpy(), offsets - offsets[0]
