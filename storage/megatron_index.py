"""The index that Megatron-LM, GPT-NeoX and NeMo read beside a file of tokens: `.idx` beside `.bin`.

Little-endian: 9 bytes of header, version 1 (uint64), the type of the tokens (uint8), the number of sequences and of
entries of documents (uint64 each); then the length of each sequence (int32), its first byte in the `.bin` (int64), and
the sequence at which each document begins, the number of sequences last (int64). Here a document is one sequence.
Source: `megatron/core/datasets/indexed_dataset.py` of Megatron-LM.
"""

import struct

import numpy as np

HEADER = b"MMIDIDX\0\0"
VERSION = 1
TYPES = {"<u4": 4, "<u2": 8}  # its codes of the types that ids may have; 4 is int32, as which it reads ids below 2**31


def index_bytes(lengths: np.ndarray, dtype: np.dtype) -> bytes:
    """The file's content, of documents with these lengths in tokens, (documents,).

    Raises KeyError for a type of tokens that the format does not know, OverflowError for a document of more tokens than
    an int32 holds.
    """
    if len(lengths) and lengths.max() > np.iinfo(np.int32).max:
        raise OverflowError(f"a document has {lengths.max()} tokens, more than the index can hold")
    starts = np.concatenate([[0], np.cumsum(lengths.astype(np.int64))])[:-1] * dtype.itemsize
    head = struct.pack("<9sQBQQ", HEADER, VERSION, TYPES[dtype.str], len(lengths), len(lengths) + 1)
    documents = np.arange(len(lengths) + 1, dtype="<i8")
    return head + lengths.astype("<i4").tobytes() + starts.astype("<i8").tobytes() + documents.tobytes()
