"""Layouts of a training over devices: the memory of each rank, traffic and time of a step, and the layouts that fit.

`peak` estimates the peak memory of a rank, by parts, before a run. Four moments of a step are counted, of which one is
the peak: the loss, when the activations of all blocks and the logits are there; the backward pass of the last block,
when its activations are there again, if they were not kept; its end, when its gradients wait for the other ranks; and
the update, for which Muon makes matrices whole. `tests/flows/planning/test_peak_memory.py` holds the sums against
torch's own tracker.

Eager and compiled trainings keep different tensors. Eager is what autograd keeps of the operations as they are written
in `gristmill.training.decoder`; norms are computed in float32 and keep their input and their result so. Compiled is
what a compiler keeps that computes all element-wise operations again in the backward pass, as torch's does on a GPU.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import wrapt

from gristmill.training.config import TrainingConfig
from gristmill.training.hardware import DataSheet
from gristmill.training.model_config import ModelConfig

if TYPE_CHECKING:
    from gristmill.training import decoder
else:
    decoder = wrapt.lazy_import("gristmill.training.decoder")

FLOAT = 4  # bytes of weights, sums of gradients, optimizer and softmax, whatever the precision of products


@dataclass(frozen=True)
class Layout:
    """How a model is divided among ranks: `shards` of its weights, `replicas` of those; `tensor`: ranks that divide
    each matrix; `pipeline`: ranks that have some of the layers each. Our own loop has the first two."""

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
    inside of attention or of the feed-forward network; what is outside is divided by sequence parallelism alone."""

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
    sharded = training.accumulate == "sharded" or (training.accumulate is None and cuda)

    weights = FLOAT * held / layout.shards
    optimizer = optimizer_bytes(training, Counts(round(block), round(root), layers)) / layout.shards
    # the root stays whole from the forward to the backward pass; a block that was the last to be gathered stays in the
    # buffer of the gathering until the next is
    gathered = product * root
    if not training.reshard_after_forward:
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
    fetched = gathered + product * block if training.reshard_after_forward else gathered
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


RECOMPUTE = ("none", "selective", "full")
RESERVED = 0.05  # of a device's memory: of its driver and of the libraries, and what the allocator cannot give out


@dataclass(frozen=True)
class Devices:
    """`count` of them, `machine` in each machine, of which each sends `network` bytes a second to other machines;
    `mfu`: the share of the data sheet's operations that training reaches where it waits for no other device; `memory`:
    bytes of one."""

    name: str
    sheet: DataSheet
    count: int
    machine: int
    network: float
    mfu: float
    memory: float

    @property
    def usable(self) -> float:
        """Bytes of one that a plan may fill."""
        return self.memory * (1 - RESERVED)


@dataclass(frozen=True)
class Work:
    """A training, apart from its layout. `flops`: operations of a token, by the model's own count; `product`: bytes of
    a number in products; `compiled`: whether blocks and loss are."""

    model: ModelConfig
    training: TrainingConfig
    vocab_size: int
    parameters: Counts
    flops: int
    product: int = 2
    compiled: bool = True


@dataclass(frozen=True)
class Traffic:
    """Bytes that a device sends in a step. `gather`: to shards, of weights and of gradients; `replicas`: of gradients;
    `tensor`: of activations within matrices; `pipeline`: of activations between stages."""

    gather: float
    replicas: float
    tensor: float
    pipeline: float


@dataclass(frozen=True)
class Choice:
    """A layout with the recomputation and the largest micro-batch that fit, what it holds and sends, and how long a
    step takes: seconds of `computing`, the bubble included, and of `sending`, of which the most goes on meanwhile."""

    layout: Layout
    recompute: str
    micro_batch: int
    micro_batches: int
    memory: Memory
    traffic: Traffic
    bubble: float
    padding: float
    computing: float
    sending: float
    waiting: float

    @cached_property
    def seconds(self) -> float:
        """Of a step. Weights and gradients travel while others are computed with: of the two times the longer counts.
        What tensor and pipeline parallelism send is waited for."""
        return max(self.computing, self.sending) + self.waiting


def bubble(stages: int, micro_batches: int) -> float:
    """The share of a step in which a stage of a pipeline waits for others, with GPipe's schedule as with 1F1B: Huang et
    al. 2019 (arXiv 1811.06965), section 2.3."""
    return (stages - 1) / (micro_batches + stages - 1)


def ring(size: float, ranks: int) -> float:
    """Bytes that a rank sends to gather `size` bytes that so many ranks have a part each of, or to scatter sums of so
    many: each part goes round once."""
    return size * (ranks - 1) / ranks


