"""The setting of how processes divide a model. Imports neither torch nor numpy."""

from __future__ import annotations

from pydantic import Field

from gristmill.storage.settings import CheckedSettings


class Parallel(CheckedSettings):
    """How the processes of a run divide a model and its batches. Their number is the product of replicas, shard,
    tensor, pipeline and context."""

    replicas: int = Field(
        default=1,
        gt=0,
        description="Copies of the model, each sharded over its share of the processes. More copies need "
        "less communication between machines and more memory. With one copy per machine, "
        "weights are gathered only within a machine.",
    )
    shard: int | None = Field(default=None, gt=0, description="Processes that shard a copy. None: all that remain.")
    tensor: int = Field(default=1, gt=0, description="Processes that divide each matrix, and the products with it.")
    pipeline: int = Field(default=1, gt=0, description="Pipeline stages: processes that each hold consecutive blocks.")
    interleave: int = Field(
        default=1,
        gt=0,
        description="Pipeline stages per process (interleaved 1F1B): less waiting, more communication.",
        exclude_if=lambda stages: stages == 1,  # newer than the keys of models
    )
    context: int = Field(default=1, gt=0, description="Processes that divide the tokens of each sequence.")

    @property
    def model_ranks(self) -> int:
        """Processes that read the same sequences."""
        return self.tensor * self.pipeline * self.context

    def shards(self, processes: int) -> int:
        """Processes that a copy's weights are sharded over, of so many in all. Raises ValueError where the settings do
        not divide these."""
        values = self.model_dump(exclude={"interleave"})
        degrees = {name: value for name, value in values.items() if value not in (None, 1)}
        product = self.replicas * self.model_ranks * (self.shard or 1)
        if processes % product or (self.shard and processes != product):
            settings = ", ".join(f"training.parallel.{name} is {value}" for name, value in degrees.items())
            fits = "make" if self.shard else "divide"
            raise ValueError(
                f"{settings}: together {product}, which do not {fits} {processes} processes; change them, or "
                "GRISTMILL_TRAINING_PROCESSES"
            )
        return self.shard or processes // product
