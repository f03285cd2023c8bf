"""Token shards of the documents of half of the hosts: which pages a crawl had, drawn again.

The half of a number is drawn by a keyed hash of host and number, so it is the same for all corpora that have a host.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import parquet
from gristmill.storage.token_shards import SPLIT, bin_path, index_path, tokens_of, write_tokens
from gristmill.tasks.documents.sampling import uniform
from gristmill.tasks.url.canonical import host_columns, hosts


def count_shard(folder: str, shard: int, documents: str, tokens: str, first: int, end: int) -> dict:
    """The tokens of a shard in the halves of the numbers from `first` to before `end`, in their order.

    `documents`: the part with the shard's documents; `tokens`: the stage with their tokens. Holds the ids and URLs of
    the shard.
    """
    index = parquet.read_table(index_path(tokens, shard), ["id", "length"])
    names = pc.dictionary_encode(_hosts(index, documents))
    lengths = np.bincount(names.indices.to_numpy(), index["length"].to_numpy(), len(names.dictionary))
    there = pa.chunked_array([names.dictionary])
    return {"tokens": [int(lengths[in_half(there, number)].sum()) for number in range(first, end)]}


def cut_shard(folder: str, shard: int, documents: str, tokens: str, number: int) -> dict:
    """Write the tokens of the documents of a shard that are in the half of a number. Holds the tokens of the shard, the
    ids and the URLs."""
    index = parquet.read_table(index_path(tokens, shard))
    dtype = np.dtype(index.schema.metadata[b"dtype"].decode())
    rows = index.filter(pa.array(in_half(pa.chunked_array([_hosts(index, documents)]), number)))
    whole = np.frombuffer(tokens_of(tokens, shard).read(), dtype)
    ends = zip(rows["offset"].to_pylist(), rows["length"].to_pylist(), strict=True)
    texts = [whole[offset : offset + length] for offset, length in ends]
    result = write_tokens(bin_path(folder, SPLIT, shard), rows["id"].to_pylist(), texts, dtype)
    return {SPLIT: {"tokens": result.tokens, "documents": result.documents}}


def in_half(names: pa.ChunkedArray, number: int) -> np.ndarray:
    """Whether hosts are in the half of a number, bool (hosts,)."""
    return uniform(names, number, "half of the hosts") < 0.5


def _hosts(index: pa.Table, documents: str) -> pa.Array:
    """The host of each document of a token shard. Raises LookupError for one that the part does not have."""
    table = parquet.read_table(documents, ["id", *host_columns(documents)])
    rows = pc.index_in(index["id"], table["id"].combine_chunks())
    if rows.null_count:
        raise LookupError(f"{documents} does not hold {rows.null_count} documents that have tokens")
    return hosts(table.take(rows))
