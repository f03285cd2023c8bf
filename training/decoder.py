"""A decoder of one of two kinds of blocks, both with RMSNorm before each sublayer, rotary positions and no biases.

- llama: SwiGLU and norms with gains, as Llama (arXiv 2302.13971), or with qk_norm Qwen3 (arXiv 2505.09388).
- nanochat: squared ReLU (So et al. 2021, arXiv 2109.08668), norms without gains, of the embedding, queries and keys
  too, as https://github.com/karpathy/nanochat in the form that `transformers` has.

Parameters carry the names of Hugging Face's LlamaForCausalLM or NanoChatForCausalLM, less the leading `model.`, and
rotary pairs are laid out and turned as there (first half with second half), so that an export only renames.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from gristmill.training.layout.context import UNDIVIDED, Division
from gristmill.training.loss import IGNORE, in_pieces, logits_of, loss_sums, token_losses, token_scores
from gristmill.training.model_config import INTO_STREAM, ModelConfig

INIT_STD = 0.02


def rotary(length: int, head_dim: int, theta: float, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of position * theta^(-2j / head_dim) (Su 2021), float32 (length, head_dim / 2)."""
    frequencies = theta ** (-torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(length, device=device, dtype=torch.float32), frequencies)
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn each pair (x[j], x[j + head_dim / 2]) by its angle. x is (batch, heads, length, head_dim)."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).type_as(x)


def document_blocks(
    tokens: torch.Tensor, end_of_text: int, make: Callable[..., BlockMask] = create_block_mask
) -> BlockMask:
    """`document_mask` as blocks of flex attention. `make`: create_block_mask, or that compiled, which has no (batch,
    length, length) in memory; what it has compiled serves all batches of a shape."""
    documents = (tokens == end_of_text).cumsum(1)
    length = tokens.shape[1]

    def sees(batch: torch.Tensor, _: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (query >= key) & (documents[batch, query] == documents[batch, key])

    return make(sees, len(tokens), None, length, length, tokens.device)


def document_mask(
    tokens: torch.Tensor, end_of_text: int, make: Callable[..., BlockMask] = create_block_mask
) -> torch.Tensor | BlockMask:
    """Which earlier tokens each token sees: tokens of its own document, which an end-of-text token begins.

    tokens: (batch, length). So a document is read as after an empty context, like the beginning of a text sample.
    Positions continue through the window: rotary attention knows distances only. On a CPU bool (batch, 1, length,
    length), since flex attention has no backward pass there; on a GPU blocks, of which those that nobody sees are not
    computed: see `document_blocks`.
    """
    if tokens.device.type == "cuda":
        return document_blocks(tokens, end_of_text, make)
    documents = (tokens == end_of_text).cumsum(1)
    length = tokens.shape[1]
    own = documents[:, None, :, None] == documents[:, None, None, :]
    return own & torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()


def causal_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | BlockMask | None, grouped: bool
) -> torch.Tensor:
    """Causal attention, (batch, heads, length, head_dim); `mask`: from `document_mask`, None: all before."""
    if isinstance(mask, BlockMask):
        output = _flex(q, k, v, block_mask=mask, enable_gqa=grouped)
        assert isinstance(output, torch.Tensor), "nothing else is asked for"
        return output
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=grouped)


@cache
def _compiled_flex() -> Callable[..., Any]:
    return torch.compile(flex_attention)


def _flex(*tensors: torch.Tensor, **settings: Any) -> Any:
    # uncompiled it would hold all scores; within a compiled block it is compiled with that
    function = cast(Callable[..., Any], flex_attention) if torch.compiler.is_compiling() else _compiled_flex()
    return function(*tensors, **settings)


def norm_of(config: ModelConfig, size: int) -> nn.RMSNorm:
    return nn.RMSNorm(size, eps=config.norm_eps, elementwise_affine=config.norm_gains)


