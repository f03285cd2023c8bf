"""The inside of a model: sizes of updates, activations and attention logits, measured every `monitor_every` steps; and
how well the machine is used."""

from __future__ import annotations

import math
import resource
import sys
import time
from pathlib import Path

import psutil
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from gristmill.training.decoder import Attention, Block, Decoder, document_mask, flops_per_token
from gristmill.training.hardware import data_sheet_flops
from gristmill.training.model_config import ModelConfig
from gristmill.training.world import World, local

DECAY = 0.99  # of the means over steps: about the last hundred count


class MicroBatchNorms:
    """The norms of micro-batches' gradients on this rank, taken in the backward pass, on the device.

    A hook on each whole parameter sees the gradient of one micro-batch before it is added to the gradient of earlier
    ones, and before ranks add theirs. So neither needs a copy, and all micro-batches count. `model`: from
    sharded_model; making one of these is a collective. Where several ranks compute one micro-batch none has its
    gradient, and nothing is seen.
    """

    def __init__(self, model: nn.Module, world: World) -> None:
        self.norms: list[torch.Tensor] = []
        self.sums = torch.zeros(2, dtype=torch.float64, device=world.device)
        if world.readers.size < world.size:
            return
        for module in model.modules():
            if not isinstance(module, FSDPModule):
                continue
            module.unshard()
            for parameter in module.parameters():
                if not isinstance(parameter, DTensor):  # layers' parameters are DTensors; the others are whole
                    parameter.register_hook(self._see)
            module.reshard()

    def _see(self, gradient: torch.Tensor) -> None:
        self.norms.append(torch.linalg.vector_norm(gradient, dtype=torch.float32))

    def begin(self) -> None:
        """A step begins."""
        self.norms.clear()
        self.sums.zero_()

    def add(self, tokens: torch.Tensor) -> None:
        """A backward pass has ended, of a micro-batch with so many targets; one without targets does not count."""
        if not self.norms:
            return
        square = torch.stack(self.norms).double().square().sum()
        self.norms.clear()
        self.sums += torch.stack([torch.where(tokens > 0, square / tokens, 0), (tokens > 0).double()])


def noise_and_signal(
    sums: torch.Tensor, square: torch.Tensor, tokens: torch.Tensor, sequences: torch.Tensor
) -> torch.Tensor:
    """Unbiased estimates of (tr(C) of a sequence's gradient, |G|^2), float64 (2,); NaN for a single micro-batch.

    `sums`: from MicroBatchNorms over all ranks, of gradients of (loss sums / `tokens`); `square`: the squared norm of
    the whole gradient; `tokens`, `sequences`: of the batch. Gradient j, of the mean over its own n_j targets, has the
    expected squared norm |G|^2 + S / n_j. Weighted by n_j and summed, minus the norm of the whole batch, J - 1 times S
    remains: with micro-batches of one size these are the estimates of the paper's appendix A.1, and with one sequence
    each they are the sample variance.
    """
    weighted, count = sums.unbind()
    noise = (tokens.double().square() * weighted - tokens * square) / (count - 1)  # of a token
    noise = torch.where(count > 1, noise, math.nan)
    return torch.stack([noise * sequences / tokens, square - noise / tokens])


class NoiseScale:
    """The noise scale over steps: its numerator and its denominator are averaged, each for itself, and then divided, as
    a ratio of estimates would be biased. `means`: (tr(C), |G|^2), or nothing yet; a checkpoint holds them."""

    def __init__(self, means: list[float]) -> None:
        self.means = means

    def see(self, noise: float, signal: float) -> None:
        """Take in the estimates of a step; those that are not finite are left out."""
        if math.isfinite(noise) and math.isfinite(signal):
            old = self.means or [0.0, 0.0]  # what the zeros make too small is the same factor in both
            self.means[:] = [DECAY * mean + (1 - DECAY) * new for mean, new in zip(old, (noise, signal), strict=True)]

    @property
    def value(self) -> float:
        """The noise scale in sequences; NaN before the first step, or if |G|^2 is lost in the noise."""
        return self.means[0] / self.means[1] if self.means and self.means[1] > 0 else math.nan


# The Linux kernel's powercap: https://docs.kernel.org/power/powercap/powercap.html. Most systems let only root read
# it.
POWERCAP = Path("/sys/class/powercap")


