"""Spikes of the loss, and what to do about them: decisions that depend only on figures. Imports no torch.

Decisions are written in the order in which they were taken: events.jsonl, which is enough to take them again.

    losses ──see──▶ Spike ──decide──▶ rollback (go back, leave a window of batches out) or stop (the budget is spent)

Updates with an outlying loss or norm are skipped before they do harm (`gristmill.training.step.state`); this is for
what got through, and for more of them in a row than a few bad batches give. A run that learns nothing is stopped at
once: to go back would not help.
"""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from gristmill.storage import files
from gristmill.storage.damage import DamagedFileError
from gristmill.training.config import TrainingConfig

EVENTS = "events.jsonl"
REASON_NOT_FINITE, REASON_OUTLIER = "not finite", "outlier"  # why an update is skipped


class Figures(BaseModel):
    """What a decision rests on. None: it has no such figure, or the figure was not finite, which JSON cannot hold.

    Losses in nats per token; `loss_before`: the level before a spike; `data_excess`: see `cause`; `unigram_loss`: that
    of the tokens' frequencies.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    loss_before: float | None = None
    loss: float | None = None
    data_excess: float | None = None
    unigram_loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    loss_scale: float | None = None


def finite_figures(**figures: float | None) -> Figures:
    """Figures without those that are not finite."""
    return Figures(**{name: value for name, value in figures.items() if value is not None and math.isfinite(value)})


NO_FIGURES = Figures()


class SpikeDocument(BaseModel):
    """A document of a spike: `shard`: its token shard, as `gristmill explain lineage --shard` takes it; `token`: the
    number there of its first token; `tokens`: how many of its tokens the spike has; `loss`: nats per token of the
    weights before the spike; None: not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    shard: str
    token: int
    tokens: int
    loss: float | None


class Event(BaseModel):
    """`skip`: the update of `step` was left out. `rollback`: after `step` the run went back to the weights after step
    `to`, and leaves out the batches `window` (first, end). `stop`: after `step` the run gave up. Steps count from 1,
    batches from 0."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: int
    what: Literal["skip", "rollback", "stop"]
    why: str
    began: int | None = None  # step that the spike began with
    to: int | None = None
    window: tuple[int, int] | None = None
    samples: tuple[int, int] | None = None  # (first, end) of the spike
    sources: dict[str, int] = {}  # how many of them each source has
    documents: tuple[SpikeDocument, ...] = ()  # those that add most to the loss of the weights before the spike
    figures: Figures = NO_FIGURES


def read_events(path: Path) -> list[Event]:
    """The events of a file; none when there is no file. A last line that a crash cut off is left out."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(True)
    try:
        return [Event.model_validate_json(line) for line in lines if line.endswith("\n")]
    except ValidationError:
        raise DamagedFileError(
            f"{path} is not what was written; remove {path.parent} to train again, or restore the file"
        ) from None


