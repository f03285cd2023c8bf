"""Check whether the best learning rate of a small model is also the best of larger ones, with short runs.

`sweep` trains each size at each rate. `coordinates` is a cheaper check: how far a few updates move the activations,
which must not depend on the size if the rate does not.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from pydantic import ValidationError

from gristmill.flows.experiments.options import Size, TransferOptions
from gristmill.samples.order import Order
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.config import GuardConfig, Parametrization, TrainingConfig
from gristmill.training.loss import inputs_and_targets
from gristmill.training.model_config import ModelConfig
from gristmill.training.step.optimizer import learning_rate
from gristmill.training.step.state import StepPlan, begun_state, figures, train_step
from gristmill.training.world import World, processes

log = logging.getLogger(__name__)

STANDARD = "standard"
VOCABULARY = 64  # of the synthetic tokens
FOLLOWERS = 4  # of each of them


HEAD_DIM = 16  # of all sizes


def _model(check: TransferOptions, size: Size) -> ModelConfig:
    heads = size.dim // HEAD_DIM
    return ModelConfig(block=check.block, dim=size.dim, layers=size.layers, heads=heads, seq_len=check.seq_len)


def _training(check: TransferOptions, rule: str, rate: float, seed: int) -> TrainingConfig:
    base = check.models[0]
    layers = {"base_layers": base.layers} if rule == "completep" else {}
    parametrization = None if rule == STANDARD else {"rule": rule, "base_dim": base.dim, **layers}
    return TrainingConfig(
        seed=seed,
        steps=check.steps,
        batch=check.batch,
        micro_batch=check.batch,
        learning_rate=rate,
        warmup_steps=check.steps // 10,
        parametrization=parametrization and Parametrization.model_validate(parametrization),
        optimizer=check.optimizer,
        guard=GuardConfig(enabled=False),
    )


def check_options(check: TransferOptions, rules: Sequence[str]) -> None:
    """Raise ValueError for an unknown block, optimizer or rule, and for a size that cannot be trained."""
    blocks, optimizers = (
        get_args(settings.model_fields[name].annotation)
        for settings, name in ((ModelConfig, "block"), (TrainingConfig, "optimizer"))
    )
    known = [("--block", check.block, blocks), ("--optimizer", check.optimizer, optimizers)]
    known += [("--rule", rule, (STANDARD, "mup", "completep")) for rule in rules]
    for flag, value, names in known:
        if value not in names:
            raise ValueError(f"{flag} {value} is unknown; choose from {', '.join(names)}")
    if (least := min(check.widths)) < HEAD_DIM:
        raise ValueError(f"--widths {least} is below {HEAD_DIM}, the width of a head; use larger widths")
    try:
        for size in check.models:
            _model(check, size)
        for rule in rules:
            _training(check, rule, check.rate, 0)
    except ValidationError as error:
        what = "; ".join(each["msg"].removeprefix("Value error, ") for each in error.errors())
        raise ValueError(f"these sizes cannot be trained: {what}") from None


@dataclass(frozen=True)
class Sweep:
    """Losses of a rule, float (sizes, rates): the mean over the seeds of the mean over the last tenth of the steps."""

    check: TransferOptions
    rule: str
    losses: np.ndarray

    @property
    def best(self) -> list[int]:
        """Which rate is best at each size."""
        return [int(row.argmin()) for row in self.losses]

    @property
    def moved(self) -> int:
        """The largest distance, in rates, of a best rate from the base's."""
        return max(abs(each - self.best[0]) for each in self.best)


def synthetic(count: int, length: int, seed: int) -> np.ndarray:
    """Sequences of a Markov chain whose tokens have FOLLOWERS followers, the first the likeliest; the second half of
    every other one repeats the first half. int64 (count, length)."""
    followers = np.random.default_rng(0).integers(VOCABULARY, size=(VOCABULARY, FOLLOWERS))
    drawn = np.random.default_rng([1, seed])
    rows = np.empty((count, length), np.int64)
    rows[:, 0] = drawn.integers(VOCABULARY, size=count)
    for position in range(1, length):
        which = drawn.choice(FOLLOWERS, size=count, p=[0.55, 0.25, 0.15, 0.05])
        rows[:, position] = followers[rows[:, position - 1], which]
    half = length // 2
    rows[::2, half : 2 * half] = rows[::2, :half]
    return rows


