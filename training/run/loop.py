"""A whole training run: resume, learn, evaluate, checkpoint, export, sample."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from gristmill.samples.order import Order, batch_number
from gristmill.storage import files
from gristmill.storage.damage import RecordedFile
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.batches import Batches, batches, check_digests
from gristmill.training.checkpoint.commit import Progress, Saver, run_fingerprint
from gristmill.training.checkpoint.keeping import Keeper
from gristmill.training.checkpoint.store import CheckpointStore
from gristmill.training.config import CHECKPOINTS, DOCUMENT_LOSSES, RunConfig, TrainingConfig
from gristmill.training.decoder import flops_per_token, parameter_count
from gristmill.training.evaluate.heldout import TOKENS, Evaluator, write_document_losses
from gristmill.training.evaluate.sample import sample_text
from gristmill.training.hub.weights import export_model, load_model, set_initial_weights
from gristmill.training.layout.limits import few_micro_batches, lacking
from gristmill.training.objectives import objective
from gristmill.training.run import heartbeat
from gristmill.training.run.record import Profile, Record, TakenStep
from gristmill.training.run.recovery import REPORT, Recovery
from gristmill.training.run.tracking import TrackedNames, Tracker
from gristmill.training.step.guard import Event, rate_after_rollbacks, windows_left_out
from gristmill.training.step.monitor import Machine, Monitor
from gristmill.training.step.optimizer import learning_rate
from gristmill.training.step.state import StepPlan, TrainState, empty_state, train_step
from gristmill.training.world import (
    World,
    all_gather,
    compute_dtype,
    micro_batch,
    processes,
    whole_weights,
    world_of,
)

log = logging.getLogger(__name__)

RESULT = "result.json"
LEADER_ALONE = timedelta(days=1)  # longest work of only rank 0; if it dies, the others stop waiting at once


class Stopped(Exception):
    """The run was asked to stop, and stopped after saving a checkpoint: run it again to resume."""


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


COLLECT_EVERY = 50  # steps, as torchtitan's `gc_freq`
COLLECT_ALL_EVERY = 1000  # steps; with only young generations, cycles that live longer would accumulate in a long run


@contextmanager
def collected_by_steps() -> Iterator[Callable[[int], None]]:
    """Turn Python's garbage collector off, and yield a function to call with the number of each step. So all ranks
    collect at the same steps, and do not wait for each other at different times."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()

    def after(step: int) -> None:
        if step % COLLECT_ALL_EVERY == 0:
            gc.collect()
        elif step % COLLECT_EVERY == 0:
            gc.collect(1)

    try:
        yield after
    finally:
        if was_on:
            gc.enable()


