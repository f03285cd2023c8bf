"""What `gather` takes of the candidates where they are verified by containment: their words, in order."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.tasks.dedup.near.documents import EarlierShard, OwnShard
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.dedup.near.sign import shingle_sets
from gristmill.tasks.documents.selection import read_groups
from gristmill.tasks.kernels.buffers import utf8
from gristmill.tasks.kernels.duplicates.contained import CHARACTERS, sequence_hashes
from gristmill.tasks.kernels.ngrams import word_hashes
from gristmill.tasks.kernels.shingles import set_hashes


def with_words(candidates: pa.Table, shard: EarlierShard | OwnShard, shingling: Shingling) -> pa.Table:
    """The candidates with `set`, the hashes of their words in order, uint64, little-endian, as one binary; `key`, a
    hash of an under-tokenised text, else 0; `size`, their words; `content`, a hash of words and key.

    Held: the words of all, 8 bytes each; the texts of a row group. Raises RuntimeError where a text is not that which
    was signed.
    """
    at = candidates["at"].to_numpy()
    by_place = np.argsort(at)
    signed = candidates.select(["size", "content"]).take(pa.array(by_place))
    parts, done = [], 0
    for some in read_groups(shard.documents, at[by_place], ["text"]):
        here = signed.slice(done, len(some))
        shingles, bounds = shingle_sets(some["text"], shingling)
        same = (np.diff(bounds) == here["size"].to_numpy()).all()
        if not (same and (set_hashes(shingles, bounds) == here["content"].to_numpy()).all()):
            raise RuntimeError(
                f"{shard.documents} has other texts than were signed; remove the stages with documents and signatures"
            )
        parts.append(_read(some["text"]))
        done += len(some)
    empty = pa.table({"set": pa.array([], pa.large_binary()), **{n: np.empty(0, t) for n, t in _FACTS.items()}})
    found = pa.concat_tables([empty, *parts]).take(pa.array(np.argsort(by_place)))
    return pa.table(
        {
            **{name: candidates[name] for name in candidates.column_names},
            **dict(zip(found.column_names, found.columns, strict=True)),
        }
    )


_FACTS = {"key": np.uint64, "size": np.int64, "content": np.uint64}


def _read(texts: pa.ChunkedArray) -> pa.Table:
    words, ends = word_hashes(*utf8(texts))
    sizes = np.diff(ends)
    keys = np.zeros(len(texts), np.uint64)
    for row in np.flatnonzero(pc.utf8_length(texts).to_numpy() > CHARACTERS * sizes):
        keys[row] = _key(texts[int(row)].as_py())
    buffers = [None, pa.py_buffer(8 * ends), pa.py_buffer(words.astype("<u8", copy=False))]
    column = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(texts), buffers)
    return pa.table({"set": column, "key": keys, "size": sizes, "content": sequence_hashes(words, ends, keys)})


def _key(text: str) -> int:
    """A hash, not 0, of a text without regard to case and white space."""
    plain = " ".join(text.casefold().split())
    return int.from_bytes(hashlib.blake2b(plain.encode(), digest_size=8).digest(), "little") or 1