class Power:
    """Watts since the last call: `system/package_watts`, of all processors of rank 0's machine, and `system/gpu_watts`,
    of its GPU at the moment. What has no counter, or one that may not be read, is absent."""

    def __init__(self, device: torch.device, powercap: Path = POWERCAP) -> None:
        self.device = device
        self.packages = [path for path in sorted(powercap.glob("*")) if _name(path).startswith("package-")]
        self.last = self._read()
        self.read_time = time.perf_counter()

    def __call__(self) -> dict[str, float]:
        now, counters = time.perf_counter(), self._read()
        seconds, joules = now - self.read_time, 0.0
        for path, value in counters.items():
            before = self.last.get(path, value)
            wrapped = value < before  # at its range, which it begins again from
            joules += (value - before + (_number(path / "max_energy_range_uj") or 0) * wrapped) / 1e6
        self.read_time, self.last = now, counters
        watts_by_name = {"system/package_watts": joules / seconds} if counters and seconds else {}
        if (watts := gpu_watts(self.device)) is not None:
            watts_by_name["system/gpu_watts"] = watts
        return watts_by_name

    def _read(self) -> dict[Path, int]:
        counters = {path: _number(path / "energy_uj") for path in self.packages}
        return {path: value for path, value in counters.items() if value is not None}


def gpu_watts(device: torch.device) -> float | None:
    """The current power of a GPU in watts; None for a CPU, and if NVML's Python package is not installed."""
    if device.type != "cuda":
        return None
    try:
        return torch.cuda.power_draw(device) / 1000  # milliwatts
    except (ModuleNotFoundError, RuntimeError):
        return None


def _name(path: Path) -> str:
    try:
        return (path / "name").read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except OSError:
        return None


QUERIES = 256  # rows of the attention logits that are in memory at once


def measured_flops(device: torch.device, dtype: torch.dtype | None) -> float:
    """Floating-point operations a second of a product of square matrices, the best of five: what the device, as it is
    now, does at most. 8,192 wide on a GPU, 512 on a CPU."""
    cuda = device.type == "cuda"
    width, times = (8192, 10) if cuda else (512, 2)
    a, b = torch.ones(2, width, width, dtype=dtype if cuda and dtype else torch.float32, device=device)
    seconds = math.inf
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(times):
            a @ b
        if cuda:
            torch.cuda.synchronize()
        seconds = min(seconds, time.perf_counter() - began)
    return 2 * width**3 * times / seconds


