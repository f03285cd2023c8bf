"""Signatures of documents, and the hashes of their bands."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from storage import parquet
from tasks.dedup.near.settings import MinHash
from tasks.documents.rows import read_rows
from tasks.kernels import bitmaps, minhash, shingles
from tasks.kernels.buffers import utf8

SIGNED = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("at", pa.int64(), metadata={"what": "row of the documents' shard"}),
        pa.field("size", pa.int64(), metadata={"what": "shingles of the set"}),
        pa.field("content", pa.uint64(), metadata={"what": "hash of the set; equal sets have equal size and content"}),
        pa.field("witness", pa.uint64(), metadata={"what": "minimum of the set under a permutation of no band"}),
        pa.field("bitmap", pa.binary(8 * bitmaps.WORDS), nullable=False, metadata={"what": "bits its shingles toggle"}),
        # pa.field("signature", fixed_size_binary of `permutations` uint32 values, little-endian)
    ]
)


def signed(documents: pa.Table, settings: MinHash) -> pa.Table:
    """The rows of SIGNED and `signature` for documents (columns `id`, `at`, `text`), in their order.

    Held, beside the documents: 4 bytes a permutation and 160 a document, and the shingles of the longest.
    """
    found = minhash.signed(
        *utf8(documents["text"]), settings.shingle, settings.unit, settings.permutations, settings.seed
    )
    return pa.table(
        {
            "id": documents["id"].cast(pa.string()),
            "at": documents["at"],
            "size": pa.array(found.size),
            "content": pa.array(found.content),
            "witness": pa.array(found.witness),
            "bitmap": packed(found.bitmap.astype("<u8", copy=False)),
            "signature": packed(found.signature.astype("<u4", copy=False)),
        }
    )


def shingle_sets(texts: pa.ChunkedArray, settings: MinHash) -> tuple[np.ndarray, np.ndarray]:
    """Sorted sets of shingle hashes, uint64, one after the other, and their n+1 offsets."""
    return shingles.SHINGLES[settings.unit](*utf8(texts), settings.shingle)


def band_hashes(signature: pa.ChunkedArray, settings: MinHash) -> np.ndarray:
    """uint64, (n, bands): two documents share a band if a hash of theirs in one column is equal."""
    return minhash.band_hashes(unpacked(signature, "<u4"), settings.bands, settings.rows)


def unpacked(column: pa.ChunkedArray, kind: str) -> np.ndarray:
    """(n, values a row) of a column of fixed-size binaries that hold numbers of this numpy type."""
    array = column.combine_chunks()
    width = array.type.byte_width
    raw = np.frombuffer(array.buffers()[1], np.uint8) if len(array) else np.empty(0, np.uint8)
    each = np.dtype(kind).itemsize
    return raw[array.offset * width : (array.offset + len(array)) * width].view(kind).reshape(-1, width // each)


def by_this_code(signatures: Sequence[str], documents: Sequence[str], settings: MinHash) -> bool:
    """Whether the first document with a word, signed again, gives what is stored of it in a stage's parts.

    Where it does not, hashes were others then, and nobody would be like it.
    """
    for signed_part, part in zip(signatures, documents, strict=True):
        [rows] = np.nonzero(parquet.read_table(signed_part, ["size"])["size"].to_numpy())
        if len(rows):
            facts = ["size", "content", "bitmap", "signature"]
            if not set(facts) <= set(parquet.columns(signed_part)):
                return False
            stored = read_rows(signed_part, rows[:1], ["id", "at", *facts])
            text = read_rows(part, stored["at"].to_numpy(), ["text"])["text"]
            again = signed(stored.select(["id", "at"]).append_column("text", text), settings)
            return again.select(facts).cast(stored.select(facts).schema).equals(stored.select(facts))
    return True


def packed(rows: np.ndarray) -> pa.FixedSizeBinaryArray:
    """The rows of a two-dimensional array, each as one binary."""
    width = rows.shape[1] * rows.itemsize
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(rows), [None, pa.py_buffer(rows)])
