"""How fast this machine trains a model, by a few steps of it.

    python -m gristmill.training.run.rate RATE.json

RATE.json holds a RateRequest (`gristmill.storage.checked_json`). The answer is a line of JSON, a MeasuredRate. A
process of its own, so that its threads are those of a run, and the memory of a GPU is free again when it ends.
"""

from __future__ import annotations

import math
import sys
import time

import torch

from gristmill.storage import checked_json
from gristmill.training.decoder import flops_per_token
from gristmill.training.hardware import MeasuredRate, RateRequest
from gristmill.training.step.monitor import measured_flops
from gristmill.training.step.state import StepPlan, begun_state, figures, train_step
from gristmill.training.world import compute_dtype, processes

STEPS = 5  # timed, behind one that is not: it compiles, and takes memory


def measured(request: RateRequest) -> MeasuredRate:
    """Train on drawn tokens, a micro-batch a step, in one process.

    Where that would take more than `most_seconds` by the rate of products of matrices alone, nothing is trained and
    that rate, which training does not reach, is the answer, as `bound`.
    """
    training = request.training.model_copy(update={"batch": request.training.micro_batch, "batch_ramp": ()})
    tokens = training.batch * request.model.seq_len
    flops = float(flops_per_token(request.model, request.vocab_size)) * tokens
    with processes(60) as world:
        products = measured_flops(world.device, compute_dtype(training.precision, world.device))
        name = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "one CPU thread"
        if (1 + STEPS) * flops / products > request.most_seconds:
            return MeasuredRate(flops=products, bound=True, device=name)
        state = begun_state(request.model, training, request.vocab_size, 0, world)
        shape = (training.batch, request.model.seq_len)
        rows = torch.randint(request.vocab_size, shape, generator=torch.Generator().manual_seed(0)).to(world.device)
        best = math.inf
        for _ in range(1 + STEPS):
            began = time.perf_counter()
            figures(train_step(state, rows, rows, StepPlan(1e-4), training, world)[None])  # waits for the device
            best = min(best, time.perf_counter() - began)
    return MeasuredRate(flops=flops / best, bound=False, device=name)


if __name__ == "__main__":
    print(measured(RateRequest.model_validate(checked_json.read(sys.argv[1]))).model_dump_json())