class Machine:
    """Metrics of timing.jsonl besides the speed: MFU, memory, use of the processor, and power. Those of rank 0, except
    MFU and the number of processes."""

    def __init__(self, model: ModelConfig, vocab_size: int, world: World, dtype: torch.dtype | None) -> None:
        self.world, self.seq_len = world, model.seq_len
        full = flops_per_token(model, vocab_size)
        scores = 12 * model.layers * model.heads * model.head_dim * model.seq_len
        self.flops = {"": full, "_causal": full - scores // 2}
        name = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else ""
        self.peaks = {"mfu": data_sheet_flops(name), "mfu_measured": measured_flops(world.device, dtype)}
        self.process = psutil.Process()
        self.power = Power(world.device)
        self.process.cpu_percent()  # the next call says what was used since

    def __call__(self, tokens_per_second: float) -> dict[str, float]:
        """`mfu` is the share of the data sheet's bf16 rate, absent where none is known, `mfu_measured` the share of
        `measured_flops`. `_causal`: attention is counted below the diagonal only, as it is computed."""
        metrics = {
            f"train/{name}{convention}": tokens_per_second * flops / (peak * self.world.size)
            for name, peak in self.peaks.items()
            if peak
            for convention, flops in self.flops.items()
        }
        if self.world.device.type == "cuda":
            metrics["system/gpu_memory_peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
        return (
            metrics
            | self.power()
            | {
                "system/processes": float(self.world.size),
                "system/cpu_percent": self.process.cpu_percent(),
                "system/memory_gib": self.process.memory_info().rss / 2**30,
                "system/memory_peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30,
            }
        )


class Updates:
    """The norm of an update of the blocks' matrices over the norm of the matrices: `begin` before it, `end` after it.

    Between the two the matrices are in memory twice, at a time when there are no activations.
    """

    def __init__(self, model: Decoder) -> None:
        self.matrices = [
            local(p.detach()) for n, p in model.named_parameters() if n.startswith("layers.") and p.ndim == 2
        ]
        self.before: list[torch.Tensor] = []

    def begin(self) -> None:
        self.before = [matrix.clone() for matrix in self.matrices]

    def end(self, world: World) -> torch.Tensor:
        """float64 without dimensions; a collective."""
        changes = torch._foreach_sub(self.before, self.matrices)
        self.before = []
        squares = [torch.stack(torch._foreach_norm(part)).double().square().sum() for part in (changes, self.matrices)]
        change, size = world.sum(torch.stack(squares))
        return (change / size).sqrt()


class Monitor:
    """Measures the inside of a model, only on the device."""

    def __init__(self, model: Decoder, world: World) -> None:
        self.model, self.world = model, world
        self.updates = Updates(model)
        whats = ("activation_rms", "attention_logit")
        self.layers = model.config.layers
        self.names = ["monitor/update_ratio"]
        self.names += [f"monitor/{what}/layer_{i:02}" for what in whats for i in range(self.layers)]

    def probe(self, tokens: torch.Tensor) -> torch.Tensor:
        """After an update that `updates.begin` preceded: float64 in the order of `names`; a collective.

        tokens: int64 (1, seq_len), of which those of rank 0 are looked at. Activations are the residual stream after a
        layer, attention logits those that tokens see. The layers run once more for this, uncompiled and one at a time,
        since fused attention keeps its logits to itself.
        """
        ratio = self.updates.end(self.world)[None]
        squares, logits = self._inside(tokens)
        if self.world.readers.rank:  # of other tokens
            squares.zero_()
            logits.fill_(-math.inf)
        sizes = (self.world.sum(squares) / self.world.division.parts).sqrt()
        return torch.cat([ratio, sizes, self.world.largest(logits)])

    @torch.no_grad()
    def _inside(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """By layer, float64: the mean square of the stream's numbers that this rank has, 0 for a layer that it has not;
        the largest logit of its heads, or minus infinity."""
        model, division = self.model, self.world.division
        cos, sin = model.angles(tokens)
        mask = None if model.end_of_text is None else document_mask(tokens, model.end_of_text)
        documents = None if model.end_of_text is None else (tokens == model.end_of_text).cumsum(1)
        squares = torch.zeros(self.layers, dtype=torch.float64, device=tokens.device)
        logits = torch.full_like(squares, -math.inf)

        def look(stage: Decoder, x: torch.Tensor) -> torch.Tensor:
            assert isinstance(stage, FSDPModule), "the model is that of sharded_model"
            if stage.first:
                stage.unshard()
                x = stage.embedded(tokens)
                stage.reshard()
            for number, layer in stage.layers.named_children():
                assert isinstance(layer, FSDPModule) and isinstance(layer, Block), "layers are sharded blocks"
                layer.unshard()
                read = division.gathered(layer.input_layernorm(x))
                logits[int(number)] = largest_logit(layer.self_attn, read, cos, sin, documents)
                x = layer.block_forward(x, cos, sin, mask)
                layer.reshard()
                squares[int(number)] = x.double().square().mean()
            return x

        model.through(look, tokens)
        return squares, logits


def largest_logit(
    attention: Attention, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, documents: torch.Tensor | None
) -> torch.Tensor:
    """The largest q k / sqrt(head_dim) of any head among the pairs that attention sees, float32 without dimensions.

    x: (1, length, dim); documents: numbers of the tokens' documents, int64 (1, length), where they are kept apart. In
    memory: QUERIES rows of each head's logits.
    """
    q, k, _ = attention.heads(x, cos, sin)
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    positions = torch.arange(q.shape[2], device=x.device)
    maxima = []
    for first in range(0, q.shape[2], QUERIES):
        rows = slice(first, first + QUERIES)
        seen = (positions[rows, None] >= positions) | (not attention.causal)
        if documents is not None:
            seen = seen & (documents[0, rows, None] == documents[0])
        maxima.append((q[:, :, rows] @ k.transpose(2, 3)).float().masked_fill(~seen, -math.inf).amax())
    return torch.stack(maxima).amax() / math.sqrt(attention.head_dim)
