"""Where a phrase is in a shard, by its index: exact, wherever tokens begin and end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gristmill.tasks.kernels import suffixes


@dataclass(frozen=True)
class Pieces:
    """What tokens stand for: token i for `data[bounds[i]:bounds[i + 1]]`, as `index_work.vocabulary` gives it."""

    bounds: np.ndarray
    data: np.ndarray

    @cached_property
    def longest(self) -> int:
        return int(np.diff(self.bounds).max())

    @cached_property
    def each(self) -> list[bytes]:
        whole = self.data.tobytes()
        return [whole[a:b] for a, b in zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True)]

    def within(self, phrase: bytes) -> Iterator[tuple[int, int]]:
        """(token, place) for each place behind its first byte at which a token has the whole phrase."""
        if len(phrase) >= self.longest:
            return
        for token, piece in enumerate(self.each):
            at = piece.find(phrase, 1)
            while at > 0:
                yield token, at
                at = piece.find(phrase, at + 1)

    def text(self, tokens: np.ndarray) -> bytes:
        """What some tokens stand for, without the ends of documents."""
        return b"".join(self.each[token] for token in tokens.tolist()).replace(bytes([suffixes.END]), b"")


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
        given = np.frombuffer(phrase, np.uint8)
        bounds, data = self.pieces.bounds, self.pieces.data
        sizes = np.diff(bounds)
        inside = list(self.pieces.within(phrase))
        for begin, end in zip([0, *self.blocks], self.blocks, strict=False):
            order = self.order[begin:end]

            def beginning(wanted: np.ndarray, order: np.ndarray = order) -> np.ndarray:
                low, high = suffixes.range_of(order, self.tokens, bounds, data, wanted)
                return order[low:high]

            whole = beginning(given)[:most].astype(np.int64)
            yield whole, np.zeros(len(whole), np.int64)
            for size in range(1, min(len(phrase), self.pieces.longest)):
                rest = beginning(given[size:])
                behind = suffixes.preceded(rest, self.tokens, bounds, data, given[:size], most).astype(np.int64) - 1
                yield behind, sizes[self.tokens[behind]] - size
            for token, at in inside:
                same = beginning(data[bounds[token] : bounds[token + 1]])
                same = same[self.tokens[same] == token][:most].astype(np.int64)
                yield same, np.full(len(same), at)
