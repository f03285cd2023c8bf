"""Token shards: raw little-endian tokens to map into memory, and where each document begins.

A shard is three files. `<split>-00000.bin` has the tokens of its documents one after the other, each document ended by
the end-of-sequence token; they are uint16 where the vocabulary fits, else uint32. `<split>-00000.parquet` has a row a
document: `id`, `offset` and `length` in tokens. `<split>-00000.idx` is the index by which Megatron-LM, GPT-NeoX and
NeMo read the first.

The index is little-endian: 9 bytes of header, version 1 (uint64), the type of the tokens (uint8), the number of
sequences and of entries of documents (uint64 each); then the length of each sequence (int32), its first byte in the
`.bin` (int64), and the sequence at which each document begins, the number of sequences last (int64). Here a document
is one sequence. Source: `megatron/core/datasets/indexed_dataset.py` of Megatron-LM.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.training_manifest import TokenDtype

FILE_HEADER = 256  # int32
# Of llm.c: magic number and version of GPT-2's tokens and of Llama 3's
KINDS: dict[tuple[int, int], TokenDtype] = {(20240520, 1): "<u2", (20240801, 7): "<u4"}
EVALUATION = 20240522


class TokenFile(NamedTuple):
    """`offset`: bytes before the first id."""

    path: Path
    dtype: TokenDtype
    offset: int
    tokens: int


def token_file(path: Path) -> TokenFile:
    """The kind of a file of tokens, by its first bytes: one without a header of llm.c is nanoGPT's.

    Raises FileNotFoundError, or ValueError for a folder, and a file that is cut off or holds no tokens.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name the files in it, as {path}/*.bin")
    size = path.stat().st_size
    with path.open("rb") as file:
        head = np.frombuffer(file.read(12), "<i4", min(3, size // 4)).tolist()
    magic, version, count = (*head, 0, 0, 0)[:3]
    if magic == EVALUATION:
        raise ValueError(f"{path} has the multiple-choice examples of llm.c, not text to train on; leave it out")
    if magic not in {magic for magic, _ in KINDS}:
        if size % 2 or not size:
            raise ValueError(f"{path} has {size} bytes, which are not uint16 tokens; write it again")
        return TokenFile(path, "<u2", 0, size // 2)
    if (magic, version) not in KINDS:
        raise ValueError(f"{path} has the unsupported version {version} of llm.c's format; write it with llm.c")
    dtype = KINDS[magic, version]
    expected = 4 * FILE_HEADER + count * np.dtype(dtype).itemsize
    if count <= 0 or size != expected:
        raise ValueError(f"{path} has {size} bytes, but {count} tokens take {expected}; write it again")
    return TokenFile(path, dtype, 4 * FILE_HEADER, count)


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
        raise TypeError(f"{path}: tokens are {tokens.dtype}, but the shard has {dtype}")
    shard = TokenShard(path, int(offsets[-1]), len(ids))
    files.write_bytes(path, tokens.tobytes())
    table = pa.table([ids, offsets[:-1], lengths.astype(np.int32)], schema=INDEX.with_metadata({"dtype": dtype.str}))
    parquet.write_table(shard.index, table)
    files.write_bytes(path.removesuffix(".bin") + ".idx", index_bytes(lengths, dtype))
    return shard


# Where a stage of tokens has the files of a shard, and what it has recorded of them.


PHASE = "encode"  # in which a stage of tokens writes its shards
SPLIT = "train"  # in names of files; files of evaluation documents have `heldout`


def index_path(folder: str, shard: int) -> str:
    """The Parquet file that says where a shard's documents are among its tokens."""
    return bin_path(folder, SPLIT, shard).removesuffix(".bin") + ".parquet"


def recorded(folder: str, shard: int) -> dict[str, RecordedFile]:
    """The files of a shard, by name. One request, however many shards there are. Raises DamagedFileError."""
    file_facts = layout.done_part(folder, PHASE, shard).files
    return {name: RecordedFile(files.join(folder, name), facts["content"]) for name, facts in file_facts.items()}


def tokens_of(folder: str, shard: int) -> RecordedFile:
    """The file with the tokens of a shard. Raises DamagedFileError."""
    return recorded(folder, shard)[bin_path("", SPLIT, shard).lstrip("/")]
