"""What an engine lacks of a run's settings: said before the run, in our own environment. Imports neither torch nor
OLMo-core."""

from __future__ import annotations

from collections.abc import Iterator

from gristmill.training.config import Parallel, TrainingConfig
from gristmill.training.model_config import FP8_MULTIPLE, ModelConfig
from gristmill.training.parametrization import without_gains

Lack = tuple[tuple[str, ...], str]  # where a setting is, as ("training", "optimizer"), and a sentence behind its name


def lacking(model: ModelConfig, training: TrainingConfig) -> Iterator[Lack]:
    """What the engine of a run has nothing for, or its block; nothing where they have all."""
    if training.parametrization and model.block == "nanochat":
        yield from without_gains(model, training.parametrization)
    if training.engine == "olmo_core":
        yield from _olmo_core(model, training)
        yield from _half_in_fp8(model, training)
        yield from _undivided(model, training.parallel)
    else:
        yield from _gristmill(training.parallel)


def _gristmill(parallel: Parallel) -> Iterator[Lack]:
    for name in ("tensor", "context", "pipeline"):
        if (degree := getattr(parallel, name)) > 1:
            remedy = "set it to 1" if name == "pipeline" else "set it to 1, or set training.engine: olmo_core"
            yield ("training", "parallel", name), f"is {degree}, which the engine gristmill does not support; {remedy}"


def _olmo_core(model: ModelConfig, training: TrainingConfig) -> Iterator[Lack]:
    """What neither OLMo-core's Transformer nor what it is wrapped in here has."""
    for path, value, plain, why in (
        (("model", "block"), model.block, "llama", "which the engine olmo_core does not support"),
        (
            ("model", "logit_softcap"),
            model.logit_softcap,
            None,
            "which the output of the engine olmo_core does not support",
        ),
        (
            ("training", "document_mask"),
            training.document_mask,
            False,
            "which the engine olmo_core does not support with torch's attention",
        ),
        (
            ("training", "loss_chunks"),
            training.loss_chunks,
            1,
            "which the loss of the engine olmo_core does not support",
        ),
        (
            ("training", "reshard_after_forward"),
            training.reshard_after_forward,
            True,
            "which the layouts of the engine olmo_core do not support",
        ),
        (
            ("training", "parallel", "pipeline"),
            training.parallel.pipeline,
            1,
            "which is not supported with the engine olmo_core, whose schedules run their own training step",
        ),
    ):
        if value != plain:
            other = "" if path[-1] == "pipeline" else ", or set training.engine: gristmill"
            yield path, f"is {_yaml(value)}, {why}; set it to {_yaml(plain)}{other}"
    if training.objective == "masked":
        yield ("training", "objective"), "is masked, which olmo_core's model lacks; set training.engine: gristmill"
    if training.precision == "fp16":
        yield (
            ("training", "precision"),
            "is fp16, but the engine olmo_core does not scale losses; set it to bf16 or fp32, or set "
            "training.engine: gristmill",
        )
    if training.optimizer == "muon" and training.parallel.tensor > 1:
        yield (
            ("training", "optimizer"),
            "is muon, which needs whole matrices, but training.parallel.tensor is "
            f"{training.parallel.tensor}; set optimizer: adamw, or tensor: 1",
        )


def _half_in_fp8(model: ModelConfig, training: TrainingConfig) -> Iterator[Lack]:
    """OLMo-core's tensor parallelism has all matrices of blocks in fp8, or none."""
    least, narrow = training.fp8_min_dim, model.kv_head_count * model.head_dim
    sides = (model.dim, narrow, model.ffn_dim)
    if least is not None and training.parallel.tensor > 1 and any(s < least or s % FP8_MULTIPLE for s in sides):
        yield (
            ("training", "fp8_min_dim"),
            f"is {least}, but with training.parallel.tensor {training.parallel.tensor}, the engine olmo_core "
            f"needs all matrices of blocks in fp8, whose sides are {model.dim}, {narrow} and "
            f"{model.ffn_dim}; use at most the smallest, and multiples of {FP8_MULTIPLE}, or set it to null",
        )


def _undivided(model: ModelConfig, parallel: Parallel) -> Iterator[Lack]:
    """`tensor` gives each process some of the heads, some columns of the ffn, and some tokens between its products;
    `context` some tokens, and some of the heads that it has while attention is computed."""
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
                ("training", "parallel", name),
                f"{parts}, but model.{size} is {value}, which is not a multiple of {degree}; change one of them",
            )


def _yaml(value: object) -> str:
    return {None: "null", True: "true", False: "false"}[value] if isinstance(value, bool | None) else f"{value}"
