"""What a layout or a block cannot do: sentences for `gristmill check` and the start of a run. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator

from gristmill.training.config import TrainingConfig
from gristmill.training.model_config import ModelConfig, Parallel
from gristmill.training.parametrization import without_gains

Lack = tuple[tuple[str, ...], str]  # where a setting is, as ("training", "optimizer"), and a sentence after its name
PARALLEL = ("training", "parallel")


def lacking(model: ModelConfig, training: TrainingConfig) -> Iterator[Lack]:
    """What a model or its layout has nothing for."""
    if training.parametrization and model.block == "nanochat":
        yield from without_gains(model, training.parametrization)
    yield from _undivided(model, training)
    parallel = training.parallel
    if training.fp8_min_dim and parallel.tensor > 1:
        yield (
            ("training", "fp8_min_dim"),
            f"is {training.fp8_min_dim}, but training.parallel.tensor is {parallel.tensor}, and divided matrices do "
            "not multiply in fp8; set fp8_min_dim to null, or tensor to 1",
        )
    fits = model.layers // parallel.interleave  # the most processes of a pipeline
    if parallel.interleave > 1 and parallel.pipeline == 1:
        yield (
            (*PARALLEL, "interleave"),
            f"is {parallel.interleave}, but training.parallel.pipeline is 1; set interleave to 1"
            f"{', or pipeline to 2' if fits >= 2 else ''}",
        )
    elif (stages := parallel.pipeline * parallel.interleave) > model.layers:
        makes = f"which makes {stages} stages of {model.layers} model.layers"
        if fits >= 2 or parallel.pipeline > model.layers:
            most = max(fits, 1)
            sentence = f"is {parallel.pipeline}, {makes}; set it to {most}{' or fewer' if most > 1 else ''}"
            yield (*PARALLEL, "pipeline"), sentence
        else:
            sentence = f"is {parallel.interleave}, {makes}; set it to {model.layers // parallel.pipeline}"
            yield (*PARALLEL, "interleave"), sentence


def few_micro_batches(training: TrainingConfig, processes: int) -> Iterator[Lack]:
    """What is wrong with the micro-batches of a pipeline of so many processes, which it divides: each step must have as
    many as there are stages, or some wait for all of it."""
    parallel, pipeline = training.parallel, training.parallel.pipeline
    readers = processes // parallel.model_ranks
    rows = -(-training.batch // max(1, readers))
    counts = {-(-rows * times // min(training.micro_batch, rows * times)) for times in _multiples(training)}
    interleaves = parallel.interleave > 1
    if pipeline == 1 or all(count >= pipeline and not (interleaves and count % pipeline) for count in counts):
        return
    number = f"{', '.join(map(str, sorted(counts)))} micro-batch{'' if counts == {1} else 'es'}"
    wanted = f"{'a multiple of ' if interleaves else 'at least '}{pipeline}"
    fits = [
        size
        for size in range(1, rows + 1)
        if (count := -(-rows // size)) >= pipeline and not (interleaves and count % pipeline)
    ]
    if fits:  # with as little padding as possible
        remedy = f"set micro_batch to {min(fits, key=lambda size: (-rows % size, -size))}"
    else:
        remedy = f"set batch to a multiple of {pipeline * max(1, readers)}, and micro_batch to 1, or use fewer stages"
    yield (
        ("training", "micro_batch"),
        f"is {training.micro_batch}, which makes {number} of a step's {rows} sequences per pipeline, but "
        f"training.parallel.pipeline {pipeline} needs {wanted}; {remedy}",
    )


def undivided_vocabulary(size: int, parallel: Parallel) -> Iterator[Lack]:
    """What is wrong with the size of a vocabulary, of which `tensor` gives each process an equal part."""
    if size % parallel.tensor:
        yield (
            (*PARALLEL, "tensor"),
            f"is {parallel.tensor}, which does not divide the vocabulary of {size:,} tokens; use a "
            "tokenizer.vocab_size that is a multiple of it, or set it to 1",
        )


def _multiples(training: TrainingConfig) -> list[int]:
    """How many times as large as the first the batches of a run are."""
    return [1, *(stage.times for stage in training.batch_ramp)]


def _undivided(model: ModelConfig, training: TrainingConfig) -> Iterator[Lack]:
    """`tensor` gives each process some of the heads, some columns of the feed-forward network, and some tokens between
    its products; `context` some tokens, and some of the heads that it has while attention is computed."""
    parallel = training.parallel
    name = "tensor" if parallel.tensor > 1 else "context"
    both = parallel.tensor * parallel.context
    parts = f"is {getattr(parallel, name)}"
    if parallel.tensor > 1 and parallel.context > 1:
        parts += f", with context {parallel.context}"
    for size, value, degree in (
        ("heads", model.heads, both),
        ("kv_heads", model.kv_head_count, both),
        ("seq_len", model.seq_len, both),
        ("ffn", model.ffn_dim, parallel.tensor),
    ):
        if value % degree:
            yield (
                (*PARALLEL, name),
                f"{parts}, but model.{size} is {value}, which is not a multiple of {degree}; change one of them",
            )
