"""Metrics that another trainer wrote, as points by step: JSON lines, or CSV with a head."""

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

# What trainers call the step and the loss in nats a token: nanoGPT and its kind, OLMo-core, torchtitan
# (components/metrics.py), Megatron-LM, Lightning, exports of W&B.
STEPS = ("step", "iteration", "iter", "global_step", "trainer/global_step", "_step", "Step")
LOSSES = ("train/loss", "loss", "train_loss", "train/CE loss", "loss_metrics/global_avg_loss", "lm loss", "lm-loss")
LOSS = "train/loss"


def read_points(path: Path, step: str | None = None, loss: str | None = None) -> Iterator[tuple[int, dict[str, float]]]:
    """(step, value by metric) of each line that has a number, in the file's order.

    `step`, `loss`: the columns of these; None: the first of STEPS and LOSSES that a line has. The loss becomes
    `train/loss`. Every other column of numbers keeps its name. Values that are no finite numbers are left out, as an
    empty cell is: trainers write some columns at some steps.

    Raises FileNotFoundError, and ValueError for a file without lines, for a line that is none or has no step, and where
    no line has a loss.
    """
    found, losses = 0, 0
    for number, line in enumerate(_lines(path), 1):
        steps = [name for name in ([step] if step else STEPS) if _number(line.get(name)) is not None]
        if not steps:
            known = f"no column {step}" if step else f"none of the columns {', '.join(STEPS)}"
            raise ValueError(
                f"{path}, line {number}: it has {known} with a number; name the column of the step by --step, of "
                f"{_some(line)}"
            )
        at = _number(line[steps[0]])
        assert at is not None, "found above"
        if at < 0 or at != int(at):
            raise ValueError(f"{path}, line {number}: {steps[0]} is {at:g}, which is no step; mend the line")
        of_loss = next((name for name in ([loss] if loss else LOSSES) if _number(line.get(name)) is not None), None)
        values = {
            LOSS if name == of_loss else name: value
            for name, given in line.items()
            if name != steps[0] and (value := _number(given)) is not None and (name == of_loss or name != LOSS)
        }
        found, losses = found + 1, losses + (LOSS in values)
        if values:
            yield int(at), values
    if not found:
        raise ValueError(f"{path} has no lines; give the trainer's metrics as JSON lines, or as CSV with a head")
    if not losses:
        named = f"a number in the column {loss}" if loss else f"one of the columns {', '.join(LOSSES)}"
        raise ValueError(f"{path}: no line has {named}; name the column of the loss, in nats a token, by --loss")


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as file:
        first = file.read(1)
    if first != b"{":
        with path.open(encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                given = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise ValueError(f"{path}, line {number}: no JSON ({error}); mend or remove the line") from None
            if not isinstance(given, dict):
                raise ValueError(f"{path}, line {number}: no JSON object; give one with a step and a loss")
            yield given


def _number(given: Any) -> float | None:
    """A finite number, as JSON or as text; None for anything else."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    try:
        value = float(given)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _some(line: Mapping[str, Any]) -> str:
    names = [str(name) for name in line][:12]
    return ", ".join(names) + (", ..." if len(line) > len(names) else "")
