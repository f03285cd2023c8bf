"""Blocks over several processes: stages, each of which computes on what the stage before it has made.

Training follows torch's schedule 1F1B, or the interleaved one where a process has several stages; passes without a
gradient send what a stage has made to the next one and the result to all. A stage's parameters have the names of the
whole model. With tied embeddings the first and the last stage have the matrix, and add up its gradients, so that both
update it in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

from gristmill.training.decoder import Block, Decoder
from gristmill.training.layout.context import Division
from gristmill.training.layout.mesh import Axis
from gristmill.training.model_config import ModelConfig

EMBEDDING = "embed_tokens.weight"
Schedule: TypeAlias = Schedule1F1B | ScheduleInterleaved1F1B


def blocks_of(stage: int, stages: int, layers: int) -> range:
    """The consecutive blocks of a stage. The first ones have more where the numbers do not divide: the last also has
    the output matrix."""
    size, more = divmod(layers, stages)
    start = stage * size + min(stage, more)
    return range(start, start + size + (stage < more))


class Stage(Decoder):
    """A part of a Decoder, in the form that torch's schedules call. `z_loss`: its weight in training."""

    z_loss = 0.0

    def forward(self, arrived: torch.Tensor, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """What the next stage reads or, of the last one, the `loss_sums`. `arrived`: what the stage before it has made,
        of the first one anything."""
        return self._summed(tokens, targets, self.z_loss, arrived)


class Pipeline(nn.Module):
    """What training asks of a Decoder, by the stages of this process. `stages`: by their numbers, sharded, in their
    order; `count`: of all processes; `axis`: the processes; `hidden`: the type of what stages send."""

    def __init__(self, stages: dict[int, Stage], count: int, axis: Axis, hidden: torch.dtype) -> None:
        super().__init__()
        self.numbers, self.count, self.axis, self.hidden = list(stages), count, axis, hidden
        self.stages = nn.ModuleList(stages.values())
        one = next(iter(stages.values()))
        self.config: ModelConfig = one.config
        self.division: Division = one.division
        self.end_of_text, self.causal = one.end_of_text, one.causal
        self.schedule: tuple[tuple[int, torch.Size], Schedule] | None = None  # the newest, and what it is for
        self.factor = torch.ones(())  # of the losses of the step
        self.sums: list[torch.Tensor] = []

    @property
    def layers(self) -> list[Block]:
        return [layer for stage in self._own().values() for layer in stage.blocks()]

    @property
    def shared(self) -> frozenset[str]:
        """Names of the parameters that two stages have."""
        return frozenset({EMBEDDING} if self.config.tie_embeddings else ())

    def named_parameters(self, *arguments: Any, **settings: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters by the names of the whole model."""
        for stage in self.stages:
            yield from stage.named_parameters(*arguments, **settings)

    def angles(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See Decoder."""
        return self._own()[self.numbers[0]].angles(tokens)

    def check_causal(self) -> None:
        """See Decoder."""
        self._own()[self.numbers[0]].check_causal()

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The `loss_sums` on the process that has the last stage, zeros on others. No gradient: see `gradients`."""
        sums = self.through(lambda stage, x: stage(x, tokens, targets), tokens)
        return sums if self.count - 1 in self.numbers else torch.zeros(2, device=tokens.device)

    def losses(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """`Decoder.losses`, on every process. No gradient."""
        values = self.through(lambda stage, x: stage.losses(tokens, targets, x), tokens)
        return self._from_last(values, torch.Size(targets.shape))

    def scores(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """`Decoder.scores`, on every process. No gradient."""
        self.check_causal()
        values = self.through(lambda stage, x: stage.scores(tokens, targets, x), tokens)
        return self._from_last(values, torch.Size([2, *targets.shape]))

    @torch.no_grad()
    def through(self, step: Callable[[Stage, torch.Tensor], torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        """What `step` returns for the last of this process's stages. It is called with each stage and what the stage
        before it returned, and `tokens` are what the first one reads; a collective of the pipeline."""
        x, own = tokens, self._own()
        for number, stage in own.items():
            if number:
                x = torch.empty(self._shape(tokens), dtype=self.hidden, device=tokens.device)
                dist.recv(x, group=self.axis.group, group_src=(number - 1) % self.axis.size)
            x = step(stage, x)
            if number + 1 < self.count:
                dist.send(x.contiguous(), group=self.axis.group, group_dst=(number + 1) % self.axis.size)
        return x

    def gradients(
        self, inputs: torch.Tensor, targets: torch.Tensor, micro_batches: int, factor: torch.Tensor
    ) -> torch.Tensor:
        """Add the gradients of `factor` times the loss of a step's rows to the parameters; a collective. Returns the
        `loss_sums`, float64, zeros but on the process with the last stage."""
        self.factor, self.sums = factor, [torch.zeros(2, dtype=torch.float64, device=inputs.device)]
        schedule = self._schedule(micro_batches, torch.Size([len(inputs) // micro_batches, inputs.shape[1]]))
        first = [inputs] if 0 in self.numbers else []
        schedule.step(*first, target=targets, tokens=inputs, targets=targets)
        if self.config.tie_embeddings:
            self._add_tied()
        return torch.stack([sums.double() for sums in self.sums]).sum(0)

    def _loss(self, sums: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        self.sums.append(sums.detach())
        return sums.sum() * self.factor

    def _schedule(self, micro_batches: int, shape: torch.Size) -> Schedule:
        """The schedule of the micro-batches of (rows, tokens). Types and sizes are given, so that torch runs no stage
        to find them out."""
        if self.schedule and self.schedule[0] == (micro_batches, shape):
            return self.schedule[1]
        device = next(self.parameters()).device

        def like(size: torch.Size, kind: torch.dtype) -> torch.Tensor:
            return torch.empty(size, dtype=kind, device="meta", requires_grad=kind.is_floating_point)

        tokens = like(shape, torch.int64)
        stream = like(self._shape(tokens), self.hidden)
        sums = like(torch.Size([2]), torch.float32)
        stages: list[Any] = [
            PipelineStage(
                stage,
                number,
                self.count,
                device,
                input_args=stream if number else tokens,
                output_args=stream if number + 1 < self.count else sums,
                group=self.axis.group,
            )
            for number, stage in self._own().items()
        ]
        # a loss is a part of the step's, so gradients are summed
        schedule: Schedule
        if self.count == self.axis.size:
            schedule = Schedule1F1B(stages[0], micro_batches, loss_fn=self._loss, scale_grads=False)
        else:
            schedule = ScheduleInterleaved1F1B(stages, micro_batches, loss_fn=self._loss, scale_grads=False)
        self.schedule = (micro_batches, shape), schedule
        return schedule

    @torch.no_grad()
    def _add_tied(self) -> None:
        """Add up the gradients of the matrix that the first and the last stage have."""
        others = [last for first, last in ((0, self.count - 1), (self.count - 1, 0)) if first in self.numbers]
        if not others:
            return
        [parameter] = (each for name, each in self.named_parameters() if name == EMBEDDING)
        assert parameter.grad is not None, "both use it"
        gradient = parameter.grad.to_local()  # type: ignore[attr-defined]
        received = torch.empty_like(gradient)
        peer, group = others[0] % self.axis.size, self.axis.group
        pair = [
            dist.P2POp(dist.isend, gradient, group=group, group_peer=peer),
            dist.P2POp(dist.irecv, received, group=group, group_peer=peer),
        ]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
        gradient.add_(received)

    def _own(self) -> dict[int, Stage]:
        return dict(zip(self.numbers, self.stages, strict=True))  # type: ignore[arg-type]

    def _shape(self, tokens: torch.Tensor) -> torch.Size:
        """The shape of what stages send of (rows, length)."""
        rows, length = tokens.shape
        return torch.Size([rows, -(-length // self.division.parts), self.config.dim])

    def _from_last(self, values: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """float32 values of the last stage, of a shape, on every process."""
        last = (self.count - 1) % self.axis.size
        if last != self.axis.rank:
            values = torch.empty(shape, device=values.device)
        dist.broadcast(values, group=self.axis.group, group_src=last)
        return values
