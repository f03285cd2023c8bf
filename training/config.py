"""Settings of training, and of one run. Imports neither torch nor numpy."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import (
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
    model_validator,
)

from gristmill.samples.batch_plan import BatchPlan
from gristmill.storage.settings import FOLDER, KEY, Address, CheckedSettings
from gristmill.training.model_config import ModelConfig, Parallel
from gristmill.training.start import Start

TRAINING_VERSION = 2  # raised when equal settings and data give other losses
CHECKPOINTS = "checkpoints"  # their folder in the folder of a run
DOCUMENT_LOSSES = "document_losses.parquet"
RENDEZVOUS = "TRAINING_RENDEZVOUS"  # environment variable: where ranks find each other, as a URL of torch.distributed


class Rates(NamedTuple):
    """Peak learning rates of an optimizer that the recipe does not set: of the matrices of the blocks, and of the
    embedding, relative to the former."""

    matrices: float
    embedding: float


# "The defaults" in docs/explanation/training.md. The settings of AdamW are not swept.
OWN_RATES = {"adamw": Rates(3e-3, 1.0), "muon": Rates(6e-3, 3.0)}


class GuardConfig(CheckedSettings):
    """What to do when a step or a part of training goes wrong."""

    enabled: bool = Field(
        default=True,
        description="Skip bad updates and roll back. false: the run ends at the first loss that is not finite.",
    )
    window: int = Field(
        default=128, ge=8, description="Updates whose losses and gradient norms the next is compared with."
    )
    deviations: float = Field(default=6, gt=0, description="Standard deviations above the mean that skip an update.")
    max_rollbacks: int = Field(default=3, ge=0, description="Rollbacks after a rise of the loss before the run ends.")
    rollback_skip_steps: int | None = Field(
        default=None, gt=0, description="Batches to skip after a rollback. None: 1/20 of the run's, from 8 to 200."
    )
    rate_factor: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Factor of the learning rate after each rollback. 1: the rate stays.",
        exclude_if=lambda factor: factor == 1,  # in no record at its default: earlier homes keep their keys
    )


class Parametrization(CheckedSettings):
    """Transfer of the learning rate from a small model, the base, to a large one. The base itself is trained as without
    this setting."""

    rule: Literal["mup", "completep"] = Field(
        description="Transfer rule. mup: over widths (arXiv 2203.03466). completep: over widths and depths "
        "(arXiv 2505.01618)."
    )
    base_dim: int = Field(gt=0, description="model.dim of the base.")
    base_layers: int | None = Field(default=None, gt=0, description="model.layers of the base, for completep.")
    base_head_dim: int | None = Field(
        default=None, gt=0, description="dim / heads of the base. None: the model's, which then has more heads."
    )

    @model_validator(mode="after")
    def _base(self) -> Parametrization:
        if (self.rule == "completep") != (self.base_layers is not None):
            raise ValueError(
                f"rule is {self.rule} and base_layers is {self.base_layers}; completep requires base_layers, "
                "and mup, which only scales widths, does not support it"
            )
        return self

    @property
    def layers(self) -> int:
        """The layers of the base model of completep."""
        assert self.base_layers is not None, "validated"
        return self.base_layers


class BatchStage(CheckedSettings):
    """A part of the run with larger batches. It lasts to the next stage or the end."""

    tokens: int = Field(gt=0, description="Number of target tokens read before the stage begins.")
    times: int = Field(gt=1, description="Batch size of the stage, as a multiple of `batch`.")


class TrainingConfig(CheckedSettings):
    """How long, how fast and from which seed to train. Everything here except the fields in NEUTRAL affects the
    weights."""

    seed: int = Field(default=0, ge=0, description="Seed of the initial weights, the data order and the text sample.")
    order_seed: int | None = Field(default=None, ge=0, description="Seed of the data order. None: `seed`.")
    init_from: Address | None = Field(
        default=None,
        description="What training begins with: a local folder with weights and their tokenizer, as `gristmill export "
        "model` writes it; or a checkpoint with its optimizer and step, as RECIPE@step-1200, RECIPE@last or "
        "model-KEY@step-1200. None: random weights from `seed`.",
    )
    steps: int = Field(default=240, gt=0, le=10**9, description="Number of updates of the weights.")
    batch: int = Field(default=8, gt=0, description="Sequences per step, over all processes.")
    batch_ramp: tuple[BatchStage, ...] = Field(
        default=(),
        description="Stages with a larger batch, such as [{tokens: 200000, times: 2}]. Empty: the batch is constant.",
    )
    batch_rate: Literal["square_root", "linear", "none"] = Field(
        default="square_root",
        description="How a stage scales the learning rate: with the square root of `times` (AdamW: arXiv "
        "2205.10287), with `times` (SGD: arXiv 1706.02677), or not at all.",
    )
    micro_batch: int = Field(default=4, gt=0, description="Sequences per forward pass of a process.")

    learning_rate: float | None = Field(
        default=None, gt=0, description="Peak rate, after warm-up. None: 0.006 for muon, 0.003 for adamw."
    )
    embedding_rate: float | None = Field(
        default=None,
        gt=0,
        description="Learning rate of the embedding, relative to the matrices of the blocks. None: 3 for "
        "muon, 1 for adamw.",
    )
    head_rate: float = Field(default=1.0, gt=0, description="Relative learning rate of an untied output matrix.")
    vector_rate: float = Field(default=1.0, gt=0, description="Relative learning rate of the gains of norms.")
    parametrization: Parametrization | None = Field(
        default=None,
        description="Initial weights and learning rates that scale with the model's size, such as {rule: "
        "mup, base_dim: 256}. None: standard, the same at every size.",
    )
    warmup_steps: int = Field(default=20, ge=0, description="Steps in which the learning rate rises from 0.")
    schedule: Literal["cosine", "wsd", "linear"] = Field(
        default="linear", description="How the learning rate falls. wsd: constant at the peak, then falls at the end."
    )
    decay_ratio: float = Field(default=0.2, gt=0, le=1, description="wsd: fraction of the run with a falling rate.")
    final_ratio: float = Field(default=0.0, ge=0, le=1, description="Final learning rate, as a fraction of the peak.")
    optimizer: Literal["adamw", "muon"] = Field(
        default="muon", description="Optimizer. muon: Muon for the matrices of the blocks, AdamW for the rest."
    )
    momentum: float = Field(
        default=0.9, ge=0, lt=1, description="Muon: decay rate of the running mean of the gradients."
    )
    betas: tuple[float, float] = Field(default=(0.9, 0.95), description="AdamW: decay rates of its two running means.")
    eps: float = Field(default=1e-8, gt=0, description="AdamW: constant added to the denominator.")
    weight_decay: float = Field(default=0.1, ge=0, description="Weight decay, only on the matrices of linear layers.")
    clip_norm: float | None = Field(
        default=1.0, gt=0, description="Maximum norm of the whole gradient. null: gradients are not clipped."
    )
    objective: Literal["causal", "prefix_lm", "span_corruption", "ul2", "fill_in_the_middle", "masked"] = Field(
        default="causal",
        description="What the model predicts: each next token, or a part of a window; see "
        "docs/explanation/training.md.",
    )
    corruption_rate: float = Field(default=0.15, gt=0, lt=1, description="span_corruption, masked: fraction of tokens.")
    mean_span: float = Field(default=3.0, ge=1, description="span_corruption: mean length of a span (tokens).")
    fim_rate: float = Field(default=0.5, ge=0, le=1, description="fill_in_the_middle: fraction of the documents.")
    fim_spm_rate: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="fill_in_the_middle: fraction of these documents with the suffix before the prefix.",
    )
    document_mask: bool = Field(
        default=False,
        description="Restrict attention to a token's own document. false: a token sees all earlier tokens "
        "of the window.",
    )
    z_loss: float = Field(default=0, ge=0, description="Weight of the squared log of the softmax's sum; PaLM: 1e-4.")
    precision: Literal["auto", "bf16", "fp16", "fp32"] = Field(
        default="auto",
        description="Precision of matrix products. Weights, gradient sums and optimizer are fp32. fp16 "
        "uses loss scaling. auto: bf16 on a GPU that supports it, otherwise fp32.",
    )
    loss_scaling: bool = Field(
        default=True,
        description="fp16: multiply the loss by a factor that adapts, so that small gradients are not rounded to 0. "
        "false: no factor, to study where fp16 fails.",
        # in no record at its default, so that earlier homes keep the keys of their stages
        exclude_if=lambda scaled: scaled,
    )
    fp8_min_dim: int | None = Field(
        default=None, gt=0, description="Minimum side of block matrices for fp8, on supported GPUs. None: off."
    )

    compile: bool | None = Field(default=None, description="Compile the blocks and the loss. None: on a GPU.")
    recompute: Literal["none", "selective", "full"] = Field(
        default="none",
        description="Activations to recompute in the backward pass, to save memory. full: all of a block. "
        "selective: all but products and attention.",
    )
    loss_chunks: int = Field(
        default=1, gt=0, description="Pieces of the logits, computed one at a time to save memory."
    )
    accumulate: Literal["sharded", "whole"] | None = Field(
        default=None,
        description="How gradients of micro-batches are accumulated. sharded: each process keeps its shard, with one "
        "reduce-scatter per micro-batch. whole: each process keeps all gradients, 4 bytes per parameter, with one "
        "reduce-scatter per step. None: sharded on GPUs, where it overlaps with the backward pass, otherwise whole.",
    )
    parallel: Parallel = Field(default=Parallel(), description="How processes divide the model.")
    reshard_after_forward: bool = Field(
        default=True,
        description="Free a block's gathered weights after its forward pass. false: keep them until its backward "
        "pass, which halves the gathering and needs memory for the whole model in the precision of products.",
    )
    reduce_dtype: Literal["fp32", "bf16"] = Field(
        default="fp32",
        description="Precision in which gradients are summed over processes. bf16 halves the traffic and "
        "rounds each sum.",
    )
    log_every: int | None = Field(
        default=None, gt=0, description="Steps between checks of losses and stops. None: 10 on a GPU, else 1."
    )

    guard: GuardConfig = Field(default=GuardConfig(), description="What to do when the loss goes wrong.")
    monitor_every: int = Field(
        default=50, gt=0, description="Steps between measurements of activations, attention logits and update sizes."
    )
    profile_steps: tuple[int, int] | None = Field(
        default=None,
        description="First and last step to profile on rank 0, on a GPU with a memory snapshot. None: off.",
    )
    eval_every: int = Field(default=60, gt=0, description="Steps between evaluations, plus the last step.")
    eval_tasks: Address | None = Field(
        default=None,
        description="Local folder of tasks, as for `gristmill train evaluate --tasks`, scored at each evaluation.",
    )
    eval_tokens: int = Field(
        default=16_384,
        gt=0,
        description="Maximum number of tokens to evaluate per held-out set. For fixed documents, 4 bytes per token.",
    )
    checkpoint_every: int = Field(default=60, gt=0, description="Steps between checkpoints, plus the last step.")
    keep_checkpoints: int = Field(
        default=1,
        gt=0,
        description="Newest checkpoints to keep, plus the middle one, and with wsd the last one at the peak rate.",
    )
    keep_every: int | None = Field(default=None, gt=0, description="Checkpoints at multiples of it are never deleted.")

    sample_tokens: int = Field(default=120, ge=0, description="Length of the final text sample (tokens). 0: none.")
    sample_temperature: float = Field(default=0.8, ge=0, description="Temperature of the text sample. 0: greedy.")
    sample_top_k: int = Field(default=50, ge=0, description="Top-k of the text sample. 0: the whole vocabulary.")

    @model_validator(mode="before")
    @classmethod
    def _without_engine(cls, values: Any, info: ValidationInfo) -> Any:
        """Records of earlier releases have the key `engine`, which changed only rounding, and are read as before. In a
        file of a user, which is read with its folder, it is an unknown key."""
        if isinstance(values, Mapping) and "engine" in values and FOLDER not in (info.context or {}):
            return {name: value for name, value in values.items() if name != "engine"}
        return values

    @model_serializer(mode="wrap")
    def _with_engine(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """The keys of stages are the same as in homes whose records had `engine`."""
        values: dict[str, Any] = handler(self)
        return values | {"engine": "gristmill"} if (info.context or {}).get(KEY) else values

    @model_validator(mode="after")
    def _warmup_fits(self) -> TrainingConfig:
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} is not below steps {self.steps}; lower it or raise steps"
            )
        if self.schedule == "wsd" and self.warmup_steps > (1 - self.decay_ratio) * self.steps:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} and decay_ratio {self.decay_ratio:g} overlap in {self.steps} steps; "
                "lower one of them"
            )
        if self.document_mask and self.objective in ("span_corruption", "ul2"):
            raise ValueError(
                f"objective {self.objective} has the targets of all documents after all of their texts, "
                "which document_mask true would hide from them; set document_mask: false"
            )
        if self.objective == "masked" and self.document_mask:
            raise ValueError("objective masked may mask the ends of documents; set document_mask: false")
        if self.objective == "masked" and self.eval_tasks:
            raise ValueError("objective masked predicts no next tokens, by which tasks are scored; remove eval_tasks")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(
                f"betas {list(self.betas)} are not from 0 to below 1; give two such numbers, as [0.9, 0.95]"
            )
        if self.profile_steps and not 1 <= self.profile_steps[0] <= self.profile_steps[1] <= self.steps:
            raise ValueError(
                f"profile_steps {list(self.profile_steps)} are not a first and last step between 1 and "
                f"{self.steps}; give two such steps, as [20, 22]"
            )
        for one, following in pairwise(self.batch_ramp):
            if following.tokens <= one.tokens or following.times <= one.times:
                raise ValueError(
                    f"batch_ramp has tokens {one.tokens}, times {one.times} before tokens "
                    f"{following.tokens}, times {following.times}; both must increase from stage to stage"
                )
        return self

    @property
    def rates(self) -> Rates:
        """The peak learning rate of the blocks' matrices, after the warm-up, and the ratio of the embedding's to it."""
        values, own = (self.learning_rate, self.embedding_rate), OWN_RATES[self.optimizer]
        return Rates(*(default if one is None else one for one, default in zip(values, own, strict=True)))

    @property
    def filled(self) -> dict[str, Any]:
        """The values, by name, of settings of learning that are None, or that a dump omits at their defaults."""
        rates = dict(zip(("learning_rate", "embedding_rate"), self.rates, strict=True))
        return rates | {"loss_scaling": self.loss_scaling}

    @property
    def data_seed(self) -> int:
        """What keys the data order."""
        return self.seed if self.order_seed is None else self.order_seed

    def batches(self, seq_len: int) -> BatchPlan:
        """The sizes of the run's batches."""
        return BatchPlan(self.batch, seq_len, [(stage.tokens, stage.times) for stage in self.batch_ramp])

    def late_stage(self, seq_len: int) -> str | None:
        """What is wrong with a stage of `batch_ramp` that begins after the end of the run."""
        if self.batch_ramp and self.batches(seq_len).numbers[-1] >= self.steps:
            return (
                f"batch_ramp has a stage that begins after {self.batch_ramp[-1].tokens:,} tokens, but {self.steps:,} "
                f"steps read {self.token_budget(seq_len):,}; lower its tokens or raise steps"
            )
        return None

    def last_peak_step(self, seq_len: int) -> int | None:
        """With the schedule wsd, the last step at the peak rate: a longer run has the same rates up to it. None with
        other schedules."""
        if self.schedule != "wsd":
            return None
        plan, most = self.batches(seq_len), (1 - self.decay_ratio) * self.token_budget(seq_len)
        return bisect_right(range(self.steps), most, key=lambda step: plan.first(step) * seq_len) - 1

    def batch_rate_factor(self, times: int) -> float:
        """What the learning rate is multiplied with where batches are `times` as large as the first."""
        return {"square_root": math.sqrt(times), "linear": float(times), "none": 1.0}[self.batch_rate]

    def token_budget(self, seq_len: int) -> int:
        """Target tokens that a whole run learns from: the budget that a mixture is made for."""
        return self.tokens_read(self.steps, seq_len)

    def tokens_read(self, steps: int, seq_len: int) -> int:
        """Tokens in the batches of the first `steps` steps."""
        return self.batches(seq_len).first(steps) * seq_len


