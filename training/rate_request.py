"""What measures how fast a machine trains, and its answer. Imports neither torch nor numpy."""

from __future__ import annotations

from pydantic import Field

from gristmill.training.config import ModelConfig, Settings, TrainingConfig


class RateRequest(Settings):
    """What `gristmill.training.run.rate` trains a few steps of."""

    model: ModelConfig
    training: TrainingConfig
    vocab_size: int = Field(gt=0)
    most_seconds: float = Field(default=30, gt=0, description="that measuring may take")


class MeasuredRate(Settings):
    """What it answers: floating-point operations a second of training in one process on `device`; `bound`: at most."""

    flops: float = Field(gt=0)
    bound: bool
    device: str