def train(run: RunConfig) -> dict:
    """Train as run says, from its newest checkpoint if it has one, and return what result.json holds.

    Every rank calls it: under torchrun, or as a single process in plain Python. Files below run.out: checkpoints/,
    metrics.jsonl, timing.jsonl, events.jsonl, document_losses.parquet if run.document_losses, model.safetensors and
    config.json, and result.json last of all. Running a finished run again trains nothing and writes the same result.

    Raises Stopped after SIGTERM, when the step in progress and a checkpoint are done; ValueError when the
    data is inconsistent or the checkpoint is of another run; FloatingPointError when training diverged and the guard's
    budget is spent: guard.json has the likely cause.
    """
    (run.out / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    joined = partial(world_of, parallel=run.training.parallel)
    with stop_requests() as stop, Keeper(run) as keeper, processes(run.timeout_seconds, joined) as world:
        for place, sentence in (*lacking(run.model, run.training), *few_micro_batches(run.training, world.size)):
            raise ValueError(f"{'.'.join(place)} {sentence}")
        if world.leads:
            for name in (RESULT, REPORT):
                (run.out / name).unlink(missing_ok=True)
        return _train(run, world, stop, keeper)


def _train(run: RunConfig, world: World, stop: threading.Event, keeper: Keeper) -> dict:
    training = run.training
    manifest = load_training_manifest(run.data)
    check_digests(manifest, run.own_disks)
    names = run_fingerprint(run, manifest, world.device)
    _agree(run, names)
    plan, transform = training.batches(run.model.seq_len), objective(training, run.model.seq_len, manifest)
    order = Order(
        manifest,
        seq_len=run.model.seq_len,
        batch=plan,
        seed=training.data_seed,
        transform=transform,
        offset=run.start.offset if run.start else 0,
    )
    order.check_epochs(training.steps)
    evaluator = Evaluator(run, manifest, world.readers)

    # `recovery.resume` sets the weights, or loads them
    state = empty_state(run.model, training, manifest.vocab_size, manifest.end_of_text, world)
    first_weights = partial(set_initial_weights, state.model, run, manifest, world)
    checkpoints = CheckpointStore(run, world, keeper)
    publish = checkpoints.publish if checkpoints.apart else None
    saver = Saver(checkpoints.folder, names, world, run.timeout_seconds, keeper.committed, publish)
    recovery = Recovery(
        run,
        order,
        state,
        first_weights,
        world,
        saver,
        checkpoints,
        evaluator.unigram_entropy,
        manifest.end_of_text,
    )
    progress, saved = recovery.resume()
    if saved and world.leads:
        log.info("%s %s", "resuming from" if saved.parent == checkpoints.folder else "beginning with", saved)
    few = training.batch <= (training.micro_batch if world.size == 1 else 1)
    if world.leads and few and training.parallel.model_ranks == 1:
        log.info("train/noise_scale needs several micro-batches per step; lower training.micro_batch to measure it")

    tracker = None
    if world.leads:
        step, shown = progress.step if saved else -1, TrackedNames.of(manifest, training)
        tracker = Tracker(run.out, step, run.tracking, progress.logs, shown)
    machine = Machine(run.model, manifest.vocab_size, world, compute_dtype(training.precision, world.device))
    learner = Learner(run, order, world, state, recovery.forced, stop)
    record = Record(progress, training, tracker, learner.monitor.names, machine, state.clock)
    try:
        with (
            saver,
            Profile(run.out, training.profile_steps, world, record.artifact) as profile,
            batches(order, training, world.readers, progress.step, windows_left_out(progress.events)) as coming,
            collected_by_steps() as collect,
        ):
            progress, saved = _learn(coming, learner, record, recovery, evaluator, saver, saved, profile, collect)
    finally:
        if tracker:
            tracker.close()

    if run.document_losses:
        tokens = min(TOKENS, micro_batch(training, 1) * run.model.seq_len)  # for any number of ranks
        write_document_losses(run.out / DOCUMENT_LOSSES, state.model, manifest, world, tokens)
    weights = whole_weights(state.model, world)
    waiting = dist.new_group(backend="gloo", timeout=LEADER_ALONE)  # joined while no rank is late
    result: dict = {}
    if world.leads:
        assert saved is not None, "the last step has saved a checkpoint"
        result = _result(run, weights, progress, saved)
    return _from_leader(result, waiting)


def _agree(run: RunConfig, names: dict[str, str]) -> None:
    """Raise ValueError where a rank has other settings or data than rank 0, as a machine that joined with those of an
    earlier start has; a collective."""
    places = {"init_from": None, "eval_tasks": None}
    settings = run.training.model_copy(update=places).model_dump_json()
    every = all_gather({**names, "settings": settings})
    if others := [rank for rank, each in enumerate(every) if each != every[0]]:
        name = next(name for name, value in every[0].items() if every[others[0]].get(name) != value)
        raise ValueError(
            f"rank {others[0]} has a different {name} than rank 0: end the run, and start it on all machines "
            "again, with the same recipe and release"
        )


class Due(NamedTuple):
    """What comes after a step."""

    last: bool
    evaluation: bool
    checkpoint: bool
    reading: bool  # of the figures of the steps so far, for which the host waits


def due(step: int, training: TrainingConfig, log_every: int, peak: int | None = None) -> Due:
    """What is due after `step` steps. `peak`: the last one before the learning rate falls, if it must be saved."""
    last = step == training.steps
    evaluation = last or step % training.eval_every == 0
    checkpoint = last or step % training.checkpoint_every == 0 or step == peak
    return Due(last, evaluation, checkpoint, evaluation or checkpoint or step % log_every == 0)


class Learner:
    """Takes the steps of a run, one at a time; nothing of them is read here.

    `order`: of its batches. `forced`: the verdict on the update of a step that was taken before, see Recovery.
    `stop`: that this rank was asked to stop.
    """

    def __init__(
        self,
        run: RunConfig,
        order: Order,
        world: World,
        state: TrainState,
        forced: Callable[[int], int | None],
        stop: threading.Event,
    ) -> None:
        self.training, self.world, self.state, self.forced, self.stop = run.training, world, state, forced, stop
        self.monitor = Monitor(state.model, world)
        self.plan, self.begins_phase, self.seq_len = order.plan, order.begins_phase, run.model.seq_len

    def rate(self, step: int, batch: int, events: Sequence[Event]) -> float:
        """The learning rate of a step, counted from 1, on a batch, counted from 0: from the schedule after the
        tokens of earlier batches, times factors for the size of this batch and for the rollbacks among `events`."""
        training = self.training
        done, warmup, total = (
            self.plan.first(steps) * self.seq_len for steps in (step, training.warmup_steps, training.steps)
        )
        factor = training.batch_rate_factor(self.plan.multiple(batch))
        factor *= rate_after_rollbacks(events, step, training.guard.rate_factor)
        return learning_rate(done, total, training, warmup) * factor

    def compiles(self, step: int, batch: int) -> bool:
        """Whether a step, counted from 1, may take much longer than others: it has the first batch, counted from 0, of
        another size, or is measured or profiled."""
        training = self.training
        first, last = training.profile_steps or (0, 0)
        resized = batch > 0 and self.plan.size(batch) != self.plan.size(batch - 1)
        return resized or step % training.monitor_every == 0 or first <= step <= last

    def take(
        self, step: int, batch: int, events: Sequence[Event], inputs: torch.Tensor, targets: torch.Tensor
    ) -> TakenStep:
        """Learn from a batch, counted from 0, in a step, counted from 1, of a run with so many decisions; a
        collective."""
        probes = step % self.training.monitor_every == 0
        updates = self.monitor.updates if probes else None
        plan = StepPlan(self.rate(step, batch, events), self.forced(step), self.stop.is_set(), updates)
        values = train_step(self.state, inputs, targets, plan, self.training, self.world)
        probe = self.monitor.probe(inputs[:1]) if probes else None
        return TakenStep(plan.learning_rate, self.plan.size(batch), values, probe)


def _learn(
    coming: Batches,
    learner: Learner,
    record: Record,
    recovery: Recovery,
    evaluator: Evaluator,
    saver: Saver,
    saved: Path | None,
    profile: Profile,
    collect: Callable[[int], None],
) -> tuple[Progress, Path | None]:
    """Take the steps that come after the record's progress; returns the progress of the last, and its checkpoint.

    `saved`: the newest checkpoint so far. Raises Stopped when a rank was asked to stop.
    """
    training, state = learner.training, learner.state
    log_every = training.log_every or (10 if learner.world.device.type == "cuda" else 1)
    step, left_out = record.progress.step, windows_left_out(record.progress.events)
    first = True  # nothing was read of the first steps, which compile
    saves = training.checkpoint_every < training.steps  # a run without checkpoints on the way has none at the peak
    peak = training.last_peak_step(learner.seq_len) if saves else None
    for inputs, targets in coming:
        if learner.begins_phase(step, left_out):
            state.outliers.begin()
        batch, step = batch_number(step, left_out), step + 1
        heartbeat.beat("start" if first or learner.compiles(step, batch) else "step", step)
        with profile.step(step):
            record.add(learner.take(step, batch, record.progress.events, inputs, targets))
        collect(step)
        after = due(step, training, log_every, peak)
        if not after.reading:
            continue
        record.read(coming.waited)
        first, progress = False, record.progress
        if spike := recovery.judge(progress, record.steps):
            heartbeat.beat("rollback")
            index = spike.seen - progress.step - 1
            progress = recovery.go_back(progress, spike, record.pending[index].rate, record.steps[index].grad_norm)
            step, left_out = progress.step, windows_left_out(progress.events)
            record.go_back(progress)
            coming.go_to(step, left_out)
            first = True
            continue
        heldout: dict[str, float] = {}
        if after.evaluation:
            heartbeat.beat("evaluation")
            with record.timed("evaluation"):
                heldout = evaluator(state.model, after.last)
        stops = record.write(heldout)
        if stops or after.last or (after.checkpoint and not recovery.suspicious(progress)):
            record.sync()
            heartbeat.beat("checkpoint")
            with record.timed("checkpoint"):
                saved = saver.save(state.tensors, progress)
        saver.check()
        if stops and not after.last:
            heartbeat.beat("end")
            saver.wait()
            raise Stopped(f"stopped after step {progress.step} of {training.steps}; saved in {saved}")
        record.go_on()
    heartbeat.beat("end")
    return record.progress, saved


def _result(run: RunConfig, weights: dict, progress: Progress, saved: Path) -> dict:
    """Export, sample from what was exported, and write result.json."""
    training, manifest = run.training, load_training_manifest(run.data)
    path = export_model(weights, run.model, manifest.vocab_size, run.out, training.objective != "masked")
    text = None
    if training.sample_tokens and training.objective != "masked":
        text = sample_text(
            load_model(run.out),
            Path(RecordedFile(str(manifest.tokenizer.path), manifest.tokenizer.digest).local()),
            training.sample_tokens,
            temperature=training.sample_temperature,
            top_k=training.sample_top_k,
            seed=training.seed,
        )
    # of all that was read, whether it is a target or not
    read = progress.tokens if training.objective == "causal" else training.tokens_read(progress.step, run.model.seq_len)
    result = {
        "steps": progress.step,
        "tokens": progress.tokens,
        "parameters": parameter_count(run.model, manifest.vocab_size),
        "flops": flops_per_token(run.model, manifest.vocab_size) * read,
        **dict(sorted(progress.last.items())),
        "checkpoint": os.path.relpath(saved, run.out),
        "weights": path.name,
        "sample": text,
    }
    files.write_bytes(str(run.out / RESULT), json.dumps(result, indent=1, ensure_ascii=False).encode() + b"\n")
    return result


def _from_leader(value: dict, waiting: dist.ProcessGroup) -> dict:
    """Rank 0's value on every rank. Returns when all have it, so that no rank leaves while another still reads.

    The others wait while rank 0 exports, reads that again and samples from it, as long as the group `waiting` does.
    """
    box = [value]
    dist.broadcast_object_list(box, src=0, group=waiting)
    dist.barrier(group=waiting)
    return box[0]
