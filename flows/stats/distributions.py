"""The distribution of a column over documents, in memory that does not grow with their number.

Numbers are rounded to eleven binary digits, so there are few different values. Texts are counted by their first 100
characters, and only the 10,000 most common texts of a column are kept.
"""

from dataclasses import dataclass, field
from math import ceil, isfinite

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
MAX_TEXTS = 10_000  # different texts of a column that are counted
_MAX_CHARACTERS = 100  # of a text, by which it is counted
_DIGITS = np.uint64(42)  # of the 52 of a float64's mantissa, left out


@dataclass
class Distribution:
    """The values of a column in some documents.

    `documents`: number of documents with a value; `missing`: without one, or with NaN; `total`: the sum of numbers;
    `values`: the different values, ascending: numbers rounded toward zero, texts, or "yes" and "no"; empty for columns
    of other types; `counts`: documents with each value, int64 (n,); `error`: by how many documents the count of a text
    may be too low, 0 for up to 10,000 different texts.
    """

    documents: int = 0
    missing: int = 0
    total: float = 0.0
    values: pa.Array = field(default_factory=lambda: pa.nulls(0), repr=False)
    counts: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    error: int = 0

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Add the values of more documents."""
        there = pc.is_valid(column)
        if pa.types.is_floating(column.type):
            there = pc.and_(there, pc.invert(pc.fill_null(pc.is_nan(column), True)))
        values = column.filter(there)
        self.documents += len(values)
        self.missing += len(column) - len(values)
        if is_number(column.type):
            numbers = np.asarray(values.cast(pa.float64(), safe=False), np.float64)
            with np.errstate(over="ignore", invalid="ignore"):  # see `mean`
                self.total += float(numbers.sum())
            bits = np.ascontiguousarray(numbers + 0.0).view(np.uint64)  # -0.0 becomes 0.0
            self._count(*pa.array((bits >> _DIGITS << _DIGITS).view(np.float64)).value_counts().flatten())
        elif is_text(column.type):
            texts = pc.if_else(values, "yes", "no") if pa.types.is_boolean(column.type) else values.cast(pa.string())
            self._count(*pc.utf8_slice_codeunits(texts, 0, _MAX_CHARACTERS).value_counts().flatten())

    def join(self, other: "Distribution") -> None:
        """Add the documents of another distribution of the same column."""
        self.documents += other.documents
        self.missing += other.missing
        self.total += other.total
        self.error += other.error
        self._count(other.values, other.counts)

    @property
    def mean(self) -> float | None:
        """None without numbers, and where their sum is not a finite number."""
        return self.total / self.documents if self.documents and isfinite(self.total) else None

    def quantile(self, share: float) -> float | None:
        """The smallest value that at least this share of the documents does not exceed; None without numbers."""
        if not pa.types.is_floating(self.values.type) or not self.documents:
            return None
        # a rank is a whole number of documents, which a product of floats may miss by a rounding
        rank = max(1, ceil(round(share * self.documents, 6)))
        return float(self.values[int(np.searchsorted(np.cumsum(self.counts), rank))].as_py())

    def below(self, value: float) -> float:
        """The share of the documents with a smaller value, in [0, 1], to eleven binary digits."""
        smaller = self.counts[np.asarray(self.values.cast(pa.float64())) < value]
        return float(smaller.sum() / self.documents) if self.documents else 0.0

    def histogram(self, edges: np.ndarray) -> np.ndarray:
        """Documents in each bin between two edges, int64; values outside the edges count in the outermost bins."""
        values = np.clip(np.asarray(self.values.cast(pa.float64())), edges[0], edges[-1])
        return np.histogram(values, edges, weights=self.counts)[0].astype(np.int64)

    def most_common(self, n: int | None = None) -> list[tuple[str, int]]:
        """Texts and their numbers of documents, the most frequent first, ties in the order of code points."""
        order = np.argsort(-self.counts, kind="stable")[:n]
        return list(zip(self.values.take(order).to_pylist(), self.counts[order].tolist(), strict=True))

    def same(self, other: "Distribution") -> bool:
        """Whether the same share of the documents has each value."""
        if self.missing * other.documents != other.missing * self.documents or bool(self.error) != bool(other.error):
            return False
        shares = np.array_equal(self.counts * other.documents, other.counts * self.documents)
        return shares and self.values.equals(other.values)

    def _count(self, values: pa.Array, counts: pa.Array | np.ndarray) -> None:
        """Add documents with values, which must be unique."""
        if not len(values):
            return
        both = pa.chunked_array([self.values.cast(values.type), values]).combine_chunks().dictionary_encode()
        summed = np.bincount(both.indices, np.concatenate([self.counts, counts]), len(both.dictionary))
        order = pc.sort_indices(both.dictionary)
        self.values, self.counts = both.dictionary.take(order), summed.astype(np.int64)[order]
        if len(self.counts) > MAX_TEXTS and is_text(values.type):
            # Subtract the count of the first text beyond MAX_TEXTS from all counts (Misra-Gries). Each text that loses
            # documents shares the loss with n others, so the error is at most 1 / (n + 1) of the documents.
            less = int(np.sort(self.counts)[-MAX_TEXTS - 1])
            self.error += less
            frequent = self.counts > less
            self.values, self.counts = self.values.filter(pa.array(frequent)), self.counts[frequent] - less


def is_number(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)


def is_text(type_: pa.DataType) -> bool:
    """Whether values of the type are counted as texts; booleans are, too."""
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_boolean(type_)
