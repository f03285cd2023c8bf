"""Rows of whole documents, packed ahead of training: what stands in the i-th of them."""

from __future__ import annotations

import numpy as np

from storage.packed_rows import map_rows
from storage.training_manifest import RowsEntry
from training.data import Tokens


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
