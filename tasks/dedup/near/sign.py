"""First phase: the signatures of a shard's documents, and the hashes of their bands.

part-00000.parquet     one row a document: SIGNED and `signature`
bands/00000.parquet    by `hash`: hash, doc: the hash of each band of each document that has a word

`doc` is the global id as of crawl 0: how many crawls come before, the signatures do not know.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, layout, parquet
from gristmill.tasks.dedup import exchange
from gristmill.tasks.dedup.exchange import KeyRanges, SortedFiles
from gristmill.tasks.dedup.near.documents import document_ids
from gristmill.tasks.dedup.near.settings import Banding, Shingling
from gristmill.tasks.documents.selection import read_rows
from gristmill.tasks.kernels import minhash, shingles
from gristmill.tasks.kernels.buffers import utf8

_SIGNED_AGAIN = 1_000  # documents of an earlier stage

SIGNED = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("at", pa.int64(), metadata={"what": "row of the documents' shard"}),
        pa.field("size", pa.int64(), metadata={"what": "shingles of the set"}),
        pa.field("content", pa.uint64(), metadata={"what": "hash of the set; equal sets have equal size and content"}),
        pa.field("holdout", pa.uint64(), metadata={"what": "minimum of the set under a permutation of no band"}),
        # pa.field("signature", fixed_size_binary of `permutations` uint32 values, little-endian)
    ]
)


def sign_shard(
    folder: str, shard: int, documents: str, kept: str, shingling: Shingling, banding: Banding, ranges: KeyRanges | None
) -> dict:
    """Write the signatures of a selection's documents, and their band hashes. `ranges`: see `exchange.write`.

    Held: the ids of the shard, the texts and signatures of a row group, about 50 bytes for each band of a document.
    """
    kept_ids = parquet.read_table(kept, ["id"])["id"].combine_chunks()
    schema = SIGNED.append(pa.field("signature", pa.binary(4 * shingling.permutations), nullable=False))
    hashes, rows = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    before, signed_rows, set_sizes = 0, 0, 0
    with parquet.create(layout.part(folder, shard), schema) as out:
        for group in parquet.groups(documents, ["id", "text"]):
            kept_rows = np.flatnonzero(pc.is_in(group["id"], kept_ids))
            arriving = group if len(kept_rows) == len(group) else group.take(pa.array(kept_rows))
            signatures = signed(arriving.append_column("at", pa.array(before + kept_rows)), shingling)
            out.write_table(signatures.cast(schema))
            worded = np.flatnonzero(signatures["size"].to_numpy())
            hashes.append(band_hashes(signatures["signature"], banding)[worded].ravel())
            rows.append(np.repeat(signed_rows + worded, banding.bands))
            before, signed_rows = before + len(group), signed_rows + len(signatures)
            set_sizes += pc.sum(signatures["size"]).as_py() or 0
    if signed_rows != len(kept_ids):
        raise LookupError(f"{kept} names {len(kept_ids)} documents, {documents} holds {signed_rows} of them")
    docs = document_ids(0, shard, np.concatenate(rows))
    bands = pa.table({"hash": np.concatenate(hashes), "doc": docs})
    exchange.write(bands_files(folder, shard + 1).path(shard), bands, "hash", ranges)
    return {"documents": signed_rows, "shingles": set_sizes}


def bands_files(folder: str, shards: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "bands"), shards)


def signed(documents: pa.Table, shingling: Shingling) -> pa.Table:
    """The rows of SIGNED and `signature` for documents (columns `id`, `at`, `text`), in their order.

    Held, beside the documents: 4 bytes a permutation and 30 a document, and the shingles of the longest.
    """
    result = minhash.signed(
        *utf8(documents["text"]), shingling.shingle, shingling.unit, shingling.permutations, shingling.seed
    )
    return pa.table(
        {
            "id": documents["id"].cast(pa.string()),
            "at": documents["at"],
            "size": pa.array(result.size),
            "content": pa.array(result.content),
            "holdout": pa.array(result.holdout),
            "signature": packed(result.signature.astype("<u4", copy=False)),
        }
    )


def shingle_sets(texts: pa.ChunkedArray, shingling: Shingling) -> tuple[np.ndarray, np.ndarray]:
    """Sorted sets of shingle hashes, uint64, one after the other, and their n+1 offsets."""
    return shingles.SHINGLES[shingling.unit](*utf8(texts), shingling.shingle)


def band_hashes(signature: pa.ChunkedArray, banding: Banding) -> np.ndarray:
    """uint64, (n, bands): two documents share a band if a hash of theirs in one column is equal."""
    return minhash.band_hashes(unpacked(signature, "<u4"), banding.bands, banding.rows)


def packed(rows: np.ndarray) -> pa.FixedSizeBinaryArray:
    """The rows of a two-dimensional array, each as one binary."""
    width = rows.shape[1] * rows.itemsize
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(rows), [None, pa.py_buffer(rows)])


def unpacked(column: pa.ChunkedArray, kind: str) -> np.ndarray:
    """(n, values a row) of a column of fixed-size binaries that hold numbers of this numpy type."""
    array = column.combine_chunks()
    width = array.type.byte_width
    raw = np.frombuffer(array.buffers()[1], np.uint8) if len(array) else np.empty(0, np.uint8)
    each = np.dtype(kind).itemsize
    return raw[array.offset * width : (array.offset + len(array)) * width].view(kind).reshape(-1, width // each)


def by_this_code(signatures: Sequence[str], documents: Sequence[str], shingling: Shingling) -> bool:
    """Whether the first documents with a word, signed again, give what is stored of them in a stage's parts.

    Where they do not, hashes were others then, and no document would be like them. Many are signed, since a change may
    concern one script alone. Held: `_SIGNED_AGAIN` documents, or those of a row group.
    """
    for signed_part, part in zip(signatures, documents, strict=True):
        [rows] = np.nonzero(parquet.read_table(signed_part, ["size"])["size"].to_numpy())
        if len(rows):
            facts = ["size", "content", "signature"]
            stored = read_rows(signed_part, rows[:_SIGNED_AGAIN], ["id", "at", *facts])
            positions = stored["at"].to_numpy()
            if positions[-1] >= parquet.rows(part):
                return False
            text = read_rows(part, positions, ["text"])["text"]
            again = signed(stored.select(["id", "at"]).append_column("text", text), shingling)
            return again.select(facts).cast(stored.select(facts).schema).equals(stored.select(facts))
    return True
