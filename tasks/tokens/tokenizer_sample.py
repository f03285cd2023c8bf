"""The sample that a tokenizer is trained on: documents of each group of the mixture worth its share of the bytes.

A job a shard counts the bytes of each group; from their sums follows how much of each group is drawn; a job a shard
writes what is drawn of it. So no job reads more than a shard, and only the sample is read as a whole.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, parquet
from gristmill.tasks.documents.sampling import uniform
from gristmill.tasks.documents.selection import select
from gristmill.tasks.tokens.grouping import group_names, with_columns
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.strategies import sample_shares

log = logging.getLogger(__name__)

# Of a shard: documents, the selection, and the parts with the signals that the mixture's groups need.
ShardParts = tuple[str, ...]
_TEXT = pa.schema([pa.field("text", pa.large_string(), nullable=False)])


def sample_folder(folder: str) -> str:
    return files.join(folder, "sample")


def _sample_file(folder: str, shard: int) -> str:
    return files.join(sample_folder(folder), f"{shard:05d}.parquet")


def measure_texts(folder: str, shard: int, source: str, parts: ShardParts, mixture: Mixture) -> dict:
    """Bytes of text of each group in a shard. Holds its texts."""
    table, names = _grouped(source, parts, mixture)
    return {"bytes": _sums(names, pc.binary_length(table["text"]).to_numpy())}


def group_sizes(measured: Iterable[tuple[str, Mapping[str, int]]]) -> dict[str, int]:
    """Bytes of each group, from the source of each shard and what was measured of it. Raises ValueError if a source
    has none."""
    sizes: dict[str, int] = {}
    of_source: dict[str, int] = {}
    for source, found in measured:
        of_source[source] = of_source.get(source, 0) + sum(found.values())
        for name, size in found.items():
            sizes[name] = sizes.get(name, 0) + size
    for source in (source for source, size in of_source.items() if not size):
        raise ValueError(
            f"mixture.weights names {source}, but no document of it is left to train on: loosen the steps that "
            "drop its documents, lower mixture.heldout_fraction, or take it out of mixture.weights"
        )
    return sizes


def sample_rates(sizes: Mapping[str, int], mixture: Mixture, sample_bytes: int) -> dict[str, float]:
    """What share of each group's documents is drawn; a group that has less than its share of the bytes gives all.

    Raises ValueError for a weight whose group does not exist.
    """
    rates = {}
    for name, share in sample_shares(mixture, dict(sizes)).items():
        wanted = sample_bytes * share
        if sizes[name] < wanted:
            log.info("%s has %d bytes, less than the %d of its share of the sample", name, sizes[name], wanted)
        rates[name] = wanted / sizes[name]
    return rates


def sample_texts(
    folder: str, shard: int, source: str, parts: ShardParts, mixture: Mixture, rates: dict[str, float], seed: int
) -> dict:
    """Write the texts of a shard that are drawn by a keyed hash of their ids, in the shard's order; the record has
    their bytes by group. Holds the shard's texts."""
    table, names = _grouped(source, parts, mixture)
    drawn = uniform(table["id"], seed, "tokenizer") < np.array([rates.get(name, 0.0) for name in names])
    texts = table.filter(pa.array(drawn))["text"]
    if len(texts):
        parquet.write_table(_sample_file(folder, shard), pa.table([texts], schema=_TEXT))
    return {"bytes": _sums(names[drawn], pc.binary_length(texts).to_numpy())}


def sampled_texts(folder: str, shards: Sequence[int]) -> Iterator[str]:
    """What was drawn of some shards, in their order. Holds that of one shard."""
    there = set(parquet.paths_in(sample_folder(folder)))
    for path in (path for shard in shards if (path := _sample_file(folder, shard)) in there):
        yield from parquet.read_table(path)["text"].to_pylist()


def _sums(names: np.ndarray, lengths: np.ndarray) -> dict[str, int]:
    found, at = np.unique(names.astype(str), return_inverse=True)
    sums = np.bincount(at, lengths, len(found)).astype(np.int64)
    return dict(zip(found.tolist(), sums.tolist(), strict=True))


def _grouped(source: str, parts: ShardParts, mixture: Mixture) -> tuple[pa.Table, np.ndarray]:
    """`id` and `text` of a shard's documents, and the name of each one's group."""
    documents, kept, *signals = parts
    table = select(documents, kept, ["text"])
    return table, group_names(with_columns(table, mixture.by, source, (documents, *signals), kept), mixture.by)
