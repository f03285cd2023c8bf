"""A `SampleSource` as a data loader of torchtitan 0.3, in whose environment this is imported.

    config.dataloader = SampleLoader.Config(manifest=".../mixture.json", batch=256, seed=0)

`batch` is torchtitan's `training.global_batch_size`, which is divided by ranks and by `training.local_batch_size`.
Rank r of n reads the samples r, r + n, ... of each batch, `local_batch_size` at a time, so a step of torchtitan's has
those of a step of Gristmill's. Its state is the number of times that it was asked, the same on all ranks. Documents
are not kept apart: torchtitan does so by positions that begin anew with each, which Gristmill's training does not
read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader

from gristmill.samples.source import SampleSource
from gristmill.samples.torch_batches import RankBatches, collate


class SampleLoader(BaseDataLoader):
    """Iterates over ({"input": int64 (rows, seq_len)}, labels)."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        manifest: str = ""
        batch: int = 1
        seed: int = 0
        verify: bool = True

    def __init__(
        self, config: Config, *, dp_world_size: int, dp_rank: int, seq_len: int, local_batch_size: int, **_: Any
    ) -> None:
        """Raises ValueError where a rank's share of a batch is not so many local batches."""
        if config.batch % (dp_world_size * local_batch_size):
            raise ValueError(
                f"a batch of {config.batch} samples cannot be divided among {dp_world_size} ranks with local batches "
                f"of {local_batch_size}; set training.local_batch_size to a divisor of a rank's samples"
            )
        self.source = SampleSource(config.manifest, seq_len, config.batch, config.seed, verify=config.verify)
        self.rank, self.world, self.rows, self.asked = dp_rank, dp_world_size, local_batch_size, 0

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        each = self.source.batch // self.world // self.rows  # local batches of a step
        for own in RankBatches(self.source, self.rank, self.world, first=self.asked // each):
            for local in range(self.asked % each, each):
                batch = collate(self.source.__getitems__(own[local * self.rows : (local + 1) * self.rows]))
                self.asked += 1
                yield {"input": batch["input_ids"]}, batch["labels"]

    def state_dict(self) -> dict[str, Any]:
        return {"asked": self.asked, "fingerprint": self.source.fingerprint}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raises ValueError for the state of other samples."""
        if not state_dict:
            return
        if state_dict["fingerprint"] != self.source.fingerprint:
            raise ValueError(
                f"the checkpoint has read samples of another source than {self.source.path}: give the manifest, batch, "
                "sequence length and seed that it was trained with"
            )
        self.asked = state_dict["asked"]
