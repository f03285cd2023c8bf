"""How long the parts of a step take on this rank, and how long its blocks compute, without a wait of the host.

On a GPU a part is between two events of the stream (https://docs.pytorch.org/docs/stable/notes/cuda.html), which are
read where the figures of steps are; on a CPU it is between two readings of the clock.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import nn

from gristmill.training.decoder import Decoder
from gristmill.training.world import World

PARTS = ("forward", "backward", "optimizer")
BLOCKS = "blocks"

Moment: TypeAlias = float | torch.cuda.Event


class Clock:
    """The clock of a run. `model`: from sharded_model, whose blocks it times in the forward passes of training.

    Within a block's forward pass its weights are there, and no rank waits for another: in all other parts the fast
    ranks wait for the slow ones, so that their times are alike.
    """

    def __init__(self, model: Decoder, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.spans: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = defaultdict(list)
        self.seconds: dict[str, float] = defaultdict(float)
        self.began: Moment = 0.0  # the block that runs
        for layer in model.layers:
            # after what gathers the block's weights, and before what drops them
            layer.register_forward_pre_hook(self._block_begins)
            layer.register_forward_hook(self._block_ends, prepend=True)

    @torch.compiler.disable
    def _block_begins(self, block: nn.Module, inputs: Any) -> None:
        if torch.is_grad_enabled():
            self.began = self._now()

    @torch.compiler.disable
    def _block_ends(self, block: nn.Module, inputs: Any, output: Any) -> None:
        if torch.is_grad_enabled():
            self._add(BLOCKS, self.began)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What is done in the block is the part `name` of a step."""
        began = self._now()
        yield
        self._add(name, began)

    def _now(self) -> Moment:
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _add(self, name: str, began: Moment) -> None:
        now = self._now()
        if isinstance(began, float) or isinstance(now, float):
            assert isinstance(began, float) and isinstance(now, float), "of one device"
            self.seconds[name] += now - began
        else:
            self.spans[name].append((began, now))

    def read(self) -> dict[str, float]:
        """Seconds of each part and of BLOCKS since the last reading. On a GPU the host must have waited for the last
        step, by reading what it has found."""
        for name, spans in self.spans.items():
            self.seconds[name] += sum(began.elapsed_time(ended) for began, ended in spans) / 1000
        seconds = {name: self.seconds[name] for name in (*PARTS, BLOCKS)}
        self.spans.clear()
        self.seconds.clear()
        return seconds


def slowest_over_mean(seconds: float, world: World) -> float:
    """The largest of all ranks' seconds over their mean; a collective."""
    of_ranks = torch.zeros(world.size, dtype=torch.float64, device=world.device)
    of_ranks[world.rank] = seconds
    all_seconds = world.sum(of_ranks).cpu()
    return float(all_seconds.max() / all_seconds.mean())
