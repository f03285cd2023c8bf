"""Settings of the model: the shape of a decoder, and how processes divide it. Imports neither torch nor numpy."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from gristmill.storage.settings import CheckedSettings

FP8_MULTIPLE = 16  # of both sides of a matrix, as products in fp8 ask

INTO_STREAM = ("o_proj.weight", "down_proj.weight", "fc2.weight")  # matrices that write into the residual stream


class ModelConfig(CheckedSettings):
    """Shape of the decoder. The vocabulary size comes from the data."""

    block: Literal["llama", "nanochat"] = Field(
        default="llama",
        description="Kind of the blocks. llama: SwiGLU, norms with gains, as Llama or Qwen3. nanochat: squared ReLU, "
        "norms without gains, as NanoChatForCausalLM.",
    )
    dim: int = Field(default=128, gt=0, le=10**8, description="Width of the residual stream.")
    layers: int = Field(default=4, gt=0, le=10**5, description="Blocks of attention and feed-forward network.")
    heads: int = Field(default=2, gt=0, description="Attention heads per layer.")
    kv_heads: int | None = Field(default=None, gt=0, description="Key-value heads (grouped-query). None: one per head.")
    ffn: int | None = Field(
        default=None,
        gt=0,
        description="Width of the feed-forward network. None: for llama 8/3 dim, rounded up to a multiple of 32; for "
        "nanochat 4 dim.",
    )
    seq_len: int = Field(default=256, gt=0, le=10**8, description="Context length in training (tokens).")
    rope_theta: float = Field(default=10_000.0, gt=0, description="Base of the rotary position embedding.")
    norm_eps: float = Field(default=1e-5, gt=0, description="Constant added to the mean square in RMSNorm.")
    tie_embeddings: bool = Field(default=False, description="Use one matrix for input and output embeddings.")
    qk_norm: bool = Field(default=True, description="Apply RMSNorm to each head's queries and keys, as in Qwen3.")
    logit_softcap: float | None = Field(
        default=None,
        gt=0,
        description="Soft cap c: logits become c tanh(logits / c). `export model` refuses it for llama. None: off.",
    )

    @model_validator(mode="after")
    def _divides(self) -> ModelConfig:
        if self.dim % self.heads or (self.dim // self.heads) % 2:
            raise ValueError(
                f"dim {self.dim} is not an even multiple of heads {self.heads}, as rotary embeddings "
                f"require; use a dim of {max(1, round(self.dim / self.heads / 2)) * 2 * self.heads}"
            )
        if self.block == "nanochat" and not self.qk_norm:
            raise ValueError("qk_norm is false, but block nanochat always has these norms; remove one of the two")
        if self.heads % self.kv_head_count:
            raise ValueError(
                f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}; give kv_heads that divide it"
            )
        return self

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    @property
    def kv_head_count(self) -> int:
        return self.kv_heads or self.heads

    @property
    def norm_gains(self) -> bool:
        return self.block == "llama"

    @property
    def ffn_matrices(self) -> int:
        return 3 if self.block == "llama" else 2

    @property
    def ffn_dim(self) -> int:
        """8/3 dim keeps the parameter count of a 4x MLP with three matrices instead of two (Shazeer 2020)."""
        if self.ffn:
            return self.ffn
        return -(-8 * self.dim // (3 * 32)) * 32 if self.block == "llama" else 4 * self.dim

    @property
    def ffn_made(self) -> int:
        """Numbers that the first products of the feed-forward network make of a token: gate and up, or one."""
        return (self.ffn_matrices - 1) * self.ffn_dim

    @property
    def filled(self) -> dict[str, Any]:
        """The values of the settings that are None, by their names."""
        return {"kv_heads": self.kv_head_count, "ffn": self.ffn_dim}

    def parameters(self, vocab_size: int) -> int:
        """Parameters of matrices and embeddings, without gains of norms."""
        attention = 2 * self.dim * self.head_dim * (self.heads + self.kv_head_count)
        block = attention + self.ffn_matrices * self.dim * self.ffn_dim
        return vocab_size * self.dim * (1 if self.tie_embeddings else 2) + self.layers * block

    def fp8_matrices(self, min_dim: int) -> bool:
        """Whether any matrix of a block can multiply in fp8 with training.fp8_min_dim = `min_dim`."""
        others = (self.dim, self.kv_head_count * self.head_dim, self.ffn_dim)
        return any(
            min(self.dim, other) >= min_dim and not self.dim % FP8_MULTIPLE and not other % FP8_MULTIPLE
            for other in others
        )


class Parallel(CheckedSettings):
    """How the processes of a run divide a model and its batches. The number of processes is the product of replicas,
    shard, tensor, pipeline and context."""

    replicas: int = Field(
        default=1,
        gt=0,
        description="Copies of the model, each sharded over its share of the processes. More copies need "
        "less communication between machines and more memory. With one copy per machine, "
        "weights are gathered only within a machine.",
    )
    shard: int | None = Field(default=None, gt=0, description="Processes that shard a copy. None: all that remain.")
    tensor: int = Field(default=1, gt=0, description="Processes that divide each matrix, and the products with it.")
    pipeline: int = Field(default=1, gt=0, description="Pipeline stages: processes that each hold consecutive blocks.")
    interleave: int = Field(
        default=1,
        gt=0,
        description="Pipeline stages per process (interleaved 1F1B): less waiting, more communication.",
        exclude_if=lambda stages: stages == 1,  # newer than the keys of models
    )
    context: int = Field(default=1, gt=0, description="Processes that divide the tokens of each sequence.")

    @property
    def model_ranks(self) -> int:
        """Processes that read the same sequences."""
        return self.tensor * self.pipeline * self.context

    def shards(self, processes: int) -> int:
        """The number of processes that a copy's weights are sharded over. `processes`: all. Raises ValueError if the
        settings do not divide them."""
        values = self.model_dump(exclude={"interleave"})
        degrees = {name: value for name, value in values.items() if value not in (None, 1)}
        product = self.replicas * self.model_ranks * (self.shard or 1)
        if processes % product or (self.shard and processes != product):
            settings = ", ".join(f"training.parallel.{name} is {value}" for name, value in degrees.items())
            fits = "make" if self.shard else "divide"
            raise ValueError(
                f"{settings}: together {product}, which do not {fits} {processes} processes; change them, or "
                "GRISTMILL_TRAINING_PROCESSES"
            )
        return self.shard or processes // product
