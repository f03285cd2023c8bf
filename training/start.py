"""A run that begins with a checkpoint of another run, its trunk: weights, optimizer and the count of steps. Separate:
settings of training use it, and `gristmill.training.trunk`, which compares two trainings, uses these.

    trunk    step 1 ........ step 1,200 ........ step 3,000
                             │
    branch                   step 1,201 ........ step 1,500

The steps of a branch are counted from the first step of the trunk. The schedule of the branch gives the learning rate
of a step, as if all of its steps had this schedule. What a step reads depends on whether the trunk read the same data:

- the same (`same_data`): the branch reads on after the last sample of the trunk. With equal settings its steps are, bit
  by bit, those that the trunk would have taken;
- another mixture, another seed of the order or another length of samples: the branch reads it from its first sample.
  Figures that are measured by the data begin again: the losses and norms that the guard compares with, its rollbacks,
  and the batches that it left out.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from gristmill.samples.batch_plan import BatchPlan
from gristmill.storage.settings import CheckedSettings


class Start(CheckedSettings):
    """The checkpoint that a run begins with, while it has none of its own."""

    address: str = Field(description="the checkpoint's folder, whole, with its COMMIT")
    digest: str = Field(description="xxh3-128 of the COMMIT as it was when the run was planned")
    step: int = Field(gt=0, description="steps of the trunk up to the checkpoint")
    offset: int = Field(description="number of the sample that reads the first window of the run's mixture")
    same_data: bool = Field(description="whether the samples before the checkpoint were those of the run's mixture")

    @property
    def trunk(self) -> str:
        """The label of the trunk's model, whose folder the checkpoint is in."""
        return self.address.split("/")[-3]

    def folder(self, out: Path) -> Path:
        """The path by which the run of a folder reads it: where it is, or a copy of what is at a remote address."""
        name = self.address.rpartition("/")[2]
        return out / "trunk" / name if "://" in self.address else Path(self.address)


def offset_of(plan: BatchPlan, step: int, samples: int) -> int:
    """`Start.offset` of a branch with the batches `plan`, at a step before which the trunk read so many samples of the
    branch's mixture."""
    return plan.first(step) - samples
