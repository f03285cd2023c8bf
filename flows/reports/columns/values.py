"""What values a column has, counted in bounded memory: shares without a value, quantiles, the most common texts.

Numbers are counted by their first eleven binary digits, so that few are different, however many documents there are:
a quantile is at most a thousandth too near to zero, and a whole number below 2,048 is exact. Of texts the most common
are counted by the algorithm of Misra and Gries (1982), in batches: where more than MOST_TEXTS are different, each of
the counts may be too low, by at most as much as is said, and no text that is more frequent than that is missed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MOST_TEXTS = 10_000  # of a column, that are counted at a time
CHARACTERS = 100  # of a text, by which it is counted
QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)
_DIGITS = np.uint64(42)  # of the 52 of a float64's mantissa, left out
_AT_ONCE = 64  # shards whose counts are held before they are added up


@dataclass
class Values:
    """The values of a column in some documents. `documents`: how many there are; `nulls`: of them without a value.

    `texts`: of texts and truth values, how many documents have each of the most common, at most `error` too few.
    """

    documents: int = 0
    nulls: int = 0
    texts: Counter[str] = field(default_factory=Counter)
    error: int = 0
    _numbers: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list, repr=False)

    def add(self, column: pa.Array) -> None:
        """Count the values of some documents, as `gristmill.tasks.documents.where.evaluate` gives them. Of lists, times
        and mappings those without a value are counted alone."""
        self.documents += len(column)
        self.nulls += column.null_count
        column = column.drop_null()
        if pa.types.is_boolean(column.type):
            column = pc.if_else(column, "True", "False")
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            found = pc.value_counts(pc.utf8_slice_codeunits(column, 0, CHARACTERS))
            for begin in range(0, len(found), MOST_TEXTS):
                some = found.slice(begin, MOST_TEXTS).to_pylist()
                self.texts.update({each["values"]: each["counts"] for each in some})
                self._reduce()
        elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            self._hold(*np.unique(rounded(np.asarray(column, np.float64)), return_counts=True))

    def join(self, other: "Values") -> None:
        """Count the documents of another, too."""
        self.documents += other.documents
        self.nulls += other.nulls
        self.error += other.error
        self.texts.update(other.texts)
        self._reduce()
        for held in other._numbers:
            self._hold(*held)

    def quantiles(self, shares: Sequence[float] = QUANTILES) -> dict[float, float]:
        """For each share the least value that at least so many of the documents with a value do not exceed; none for a
        column that has no numbers."""
        values, counts = self._added()
        if not len(values):
            return {}
        ends = np.cumsum(counts)
        # a rank is a whole number of documents, which a product of floats may miss by a rounding
        ranks = [max(1, int(np.ceil(round(share * ends[-1], 6)))) for share in shares]
        return {share: float(values[np.searchsorted(ends, rank)]) for share, rank in zip(shares, ranks, strict=True)}

    def most_common(self, most: int) -> list[tuple[str, int]]:
        """Texts with their documents, the most frequent first, equal ones by their code points."""
        return sorted(self.texts.items(), key=lambda item: (-item[1], item[0]))[:most]

    def _hold(self, values: np.ndarray, counts: np.ndarray) -> None:
        self._numbers.append((values, counts))
        if len(self._numbers) > _AT_ONCE:
            self._numbers = [self._added()]

    def _added(self) -> tuple[np.ndarray, np.ndarray]:
        values = np.concatenate([np.empty(0), *(each for each, _ in self._numbers)])
        counts = np.concatenate([np.empty(0, np.int64), *(each for _, each in self._numbers)])
        different, at = np.unique(values, return_inverse=True)
        return different, np.bincount(at, counts, len(different)).astype(np.int64)

    def _reduce(self) -> None:
        """Take the count of the one behind the first MOST_TEXTS from all, and let go of those with nothing left."""
        if len(self.texts) <= MOST_TEXTS:
            return
        less = sorted(self.texts.values(), reverse=True)[MOST_TEXTS]
        self.error += less
        self.texts = Counter({text: count - less for text, count in self.texts.items() if count > less})


def rounded(values: np.ndarray) -> np.ndarray:
    """Float64 values, each rounded toward zero to eleven binary digits."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    return (bits >> _DIGITS << _DIGITS).view(np.float64)
