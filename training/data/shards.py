"""Tokens of the shards and of the packed rows that a training manifest names, and a name for their content."""

from __future__ import annotations

import hashlib

import numpy as np

from gristmill.storage import files
from gristmill.storage.damage import damaged, missing
from gristmill.storage.tokens.training_manifest import RowsEntry, ShardEntry, TrainingManifest, map_rows
from gristmill.training.model.collectives import all_gather, rank_slice


class Tokens:
    """The shards of one source as one long sequence of token ids. Holds memory maps, not tokens."""

    def __init__(self, shards: tuple[ShardEntry, ...], vocab_size: int, dtype: str = "<u2") -> None:
        token = np.dtype(dtype)
        self.vocab_size = vocab_size
        self.shards = shards
        self.maps = []
        for shard in shards:
            if not shard.path.exists():
                raise missing(str(shard.path))
            size, said = shard.path.stat().st_size, shard.offset + shard.tokens * token.itemsize
            if size != said:
                raise damaged(str(shard.path), f"has {size} bytes, and {said} where it was written")
            self.maps.append(np.memmap(shard.path, dtype=token, mode="r", offset=shard.offset))
        self.starts = np.cumsum([0] + [shard.tokens for shard in shards])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def read(self, start: int, stop: int) -> np.ndarray:
        """Token ids [start, stop) as int64; a range may span shards. Raises ValueError on an id off the
        vocabulary."""
        if not 0 <= start < stop <= len(self):
            raise IndexError(f"tokens {start}:{stop} of {len(self)}")
        pieces = []
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, stop, side="left"))
        for index in range(first, last):
            base = self.starts[index]
            piece = self.maps[index][max(start - base, 0) : stop - base]
            if piece.max() >= self.vocab_size:
                raise ValueError(
                    f"{self.shards[index].path}: token id {piece.max()}, the vocabulary has "
                    f"{self.vocab_size}; the shard was made with another tokenizer"
                )
            pieces.append(piece)
        return np.concatenate(pieces).astype(np.int64)


def check_digests(manifest: TrainingManifest, own_disks: bool = False) -> None:
    """Compare every shard and its packed rows with their digests; a collective in which the ranks share the reading.
    `own_disks`: of those that each node has.

    Raises MissingFileError, and DamagedFileError, on all ranks.
    """
    shards = [shard for part in (*manifest.sources, *manifest.heldout) for shard in part.shards]
    entries: list[ShardEntry | RowsEntry] = [*shards, *(rows for source in manifest.sources for rows in source.rows)]
    wrong = [
        (str(entry.path), entry.path.exists()) for entry in rank_slice(entries, own_disks) if not _as_written(entry)
    ]
    for path, there in (each for some in all_gather(wrong) for each in some):
        raise damaged(path, "is not what was written") if there else missing(path)


def _as_written(entry: ShardEntry | RowsEntry) -> bool:
    return entry.path.exists() and files.checksum(str(entry.path)) == entry.digest


def fingerprint(manifest: TrainingManifest) -> str:
    """SHA-256 that names the data: the manifest without its directories, so that a run can move to another machine and
    resume there."""
    digest = hashlib.sha256()
    # what a manifest need not have is left out where it has none, so that older checkpoints know their data
    absent = {name for name in ("phases", "row_length") if not getattr(manifest, name)}
    digest.update(manifest.model_dump_json(exclude={"tokenizer", "sources", "heldout", *absent}).encode())
    for part in (*manifest.sources, *manifest.heldout):
        unnamed = set() if getattr(part, "digest", "") else {"kind", "digest"}
        digest.update(part.model_dump_json(exclude={"shards", "rows"} | unnamed).encode())
        for shard in part.shards:
            digest.update(f"\0{shard.path.name}\0{shard.tokens}\0{shard.digest}\0".encode())
    for rows in (rows for source in manifest.sources for rows in source.rows):
        digest.update(f"\0{rows.path.name}\0{rows.rows}\0{rows.digest}\0".encode())
    return digest.hexdigest()


class PackedRows:
    """The packed rows of one source. Holds memory maps.

    A row is an end-of-text token, and behind it documents that each end with one, up to seq_len + 1 tokens; what is
    left is filled with end-of-text tokens that are no targets. A document that is longer than seq_len has rows of its
    own, and its end stands in a row with others. The piece that begins a row is read behind the token before it, so all
    of its tokens are targets. Another end of a long document in the same row is read behind an end-of-text token, from
    which its first token does not follow: that one is no target.
    """

    def __init__(self, tokens: Tokens, entries: tuple[RowsEntry, ...], seq_len: int, end_of_text: int) -> None:
        self.tokens, self.seq_len, self.end_of_text = tokens, seq_len, end_of_text
        self.maps = [map_rows(entry.path, entry.rows, entry.pieces) for entry in entries]
        self.firsts = np.cumsum([0] + [entry.rows for entry in entries])

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def __call__(self, row: int) -> np.ndarray:
        """Token ids, int64 (seq_len + 1,); ~id where one is no target."""
        file = int(np.searchsorted(self.firsts, row, side="right")) - 1
        first, starts, lengths = self.maps[file]
        begin, end = (int(piece) for piece in first[row - self.firsts[file] :][:2])
        ids = np.full(self.seq_len + 1, ~self.end_of_text, np.int64)
        ids[0], at = self.end_of_text, 1
        for start, length in zip(starts[begin:end].tolist(), lengths[begin:end].tolist(), strict=True):
            ids[at : at + length] = self.tokens.read(start, start + length)
            before = int(self.tokens.read(start - 1, start)[0]) if start else self.end_of_text
            if before != self.end_of_text:
                if at == 1:
                    ids[0] = before
                else:
                    ids[at] = ~ids[at]
            at += length
        return ids