# May differ between a checkpoint and the run that resumes it: they change rounding at most, or only what is
# kept and shown. So may guard.max_rollbacks: a run that ends had enough of them, whatever the setting was.
NEUTRAL = frozenset(
    {
        "init_from", "micro_batch", "compile", "recompute", "loss_chunks", "accumulate",
        "parallel", "reshard_after_forward", "log_every", "monitor_every", "profile_steps", "eval_every", "eval_tasks",
        "eval_tokens", "checkpoint_every", "keep_checkpoints", "keep_every", "sample_tokens", "sample_temperature",
        "sample_top_k",
    }
)  # fmt: skip


class TrackingConfig(CheckedSettings):
    """An MLflow run that exists already: the launcher made it, logs its params and sets its end status.

    The address of the server, which may hold a password, is in MLFLOW_TRACKING_URI and nowhere else.
    """

    run_id: str


class RunConfig(CheckedSettings):
    """The settings of a run, as RUN.json holds them: the recipe's, and the machine's (paths, tracking, time limits)."""

    model: ModelConfig
    training: TrainingConfig
    data: Path = Field(description="the mixture's JSON file, see gristmill.storage.training_manifest")
    out: Path = Field(description="directory of checkpoints, metrics, weights and result.json")
    init_digests: dict[str, str] = Field(default={}, description="xxh3-128 of each weight file in init_from, by name")
    tracking: TrackingConfig | None = None
    resume_from: Path | None = Field(default=None, description="committed checkpoint to start from if `out` has none")
    start: Start | None = Field(default=None, description="checkpoint of another run to begin with if `out` has none")
    replay: Path | None = Field(default=None, description="events.jsonl of a run whose decisions are repeated exactly")
    store: str | None = Field(default=None, description="address that checkpoints are copied to while training runs")
    document_losses: bool = Field(
        default=False, description=f"write {DOCUMENT_LOSSES} at the end, with the bits of each held-out document"
    )
    timeout_seconds: float = Field(default=600, gt=0, description="maximum time to wait for another rank (seconds)")

    @property
    def own_disks(self) -> bool:
        """Whether each machine of the run has files of its own; else all see the same ones under one path."""
        return self.store is not None

    @model_validator(mode="after")
    def _pinned(self) -> RunConfig:
        if (self.training.init_from is None) != (not self.init_digests):
            raise ValueError(
                f"training.init_from is {self.training.init_from}, and init_digests has {len(self.init_digests)} "
                "files; give both or neither"
            )
        if self.start and (self.resume_from or self.init_digests or self.start.step >= self.training.steps):
            raise ValueError(
                f"start is a checkpoint of step {self.start.step}; give no resume_from and init_from with it, and more "
                f"steps than the {self.training.steps} of training"
            )
        if self.document_losses and self.training.objective == "masked":
            raise ValueError("document_losses is true, but objective masked predicts no next tokens; set it to false")
        if late := self.training.late_stage(self.model.seq_len):
            raise ValueError(late)
        return self
