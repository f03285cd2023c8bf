"""A whole training run: resume, learn, evaluate, checkpoint, export, sample."""

from __future__ import annotations

import datetime
import json
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from storage import files
from storage.recorded_file import RecordedFile
from storage.text_tokens import read_tokenizer
from storage.training_manifest import load_training_manifest
from training.batches import batches
from training.checkpoint import Progress, run_fingerprint
from training.config import CHECKPOINTS, DOCUMENT_LOSSES, RunConfig, TrainingConfig
from training.data import check_digests
from training.document_losses import write_document_losses
from training.evaluate import heldout_loss, heldout_windows, token_counts, unigram_entropy, unigram_loss
from training.evaluation_tasks import read_tasks
from training.events import windows_left_out
from training.export import export_model, load_model
from training.initial_weights import load_initial_weights
from training.keeping import Keeper
from training.model import flops_per_token, parameter_count
from training.monitor import Machine, Monitor
from training.order import Order
from training.outliers import APPLIED, NOT_FINITE
from training.parallel import World, compute_dtype, processes, set_first_weights, whole_weights
from training.recovery import REPORT, Recovery
from training.sample import sample_text
from training.saving import Saver
from training.schedule import learning_rate
from training.step import StepFigures, StepPlan, figures, train_step
from training.task_scores import scored, task_scores
from training.tracking import Tracker
from training.train_state import train_state

log = logging.getLogger(__name__)

LINE_SECONDS = 60.0  # between two lines of the log
PROBES = 6  # of the monitor, of which the guard knows the largest attention logit
RESULT = "result.json"


