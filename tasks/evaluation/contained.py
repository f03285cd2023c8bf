"""Which of some short texts, the examples of tasks, stand in the documents of a corpus."""

import numpy as np
import pyarrow as pa

from gristmill.storage import files, parquet
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.documents.selection import select_groups
from gristmill.tasks.evaluation.similar import given, overlaps, read_given, write_given


def index_folder(folder: str) -> str:
    return files.join(folder, "given")


def index_examples(folder: str, number: int, examples: str, shingling: Shingling) -> dict:
    """Write the shingles of the texts in the file `examples` (columns `id`, `text`). Holds them."""
    write_given(index_folder(folder), given(parquet.read_table(examples, ["text"])["text"], shingling))
    return {}


def find_contained(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    examples: str,
    shingling: Shingling,
    threshold: float,
    least: int,
) -> dict:
    """The ids of the examples of which a share of `threshold` of the shingles stands in one kept document of a shard,
    among those that have `least` shingles. Holds what `read_given` holds, and the texts of a row group."""
    known = read_given(index_folder(folder), shingling)
    names = parquet.read_table(examples, ["id"])["id"]
    found: set[int] = set()
    for group in select_groups(documents, kept, ["text"]):
        there = np.unique(overlaps(known, group["text"], threshold).given)
        found.update(there[known.sizes[there] >= least].tolist())
    return {"examples": sorted(set(names.take(pa.array(sorted(found), pa.int64())).to_pylist()))}