class Attention(nn.Module):
    """`causal`, `division`: as of a Decoder."""

    def __init__(self, config: ModelConfig, causal: bool, division: Division) -> None:
        super().__init__()
        self.head_dim, self.causal, self.division = config.head_dim, causal, division
        self.grouped = config.kv_head_count != config.heads
        self.q_proj = nn.Linear(config.dim, config.heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.dim, config.kv_head_count * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.dim, config.kv_head_count * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.dim, bias=False)
        self.q_norm = norm_of(config, config.head_dim) if config.qk_norm else None
        self.k_norm = norm_of(config, config.head_dim) if config.qk_norm else None

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor | BlockMask | None
    ) -> torch.Tensor:
        q, k, v = self.heads(x, cos, sin)
        if self.causal:
            y = causal_attention(q, k, v, mask, self.grouped)
        else:
            y = F.scaled_dot_product_attention(q, k, v, enable_gqa=self.grouped)
        return self.o_proj(self.division.by_tokens(y).transpose(1, 2).flatten(2))

    def heads(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values, (batch, heads, length, head_dim); keys and values have kv_heads heads. Where heads
        are divided, the heads of this process."""
        q, k, v = (
            projection(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        by_heads = self.division.by_heads
        return by_heads(rotate(q, cos, sin)), by_heads(rotate(k, cos, sin)), by_heads(v)


class SwiGLU(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.up_proj = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.down_proj = nn.Linear(config.ffn_dim, config.dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class SquaredReLU(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.fc2 = nn.Linear(config.ffn_dim, config.dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(F.relu(self.fc1(x)).square())


# What `selective` keeps: the results of products and of attention, which cost the most to compute again.
KEPT = (
    torch.ops.aten.mm.default,
    torch.ops.aten._scaled_mm.default,  # in fp8
    torch.ops.higher_order.flex_attention,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
)


def _contexts() -> tuple[AbstractContextManager, AbstractContextManager]:
    return create_selective_checkpoint_contexts(list(KEPT))


class Block(nn.Module):
    """`recompute`: see TrainingConfig. Inside of the block, so that FSDP gathers its weights once for both."""

    def __init__(self, config: ModelConfig, causal: bool, division: Division) -> None:
        super().__init__()
        self.recompute, self.division = "none", division
        self.input_layernorm = norm_of(config, config.dim)
        self.self_attn = Attention(config, causal, division)
        self.post_attention_layernorm = norm_of(config, config.dim)
        self.mlp = SwiGLU(config) if config.block == "llama" else SquaredReLU(config)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor | BlockMask | None
    ) -> torch.Tensor:
        if self.recompute == "none" or not torch.is_grad_enabled():
            return self.block_forward(x, cos, sin, mask)
        more: dict[str, Any] = {"context_fn": _contexts} if self.recompute == "selective" else {}
        return checkpoint(self.block_forward, x, cos, sin, mask, use_reentrant=False, **more)

    def block_forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor | BlockMask | None
    ) -> torch.Tensor:
        x = x + self.self_attn(self.division.gathered(self.input_layernorm(x)), cos, sin, mask)
        return x + self.mlp(self.division.gathered(self.post_attention_layernorm(x)))


class Decoder(nn.Module):
    """Token ids (batch, length) to logits (batch, length, vocab_size); with targets, to their `loss_sums`.

    `end_of_text`: its id, where a causal model keeps documents apart by `document_mask`. Not `causal`: tokens see all.
    `division`: of the tokens over processes. `blocks`: those that a stage of a pipeline has; None: all.

    With tied embeddings there is no second module that owns the matrix: the output multiplies by
    embed_tokens.weight itself. One owner means one FSDP group and one key in a checkpoint.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        end_of_text: int | None = None,
        causal: bool = True,
        division: Division = UNDIVIDED,
        blocks: range | None = None,
    ) -> None:
        super().__init__()
        self.config, self.vocab_size, self.causal, self.division = config, vocab_size, causal, division
        self.end_of_text = end_of_text
        blocks = range(config.layers) if blocks is None else blocks
        self.first, self.last = blocks.start == 0, blocks.stop == config.layers
        embeds, tied = self.first, config.tie_embeddings
        self.embed_tokens = nn.Embedding(vocab_size, config.dim) if embeds or (self.last and tied) else None
        self.layers = nn.ModuleList()
        for number in blocks:  # by its number in the whole model, which is a part of the names of its parameters
            self.layers.add_module(str(number), Block(config, causal, division))
        self.norm = norm_of(config, config.dim) if self.last or (self.first and not config.norm_gains) else None
        self.lm_head = nn.Linear(config.dim, vocab_size, bias=False) if self.last and not tied else None
        # each as one function with the output projection, so that it can be compiled with it
        self.sums, self.each_loss, self.each_score = loss_sums, in_pieces(token_losses), in_pieces(token_scores)
        self.make_blocks: Callable[..., BlockMask] = create_block_mask

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor | None = None, z_loss: float = 0.0) -> torch.Tensor:
        if targets is None:
            return logits_of(self._hidden(tokens), self._output, self.config.logit_softcap)
        return self._summed(tokens, targets, z_loss)

    def _summed(
        self, tokens: torch.Tensor, targets: torch.Tensor, z_loss: float, arrived: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The `loss_sums` of this process's targets: the sums of all processes that divide a sequence add up to the
        sums of the sequence, and so do their gradients. `arrived`: see `_hidden`."""
        x = self._hidden(tokens, arrived)
        if not self.last:
            return x
        targets = self.division.own(self.division.padded(targets, IGNORE))
        sums = self.sums(x.flatten(0, 1), self._output, targets.flatten(), self.config.logit_softcap, z_loss)
        # processes that divide matrices have computed the same: it counts once, and has its gradient on each of them
        return sums - sums.detach() if self.division.tensor.rank else sums

    def losses(self, tokens: torch.Tensor, targets: torch.Tensor, arrived: torch.Tensor | None = None) -> torch.Tensor:
        """The loss of each target in nats, float32 of targets' shape; 0 where it is IGNORE. No logits of the whole
        batch are in memory. Both int64 (batch, length). `arrived`: see `_hidden`."""
        values = self._each(self.each_loss, tokens, targets, arrived)
        return values[0].clone() if self.last else values  # FSDP warns of views

    def scores(self, tokens: torch.Tensor, targets: torch.Tensor, arrived: torch.Tensor | None = None) -> torch.Tensor:
        """`losses`, and 1 for each target that is not the likeliest token, else 0: (2, batch, length)."""
        self.check_causal()
        return self._each(self.each_score, tokens, targets, arrived).clone()

    def check_causal(self) -> None:
        """Raise ValueError for a model of the objective masked."""
        if not self.causal:
            raise ValueError(
                "the model was trained with objective masked, so it predicts no next token; use a model that was "
                "trained with another objective"
            )

    def through(self, step: Callable[[Decoder, torch.Tensor], torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        """`step` of this model, which is a pipeline of one stage: see `gristmill.training.layout.pipeline`."""
        return step(self, tokens)

    @property
    def shared(self) -> frozenset[str]:
        """Names of the parameters that two stages of a pipeline have: none."""
        return frozenset()

    def blocks(self) -> list[Block]:
        """The layers, by their type."""
        return [cast(Block, layer) for layer in self.layers]

    def _each(
        self,
        each: Callable[..., torch.Tensor],
        tokens: torch.Tensor,
        targets: torch.Tensor,
        arrived: torch.Tensor | None,
    ) -> torch.Tensor:
        x = self._hidden(tokens, arrived)
        if not self.last:
            return x
        length = targets.shape[1]
        targets = self.division.own(self.division.padded(targets, IGNORE))
        values = each(x.flatten(0, 1), self._output, targets.flatten(), self.config.logit_softcap)
        return self.division.whole(values.unflatten(-1, targets.shape))[..., :length]

    @property
    def _output(self) -> torch.Tensor:
        """The matrix (vocab_size, dim) that makes logits; where it is divided, the rows of this process."""
        owner = self.embed_tokens if self.lm_head is None else self.lm_head
        assert owner is not None, "the last stage has it"
        return self.division.rows(owner.weight)

    def _hidden(self, tokens: torch.Tensor, arrived: torch.Tensor | None = None) -> torch.Tensor:
        """The last norm's output, (batch, length, dim), of this process's tokens. `arrived`: what the stage before this
        one has made of them; one that is not the last returns what the next reads."""
        assert self.causal or not tokens.shape[1] % self.division.parts, "a model that sees padding gets none"
        tokens = self.division.padded(tokens, 0)
        cos, sin = self.angles(tokens)
        # once for all layers
        mask = None if self.end_of_text is None else document_mask(tokens, self.end_of_text, self.make_blocks)
        x = arrived if arrived is not None and not self.first else self.embedded(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        if not self.last:
            return x
        assert self.norm is not None, "the last stage has it"
        return self.division.plain(self.division.gathered(self.norm(x)))

    def angles(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines for `rotate` of this process's tokens; nanochat turns the other way round."""
        cos, sin = rotary(tokens.shape[1], self.config.head_dim, self.config.rope_theta, tokens.device)
        cos, sin = self.division.own(cos, 0), self.division.own(sin, 0)
        return cos, sin if self.config.block == "llama" else -sin

    def embedded(self, tokens: torch.Tensor) -> torch.Tensor:
        """What the first block reads, (batch, length, dim), of this process's tokens."""
        assert self.embed_tokens is not None, "the first stage has it"
        x = self.embed_tokens(self.division.own(tokens))
        if self.config.block == "llama":
            return x
        assert self.norm is not None, "without gains it is in each stage that uses it"
        return self.norm(x)


def initial(name: str, shape: torch.Size, config: ModelConfig, seed: int) -> torch.Tensor:
    """The first value of the parameter `name`: float32 on the CPU, for any device and world size.

    Norms start at 1, matrices at normal(0, 0.02); the two projections that write into the residual stream are
    scaled by 1 / sqrt(2 layers), so that its variance does not grow with depth (GPT-2, Radford et al. 2019,
    section 2.3). Each parameter has its own generator, keyed by seed and name.
    """
    if len(shape) == 1:
        return torch.ones(shape)
    std = INIT_STD
    if name.endswith(INTO_STREAM):
        std /= math.sqrt(2 * config.layers)
    key = hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key, "little"))
    return torch.empty(shape).normal_(0, std, generator=generator)


def parameter_count(config: ModelConfig, vocab_size: int) -> int:
    """Parameters of a Decoder; tied embeddings count once."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Decoder(config, vocab_size).parameters())


def flops_per_token(config: ModelConfig, vocab_size: int) -> int:
    """Floating-point operations of training on one token, forward and backward, a multiply-add being two.

    6 per parameter of a matrix product (2 forward, 4 backward), the output projection included, the embedding
    lookup not; and 12 layers * heads * head_dim * seq_len for the attention scores and their use of
    the values, counted in full although the causal mask halves them (PaLM, arXiv 2204.02311, appendix B).
    Left out: norms, rotary, softmax, activations, the optimizer.
    """
    attention = config.heads * config.head_dim
    per_layer = (
        2 * config.dim * attention  # q_proj, o_proj
        + 2 * config.dim * config.kv_head_count * config.head_dim
        + config.ffn_matrices * config.dim * config.ffn_dim
    )
    matrices = config.layers * per_layer + vocab_size * config.dim
    return 6 * matrices + 12 * config.layers * attention * config.seq_len
