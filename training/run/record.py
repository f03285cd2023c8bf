"""The figures of steps: kept on the device, read for several steps at once, and written to the logs."""

from __future__ import annotations

import datetime
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import torch
from torch.profiler import ProfilerActivity, profile

from gristmill.training.checkpoint.commit import Progress
from gristmill.training.config import TrainingConfig
from gristmill.training.run.tracking import Tracker
from gristmill.training.step.clock import BLOCKS, PARTS, Clock, slowest_over_mean
from gristmill.training.step.monitor import Machine, NoiseScale
from gristmill.training.step.state import APPLIED, NOT_FINITE, StepFigures, figures
from gristmill.training.world import World

FOLDER = "profile"  # in the folder of the run, and among the artifacts of its MLflow run
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


log = logging.getLogger(__name__)

LINE_SECONDS = 60.0  # between two lines of the log
PROBES = 6  # of the monitor, of which the guard knows the largest attention logit


class TakenStep(NamedTuple):
    """A step that was taken. `batch`: its sequences; `values`: from train_step; `probe`: from the monitor, if it
    had one."""

    rate: float
    batch: int
    values: torch.Tensor
    probe: torch.Tensor | None


class Record:
    """The figures of steps, kept on the device until they are read for several steps at once."""

    def __init__(
        self,
        progress: Progress,
        training: TrainingConfig,
        tracker: Tracker | None,
        inside: list[str],
        machine: Machine,
        clock: Clock,
    ) -> None:
        self.progress, self.training, self.tracker = progress, training, tracker
        self.inside, self.machine, self.clock = inside, machine, clock
        self.report = ReportLines(training.steps)
        self.pending: list[TakenStep] = []
        self.steps: list[StepFigures] = []
        self.began, self.waited = time.perf_counter(), 0.0
        self.timing: dict[str, float] = {}
        self.after: dict[str, float] = {}  # what came after the steps that were read, with the last of them

    def add(self, step: TakenStep) -> None:
        self.pending.append(step)

    def read(self, waited: float) -> None:
        """Wait for the steps since the last reading; a collective. `waited`: seconds of waiting for data since the
        beginning."""
        self.steps = figures(torch.stack([step.values for step in self.pending]))
        seconds = time.perf_counter() - self.began
        speed = sum(step.tokens for step in self.steps) / seconds
        self.timing = {
            "train/tokens_per_second": speed,
            "train/data_wait_fraction": (waited - self.waited) / seconds,
        } | self.machine(sum(step.batch for step in self.pending) * self.machine.seq_len / seconds)
        self.timing |= self._times(waited - self.waited)
        if rollbacks := sum(event.what == "rollback" for event in self.progress.events):
            self.timing["train/rollbacks"] = float(rollbacks)
        self.waited = waited

    def _times(self, waited: float) -> dict[str, float]:
        """Seconds of the parts of a step on this rank, as means of the steps that were read."""
        clock_times = self.clock.read()
        times = {part: clock_times[part] for part in PARTS} | {"data": waited}
        mean = {f"time/{part}_seconds": seconds / len(self.steps) for part, seconds in times.items()}
        world = self.machine.world
        if world.size > 1:
            mean["time/slowest_rank_over_mean"] = slowest_over_mean(clock_times[BLOCKS], world)
        return mean

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """What the block does, `evaluation` or `checkpoint`, is written with the next line: its seconds."""
        began = time.perf_counter()
        yield
        self.after[f"time/{what}_seconds"] = time.perf_counter() - began

    def write(self, heldout: dict[str, float]) -> bool:
        """Write the steps that were read, `heldout` with the last of them. Returns whether the run must stop.

        Raises FloatingPointError for a step that was not finite, unless the guard is on or the loss scale had room to
        fall.
        """
        progress, training = self.progress, self.training
        for number, (pending_step, step) in enumerate(zip(self.pending, self.steps, strict=True), 1):
            if step.verdict == NOT_FINITE and step.scale <= 1 and not training.guard.enabled:
                raise FloatingPointError(
                    f"loss {step.loss}, gradient norm {step.grad_norm} at step {progress.step + 1}: not finite; lower "
                    "learning_rate or look at the data of this step, then start again from the last checkpoint"
                )
            progress.step += 1
            progress.tokens += step.tokens
            progress.clipped += training.clip_norm is not None and step.grad_norm > training.clip_norm
            progress.skipped += step.verdict != APPLIED
            metrics = self._metrics(pending_step, step)
            if pending_step.probe is not None:
                metrics |= self._probed(pending_step.probe)
            if number == len(self.steps):
                metrics |= heldout
            metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}
            progress.last |= metrics
            if self.tracker:
                timing = self.timing if number < len(self.steps) else self.timing | self.after
                self.tracker.log(progress.step, metrics, timing)
                self.report(progress.step, metrics, self.timing["train/tokens_per_second"])
        self.pending.clear()
        self.after.clear()
        return any(step.stop_requested for step in self.steps)

    def _metrics(self, pending_step: TakenStep, step: StepFigures) -> dict[str, float]:
        """The metrics of the newest step of the progress."""
        progress = self.progress
        metrics = {
            "train/loss": step.loss,
            "train/grad_norm": step.grad_norm,
            "train/learning_rate": pending_step.rate,
            "train/tokens": float(progress.tokens),
        }
        if self.training.clip_norm is not None:
            metrics["train/clip_fraction"] = progress.clipped / progress.step
        scale = NoiseScale(progress.noise)
        if step.verdict == APPLIED:
            scale.see(step.noise, step.signal)
            metrics["train/noise_scale"] = scale.value
        if self.training.batch_ramp:
            metrics["train/batch"] = float(pending_step.batch)
        if self.training.z_loss:
            metrics["train/z_loss"] = step.z_loss
        if step.scale != 1 or progress.skipped:
            metrics |= {"train/loss_scale": step.scale, "train/skipped_steps": float(progress.skipped)}
        return metrics

    def _probed(self, probe: torch.Tensor) -> dict[str, float]:
        """The metrics of a probe, of which the guard gets the largest attention logit."""
        inside = dict(zip(self.inside, probe.tolist(), strict=True))
        largest = max((value for name, value in inside.items() if "attention_logit" in name), default=math.nan)
        if math.isfinite(largest):  # in fp16 a logit can overflow, and a checkpoint's JSON has no such number
            self.progress.attention_logits = [*self.progress.attention_logits[1 - PROBES :], largest]
        return inside

    def artifact(self, path: Path, folder: str) -> None:
        """A file that has been written, for a folder of the artifacts."""
        if self.tracker:
            self.tracker.artifact(path, folder)

    def sync(self) -> None:
        """Called before a checkpoint: what was written must not be lost after it."""
        if self.tracker:
            self.progress.logs = self.tracker.checkpoint()

    def go_back(self, progress: Progress) -> None:
        """Forget the steps after `progress`."""
        self.progress = progress
        self.pending.clear()
        if self.tracker:
            self.tracker.go_back(progress.step)
        self.go_on()

    def go_on(self) -> None:
        """Called when the next step begins: the time before does not count as training."""
        self.began = time.perf_counter()


class ReportLines:
    """Lines for a person: at the first step, every twentieth of the run, each evaluation, and once a minute."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.began = self.last_line_time = time.monotonic()
        self.first = 0

    def __call__(self, step: int, metrics: dict[str, float], speed: float) -> None:
        now = time.monotonic()
        self.first = self.first or step
        evaluated = "heldout/loss" in metrics
        quiet = step > self.first and step % max(1, self.steps // 20) and now - self.last_line_time < LINE_SECONDS
        if quiet and not evaluated:
            return
        self.last_line_time = now
        line = f"step {step:{len(str(self.steps))}}/{self.steps}  loss {metrics.get('train/loss', math.nan):.4f}"
        line += f"  grad {metrics.get('train/grad_norm', math.nan):.3f}  lr {metrics['train/learning_rate']:.2e}"
        line += f"  {speed:,.0f} tokens/s"
        if self.first < step < self.steps:
            seconds_left = (self.steps - step) * (now - self.began) / (step - self.first + 1)
            line += f"  {datetime.timedelta(seconds=round(seconds_left))} left"
        if evaluated:
            line += f"  held-out {metrics['heldout/loss']:.4f}"
        log.info(line)
