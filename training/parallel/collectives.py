"""What all ranks do together, beside sums: tell each other values, divide files among them, work for long."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import torch.distributed as dist

T = TypeVar("T")

# Environment variables of torchrun. A node is one of the machines of a run.
NODE, NODES, NODE_RANK, NODE_SIZE = "GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
MEETING_SECONDS = 5.0  # between two meetings of ranks that work for long


def all_gather(value: T) -> list[T]:
    """The values of all ranks, in their order, on every rank; a collective."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def rank_slice(values: Sequence[T], own_disks: bool = False) -> Sequence[T]:
    """Those of some values, alike on all ranks, that this rank works on. `own_disks`: the values are files of which
    each node has its own, so that the ranks of each node divide them."""
    if own_disks and NODE_SIZE in os.environ:
        return values[int(os.environ[NODE_RANK]) :: int(os.environ[NODE_SIZE])]
    return values[dist.get_rank() :: dist.get_world_size()]


def all_do(work: Callable[[], None], group: dist.ProcessGroup | None = None) -> None:
    """Let each rank do its work, however long that takes, and return when all have; a collective.

    No rank waits in silence for another: they meet every few seconds, so the group's time limit is for a rank that is
    gone, and not for a slow one. Raises what the work of this rank raised; else RuntimeError with what that of
    another rank did.
    """
    with ThreadPoolExecutor(1, "work") as thread:
        mine = thread.submit(work)
        while True:
            wait([mine], MEETING_SECONDS)
            error = mine.exception() if mine.done() else None
            state = (mine.done(), f"{type(error).__name__}: {error}" if error else "")
            states: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(states, state, group=group)
            if error:
                raise error
            if failed := [(rank, message) for rank, (_, message) in enumerate(states) if message]:
                raise RuntimeError("rank {}: {}".format(*failed[0]))
            if all(done for done, _ in states):
                return
