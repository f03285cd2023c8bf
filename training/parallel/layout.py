"""How the processes of a run divide a model: settings. Separate: needs neither torch nor numpy."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Parallel(BaseModel, extra="forbid", frozen=True):
    """How the processes of a run divide a model and its batches: their number is the product of all five."""

    replicas: int = Field(
        default=1,
        gt=0,
        description="copies of the model, each sharded over its share of the processes: less to gather between "
        "machines, more memory; as many as machines keep gathering within one",
    )
    shard: int | None = Field(
        default=None, gt=0, description="processes that a copy's weights are sharded over; None: all that are left"
    )
    tensor: int = Field(
        default=1, gt=0, description="processes that divide each matrix, and the products with it, among them"
    )
    pipeline: int = Field(default=1, gt=0, description="processes that hold the blocks one after the other")
    context: int = Field(default=1, gt=0, description="processes that divide the tokens of each sequence among them")

    @property
    def model_ranks(self) -> int:
        """Processes that read the same sequences."""
        return self.tensor * self.pipeline * self.context

    def shards(self, processes: int) -> int:
        """Processes that a copy's weights are sharded over, of so many in all. Raises ValueError where the settings do
        not divide these."""
        degrees = {name: value for name, value in self.model_dump().items() if value not in (None, 1)}
        product = self.replicas * self.model_ranks * (self.shard or 1)
        if processes % product or (self.shard and processes != product):
            settings = ", ".join(f"training.parallel.{name} is {value}" for name, value in degrees.items())
            fits = "make" if self.shard else "divide"
            raise ValueError(
                f"{settings}: together {product}, which do not {fits} {processes} processes; give others, or "
                "GRISTMILL_TRAINING_PROCESSES"
            )
        return self.shard or processes // product
