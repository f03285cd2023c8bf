"""How fast this machine trains a model, and what a run takes besides its steps, by a short run of it.

    python -m gristmill.training.run.rate RATE.json

RATE.json holds a RateRequest (`gristmill.storage.checked_json`). The answer is a line of JSON, a MeasuredRate. A
process of its own, so that it has the threads of a run, and the memory of a GPU is free again when it ends.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from gristmill.storage import checked_json, files
from gristmill.storage.training_manifest import token_dtype
from gristmill.training.config import RunConfig, TrainingConfig
from gristmill.training.decoder import flops_per_token
from gristmill.training.hardware import MeasuredRate, RateRequest
from gristmill.training.run.loop import train
from gristmill.training.run.tracking import TIMING
from gristmill.training.step.monitor import measured_flops
from gristmill.training.world import compute_dtype, processes

# Steps of the run: those up to the first line of its figures are not timed, since they compile and take memory. A GPU's
# figures are read every ten steps.
MIN_STEPS, MAX_STEPS = 6, 60
EVALUATED = 32  # windows of text that is held out


def measured(request: RateRequest) -> MeasuredRate:
    """Train on drawn tokens, a micro-batch a step, in one process, as `gristmill.training.run.loop` does.

    If that would take more than `most_seconds` at the rate of matrix products only, nothing is trained, and that rate,
    which training does not reach, is returned as `bound`.
    """
    seq_len, vocabulary = request.model.seq_len, request.vocab_size
    tokens = request.training.micro_batch * seq_len
    flops = float(flops_per_token(request.model, vocabulary)) * tokens
    began = time.perf_counter()
    with processes(60) as world:
        torch.zeros(1, device=world.device)
        first_use = time.perf_counter() - began  # of the device
        products = measured_flops(world.device, compute_dtype(request.training.precision, world.device))
        name = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "one CPU thread"
    if MIN_STEPS * flops / products > request.most_seconds:
        return MeasuredRate(flops=products, bound=True, device=name)
    steps = max(MIN_STEPS, min(MAX_STEPS, int(request.most_seconds * products / flops / 2)))
    with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
        data, out = _drawn(Path(folder), vocabulary, tokens * (steps + 1), EVALUATED * seq_len), Path(folder) / "out"
        run = RunConfig(model=request.model, training=_short(request.training, steps), data=data, out=out)
        run = run.model_copy(update={"document_losses": True})
        began = time.perf_counter()
        train(run)
        whole = time.perf_counter() - began
        lines = [json.loads(line) for line in (out / TIMING).read_text().splitlines()]
    step = statistics.median(tokens / line["train/tokens_per_second"] for line in lines[1:] or lines)
    evaluation = lines[-1]["time/evaluation_seconds"]
    return MeasuredRate(
        flops=flops / step,
        bound=False,
        device=name,
        start_seconds=max(0.0, first_use + whole - steps * step - 2 * evaluation),  # the second is that by document
        evaluated=EVALUATED * seq_len / evaluation,
    )


def _short(training: TrainingConfig, steps: int) -> TrainingConfig:
    """The settings of a proxy run, which is only evaluated at its end."""
    own = {"batch": training.micro_batch, "batch_ramp": (), "steps": steps, "warmup_steps": 1, "sample_tokens": 0}
    own |= {"eval_every": steps, "checkpoint_every": steps, "monitor_every": steps + 1}
    return TrainingConfig.model_validate(training.model_dump() | own)


def _drawn(folder: Path, vocabulary: int, tokens: int, heldout: int) -> Path:
    """The training manifest of `tokens` drawn tokens, and of others in one document that is held out."""
    random = np.random.default_rng(0)

    def shard(name: str, count: int) -> dict:
        ids = random.integers(1, vocabulary, count)
        ids[-1] = 0  # the end of the text
        ids.astype(token_dtype(vocabulary)).tofile(folder / name)
        return {"path": name, "tokens": count, "digest": files.checksum(str(folder / name))}

    (folder / "none").write_bytes(b"")
    source = {"name": "drawn", "share": 1.0, "tokens": tokens, "epochs": 2.0, "shards": [shard("train.bin", tokens)]}
    manifest: dict[str, Any] = {
        "vocab_size": vocabulary,
        "dtype": token_dtype(vocabulary),
        "end_of_text": 0,
        "sources": [source],
    }
    manifest |= {"tokenizer": {"path": "none", "digest": files.checksum(str(folder / "none"))}}
    manifest |= {"token_bytes": [0, *[1] * (vocabulary - 1)]}
    texts = {"name": "drawn", "digest": "drawn", "shards": [shard("heldout.bin", heldout)]}
    checked_json.write(str(folder / "mixture.json"), manifest | {"heldout": [texts]})
    return folder / "mixture.json"


def main(path: str) -> None:
    imported = time.time() - psutil.Process().create_time()
    answer = measured(RateRequest.model_validate(checked_json.read(path)))
    print(answer.model_copy(update={"import_seconds": imported}).model_dump_json())


if __name__ == "__main__":
    main(sys.argv[1])
