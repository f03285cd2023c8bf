"""The texts that a tokenizer is trained on: a sample that follows the mixture by bytes, group by group."""

import logging
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.tasks.documents.sampling import uniform
from gristmill.tasks.documents.selection import select
from gristmill.tasks.tokens.grouping_work import group_names, with_columns
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.strategies import sample_shares

log = logging.getLogger(__name__)

# By source the shards: documents, the selection, and the parts with the signals that the mixture's groups need.
Inputs = dict[str, list[tuple[str, ...]]]


def sample(inputs: Inputs, mixture: Mixture, sample_bytes: int, seed: int, taken: dict[str, int]) -> Iterator[str]:
    """Documents of each group worth its share of `sample_bytes`, drawn by a keyed hash; a group that has less gives
    all.

    `taken` gets the bytes of each group. Reads the texts twice, a shard at a time. Raises ValueError for a source
    without text, or a weight whose group does not exist.
    """
    sizes = text_sizes(inputs, mixture)
    rates = {}
    for name, share in sample_shares(mixture, sizes).items():
        wanted = sample_bytes * share
        if sizes[name] < wanted:
            log.info("%s has %d bytes, less than the %d of its share of the sample", name, sizes[name], wanted)
        rates[name] = wanted / sizes[name]
    taken |= dict.fromkeys(sorted(rates), 0)
    for source in sorted(inputs):
        for part in inputs[source]:
            table, names = _grouped(source, part, mixture)
            drawn = uniform(table["id"], seed, "tokenizer") < np.array([rates.get(name, 0.0) for name in names])
            for text, name in zip(table.filter(pa.array(drawn))["text"].to_pylist(), names[drawn], strict=True):
                taken[name] += len(text.encode())
                yield text


def text_sizes(inputs: Inputs, mixture: Mixture) -> dict[str, int]:
    """Bytes of text of each group. Raises ValueError if a source has none."""
    sizes: dict[str, int] = {}
    for source, parts in inputs.items():
        whole = 0
        for part in parts:
            table, names = _grouped(source, part, mixture)
            lengths = pc.binary_length(table["text"]).to_numpy()
            whole += int(lengths.sum())
            found, at = np.unique(names.astype(str), return_inverse=True)
            for name, size in zip(found.tolist(), np.bincount(at, lengths, len(found)).tolist(), strict=True):
                sizes[name] = sizes.get(name, 0) + int(size)
        if not whole:
            raise ValueError(
                f"mixture.weights names {source}, but no document of it is left to train on: loosen the steps that "
                "drop its documents, lower mixture.heldout_fraction, or take it out of mixture.weights"
            )
    return sizes


def _grouped(source: str, part: tuple[str, ...], mixture: Mixture) -> tuple[pa.Table, np.ndarray]:
    """`id` and `text` of a shard's documents, and the name of each one's group."""
    documents, kept, *signals = part
    table = select(documents, kept, ["text"])
    wanted = [column.column for column in mixture.by]
    return table, group_names(with_columns(table, wanted, source, (documents, *signals), kept), mixture.by)
