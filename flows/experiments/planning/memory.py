"""The peak memory of a rank of a training, by parts.

`peak` estimates the peak memory of a rank, by parts, before a run. Four moments of a step are counted, of which one is
the peak: the loss, when the activations of all blocks and the logits are there; the backward pass of the last block,
when its activations are there again, if they were not kept; its end, when its gradients wait for the other ranks; and
the update, for which Muon makes matrices whole. `tests/flows/planning/test_peak_memory.py` holds the sums against
torch's own tracker.

Eager and compiled trainings keep different tensors. Eager is what autograd keeps of the operations as they are written
in `gristmill.training.decoder`; norms are computed in float32 and keep their input and their result so. Compiled is
what a compiler keeps that computes all element-wise operations again in the backward pass, as torch's does on a GPU.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

import wrapt

from gristmill.training.config import TrainingConfig
from gristmill.training.model_config import ModelConfig

if TYPE_CHECKING:
    from gristmill.training import decoder
else:
    decoder = wrapt.lazy_import("gristmill.training.decoder")

FLOAT = 4  # bytes of weights, sums of gradients, optimizer and softmax, whatever the precision of products


@dataclass(frozen=True)
class Layout:
    """How a model is divided among ranks: `shards` of its weights, `replicas` of those; `tensor`: ranks that divide
    each matrix; `pipeline`: ranks that have some of the layers each."""

    shards: int
    replicas: int = 1
    tensor: int = 1
    pipeline: int = 1

    @property
    def devices(self) -> int:
        return self.shards * self.replicas * self.tensor * self.pipeline

    @property
    def data(self) -> int:
        """Ranks that read different rows."""
        return self.shards * self.replicas


@dataclass(frozen=True)
class Memory:
    """Bytes of a rank by part, at the moment when they are most. `gathered`: weights that are whole for products;
    `buffers`: gradients that wait for other ranks, and what operations hold while they run."""

    moment: str
    weights: float
    gradients: float
    optimizer: float
    gathered: float
    activations: float
    logits: float
    buffers: float

    @property
    def total(self) -> float:
        return sum(getattr(self, field.name) for field in fields(self) if field.name != "moment")


class Kept(NamedTuple):
    """What is kept of a token in a block for the backward pass. `divided`: tensor parallelism divides it, since it is
    inside of attention or of the feed-forward network; what is outside is divided only by sequence parallelism."""

    what: str
    bytes: float
    divided: bool


def bytes_kept(kept: Iterable[Kept], tensor: int = 1, sequence: bool = True) -> float:
    """Bytes of a token on one of `tensor` ranks: Korthikanti et al. 2022 (arXiv 2205.05198), equations 1 to 4."""
    return sum(one.bytes / (tensor if one.divided or sequence else 1) for one in kept)


def kept_by_block(config: ModelConfig, product: int, compiled: bool, recompute: str) -> list[Kept]:
    """What a block keeps of each token; `product`: bytes of a number in products; `recompute`: see TrainingConfig."""
    h, made = config.dim, config.ffn_made
    q, kv = config.heads * config.head_dim, config.kv_head_count * config.head_dim
    stream = Kept("the block's input", product * h, False)
    attended = [
        Kept("queries, keys, values", product * (q + 2 * kv), True),
        Kept("attention output, and the logarithms of its sums", product * q + FLOAT * config.heads, True),
    ]
    first = Kept("first products of the feed-forward network", product * made, True)
    if recompute == "full":
        return [stream]
    if recompute == "selective":
        projected = Kept("results of the two products that are added to the stream", 2 * product * h, False)
        return [stream, *attended, projected, first]
    if compiled:
        second = Kept("the stream after attention", product * h, False)
        ahead = Kept("queries and keys before their norms", product * (q + kv) * config.qk_norm, True)
        return [stream, second, *attended, ahead, first]
    normed = (1 + config.norm_gains) * FLOAT  # bytes of a number: without gains the result in float32 is not kept
    of_heads = normed * (q + kv) + FLOAT * (config.heads + config.kv_head_count) if config.qk_norm else 0
    return [
        Kept("two norms: input and result", 2 * (normed * h + FLOAT), False),
        Kept("inputs of products after the norms", 2 * product * h, False),
        Kept("norms of queries and keys", of_heads, True),
        *attended,
        Kept("input of the output projection", product * q, True),
        Kept("gate, up, silu, their product; or the ReLU and its square", 2 * product * made, True),
    ]


@dataclass(frozen=True)
class Counts:
    """Parameters: of a block, and outside of blocks (embedding, output matrix, last norm); `whole`: of a model."""

    block: int
    root: int
    layers: int

    @property
    def whole(self) -> int:
        return self.root + self.layers * self.block


def counts(config: ModelConfig, vocab_size: int) -> Counts:
    """By the model's own count."""
    root = vocab_size * config.dim * (1 if config.tie_embeddings else 2) + config.dim * config.norm_gains
    return Counts((decoder.parameter_count(config, vocab_size) - root) // config.layers, root, config.layers)


def peak(
    config: ModelConfig,
    training: TrainingConfig,
    parameters: Counts,
    vocab_size: int,
    layout: Layout,
    micro_batch: int,
    micro_batches: int,
    product: int = 2,
    compiled: bool = True,
    cuda: bool = True,
) -> Memory:
    """The most that a rank holds in a step of `micro_batches` of `micro_batch` rows each.

    Of `training` count recompute, loss_chunks, z_loss, accumulate, reshard_after_forward, reduce_dtype and optimizer.
    With a pipeline the first stage is meant, which has the activations of as many micro-batches as there are stages
    (1F1B), with the logits of the last.
    """
    tensor, stages = layout.tensor, layout.pipeline
    block, root = parameters.block / tensor, parameters.root / tensor
    layers = -(-parameters.layers // stages)
    held = root + layers * block  # of a rank if nothing were sharded
    tokens = micro_batch * config.seq_len
    # a pipeline keeps weights and gradients whole during a step
    sharded = stages == 1 and (training.accumulate == "sharded" or (training.accumulate is None and cuda))

    weights = FLOAT * held / layout.shards
    optimizer = optimizer_bytes(training, Counts(round(block), round(root), layers)) / layout.shards
    # the root stays whole from the forward to the backward pass; a block that was the last to be gathered stays in the
    # buffer of the gathering until the next is
    gathered = product * root
    reshards = training.reshard_after_forward and stages == 1
    if not reshards:
        gathered += product * layers * block
    elif layout.shards > 1:
        gathered += product * block
    waiting = micro_batches > 1  # gradients of earlier micro-batches
    gradients = waiting * FLOAT * (held / layout.shards if sharded else held)

    in_flight = min(stages, micro_batches)
    kept = bytes_kept(kept_by_block(config, product, compiled, training.recompute), tensor)
    outside = _outside(config, product, compiled)
    activations = tokens * (layers * kept * in_flight + outside)
    logits = tokens * vocab_size / tensor * _of_a_logit(training, product, compiled) / training.loss_chunks

    output = product * vocab_size * config.dim / tensor  # the output matrix
    # pieces of the loss add up their gradients of it: the sum so far, and that of one
    summed = 2 * output if training.loss_chunks > 1 else 0.0
    at_loss = Memory("loss", weights, gradients, optimizer, gathered, activations, logits, summed)
    live_activations = activations - tokens * outside  # the last norm is done
    # activations of a block that are computed again
    again = tokens * bytes_kept(kept_by_block(config, product, compiled, "none"), tensor)
    again *= training.recompute != "none"
    if training.recompute == "selective":  # but for what attention found, the values, gate and up, which are there
        kv = config.kv_head_count * config.head_dim
        there = product * (config.heads * config.head_dim + kv + config.ffn_made) + FLOAT * config.heads
        again -= tokens * there / tensor
    fetched = gathered + product * block if reshards else gathered
    # the gradients of the wide tensors of the feed-forward network and of the stream
    of_token = product * (2 * config.ffn_made / tensor + 2 * config.dim) + 2 * FLOAT * config.dim * (not compiled)
    within = Memory(
        "backward of a block", weights, gradients, optimizer, fetched, live_activations + again, 0.0,
        output + tokens * of_token,
    )  # fmt: skip
    reduced = 2 if training.reduce_dtype == "bf16" else FLOAT
    behind = Memory(
        "gradients of a block", weights, gradients, optimizer, fetched, live_activations - tokens * kept, 0.0,
        output + (product + reduced) * block,
    )  # fmt: skip
    # what a rank has left of gradients when all are summed
    ends = FLOAT * held / layout.shards
    working = _update_bytes(config, training, layers, layout.shards, 2 if cuda else FLOAT) / tensor
    update = Memory("update", weights, ends, optimizer, product * root, 0.0, 0.0, working)
    return max(at_loss, within, behind, update, key=lambda moment: moment.total)


def optimizer_bytes(training: TrainingConfig, parameters: Counts) -> float:
    """Of the state of all parameters: AdamW has two numbers of each, Muon one, for the matrices of blocks."""
    of_blocks = 1 if training.optimizer == "muon" else 2  # the norms of a block, which AdamW has, are a ten-thousandth
    return FLOAT * (2 * parameters.root + of_blocks * parameters.layers * parameters.block)


def _outside(config: ModelConfig, product: int, compiled: bool) -> float:
    """Of a token outside of blocks: the last norm, and the tables of rotary positions are of no account."""
    return product * config.dim + (product * config.dim if compiled else 2 * FLOAT * config.dim)


def _of_a_logit(training: TrainingConfig, product: int, compiled: bool) -> float:
    """Bytes of a logit at the beginning of the loss's backward pass. Eager: the softmax's logarithm, its gradient, and
    the gradient of what it is taken of; with z_loss also logits and their gradient. Compiled: logits and gradient."""
    if compiled:
        return 2 * product
    return FLOAT * (5 if training.z_loss else 3)


def _update_bytes(config: ModelConfig, training: TrainingConfig, layers: int, shards: int, number: int) -> float:
    """What the update holds beside the state: Muon's updates of all matrices of one shape, whole on the ranks that own
    them, with what they are computed from."""
    if training.optimizer != "muon":
        return 0.0
    h, f, q, kv = config.dim, config.ffn_dim, config.heads * config.head_dim, config.kv_head_count * config.head_dim
    alike: dict[tuple[int, int], int] = {}
    for shape, times in (((q, h), 1), ((kv, h), 2), ((h, q), 1), ((f, h), config.ffn_matrices - 1), ((h, f), 1)):
        alike[shape] = alike.get(shape, 0) + times * layers
    most = 0.0
    for (rows, columns), matrices in alike.items():
        held, owned = matrices * rows * columns / shards, -(-matrices // shards)
        iterating: float = owned * (3 * rows * columns + 2 * min(rows, columns) ** 2)
        if shards > 1:  # what is sent and received, and the owned matrices put together
            iterating += held + owned * (2 * shards * -(-rows // shards) + rows) * columns
        most = max(most, 2 * FLOAT * held, number * iterating)  # gradients and momenta, or the iterations
    return most
