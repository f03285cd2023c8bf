"""The next batches, prepared by a thread while the device computes on this one."""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from gristmill.samples.order import Order, batch_number
from gristmill.storage import files
from gristmill.storage.damage import damaged, missing
from gristmill.storage.training_manifest import RowsEntry, ShardEntry, TrainingManifest
from gristmill.training.config import TrainingConfig
from gristmill.training.loss import inputs_and_targets
from gristmill.training.world import World, all_gather, rank_slice, rows_per_rank


def check_digests(manifest: TrainingManifest, own_disks: bool = False) -> None:
    """Compare every shard and its packed rows with their digests; a collective in which the ranks share the reading.
    `own_disks`: of those that each node has.

    Raises MissingFileError, and DamagedFileError, on all ranks.
    """
    shards = [shard for part in (*manifest.sources, *manifest.heldout) for shard in part.shards]
    entries: list[ShardEntry | RowsEntry] = [*shards, *(rows for source in manifest.sources for rows in source.rows)]
    wrong = [
        (str(entry.path), entry.path.exists()) for entry in rank_slice(entries, own_disks) if not _as_written(entry)
    ]
    for path, there in (each for some in all_gather(wrong) for each in some):
        raise damaged(path, "is not what was written") if there else missing(path)


def _as_written(entry: ShardEntry | RowsEntry) -> bool:
    return entry.path.exists() and files.checksum(str(entry.path)) == entry.digest


def fingerprint(manifest: TrainingManifest) -> str:
    """SHA-256 that names the data: the manifest without its directories, so that a run can move to another machine and
    resume there."""
    digest = hashlib.sha256()
    # what a manifest need not have is left out where it has none, so that older checkpoints know their data
    absent = {name for name in ("phases", "row_length") if not getattr(manifest, name)}
    digest.update(manifest.model_dump_json(exclude={"tokenizer", "sources", "heldout", *absent}).encode())
    for part in (*manifest.sources, *manifest.heldout):
        unnamed = set() if getattr(part, "digest", "") else {"kind", "digest"}
        digest.update(part.model_dump_json(exclude={"shards", "rows"} | unnamed).encode())
        for shard in part.shards:
            digest.update(f"\0{shard.path.name}\0{shard.tokens}\0{shard.digest}\0".encode())
    for rows in (rows for source in manifest.sources for rows in source.rows):
        digest.update(f"\0{rows.path.name}\0{rows.rows}\0{rows.digest}\0".encode())
    return digest.hexdigest()


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
        """The next batch is the batch of the step `first`; batches in `windows` are left out, see `batch_number`."""
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