def traffic(work: Work, layout: Layout, micro_batch: int, micro_batches: int, recompute: str) -> Traffic:
    """What a device sends in a step.

    Weights are gathered for the forward pass of each micro-batch, and those of blocks for its backward pass, too, if
    they are dropped in between; gradients are scattered after each micro-batch, or once a step. Replicas add up their
    shards' gradients once. Tensor parallelism has two sums over activations in each pass of a layer (Shoeybi et al.
    2019, arXiv 1909.08053), which full recomputation repeats.
    """
    training, parameters = work.training, work.parameters
    layers = -(-parameters.layers // layout.pipeline)
    blocks, root = layers * parameters.block / layout.tensor, parameters.root / layout.tensor
    reduced = 2 if training.reduce_dtype == "bf16" else 4
    again = blocks if training.reshard_after_forward else 0
    gathered = work.product * (blocks + root + again) * micro_batches
    scattered = reduced * (blocks + root) * (1 if training.accumulate == "whole" else micro_batches)
    tokens = micro_batch * work.model.seq_len * micro_batches
    activation = work.product * tokens * work.model.dim
    passes = 3 if recompute == "full" else 2
    return Traffic(
        gather=ring(gathered + scattered, layout.shards),
        replicas=2 * ring(reduced * (blocks + root) / layout.shards, layout.replicas),
        tensor=2 * passes * layers * 2 * ring(activation, layout.tensor),
        pipeline=2 * activation * (layout.pipeline > 1),
    )


def choices(work: Work, devices: Devices, tensor: int = 1, pipeline: int = 1) -> list[Choice]:
    """The layouts that fit so many devices, each with the recomputation and the largest micro-batch with which a step
    is shortest, of equal ones the least recomputation; the shortest step first, then that with least memory.

    `tensor`, `pipeline`: the most of each, for engines that have them; our own loop has neither. Raises ValueError
    where nothing fits, with what would be least.
    """
    options: list[Choice] = []
    least = None
    for layout in layouts(work.model, devices, tensor, pipeline):
        tried = [choice(work, devices, layout, recompute) for recompute in RECOMPUTE]
        if fitting := [one for one in tried if one.memory.total <= devices.usable]:
            options.append(
                min(fitting, key=lambda one: (one.seconds, one.computing))
            )  # of equal ones the least recomputation
        smallest = min(tried, key=lambda one: one.memory.total)
        if least is None or smallest.memory.total < least.memory.total:
            least = smallest
    if not options:
        assert least is not None, "one shard a device is a layout"
        raise ValueError(
            f"no layout fits {devices.count} {devices.name} of {devices.memory / 1000000000.0:,.0f} GB: the smallest "
            f"needs {least.memory.total / 1000000000.0:,.1f} GB per device, with recompute {least.recompute} and "
            "micro_batch 1; use more devices, a shorter model.seq_len, a smaller model, or training.loss_chunks"
        )
    return sorted(options, key=lambda one: (one.seconds, one.computing, one.memory.total, one.layout.replicas))


def layouts(model: ModelConfig, devices: Devices, tensor: int = 1, pipeline: int = 1) -> Iterator[Layout]:
    """All layouts over so many devices. Tensor parallelism stays within a machine and divides the heads; a pipeline
    divides the layers."""
    for t in _divisors(devices.count):
        if t > min(tensor, devices.machine) or model.heads % t or model.kv_head_count % t or model.ffn_dim % t:
            continue
        for p in _divisors(devices.count // t):
            if p > pipeline or model.layers % p:
                continue
            data = devices.count // (t * p)
            for replicas in _divisors(data):
                yield Layout(data // replicas, replicas, t, p)


def choice(work: Work, devices: Devices, layout: Layout, recompute: str) -> Choice:
    """A layout with a recomputation and the largest micro-batch that fits; with one row where none does."""
    training = work.training.model_copy(update={"recompute": recompute})
    rows = -(-training.batch // layout.data)

    def held(micro_batch: int) -> Memory:
        return peak(
            work.model, training, work.parameters, work.vocab_size, layout, micro_batch, -(-rows // micro_batch),
            work.product, work.compiled,
        )  # fmt: skip

    fits, too_many = 1, rows + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if held(middle).total <= devices.usable else (fits, middle)
    steps = -(-rows // fits)
    fits = -(-rows // steps)  # as few rows of padding as so many micro-batches leave
    return timed(work, devices, layout, recompute, fits, steps, held(fits))


def timed(
    work: Work, devices: Devices, layout: Layout, recompute: str, micro_batch: int, micro_batches: int, memory: Memory
) -> Choice:
    """How long a step takes.

    Model operations at the data sheet's rate times MFU; full recomputation adds a forward pass, a third (Narayanan et
    al. 2021, arXiv 2104.04473: 8 T P in place of 6 T P). A group of devices sends as fast as its slowest link.
    """
    sent = traffic(work, layout, micro_batch, micro_batches, recompute)
    rows = micro_batch * micro_batches * layout.data
    flops = work.flops * rows * work.model.seq_len * (4 / 3 if recompute == "full" else 1)
    share = bubble(layout.pipeline, micro_batches)
    computing = flops / (devices.count * devices.sheet.flops * devices.mfu) / (1 - share)
    inner = layout.tensor * layout.shards  # ranks of a group follow each other
    gathering = sent.gather / _rate(devices, inner)
    adding = sent.replicas / _rate(devices, inner * layout.replicas)
    waiting = sent.tensor / _rate(devices, layout.tensor) + sent.pipeline / _rate(devices, devices.count)
    return Choice(
        layout, recompute, micro_batch, micro_batches, memory, sent, share, 1 - work.training.batch / rows,
        computing, gathering + adding, waiting,
    )  # fmt: skip


def _rate(devices: Devices, span: int) -> float:
    """Bytes a second of a device in a group that spans so many devices in a row."""
    return devices.sheet.link if span <= devices.machine else min(devices.sheet.link, devices.network)


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]
