"""The next batches, prepared by a thread while the device computes on this one."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from gristmill.samples.order import Order, batch_number
from gristmill.training.config import TrainingConfig
from gristmill.training.model.loss import inputs_and_targets
from gristmill.training.model.parallel import World, rows_per_rank

AHEAD = 2  # batches that wait in memory


class Batches:
    """Iterates over (inputs, targets) on the device, int64 (rows, seq_len). `waited`: seconds that this took.

    Raises what reading them raises, where the batch was due. Held: AHEAD + 1 batches.
    """

    def __init__(self, order: Order, training: TrainingConfig, world: World) -> None:
        self.order, self.training, self.world, self.waited = order, training, world, 0.0
        self.ready: queue.Queue = queue.Queue()
        self.ending = threading.Event()
        self.thread: threading.Thread | None = None

    def go_to(self, first: int, windows: Sequence[tuple[int, int]]) -> None:
        """The next batch is that of the step `first`; those in `windows` are left out, see `batch_number`."""
        self.end()
        self.ready, self.ending = queue.Queue(AHEAD), threading.Event()
        arguments = (first, tuple(windows), self.ready, self.ending)
        self.thread = threading.Thread(target=self._prepare, args=arguments, name="batches", daemon=True)
        self.thread.start()

    def end(self) -> None:
        self.ending.set()
        if self.thread:
            self.thread.join()

    def _prepare(
        self, first: int, windows: tuple[tuple[int, int], ...], ready: queue.Queue, ending: threading.Event
    ) -> None:
        world, training = self.world, self.training
        pins = world.device.type == "cuda"

        def put(item: object) -> None:
            while not ending.is_set():
                try:
                    return ready.put(item, timeout=0.1)
                except queue.Full:
                    continue

        try:
            for step in range(first, training.steps):
                if ending.is_set():
                    return
                number = batch_number(step, windows)
                read = self.order.batch(number, world.rank, world.size)
                rows = rows_per_rank(self.order.plan.size(number), world.size, training.micro_batch)
                cut = inputs_and_targets(torch.from_numpy(read), rows)
                put(tuple(tensor.pin_memory() if pins else tensor for tensor in cut))
            put(None)
        except Exception as error:
            put(error)

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
            device = self.world.device
            yield inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)


@contextmanager
def batches(
    order: Order, training: TrainingConfig, world: World, first: int, windows: Sequence[tuple[int, int]] = ()
) -> Iterator[Batches]:
    """This rank's batches from the step `first` on, in page-locked memory where there is a GPU."""
    coming = Batches(order, training, world)
    coming.go_to(first, windows)
    try:
        yield coming
    finally:
        coming.end()