def _reader(check: TransferOptions) -> tuple[Callable[[int, int], np.ndarray], int]:
    """(a function from step and seed to sequences, the size of the vocabulary)."""
    if not check.mixture:
        return lambda step, seed: synthetic(check.batch, check.seq_len + 1, 1000 * seed + step), VOCABULARY
    manifest = load_training_manifest(Path(check.mixture))
    orders = {seed: Order(manifest, seq_len=check.seq_len, batch=check.batch, seed=seed) for seed in range(check.seeds)}
    return lambda step, seed: orders[seed].batch(step), manifest.vocab_size


def sweep(check: TransferOptions, rule: str) -> Sweep:
    """Train all sizes at all rates with a rule: standard, mup or completep. A run that diverges has the loss inf."""
    losses = np.zeros((len(check.models), len(check.learning_rates)))
    with processes(60) as world:
        for i, size in enumerate(check.models):
            for j, rate in enumerate(check.learning_rates):
                final_losses = [_final_loss(check, rule, size, rate, seed, world) for seed in range(check.seeds)]
                losses[i, j] = np.mean(final_losses)
                shown = " ".join(f"{loss:.3f}" for loss in final_losses)
                log.info("%s, width %d, %d layers, rate %.3g: %s", rule, size.dim, size.layers, rate, shown)
    return Sweep(check, rule, losses)


def _final_loss(check: TransferOptions, rule: str, size: Size, rate: float, seed: int, world: World) -> float:
    training, (read, vocabulary) = _training(check, rule, rate, seed), _reader(check)
    state = begun_state(_model(check, size), training, vocabulary, 0, world)
    losses = []
    for step in range(check.steps):
        inputs, targets = inputs_and_targets(torch.from_numpy(read(step, seed)), check.batch)
        plan = StepPlan(learning_rate(step + 1, check.steps, training))
        values = train_step(state, inputs.to(world.device), targets.to(world.device), plan, training, world)
        losses.append(figures(values[None])[0].loss)
    last = float(np.mean(losses[-max(1, check.steps // 10) :]))
    return last if math.isfinite(last) else math.inf


@dataclass(frozen=True)
class Coordinates:
    """How far a few updates move the residual stream after the first and the last block, and the logits, on one batch:
    root mean squares, float (sizes, 3), the mean over the seeds. `slopes`: of their logarithms over that of the size,
    the width where widths differ, else the layers; 0 is flat, 1 in proportion."""

    check: TransferOptions
    rule: str
    changes: np.ndarray

    @property
    def slopes(self) -> list[float]:
        by_width = len({size.dim for size in self.check.models}) > 1
        sizes = np.log([size.dim if by_width else size.layers for size in self.check.models])
        return [float(np.polyfit(sizes, np.log(column), 1)[0]) for column in self.changes.T]


PLACES = ("first block", "last block", "logits")


def coordinates(check: TransferOptions, rule: str, rate: float, updates: int = 4) -> Coordinates:
    """Compare the activations of all sizes before and after a few updates at one rate, without warm-up."""
    changes = np.zeros((len(check.models), len(PLACES)))
    with processes(60) as world:
        for i, size in enumerate(check.models):
            for seed in range(check.seeds):
                changes[i] += _changes(check, rule, size, rate, seed, updates, world) / check.seeds
    return Coordinates(check, rule, changes)


def _changes(
    check: TransferOptions, rule: str, size: Size, rate: float, seed: int, updates: int, world: World
) -> np.ndarray:
    training, (read, vocabulary) = _training(check, rule, rate, seed), _reader(check)
    state = begun_state(_model(check, size), training, vocabulary, 0, world)
    seen: list[torch.Tensor] = []
    for block in (state.model.layers[0], state.model.layers[-1]):
        block.register_forward_hook(lambda _module, _given, output: seen.append(output.detach().float()))
    rows = torch.from_numpy(read(0, seed))
    probe = inputs_and_targets(rows, check.batch)[0].to(world.device)

    def look() -> list[torch.Tensor]:
        seen.clear()
        with torch.no_grad():
            logits = state.model(probe)
        return [*seen, logits.float()]

    before = look()
    for step in range(updates):
        inputs, targets = inputs_and_targets(torch.from_numpy(read(step, seed)), check.batch)
        train_step(state, inputs.to(world.device), targets.to(world.device), StepPlan(rate), training, world)
    after = look()
    return np.array([(b - a).square().mean().sqrt().item() for a, b in zip(before, after, strict=True)])
