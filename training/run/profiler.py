"""A trace of chosen steps of rank 0, for https://ui.perfetto.dev, and on a GPU a snapshot of its memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import torch
from torch.profiler import ProfilerActivity, profile

from gristmill.training.model.parallel import World

log = logging.getLogger(__name__)

FOLDER = "profile"  # in that of the run, and among the artifacts of its MLflow run
ALLOCATIONS = 100_000  # newest ones in a snapshot


class Profile:
    """Writes `trace-steps-3-5.json.gz` of the steps 3 to 5 into FOLDER below `out`, and on a GPU
    `memory-steps-3-5.pickle`, for https://docs.pytorch.org/memory_viz.

    `steps`: TrainingConfig.profile_steps. On other ranks nothing is done. `written` is called with each file and
    FOLDER. Steps that are not taken in one go, as in a run that is stopped or goes back between them, have no file. A
    context manager.
    """

    def __init__(
        self, out: Path, steps: tuple[int, int] | None, world: World, written: Callable[[Path, str], None]
    ) -> None:
        self.folder, self.steps, self.written = out / FOLDER, steps if world.leads else None, written
        self.cuda = world.device.type == "cuda"
        self.running: profile | None = None

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """The block takes a step, counted from 1."""
        if self.steps and number == self.steps[0]:
            self._end()
            self._begin()
        yield
        if self.running and self.steps and number == self.steps[1]:
            self._write(self.running, f"steps-{self.steps[0]}-{self.steps[1]}")

    def _begin(self) -> None:
        if self.cuda:
            torch.cuda.memory._record_memory_history(stacks="python", max_entries=ALLOCATIONS)
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.cuda else [])]
        self.running = profile(activities=activities, record_shapes=True, profile_memory=True)
        self.running.start()

    def _write(self, finished: profile, name: str) -> None:
        self.folder.mkdir(exist_ok=True)
        memory, trace = self.folder / f"memory-{name}.pickle", self.folder / f"trace-{name}.json.gz"
        if self.cuda:
            torch.cuda.memory._dump_snapshot(str(memory))
            self.written(memory, FOLDER)
        self._end()
        finished.export_chrome_trace(str(trace))
        self.written(trace, FOLDER)
        log.info("%s of rank 0 are in %s", name.replace("-", " "), trace)

    def _end(self) -> None:
        if self.running:
            self.running.stop()
            if self.cuda:
                torch.cuda.memory._record_memory_history(enabled=None)
        self.running = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
