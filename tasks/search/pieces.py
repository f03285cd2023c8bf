"""What the tokens of a tokenizer stand for, sorted by their bytes."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

END = b"\xff"  # what the token that ends a document stands for here: no byte of UTF-8


@dataclass(frozen=True)
class SortedBytes:
    """Strings of bytes in their order: the i-th is data[bounds[i]:bounds[i + 1]]."""

    bounds: np.ndarray
    data: np.ndarray

    @classmethod
    def of(cls, strings: list[bytes]) -> "SortedBytes":
        """`strings`: sorted."""
        return cls(np.cumsum([0, *map(len, strings)]), np.frombuffer(b"".join(strings), np.uint8))


@dataclass(frozen=True)
class Pieces:
    """What tokens stand for, by id; nothing for those that stand for no text."""

    each: tuple[bytes, ...]

    @cached_property
    def bounds(self) -> np.ndarray:
        """Token i stands for data[bounds[i]:bounds[i + 1]]: int64."""
        return np.cumsum([0, *map(len, self.each)])

    @cached_property
    def _bytes(self) -> bytes:
        return b"".join(self.each)

    @cached_property
    def data(self) -> np.ndarray:
        return np.frombuffer(self._bytes, np.uint8)

    @cached_property
    def longest(self) -> int:
        return max(map(len, self.each))

    @cached_property
    def _in_order(self) -> list[tuple[bytes, int]]:
        return sorted((piece, token) for token, piece in enumerate(self.each))

    @cached_property
    def ranks(self) -> np.ndarray:
        """The place of each token in the order of their bytes: int32."""
        ranks = np.empty(len(self.each), np.int32)
        ranks[[token for _, token in self._in_order]] = np.arange(len(self.each))
        return ranks

    @cached_property
    def forwards(self) -> SortedBytes:
        """Those of all tokens, by rank."""
        return SortedBytes.of([piece for piece, _ in self._in_order])

    @cached_property
    def backwards(self) -> SortedBytes:
        """Those of all tokens from their last byte to their first, sorted."""
        return SortedBytes.of(sorted(piece[::-1] for piece in self.each))

    def within(self, phrase: bytes) -> Iterator[tuple[int, int]]:
        """(token, place) for each place behind its first byte at which a token has the whole phrase."""
        position = self._bytes.find(phrase) if len(phrase) < self.longest else -1
        while position >= 0:
            token = int(np.searchsorted(self.bounds, position, side="right")) - 1
            begin, end = self.bounds[token], self.bounds[token + 1]
            if begin < position and position + len(phrase) <= end:
                yield token, int(position - begin)
            position = self._bytes.find(phrase, position + 1)

    def text(self, tokens: np.ndarray) -> bytes:
        """What some tokens stand for, without the ends of documents."""
        return b"".join(self.each[token] for token in tokens.tolist()).replace(END, b"")