def write_events(path: Path, events: Sequence[Event]) -> None:
    """Replace the file by these events; when it returns, they outlast a crash of the machine."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w") as file:
        file.writelines(event.model_dump_json(exclude_defaults=True) + "\n" for event in events)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    files.sync(path.parent)


def event_line(event: Event) -> str:
    """An event in one line, for a person."""
    line = f"step {event.step}: {event.what}, {event.why}"
    if event.to is None or event.window is None:
        return line
    return (
        f"{line}; steps {event.to + 1} to {event.step} are left after, batches {event.window[0]} to "
        f"{event.window[1] - 1} left out"
    )


def windows_left_out(events: Sequence[Event]) -> list[tuple[int, int]]:
    """The batches (first, end) that are left out."""
    return [event.window for event in events if event.window]


def rate_after_rollbacks(events: Sequence[Event], step: int, factor: float) -> float:
    """What the learning rate of a step (from 1) is multiplied with: `factor` for each rollback to a step before it.

    It follows from the events and the step, so that a resumed and a replayed run have the same rates.
    """
    return factor ** sum(event.to is not None and event.to < step for event in events)


def skipped_updates(events: Sequence[Event]) -> dict[int, str]:
    """Why updates are left out, by step, in what remains of a run after its rollbacks."""
    reasons: dict[int, str] = {}
    for event in events:
        if event.what == "skip":
            reasons[event.step] = event.why
        elif event.to is not None:
            reasons = {step: why for step, why in reasons.items() if step <= event.to}
    return reasons


BEFORE = 32  # losses that a spike is measured against
NEWEST = 8  # losses that make a spike: their median counts, so that a single bad batch does not make one
DEVIATIONS = 7  # as OLMo 2 counts spikes (arXiv 2501.00656): seven standard deviations from a rolling average
MIN_RISE = 0.1  # of the loss; smaller ones are left alone
# Share of the steps after the warm-up at which a loss must be below the unigram entropy. Of small runs (400 steps, 38
# thousand parameters, 14 seeds) those with learning rates from 0.001 to 0.08 were last above it at shares up to 0.23,
# those with 0.64 at shares from 0.49 on.
LEARNED_BY = 1 / 3
GROWTH = 2.0  # of the largest attention logit before a spike, from which on the structure is to blame


@dataclass(frozen=True)
class Spike:
    """Losses of the steps `began` to `seen` (steps are counted from 1), in nats per token."""

    began: int
    seen: int
    level: float | None  # before; None: there were too few losses
    loss: float | None  # median of the newest; None: not finite


def _height(loss: float | None) -> float:
    """A loss as it is compared: one that is not finite is above all others."""
    return math.inf if loss is None else loss


def _loss(height: float) -> float | None:
    return height if math.isfinite(height) else None


class Losses:
    """The newest losses of a run, oldest first: `kept` is what a checkpoint holds of them. None: not finite."""

    def __init__(self, kept: list[float | None]) -> None:
        self.kept = kept

    def begin(self) -> None:
        """Forget all losses: those that follow are of other data, and may be higher for that reason."""
        self.kept.clear()

    def threshold(self) -> tuple[float | None, float]:
        """(level of the losses before the newest, what the newest must exceed to be a spike).

        Level and noise are medians, so that spikes do not hide later spikes; the noise is the median of differences
        of successive losses, so that a falling loss does not count as noise. Before there are as many losses as a
        spike has, only a loss that is not a number can be a spike.
        """
        before = [_height(loss) for loss in self.kept[:-NEWEST]]
        if len(before) < NEWEST:
            return None, sys.float_info.max
        level = median(before)
        changes = (abs(b - a) if math.isfinite(a + b) else math.inf for a, b in pairwise(before))
        noise = 1.4826 / math.sqrt(2) * median(changes)
        return _loss(level), level + max(DEVIATIONS * noise, MIN_RISE * level)

    def see(self, step: int, loss: float) -> Spike | None:
        """Take in the loss of a step, which may be NaN or infinite."""
        self.kept.append(_loss(loss))
        del self.kept[: -BEFORE - NEWEST]
        level, most = self.threshold()
        newest = [_height(loss) for loss in self.kept[-NEWEST:]]
        if median(newest) <= most or len(newest) < NEWEST:
            return None
        first = next(i for i, value in enumerate(newest) if value > most)
        return Spike(step - len(newest) + 1 + first, step, level, _loss(median(newest)))

    def skipped(self, events: Sequence[Event]) -> Spike | None:
        """The spike that the NEWEST newest decisions make, if they skipped steps in a row as outliers: one bad batch is
        left out and forgotten, so many are a stretch of bad data."""
        newest = events[-NEWEST:]
        steps = [event.step for event in newest if event.what == "skip" and event.why == REASON_OUTLIER]
        if len(steps) < NEWEST or steps != list(range(steps[0], steps[0] + NEWEST)):
            return None
        loss = median(_height(event.figures.loss) for event in newest)
        return Spike(steps[0], steps[-1], _loss(self.middle()), _loss(loss))

    def middle(self) -> float:
        """The median of the newest BEFORE losses; infinite if it is not finite."""
        return median(map(_height, self.kept[-BEFORE:]))

    def below(self, limit: float) -> bool:
        """Whether the newest BEFORE losses are, by their median; also with fewer of them."""
        return len(self.kept) < BEFORE or self.middle() < limit

    def suspicious(self) -> bool:
        """Whether the newest loss would make a spike if it stayed: no moment for a checkpoint."""
        return bool(self.kept) and _height(self.kept[-1]) > self.threshold()[1]


def learned_by(training: TrainingConfig) -> int:
    """The step from which on a loss must be below the unigram entropy of the training tokens.

    A model whose learning rate is too high learns no more than how frequent each token is, and its loss is flat: it
    makes no spike. A healthy one stays at that loss for a while, too: in short runs for most of their steps, so those
    are not judged before guard.window steps, as updates are not.

    After the last step, so never, with an objective whose targets are not distributed as the tokens are: sentinels are
    frequent, and the entropy of the tokens says nothing of them. Targets of prefix_lm are tokens after a random place.
    Nor with masked, whose targets are few: a healthy loss stays at that entropy for longer.
    """
    if training.objective not in ("causal", "prefix_lm"):
        return training.steps + 1
    share = math.ceil(LEARNED_BY * (training.steps - training.warmup_steps))
    return training.warmup_steps + max(training.guard.window, share)


def skip_steps(training: TrainingConfig, began: int = 0, windows: Sequence[tuple[int, int]] = ()) -> int:
    """How many batches to leave out for a spike that began with the batch `began`.

    PaLM left out 200 to 500 (arXiv 2204.02311, section 5.1); in runs of fewer than 4,000 steps a twentieth of them,
    but no fewer than make a spike. For a spike right after a window that was left out (first, end), twice that window.
    """
    longest = max((end - first for first, end in windows if 0 <= began - end < NEWEST), default=0)
    return 2 * longest or training.guard.rollback_skip_steps or max(NEWEST, min(200, training.steps // 20))


def window(began: int, seen: int, restored: int, skip: int) -> tuple[int, int]:
    """The batches (first, end) to leave out for a spike of the batches `began` to `seen`, after going back to where
    batch `restored` is the next one.

    Half of the window is before the spike, as PaLM left out batches "before and during" it. Batches between `restored`
    and the window are learned again, with the same outcome.
    """
    first = max(restored, began - skip // 2)
    return first, max(seen + 1, first + skip)


def cause(spike: Spike, data_excess: float, attention_logits: list[float]) -> str:
    """What a spike most likely comes from: "data window", "structure" or "learning rate".

    data_excess: how much higher the loss of the restored weights is on the batches of the spike than on those before,
    in nats per token. Weights that have not learned from the batches know nothing of the learning rate, so more than
    half of the rise means the data. attention_logits: the largest of several probes before the spike, oldest first.
    When they grew all the time, to GROWTH times the first, the structure is to blame (arXiv 2309.14322 and 2302.05442
    saw that before divergence, and mend it with qk-norm). What remains is the learning rate.
    """
    if (level := spike.level) is not None:
        rise = max(_height(spike.loss) - level, MIN_RISE * level)  # the latter if only the norms were outliers
        if data_excess > min(rise, level) / 2:
            return "data window"
    grew = len(attention_logits) >= 4 and all(a < b for a, b in pairwise(attention_logits))
    if grew and attention_logits[-1] >= GROWTH * attention_logits[0]:
        return "structure"
    return "learning rate"


REMEDIES = {
    "data window": "check the sources and samples in {report}",
    "structure": "set qk_norm, or lower learning_rate",
    "learning rate": "lower learning_rate, or lengthen warmup_steps",
}


def likeliest(events: list[Event]) -> str:
    """The cause that most spikes had, the newest of equally frequent ones; the cause of the stop, if it had no
    spike."""
    if events[-1].what == "stop" and events[-1].began is None:
        return events[-1].why
    causes = [event.why for event in reversed(events) if event.what != "skip"]
    return Counter(causes).most_common(1)[0][0]


def described(event: Event) -> str:
    """What the figures of a spike were, to go before "from step ... on"."""
    figures = event.figures
    # before the first NEWEST losses there is no level to rise from, and only losses that are not finite make a spike
    if figures.loss is None or figures.loss_before is None:
        return "loss or gradient was not finite"
    if figures.loss < (1 + MIN_RISE) * figures.loss_before:
        return f"{NEWEST} gradient norms in a row were outliers, at last {_shown(figures.grad_norm, '.3g')},"
    return f"the loss rose from {figures.loss_before:.3g} to {figures.loss:.3g}"


def _shown(figure: float | None, form: str) -> str:
    return "not finite" if figure is None else format(figure, form)


def sentence(stop: Event, events: list[Event], steps: int, report: str) -> str:
    """Why the run was stopped, for the error: one sentence."""
    why = likeliest(events)
    remedy, figures = REMEDIES[why].format(report=report), stop.figures
    if stop.began is None:
        return (
            f"after step {stop.step} of {steps}, the loss is {_shown(figures.loss, '.3f')}, not lower than the "
            f"{_shown(figures.unigram_loss, '.3f')} of a unigram model; the likely cause is the {why} "
            f"({_shown(figures.learning_rate, '.3g')}): {remedy}; see the figures in {report}"
        )
    rollbacks = sum(event.what == "rollback" for event in events)
    return (
        f"{described(stop)} from step {stop.began} of {steps}, after {rollbacks} rollbacks (max_rollbacks); "
        f"the likely cause is the {why} (learning rate {_shown(figures.learning_rate, '.3g')}, gradient norm "
        f"{_shown(figures.grad_norm, '.3g')}): {remedy}; see the figures in {report}"
    )
