"""Tokenizers for tests: the jobs of the stage, one after another, without a flow."""

from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.tokenizer import (
    Tokenizer,
    group_sizes,
    measure_texts,
    sample_rates,
    sample_texts,
    train_tokenizer,
)


def text_sizes(inputs: dict[str, list[tuple[str, ...]]], mixture: Mixture) -> dict[str, int]:
    """Bytes of text by group. `inputs`: by source the parts of its shards."""
    shards = [(source, parts) for source in sorted(inputs) for parts in inputs[source]]
    return group_sizes((source, measure_texts("", 0, source, parts, mixture)["bytes"]) for source, parts in shards)


def sample(folder, inputs, mixture: Mixture, sample_bytes: int, seed: int) -> tuple[range, dict[str, int]]:
    """Write the sample; returns its shards and the bytes of each group."""
    rates = sample_rates(text_sizes(inputs, mixture), mixture, sample_bytes)
    taken = dict.fromkeys(sorted(rates), 0)
    shards = [(source, parts) for source in sorted(inputs) for parts in inputs[source]]
    for number, (source, parts) in enumerate(shards):
        for name, size in sample_texts(str(folder), number, source, parts, mixture, rates, seed)["bytes"].items():
            taken[name] += size
    return range(len(shards)), taken


def train(folder, inputs, mixture: Mixture, settings: Tokenizer, seed: int) -> dict:
    """The record of a trained tokenizer, with the bytes of its sample."""
    shards, taken = sample(folder, inputs, mixture, settings.sample_bytes, seed)
    return train_tokenizer(str(folder), 0, shards, settings) | {"sample_bytes": taken}
