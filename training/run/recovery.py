"""Carries out decisions of the guard: goes back to a checkpoint, leaves batches out, or ends the run with a report."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import torch.distributed as dist

from gristmill.samples.order import Order, batch_number
from gristmill.storage import files
from gristmill.training.checkpoint.commit import Progress, Saver
from gristmill.training.checkpoint.store import CheckpointStore
from gristmill.training.config import RunConfig
from gristmill.training.evaluate.batch_losses import BatchLosses, batch_losses
from gristmill.training.start import Start
from gristmill.training.step import guard
from gristmill.training.step.guard import (
    EVENTS,
    REASON_NOT_FINITE,
    REASON_OUTLIER,
    Event,
    Losses,
    Spike,
    SpikeDocument,
    finite_figures,
    read_events,
    skipped_updates,
    windows_left_out,
    write_events,
)
from gristmill.training.step.state import APPLIED, NOT_FINITE, OUTLIER, StepFigures, TrainState
from gristmill.training.world import World, reshard

log = logging.getLogger(__name__)

REPORT = "guard.json"
REASONS = {NOT_FINITE: REASON_NOT_FINITE, OUTLIER: REASON_OUTLIER}
SCALING = "training.loss_scaling"
EVALUATED = ("heldout", "survivors", "evaluation", "unigram", "tasks")  # metrics of an evaluation begin so
CHECKED = 8  # batches of a spike that the restored weights are tried on
DOCUMENTS = 32  # of a spike that are named


class Recovery:
    """Recovers a run. Every rank has one, and all of them take the same decisions from the same figures.

    `first_weights`: gives the model those that the run begins with, in place; a collective. `end_of_text`: the id of
    that token.
    """

    def __init__(
        self,
        run: RunConfig,
        order: Order,
        state: TrainState,
        first_weights: Callable[[], None],
        world: World,
        saver: Saver,
        checkpoints: CheckpointStore,
        unigram_entropy: float,
        end_of_text: int,
    ) -> None:
        self.run, self.names = run, saver.names
        self.order, self.state, self.first_weights, self.world = order, state, first_weights, world
        self.saver, self.checkpoints, self.unigram_entropy = saver, checkpoints, unigram_entropy
        self.end_of_text = end_of_text
        self.first = run.start.folder(run.out) if run.start else run.resume_from  # what the run begins with
        self.replayed = skipped_updates(self._replay()) if run.replay else None

    def _replay(self) -> list[Event]:
        assert self.run.replay is not None, "asked for by those who have one"
        replayed_events = read_events(self.run.replay)
        if any(event.what == "stop" for event in replayed_events):
            raise ValueError(f"{self.run.replay}: that run was stopped by its guard, so it has no end to reproduce")
        return replayed_events

    def forced(self, step: int) -> int | None:
        """The verdict on the update of a step (from 1) that a replayed run has taken; None: it must be judged."""
        if self.replayed is None:
            return None
        return next((code for code, why in REASONS.items() if why == self.replayed.get(step)), APPLIED)

    def resume(self) -> tuple[Progress, Path | None]:
        """Load the newest checkpoint that no rollback has discarded; without one the weights are the first. A damaged
        one is set aside, and the one before it is loaded.

        The file of events is brought to what that checkpoint knows, and to the rollbacks after it: those hold, even if
        the run was killed while it went back.
        """
        return self.checkpoints.without_damaged(self._resume)

    def _resume(self) -> tuple[Progress, Path | None]:
        self.checkpoints.begin()
        path = self.run.out / EVENTS
        box = [[event.model_dump(mode="json") for event in read_events(path)] if self.world.leads else []]
        dist.broadcast_object_list(box, src=0)
        known_events = [Event.model_validate(event) for event in box[0]]
        saved = self.checkpoints.newest() or self.first
        seen = len(self._progress(saved).events) if saved else 0
        back = max((i for i, event in enumerate(known_events) if i >= seen and event.to is not None), default=None)
        if back is None:
            progress, saved = self._load(saved)
        else:
            to = known_events[back].to
            assert to is not None, "chosen for it"
            self.checkpoints.remove_after(to)
            progress, saved = self._load(self._newest(to))
            # metrics of steps that are repeated after a damaged checkpoint are reported again
            again = range(progress.step + 1, to + 1)
            progress.events = [
                event for event in known_events[: back + 1] if event.to is not None or event.step not in again
            ]
        if self.run.replay:
            progress.events = self._replay()
        self._write(progress.events)
        return progress, saved

    def judge(self, progress: Progress, steps: Sequence[StepFigures]) -> Spike | None:
        """Look at the steps after the progress, note those without an update; a spike, if they end in one.

        Raises FloatingPointError when the loss is what the tokens' frequencies alone would give.
        """
        losses, decided = Losses(progress.losses), len(progress.events)
        judges = self.run.training.guard.enabled and self.replayed is None
        left_out = windows_left_out(progress.events)
        spike, learned = None, True
        for number, step in enumerate(steps, progress.step + 1):
            if self.order.begins_phase(number - 1, left_out):
                losses.begin()
            if self.replayed is not None:
                if step.verdict != self.forced(number):
                    raise FloatingPointError(
                        f"step {number} is not finite (loss {step.loss}, gradient norm {step.grad_norm}), "
                        f"but {self.run.replay} has no such event; check the machine, or train without replay"
                    )
            elif step.verdict and judges:
                progress.events.append(_skip(number, step))
            loss = step.judged_loss
            if loss is not None:
                spike = losses.see(number, loss)
            elif judges:
                spike = losses.skipped(progress.events)
            if not judges:
                spike = None
                continue
            learned = number < guard.learned_by(self.run.training) or losses.below(self.unigram_entropy)
            if spike or not learned:
                break
        if len(progress.events) > decided:
            self._write(progress.events)
            for event in progress.events[decided:]:
                figures = event.figures.model_dump(exclude_none=True)
                self._say("step %d: update skipped, %s: %s", event.step, event.why, figures)
        if not spike and not learned:
            self._stop_unlearned(progress, losses, number, step)
        return spike

    def suspicious(self, progress: Progress) -> bool:
        """Whether the newest loss is too high for a checkpoint to go back to."""
        return self.run.training.guard.enabled and Losses(progress.losses).suspicious()

    def go_back(self, progress: Progress, spike: Spike, rate: float, norm: float) -> Progress:
        """Load the newest checkpoint before a spike; a collective. `rate`, `norm`: learning rate and gradient norm of
        the last step of the spike.

        Lost are the steps since that checkpoint. Raises FloatingPointError when max_rollbacks are spent.
        """
        self.saver.wait()
        training = self.run.training
        left_out = windows_left_out(progress.events)
        skip = guard.skip_steps(training, batch_number(spike.began - 1, left_out), left_out)
        restored, path = self.checkpoints.without_damaged(lambda: self._load(self._before(spike)))
        batches = [batch_number(step - 1, left_out) for step in range(spike.began, spike.seen + 1)]
        earlier = [batch_number(step - 1, left_out) for step in range(max(1, spike.began - CHECKED), spike.began)]
        of_spike = self._losses(batches[:CHECKED])
        level = self._losses(earlier).loss if earlier else of_spike.loss
        excess = _or_infinite(of_spike.loss) - _or_infinite(level)
        spent = sum(event.what == "rollback" for event in progress.events) >= training.guard.max_rollbacks
        samples = self.order.samples(batches[0], batches[-1] + 1)
        first = batch_number(restored.step, left_out)
        event = Event(
            step=spike.seen,
            what="stop" if spent else "rollback",
            why=guard.cause(spike, excess, restored.attention_logits + progress.attention_logits),
            began=spike.began,
            to=None if spent else restored.step,
            window=None if spent else guard.window(batches[0], batches[-1], first, skip),
            samples=(samples.start, samples.stop),
            sources=self._sources(samples),
            documents=self._documents(of_spike, level),
            figures=finite_figures(
                loss_before=spike.level, loss=spike.loss, data_excess=excess, learning_rate=rate, grad_norm=norm
            ),
        )
        decisions = [*progress.events, event]
        self._write(decisions)
        if spent:
            self._stop(event, decisions)
        assert event.window, "a rollback has one"
        self._say(
            "step %d: %s from step %d on (%s); back to %s, without batches %d to %d",
            event.step,
            guard.described(event),
            spike.began,
            event.why,
            path or "the first weights",
            event.window[0],
            event.window[1] - 1,
        )
        self.checkpoints.remove_after(restored.step)
        restored.events = decisions
        return restored

    def _stop_unlearned(self, progress: Progress, losses: Losses, number: int, step: StepFigures) -> None:
        rate = self.run.training.rates.matrices
        figures = finite_figures(
            loss=losses.middle(), unigram_loss=self.unigram_entropy, learning_rate=rate, grad_norm=step.grad_norm
        )
        event = Event(step=number, what="stop", why="learning rate", figures=figures)
        self._write(decisions := [*progress.events, event])
        self._stop(event, decisions)

    def _stop(self, event: Event, decisions: list[Event]) -> None:
        path = self.run.out / REPORT
        sentence = guard.sentence(event, decisions, self.run.training.steps, str(path))
        if self.world.leads:
            report = {
                "error": sentence,
                "cause": guard.likeliest(decisions),
                "events": [event.model_dump(mode="json", exclude_defaults=True) for event in decisions],
            }
            files.write_bytes(str(path), json.dumps(report, indent=1).encode() + b"\n")
        raise FloatingPointError(sentence)

    def _before(self, spike: Spike) -> Path | None:
        """The checkpoint to go back to: with half of what is left out after it, if there is one."""
        last = spike.began - 1
        return self._newest(last - guard.skip_steps(self.run.training) // 2) or self._newest(last)

    def _newest(self, step: int) -> Path | None:
        """The newest checkpoint of a step up to `step`."""
        newest, first = self.checkpoints.newest(step), self.first
        if newest is None and first and self._progress(first).step <= step:
            return first
        return newest

    def _progress(self, path: Path) -> Progress:
        """The progress of a checkpoint, as this run resumes it."""
        progress = self.checkpoints.commit_of(path).progress
        return taken_up(progress, self.run.start) if self.run.start and path == self.first else progress

    def _load(self, path: Path | None) -> tuple[Progress, Path | None]:
        reshard(self.state.model)
        if path and self.run.start and path == self.first:
            return self._load_start(path, self.run.start), path
        if path:
            return self.checkpoints.load(path, self.state.tensors, self.names), path
        self.first_weights()
        self.state.begin()
        return Progress(), None

    def _load_start(self, path: Path, start: Start) -> Progress:
        """Load a checkpoint of the trunk; figures that have another form there, or are of other data, begin again."""
        commit = self.checkpoints.commit_of(path)
        if self.checkpoints.digest_of(path) != start.digest:
            raise ValueError(
                f"{start.address} has changed since the run was planned; restore it, or run the recipe again"
            )
        theirs, ours = commit.fingerprint, self.names
        self.state.begin()
        begins = set()
        if theirs["training.precision"] != ours["training.precision"] or theirs.get(SCALING) != ours.get(SCALING):
            begins.add("loss_scale")
        if not start.same_data or theirs["training.guard"] != ours["training.guard"]:
            begins.add("guard")
        tensors = {name: each for name, each in self.state.tensors.items() if name.partition(".")[0] not in begins}
        return taken_up(self.checkpoints.load(path, tensors, theirs), start)

    def _losses(self, numbers: Sequence[int]) -> BatchLosses:
        """The losses of the current weights on batches; a collective."""
        losses = batch_losses(self.state.model, self.order, numbers, self.run.training, self.end_of_text, self.world)
        reshard(self.state.model)
        return losses

    def _documents(self, losses: BatchLosses, level: float) -> tuple[SpikeDocument, ...]:
        """The documents that add most to a rise above `level`, and whose own loss is nearer to the loss of the spike; a
        collective."""
        highest = losses.highest(level, DOCUMENTS)
        return tuple(
            SpikeDocument(
                source=each.source,
                shard="/".join(Path(each.shard).parts[-2:]),
                token=each.token,
                tokens=each.tokens,
                loss=each.loss if math.isfinite(each.loss) else None,
            )
            for each in highest
            if each.loss > (level + losses.loss) / 2
        )

    def _sources(self, samples: range) -> dict[str, int]:
        places = self.order.windows_of(samples)
        return dict(Counter(self.order.sources[source].name for source, _, _ in places).most_common())

    def _write(self, decisions: Sequence[Event]) -> None:
        if self.world.leads:
            write_events(self.run.out / EVENTS, decisions)

    def _say(self, message: str, *figures: object) -> None:
        if self.world.leads:
            log.warning(message, *figures)


def taken_up(progress: Progress, start: Start) -> Progress:
    """The progress of the trunk as the run takes it up. Its metrics of evaluations may be of other texts, and what is
    measured by the data begins again with other data."""
    measured = {name: value for name, value in progress.last.items() if name.partition("/")[0] not in EVALUATED}
    update: dict[str, object] = {"last": measured, "logs": {}}
    if not start.same_data:
        update |= {"last": {}, "losses": [], "attention_logits": [], "noise": [], "events": []}
    return progress.model_copy(update=update, deep=True)


def _or_infinite(loss: float) -> float:
    return loss if math.isfinite(loss) else math.inf


def _skip(number: int, step: StepFigures) -> Event:
    figures = finite_figures(loss=step.loss, grad_norm=step.grad_norm, loss_scale=step.scale)
    return Event(step=number, what="skip", why=REASONS[step.verdict], figures=figures)
