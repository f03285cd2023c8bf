"""One rank of a run whose rank 1 computes NaN at the steps that are given: `RUN.json STEP ...`, under torchrun."""

import os
import sys

import torch
import torch.distributed as dist

from storage import checked_json
from training import loop
from training.config import RunConfig

if __name__ == "__main__":
    torch.set_num_threads(1)
    poisoned, taken, step = set(map(int, sys.argv[2:])), 0, loop.train_step

    def train_step(model, *rest):
        global taken
        taken += 1
        sums = model.sums
        if taken in poisoned and dist.get_rank() == 1:
            model.sums = lambda *given: sums(*given) * float("nan")
        try:
            return step(model, *rest)
        finally:
            model.sums = sums

    loop.train_step = train_step
    loop.train(RunConfig.model_validate(checked_json.read(sys.argv[1])))
    os._exit(0)  # as training.launch does: a rank that has finished may abort while the interpreter ends
