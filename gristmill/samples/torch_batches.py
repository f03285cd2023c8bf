"""A `SampleSource` for torch's DataLoader: which samples a rank reads, and tensors of them.

    loader = DataLoader(
        source, batch_sampler=RankBatches(source, rank, world, first=50), collate_fn=collate, num_workers=4
    )
    for batch in loader:    # from step 50 on
        batch["input_ids"], batch["labels"]

A source has a length and items, so it is a dataset of torch as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from gristmill.samples.source import Sample, SampleSource


class RankBatches:
    """The samples of each step that one of `world` ranks reads, from step `first` on: every `world`-th of a batch.

    A rank of more than a batch has rows reads nothing, which most trainers do not stand: raises ValueError for those.
    """

    def __init__(self, source: SampleSource, rank: int = 0, world: int = 1, first: int = 0) -> None:
        if not 0 <= rank < world or world > source.batch:
            raise ValueError(f"rank {rank} of {world} has no rows of batches of {source.batch}; use fewer ranks")
        self.source, self.rank, self.world, self.first = source, rank, world, first

    def __len__(self) -> int:
        return max(0, self.source.steps - self.first)

    def __iter__(self) -> Iterator[list[int]]:
        batch = self.source.batch
        for step in range(self.first, self.source.steps):
            yield list(range(step * batch, (step + 1) * batch))[self.rank :: self.world]


def collate(samples: Sequence[Sample]) -> dict[str, torch.Tensor]:
    """`input_ids`, `labels`: int64 (rows, seq_len); `document_lengths`: int64 (rows, most documents), filled with 0."""
    lengths = [torch.from_numpy(sample.document_lengths) for sample in samples]
    return {
        "input_ids": torch.stack([torch.from_numpy(sample.input_ids) for sample in samples]),
        "labels": torch.stack([torch.from_numpy(sample.labels) for sample in samples]),
        "document_lengths": torch.nn.utils.rnn.pad_sequence(lengths, batch_first=True),
    }