class Stopped(Exception):
    """The run was asked to stop, and did after saving a checkpoint: run it again to go on."""


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """An event that SIGTERM sets. Outside of the main thread signals cannot be caught, and it stays unset."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = signal.signal(signal.SIGTERM, lambda *_: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGTERM, before)


def train(run: RunConfig) -> dict:
    """Train as run says, from its newest checkpoint if it has one, and return what result.json holds.

    Every rank calls it: under torchrun, or alone in plain Python. Files below run.out: checkpoints/,
    metrics.jsonl, timing.jsonl, events.jsonl, document_losses.parquet if run.document_losses, model.safetensors and
    config.json, and result.json last of all. Running a finished run again trains nothing and writes the same result.

    Raises Stopped after SIGTERM, when the step in progress and a checkpoint are done; ValueError when the
    data is inconsistent or the checkpoint is of another run; FloatingPointError when training diverged and the guard's
    budget is spent: guard.json has the likely cause.
    """
    (run.out / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    with stop_requests() as stop, Keeper(run) as keeper, processes(run.timeout_seconds) as world:
        if world.leads:
            for name in (RESULT, REPORT):
                (run.out / name).unlink(missing_ok=True)
        return _train(run, world, stop, keeper)


def _train(run: RunConfig, world: World, stop: threading.Event, keeper: Keeper) -> dict:
    training, root = run.training, run.out / CHECKPOINTS
    manifest = load_training_manifest(run.data)
    check_digests(manifest)
    names = run_fingerprint(run, manifest, world.device)
    order = Order(manifest, seq_len=run.model.seq_len, batch=training.batch, seed=training.data_seed)
    order.check_epochs(training.steps)
    windows = heldout_windows(manifest, run.model.seq_len, training.eval_tokens)
    counts = token_counts(manifest, world)
    tasks = read_tasks(Path(training.eval_tasks))[0] if training.eval_tasks else []
    recorded = RecordedFile(str(manifest.tokenizer.path), manifest.tokenizer.digest)
    tokenizer = read_tokenizer(recorded.read(), recorded.path) if tasks else None

    state = train_state(run.model, training, manifest, world)
    model = state.model

    def first_weights() -> None:
        if training.init_from:
            load_initial_weights(model, run, manifest, world)
        else:
            set_first_weights(model, training.seed, world)

    saver = Saver(root, names, world, run.timeout_seconds, keeper.committed)
    recovery = Recovery(run, order, state, first_weights, world, saver, keeper, unigram_entropy(manifest, counts))
    progress, saved = recovery.resume()
    if saved and world.leads:
        log.info("resuming from %s", saved)

    tracker = Tracker(run.out, progress.step if saved else -1, run.tracking, progress.logs) if world.leads else None
    every = training.log_every or (10 if world.device.type == "cuda" else 1)
    monitor = Monitor(model, world)
    machine = Machine(run.model, manifest.vocab_size, world, compute_dtype(training.precision, world.device))
    record = _Record(progress, training, run.model.seq_len, tracker, monitor.names, machine)
    try:
        with saver, batches(order, training, world, progress.step, windows_left_out(progress.events)) as coming:
            step = progress.step
            for inputs, targets in coming:
                rate = record.rate(step)
                step += 1
                probes = step % training.monitor_every == 0
                plan = StepPlan(rate, recovery.forced(step), stop.is_set(), monitor.updates if probes else None)
                values = train_step(state, inputs, targets, plan, training, world)
                record.add(rate, values, monitor.probe(inputs[:1]) if probes else None)
                finished = step == training.steps
                evaluates = finished or step % training.eval_every == 0
                keeps = finished or step % training.checkpoint_every == 0
                if not (evaluates or keeps or step % every == 0):
                    continue
                record.read(coming.waited)
                if spike := recovery.judge(progress, record.steps):
                    last = spike.seen - progress.step - 1
                    progress = recovery.go_back(
                        progress, spike, record.rate(spike.seen - 1), record.steps[last].grad_norm
                    )
                    step = progress.step
                    record.go_back(progress)
                    coming.go_to(step, windows_left_out(progress.events))
                    continue
                heldout = heldout_loss(model, windows, training.micro_batch, world) if evaluates else {}
                if evaluates and tokenizer:
                    heldout |= scored(task_scores(model, tasks, tokenizer, world))
                if finished:
                    heldout |= unigram_loss(counts, windows)
                stops = record.write(heldout)
                if stops or finished or (keeps and not recovery.suspicious(progress)):
                    if tracker:
                        progress.logs = tracker.checkpoint()
                    saved = saver.save(state.tensors, progress)
                saver.check()
                if stops and not finished:
                    saver.wait()
                    raise Stopped(f"stopped after step {progress.step} of {training.steps}; saved in {saved}")
                record.go_on()
    finally:
        lost = tracker.close() if tracker else 0

    if run.document_losses:
        write_document_losses(run.out / DOCUMENT_LOSSES, model, manifest, world)
    weights = whole_weights(model)
    result: dict = {}
    if world.leads:
        assert saved is not None, "the last step has saved a checkpoint"
        result = _result(run, weights, progress, saved, lost)
    return _from_leader(result)


class _Record:
    """The figures of steps, kept on the device until they are read for several steps at once."""

    def __init__(
        self,
        progress: Progress,
        training: TrainingConfig,
        seq_len: int,
        tracker: Tracker | None,
        inside: list[str],
        machine: Machine,
    ) -> None:
        self.progress, self.training, self.tracker = progress, training, tracker
        self.inside, self.machine = inside, machine
        self.step_tokens, self.total = training.batch * seq_len, training.token_budget(seq_len)
        self.report = _Report(training.steps)
        self.pending: list[tuple[float, torch.Tensor, torch.Tensor | None]] = []
        self.steps: list[StepFigures] = []
        self.began, self.waited = time.perf_counter(), 0.0
        self.timing: dict[str, float] = {}

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        return learning_rate((step + 1) * self.step_tokens, self.total, self.training)

    def add(self, rate: float, values: torch.Tensor, probe: torch.Tensor | None) -> None:
        """`values`: those of train_step; `probe`: that of the monitor, if it had one."""
        self.pending.append((rate, values, probe))

    def read(self, waited: float) -> None:
        """Wait for the steps since the last reading. `waited`: seconds of waiting for data since the beginning."""
        self.steps = figures(torch.stack([values for _, values, _ in self.pending]))
        seconds = time.perf_counter() - self.began
        speed = sum(step.tokens for step in self.steps) / seconds
        self.timing = {
            "train/tokens_per_second": speed,
            "train/data_wait_fraction": (waited - self.waited) / seconds,
        } | self.machine(speed)
        if rollbacks := sum(event.what == "rollback" for event in self.progress.events):
            self.timing["train/rollbacks"] = float(rollbacks)
        self.waited = waited

    def write(self, heldout: dict[str, float]) -> bool:
        """Write down the steps that were read, `heldout` with the last of them; whether the run shall stop.

        Raises FloatingPointError for a step that was not finite, unless the guard is on or the loss scale had room to
        fall.
        """
        progress, training = self.progress, self.training
        for number, ((rate, _, probe), step) in enumerate(zip(self.pending, self.steps, strict=True), 1):
            if step.verdict == NOT_FINITE and step.scale <= 1 and not training.guard.enabled:
                raise FloatingPointError(
                    f"loss {step.loss}, gradient norm {step.grad_norm} at step {progress.step + 1}: not finite; lower "
                    "learning_rate or look at the data of this step, then start again from the last checkpoint"
                )
            progress.step += 1
            progress.tokens += step.tokens
            progress.clipped += step.grad_norm > training.clip_norm
            progress.skipped += step.verdict != APPLIED
            metrics = {
                "train/loss": step.loss,
                "train/grad_norm": step.grad_norm,
                "train/learning_rate": rate,
                "train/tokens": float(progress.tokens),
                "train/clip_fraction": progress.clipped / progress.step,
            }
            if training.z_loss:
                metrics["train/z_loss"] = step.z_loss
            if step.scale != 1 or progress.skipped:
                metrics |= {"train/loss_scale": step.scale, "train/skipped_steps": float(progress.skipped)}
            if probe is not None:
                inside = dict(zip(self.inside, probe.tolist(), strict=True))
                metrics |= inside
                largest = max(value for name, value in inside.items() if "attention_logit" in name)
                if math.isfinite(largest):  # in fp16 a logit can overflow, and a checkpoint's JSON has no such number
                    progress.attention_logits = [*progress.attention_logits[1 - PROBES :], largest]
            if number == len(self.steps):
                metrics |= heldout
            metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}
            progress.last |= metrics
            if self.tracker:
                self.tracker.log(progress.step, metrics, self.timing)
                self.report(progress.step, metrics, self.timing["train/tokens_per_second"])
        self.pending.clear()
        return any(step.stop_requested for step in self.steps)

    def go_back(self, progress: Progress) -> None:
        """Forget the steps after those of `progress`."""
        self.progress = progress
        self.pending.clear()
        if self.tracker:
            self.tracker.go_back(progress.step)
        self.go_on()

    def go_on(self) -> None:
        """Called when the next step begins: what came before is no time of training."""
        self.began = time.perf_counter()


class _Report:
    """Lines for a person: at the first step, every twentieth of the run, each evaluation, and once a minute."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.began = self.said = time.monotonic()
        self.first = 0

    def __call__(self, step: int, metrics: dict[str, float], speed: float) -> None:
        now = time.monotonic()
        self.first = self.first or step
        evaluated = "heldout/loss" in metrics
        quiet = step > self.first and step % max(1, self.steps // 20) and now - self.said < LINE_SECONDS
        if quiet and not evaluated:
            return
        self.said = now
        line = f"step {step:{len(str(self.steps))}}/{self.steps}  loss {metrics.get('train/loss', math.nan):.4f}"
        line += f"  grad {metrics.get('train/grad_norm', math.nan):.3f}  lr {metrics['train/learning_rate']:.2e}"
        line += f"  {speed:,.0f} tokens/s"
        if self.first < step < self.steps:
            left = (self.steps - step) * (now - self.began) / (step - self.first + 1)
            line += f"  {datetime.timedelta(seconds=round(left))} left"
        if evaluated:
            line += f"  held-out {metrics['heldout/loss']:.4f}"
        log.info(line)


def _result(run: RunConfig, weights: dict, progress: Progress, saved: Path, lost: int) -> dict:
    """Export, sample from what was exported, and write result.json."""
    training, manifest = run.training, load_training_manifest(run.data)
    path = export_model(weights, run.model, manifest.vocab_size, run.out)
    text = None
    if training.sample_tokens:
        text = sample_text(
            load_model(run.out),
            Path(RecordedFile(str(manifest.tokenizer.path), manifest.tokenizer.digest).local()),
            training.sample_tokens,
            temperature=training.sample_temperature,
            top_k=training.sample_top_k,
            seed=training.seed,
        )
    result = {
        "steps": progress.step,
        "tokens": progress.tokens,
        "parameters": parameter_count(run.model, manifest.vocab_size),
        "flops": flops_per_token(run.model, manifest.vocab_size) * progress.tokens,
        **dict(sorted(progress.last.items())),
        "checkpoint": os.path.relpath(saved, run.out),
        "weights": path.name,
        "sample": text,
        "lost_metric_points": lost,
    }
    files.write_bytes(str(run.out / RESULT), json.dumps(result, indent=1, ensure_ascii=False).encode() + b"\n")
    return result


def _from_leader(value: dict) -> dict:
    """Rank 0's value on every rank. Returns when all have it, so that no rank leaves while another still reads."""
    box = [value]
    dist.broadcast_object_list(box, src=0)
    dist.barrier()
    return box[0]
