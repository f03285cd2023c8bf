"""The next batches, prepared by a thread while the device computes on this one."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from training.config import TrainingConfig
from training.loss import inputs_and_targets
from training.order import Order
from training.parallel import World
from training.step import micro_batch, rows_per_rank

AHEAD = 2  # batches that wait in memory


class Batches:
    """Iterates over (inputs, targets) on the device, int64 (rows, seq_len). `waited`: seconds that this took."""

    def __init__(self, ready: queue.Queue, device: torch.device) -> None:
        self.ready, self.device, self.waited = ready, device, 0.0

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            began = time.perf_counter()
            batch = self.ready.get()
            self.waited += time.perf_counter() - began
            if batch is None:
                return
            if isinstance(batch, Exception):
                raise batch
            inputs, targets = batch
            yield inputs.to(self.device, non_blocking=True), targets.to(self.device, non_blocking=True)


@contextmanager
def batches(order: Order, training: TrainingConfig, world: World, first: int) -> Iterator[Batches]:
    """This rank's batches from the step `first` on, in page-locked memory where there is a GPU.

    Raises what reading them raises, where the batch was due. Held: AHEAD + 1 batches.
    """
    ready: queue.Queue = queue.Queue(AHEAD)
    ending = threading.Event()
    rows = rows_per_rank(training.batch, world.size, micro_batch(training, world.size))
    pins = world.device.type == "cuda"

    def put(item: object) -> None:
        while not ending.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def prepare() -> None:
        try:
            for step in range(first, training.steps):
                if ending.is_set():
                    return
                cut = inputs_and_targets(torch.from_numpy(order.batch(step, world.rank, world.size)), rows)
                put(tuple(tensor.pin_memory() if pins else tensor for tensor in cut))
            put(None)
        except Exception as error:
            put(error)

    thread = threading.Thread(target=prepare, name="batches", daemon=True)
    thread.start()
    try:
        yield Batches(ready, world.device)
    finally:
        ending.set()
        thread.join()
