"""Choices made by a keyed hash: the same for any order, number of workers, and after any crash."""

from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from pydantic import Field

from gristmill.tasks.documents.step import Settings


def uniform(values: pa.ChunkedArray, seed: int, purpose: str) -> np.ndarray:
    """A number in [0, 1) for each string, float64, shape (n,), fixed by the seed, the purpose and the string alone."""
    prefix = f"{seed}:{purpose}:".encode()
    hashes = (xxhash.xxh3_64_intdigest(prefix + value.encode()) for value in values.to_pylist())
    return (np.fromiter(hashes, np.uint64, len(values)) >> np.uint64(11)) * 2.0**-53


class Heldout(Settings):
    """The documents that no training may see, of the model, the tokenizer or a scorer.

    They are drawn by their ids alone, so that they are the same for every recipe on the same sources, whatever its
    seeds are and whatever its steps keep or make of the texts; a smaller fraction draws some of those of a larger one.
    What is like one of them is another matter: see `gristmill.tasks.evaluation.heldout`.
    """

    fractions: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(description="by source, of its documents")

    def mask(self, documents: pa.Table) -> np.ndarray:
        """True for the held-out rows of a table with the columns `id` and `source`. Raises KeyError for a source that
        has no fraction, ValueError without the columns."""
        if missing := {"id", "source"} - set(documents.column_names):
            raise ValueError(
                f"held-out documents are known by `id` and `source`, and {', '.join(missing)} is not there: read it, "
                'too, as in select(documents, kept, ["source", "text"])'
            )
        sources = pc.dictionary_encode(documents["source"]).combine_chunks()
        fractions = np.array([self.fractions[name] for name in sources.dictionary.to_pylist()], float)
        return uniform(documents["id"], 0, "heldout") < fractions[sources.indices.to_numpy()]

    def chosen(self, documents: pa.Table) -> pa.Table:
        """The held-out rows."""
        return documents.filter(pa.array(self.mask(documents)))

    def without(self, documents: pa.Table) -> pa.Table:
        """The rows that training may see."""
        return documents.filter(pa.array(~self.mask(documents)))
