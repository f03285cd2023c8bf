"""Token shards: raw little-endian tokens to map into memory, and where each document begins.

They are uint16 where the vocabulary fits, else uint32.

A shard is three files: `<split>-00000.bin`, the tokens of its documents one after the other, each ended by the
end-of-sequence token; `<split>-00000.parquet`, a row a document: `id`, `offset` and `length` in tokens; and
`<split>-00000.idx`, by which Megatron-LM reads the first (`gristmill.storage.megatron_index`).
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gristmill.storage import files, parquet
from gristmill.storage.megatron_index import index_bytes

INDEX = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True)
class TokenShard:
    """Path of the tokens, their number, and the number of documents."""

    path: str
    tokens: int
    documents: int

    @property
    def index(self) -> str:
        return self.path.removesuffix(".bin") + ".parquet"


def bin_path(folder: str, split: str, shard: int) -> str:
    return files.join(folder, f"{split}-{shard:05d}.bin")


def write_tokens(path: str, ids: list[str], documents: list[np.ndarray], dtype: np.dtype) -> TokenShard:
    """Write one shard; `documents` are arrays of this type, which already end with the end-of-sequence token.

    Raises TypeError for arrays of another type.
    """
    lengths = np.array([len(d) for d in documents], np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.concatenate(documents) if documents else np.empty(0, dtype)
    if tokens.dtype != dtype:
        raise TypeError(f"{path}: tokens are {tokens.dtype}, the shard holds {dtype}")
    shard = TokenShard(path, int(offsets[-1]), len(ids))
    files.write_bytes(path, tokens.tobytes())
    table = pa.table([ids, offsets[:-1], lengths.astype(np.int32)], schema=INDEX.with_metadata({"dtype": dtype.str}))
    parquet.write_table(shard.index, table)
    files.write_bytes(path.removesuffix(".bin") + ".idx", index_bytes(lengths, dtype))
    return shard
