"""One rank of a run that something happens to on rank 1, `RUN.json KIND STEP ...`, under torchrun.

`nan`: it computes NaN at the steps; `error`: the step raises; `batch`: reading the batch raises.
"""

import os
import sys

import torch
import torch.distributed as dist

from gristmill.samples.order import Order
from gristmill.training.run import launch, loop

if __name__ == "__main__":
    torch.set_num_threads(1)
    path, kind, poisoned = sys.argv[1], sys.argv[2], set(map(int, sys.argv[3:]))
    taken, step, read = 0, loop.train_step, Order.batch

    def train_step(state, *rest):
        global taken
        taken += 1
        model = state.model
        sums = model.sums
        if taken in poisoned and dist.get_rank() == 1 and kind == "nan":
            model.sums = lambda *given: sums(*given) * float("nan")
        if taken in poisoned and dist.get_rank() == 1 and kind == "error":
            raise ValueError("planted in a step")
        try:
            return step(state, *rest)
        finally:
            model.sums = sums

    def batch(self, number, rank=0, world=1):
        if number + 1 in poisoned and rank == 1 and kind == "batch":
            raise ValueError("planted in a batch")
        return read(self, number, rank, world)

    loop.train_step, Order.batch = train_step, batch
    code = launch.main(path)
    sys.stdout.flush()
    os._exit(
        code
    )  # as gristmill.training.run.launch does: a rank that has finished may abort while the interpreter ends
