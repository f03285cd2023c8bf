"""Layouts of a training over devices: memory of each rank, traffic and time of a step, and the layouts that fit."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from gristmill.flows.experiments.planning.memory import Counts, Layout, Memory, peak
from gristmill.training.config import TrainingConfig
from gristmill.training.hardware import DataSheet
from gristmill.training.model_config import ModelConfig

RECOMPUTE = ("none", "selective", "full")
RESERVED = 0.05  # share of a device's memory for its driver, libraries, and fragmentation in the allocator


@dataclass(frozen=True)
class Devices:
    """`count`: number of devices; `machine`: devices per machine; `network`: bytes per second that each device sends to
    other machines; `mfu`: the share of the data sheet's operations that training reaches without waiting for other
    devices; `memory`: bytes of one device."""

    name: str
    sheet: DataSheet
    count: int
    machine: int
    network: float
    mfu: float
    memory: float

    @property
    def usable(self) -> float:
        """Bytes of one device that a plan may use."""
        return self.memory * (1 - RESERVED)


@dataclass(frozen=True)
class Work:
    """A training without its layout. `flops`: operations per token, as counted by the model; `product`: bytes of a
    number in matrix products; `compiled`: whether blocks and loss are compiled."""

    model: ModelConfig
    training: TrainingConfig
    vocab_size: int
    parameters: Counts
    flops: int
    product: int = 2
    compiled: bool = True


@dataclass(frozen=True)
class Traffic:
    """Bytes that a device sends in a step. `gather`: weights and gradients between shards; `replicas`: gradients
    between replicas; `tensor`: activations within tensor parallelism; `pipeline`: activations between stages."""

    gather: float
    replicas: float
    tensor: float
    pipeline: float


@dataclass(frozen=True)
class Choice:
    """A layout with the recomputation and the largest micro-batch that fit, its memory and traffic, and the time of a
    step: seconds of `computing`, including the bubble, and of `sending`, most of which overlaps with it."""

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
        """Seconds of a step. Sending weights and gradients overlaps with computing, so only the longer time counts.
        The traffic of tensor and pipeline parallelism does not overlap."""
        return max(self.computing, self.sending) + self.waiting


def bubble(stages: int, micro_batches: int) -> float:
    """The share of a step in which a stage of a pipeline waits for others, the same for GPipe's schedule and 1F1B
    (Huang et al. 2019, arXiv 1811.06965, section 2.3)."""
    return (stages - 1) / (micro_batches + stages - 1)


def ring(size: float, ranks: int) -> float:
    """Bytes that a rank sends in a ring all-gather or reduce-scatter of `size` bytes over `ranks` ranks."""
    return size * (ranks - 1) / ranks


def traffic(work: Work, layout: Layout, micro_batch: int, micro_batches: int, recompute: str) -> Traffic:
    """Bytes that a device sends in a step.

    Weights are gathered for the forward pass of each micro-batch, and weights of blocks again for its backward pass if
    they are freed in between; gradients are scattered after each micro-batch, or once per step. In a pipeline both
    happen once per step. Replicas reduce their shards' gradients once. Tensor parallelism has two all-reduces of
    activations in each pass of a layer (Shoeybi et al. 2019, arXiv 1909.08053), which full recomputation repeats.
    """
    training, parameters = work.training, work.parameters
    layers = -(-parameters.layers // layout.pipeline)
    blocks, root = layers * parameters.block / layout.tensor, parameters.root / layout.tensor
    reduced = 2 if training.reduce_dtype == "bf16" else 4
    kept = layout.pipeline > 1  # weights and gradients stay unsharded during a step
    again = blocks if training.reshard_after_forward and not kept else 0
    gathered = work.product * (blocks + root + again) * (1 if kept else micro_batches)
    scattered = reduced * (blocks + root) * (1 if kept or training.accumulate == "whole" else micro_batches)
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
    """The layouts that fit, each with the recomputation and the largest micro-batch of the shortest step; ties go to
    the least recomputation. Sorted by the time of a step, then by memory.

    `tensor`, `pipeline`: the largest degree of each. Raises ValueError, with the smallest layout, if nothing fits.
    """
    options: list[Choice] = []
    least = None
    for layout in layouts(work.model, devices, tensor, pipeline):
        if not runs(work, layout):
            continue
        tried = [choice(work, devices, layout, recompute) for recompute in RECOMPUTE]
        if fitting := [one for one in tried if one.memory.total <= devices.usable]:
            options.append(min(fitting, key=lambda one: (one.seconds, one.computing)))
        smallest = min(tried, key=lambda one: one.memory.total)
        if least is None or smallest.memory.total < least.memory.total:
            least = smallest
    if not options:
        assert least is not None, "one shard per device is a layout"
        raise ValueError(
            f"no layout fits {devices.count} {devices.name} of {devices.memory / 1000000000.0:,.0f} GB: the smallest "
            f"needs {least.memory.total / 1000000000.0:,.1f} GB per device, with recompute {least.recompute} and "
            "micro_batch 1; use more devices, a shorter model.seq_len, a smaller model, or training.loss_chunks"
        )
    return sorted(options, key=lambda one: (one.seconds, one.computing, one.memory.total, one.layout.replicas))


def layouts(model: ModelConfig, devices: Devices, tensor: int = 1, pipeline: int = 1) -> Iterator[Layout]:
    """All layouts over the devices. Tensor parallelism stays within a machine and divides the heads; a pipeline divides
    the layers."""
    for t in _divisors(devices.count):
        if t > min(tensor, devices.machine) or model.heads % t or model.kv_head_count % t or model.ffn_dim % t:
            continue
        for p in _divisors(devices.count // t):
            if p > pipeline or model.layers % p:
                continue
            data = devices.count // (t * p)
            for replicas in _divisors(data):
                yield Layout(data // replicas, replicas, t, p)


def runs(work: Work, layout: Layout) -> bool:
    """Whether training supports a layout: a pipeline needs at least as many micro-batches as stages, and `tensor` must
    divide sequences and the vocabulary, and excludes fp8."""
    rows = -(-work.training.batch // layout.data)
    divided = work.model.seq_len % layout.tensor == work.vocab_size % layout.tensor == 0
    return rows >= layout.pipeline and divided and not (layout.tensor > 1 and work.training.fp8_min_dim)


def choice(work: Work, devices: Devices, layout: Layout, recompute: str) -> Choice:
    """A layout with a recomputation and the largest micro-batch that fits, or one row if none fits."""
    training = work.training.model_copy(update={"recompute": recompute})
    rows = -(-training.batch // layout.data)

    def held(micro_batch: int) -> Memory:
        return peak(
            work.model, training, work.parameters, work.vocab_size, layout, micro_batch, -(-rows // micro_batch),
            work.product, work.compiled,
        )  # fmt: skip

    most = rows if layout.pipeline == 1 else (rows - 1) // (layout.pipeline - 1)  # with which steps >= pipeline
    fits, too_many = 1, max(1, most) + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if held(middle).total <= devices.usable else (fits, middle)
    steps = -(-rows // fits)
    if layout.pipeline == 1 or -(-rows // -(-rows // steps)) == steps:
        fits = -(-rows // steps)  # the least padding with this number of micro-batches
    return timed(work, devices, layout, recompute, fits, steps, held(fits))


def timed(
    work: Work, devices: Devices, layout: Layout, recompute: str, micro_batch: int, micro_batches: int, memory: Memory
) -> Choice:
    """The time of a step.

    Model operations at the data sheet's rate times MFU; full recomputation adds a forward pass, a third (Narayanan et
    al. 2021, arXiv 2104.04473: 8 T P instead of 6 T P). A group of devices sends as fast as its slowest link.
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
    """Bytes per second of a device in a group that spans `span` consecutive devices."""
    return devices.sheet.link if span <= devices.machine else min(devices.sheet.link, devices.network)


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]
