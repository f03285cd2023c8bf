"""The document that a token of a shard belongs to, by the index beside the shard (`train-00000.idx`).

`gristmill.storage.tokens.token_shards` writes it, in Megatron-LM's format, a document a sequence.
"""

from __future__ import annotations

import struct

import numpy as np

from gristmill.samples.manifest import Shard
from gristmill.storage.damage import damaged

HEAD = "<9sQBQQ"
HEAD_BYTES = struct.calcsize(HEAD)
WIDTHS = {4: 4, 8: 2}  # bytes of a token, by the format's code of its type: int32 and uint16


def find_document(shard: Shard, token: int) -> tuple[int, int]:
    """(number of the document in the shard, number of the token in the document). Reads what a binary search needs.

    Raises ValueError for a shard that has no index, DamagedFileError for an index of another number of tokens.
    """
    path = shard.path.with_suffix(".idx")
    if not path.exists():
        raise ValueError(f"{shard.path} has no index {path.name} beside it, so its documents are not known")
    with path.open("rb") as f:
        magic, version, code, count, _ = struct.unpack(HEAD, f.read(HEAD_BYTES))
    if (magic, version) != (b"MMIDIDX\0\0", 1) or code not in WIDTHS or not count:
        raise damaged(str(path), "is no index of documents")
    lengths = np.memmap(path, "<i4", "r", HEAD_BYTES, (count,))
    starts = np.memmap(path, "<i8", "r", HEAD_BYTES + 4 * count, (count,))  # in bytes
    if starts[-1] // WIDTHS[code] + lengths[-1] != shard.tokens:
        raise damaged(str(path), f"is not that of {shard.tokens:,} tokens")
    document = int(np.searchsorted(starts, token * WIDTHS[code], side="right")) - 1
    return document, token - int(starts[document]) // WIDTHS[code]
