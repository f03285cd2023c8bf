"""How the numbers of documents are distributed: over all, or over shards that are drawn where there are many."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from gristmill.flows.explore.browse.opened import Opened
from gristmill.flows.reports.diff.columns import Numbers
from gristmill.storage import files, parquet

_DOCUMENTS = 200_000  # after so many no more shards are read
_PLACES = ("offset", "length", "status")


@dataclass
class Summary:
    """`columns`: the numbers of each column, of all documents that were measured, kept or not; `shards`: how many of
    `of` were read; `documents`: of them."""

    shards: int = 0
    of: int = 0
    documents: int = 0
    columns: dict[str, Numbers] = field(default_factory=dict)


def summary(opened: Opened) -> Summary:
    """Read the measured columns of shards in a drawn order, until 200,000 documents were read. Holds a row group."""
    corpus = opened.corpus
    found = Summary(of=len(corpus.sources))
    for shard in np.random.default_rng(0).permutation(found.of).tolist():
        if found.documents >= _DOCUMENTS:
            break
        found.shards += 1
        found.documents += parquet.rows(corpus.extracted.part(shard))
        have: dict[str, str] = {}
        for stage in (corpus.extracted, *corpus.measured):
            if files.exists(stage.part(shard)):
                have |= {each.name: stage.part(shard) for each in parquet.schema(stage.part(shard)) if _counts(each)}
        for part in dict.fromkeys(have.values()):
            names = [name for name, where in have.items() if where == part]
            for group in parquet.groups(part, names):
                for name in names:
                    found.columns.setdefault(name, Numbers()).add(group[name])
    return found


def _counts(column: pa.Field) -> bool:
    number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    return number and column.name not in _PLACES
