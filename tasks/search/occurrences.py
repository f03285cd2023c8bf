"""Where a phrase is in a shard, by its index: exact, however tokens cut it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gristmill.tasks.kernels import suffixes
from gristmill.tasks.search.pieces import Pieces


@dataclass(frozen=True)
class Places:
    """Where a phrase begins in a shard, in the order of the text. `token`: the number of the token with its first byte,
    counted from the shard's first, int64; `offset`: which byte of that token, int64. Shapes (occurrences,)."""

    token: np.ndarray
    offset: np.ndarray

    def __len__(self) -> int:
        return len(self.token)


@dataclass(frozen=True)
class ShardIndex:
    """The tokens of a shard and the order of their suffixes, both mapped into memory; `blocks`: the numbers of the
    tokens with which blocks end."""

    tokens: np.ndarray
    order: np.ndarray
    blocks: Sequence[int]
    pieces: Pieces

    def places(self, phrase: bytes) -> Places:
        """All occurrences of a phrase, also those that overlap. Holds twelve bytes for each, and four for each
        occurrence of its part behind the first token."""
        found = list(self._found(phrase, len(self.tokens)))
        token = np.concatenate([np.empty(0, np.int64), *(tokens for tokens, _ in found)])
        offset = np.concatenate([np.empty(0, np.int64), *(offsets for _, offsets in found)])
        order = np.lexsort((offset, token))
        return Places(token[order], offset[order])

    def has(self, phrase: bytes) -> bool:
        """Whether a phrase occurs."""
        return any(len(tokens) for tokens, _ in self._found(phrase, 1))

    def _found(self, phrase: bytes, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(token, offset) of occurrences, by where in the phrase the first token begins: at its start; behind the end
        of a token that holds more than that; nowhere, where one token has it all. At most `most` of each."""
        bounds, data, tokens = self.pieces.bounds, self.pieces.data, self.tokens
        given = np.frombuffer(phrase, np.uint8)
        inside = list(self.pieces.within(phrase))
        backwards = self.pieces.backwards
        ends = suffixes.ended(backwards.bounds, backwards.data, given).tolist()
        for block in zip([0, *self.blocks], self.blocks, strict=False):
            for low, high in self._beginning(given, *block):
                whole = self.order[low : min(high, low + most)].astype(np.int64)
                yield whole, np.zeros(len(whole), np.int64)
            for size in ends:
                for low, high in self._beginning(given[size:], *block):
                    rest = suffixes.preceded(self.order[low:high], tokens, bounds, data, given[:size], most)
                    behind = rest.astype(np.int64) - 1
                    yield behind, bounds[tokens[behind] + 1] - bounds[tokens[behind]] - size
            for token, at in inside:
                rank = int(self.pieces.ranks[token])
                low, high = suffixes.narrowed(self.order, tokens, self.pieces.ranks, *block, 0, rank, rank + 1)
                same = self.order[low : min(high, low + most)].astype(np.int64)
                yield same, np.full(len(same), at)

    def _beginning(self, phrase: np.ndarray, low: int, high: int) -> list[list[int]]:
        """[low, high] of ranges of `order` whose suffixes begin with the phrase."""
        known = self.pieces.forwards
        found = suffixes.begun(self.order, self.tokens, self.pieces.ranks, low, high, known.bounds, known.data, phrase)
        return found.tolist()
