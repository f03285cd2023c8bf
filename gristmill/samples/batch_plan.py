"""Samples in each batch of a run whose batches grow. Separate: settings of training use it without numpy."""

from __future__ import annotations

import bisect
from collections.abc import Sequence


class BatchPlan:
    """Batches, counted from 0, that grow by stages; their samples follow each other without a gap.

    `batch`: samples of the first ones; `stages`: (tokens, times), both rising: batches have `times * batch` samples
    from the first one on ahead of which so many target tokens were read, `seq_len` a sample. So a batch's samples
    follow from its number alone, for any number of ranks.
    """

    def __init__(self, batch: int, seq_len: int, stages: Sequence[tuple[int, int]] = ()) -> None:
        self.numbers, self.samples, self.sizes, self.times = [0], [0], [batch], [1]  # at the first batch of each stage
        for tokens, times in stages:
            missing = -(-tokens // seq_len) - self.samples[-1]
            count = max(0, -(-missing // self.sizes[-1]))
            self.numbers.append(self.numbers[-1] + count)
            self.samples.append(self.samples[-1] + count * self.sizes[-1])
            self.sizes.append(times * batch)
            self.times.append(times)

    def _stage(self, number: int) -> int:
        return bisect.bisect_right(self.numbers, number) - 1

    def size(self, number: int) -> int:
        """Samples of a batch."""
        return self.sizes[self._stage(number)]

    def multiple(self, number: int) -> int:
        """How many times as large as the first batch a batch is."""
        return self.times[self._stage(number)]

    def first(self, number: int) -> int:
        """The first sample of a batch: how many samples the batches before it have."""
        stage = self._stage(number)
        return self.samples[stage] + (number - self.numbers[stage]) * self.sizes[stage]

    def number_of(self, sample: int) -> int:
        """The batch of a sample."""
        stage = bisect.bisect_right(self.samples, sample) - 1
        return self.numbers[stage] + (sample - self.samples[stage]) // self.sizes[stage]
