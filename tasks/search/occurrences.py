"""Where a phrase is in a shard, by its index: exact, however tokens cut it."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gristmill.tasks.kernels import suffixes

END = b"\xff"  # what the token that ends a document stands for here: no byte of UTF-8


@dataclass(frozen=True)
class Pieces:
    """What tokens stand for, by id; nothing for those that stand for no text."""

    each: tuple[bytes, ...]

    @cached_property
    def bounds(self) -> np.ndarray:
        """Token i stands for data[bounds[i]:bounds[i + 1]]: int64."""
        return np.cumsum([0, *map(len, self.each)])

    @cached_property
    def data(self) -> np.ndarray:
        return np.frombuffer(b"".join(self.each), np.uint8)

    @cached_property
    def longest(self) -> int:
        return max(map(len, self.each))

    @cached_property
    def _sorted(self) -> list[tuple[bytes, int]]:
        return sorted((piece, token) for token, piece in enumerate(self.each))

    @cached_property
    def ranks(self) -> np.ndarray:
        """The place of each token in the order of their bytes: int32."""
        ranks = np.empty(len(self.each), np.int32)
        ranks[[token for _, token in self._sorted]] = np.arange(len(self.each))
        return ranks

    def beginning(self, phrase: bytes) -> tuple[int, int]:
        """(first, end) of the ranks of those that begin with a phrase."""
        behind = phrase[:-1] + bytes([phrase[-1] + 1])  # UTF-8 has no byte 255
        return bisect_left(self._sorted, (phrase,)), bisect_left(self._sorted, (behind,))

    @cached_property
    def _by_bytes(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for rank, (piece, _) in enumerate(self._sorted):
            found.setdefault(piece, []).append(rank)
        return found

    def begun(self, phrase: bytes) -> Iterator[tuple[int, int]]:
        """(rank, bytes) of each token with which a phrase begins, and goes on behind."""
        for size in range(1, min(len(phrase), self.longest + 1)):
            for rank in self._by_bytes.get(phrase[:size], ()):
                yield rank, size

    @cached_property
    def _reversed(self) -> list[bytes]:
        return sorted(piece[::-1] for piece in self.each)

    def is_end(self, phrase: bytes) -> bool:
        """Whether a token ends with a phrase and is longer."""
        back = phrase[::-1]
        at = bisect_left(self._reversed, back + b"\0")
        return at < len(self._reversed) and self._reversed[at].startswith(back)

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
        return b"".join(self.each[token] for token in tokens.tolist()).replace(END, b"")


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
        inside = list(self.pieces.within(phrase))
        ends = [n for n in range(1, min(len(phrase), self.pieces.longest)) if self.pieces.is_end(phrase[:n])]
        for block in zip([0, *self.blocks], self.blocks, strict=False):
            for low, high in self._beginning(phrase, *block, 0):
                whole = self.order[low : min(high, low + most)].astype(np.int64)
                yield whole, np.zeros(len(whole), np.int64)
            for size in ends:
                before = np.frombuffer(phrase[:size], np.uint8)
                for low, high in self._beginning(phrase[size:], *block, 0):
                    rest = suffixes.preceded(self.order[low:high], tokens, bounds, data, before, most)
                    behind = rest.astype(np.int64) - 1
                    yield behind, bounds[tokens[behind] + 1] - bounds[tokens[behind]] - size
            for token, at in inside:
                rank = int(self.pieces.ranks[token])
                low, high = self._narrowed(*block, 0, rank, rank + 1)
                same = self.order[low : min(high, low + most)].astype(np.int64)
                yield same, np.full(len(same), at)

    def _beginning(self, phrase: bytes, low: int, high: int, depth: int) -> Iterator[tuple[int, int]]:
        """(low, high) of ranges of `order` whose suffixes, which share `depth` tokens, go on with the phrase: one for
        each way in which the shard's tokens cut it."""
        last = self._narrowed(low, high, depth, *self.pieces.beginning(phrase))
        if last[0] < last[1]:
            yield last
        for rank, size in self.pieces.begun(phrase):
            within = self._narrowed(low, high, depth, rank, rank + 1)
            if within[0] < within[1]:
                yield from self._beginning(phrase[size:], *within, depth + 1)

    def _narrowed(self, low: int, high: int, depth: int, first: int, last: int) -> tuple[int, int]:
        return suffixes.narrowed(self.order, self.tokens, self.pieces.ranks, low, high, depth, first, last)
