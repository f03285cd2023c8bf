"""DoReMi's proxy: a model whose loss is reweighted by domain while it trains (Xie et al. 2023, arXiv 2305.10429).

Each source of the mixture is a domain. Domains are sampled uniformly, regardless of the shares of the mixture. In each
step

1. the token losses of the proxy and of a finished reference model are compared on the whole batch: their difference,
   clipped at 0 for each token, averaged over a domain's tokens, is the domain's excess loss;
2. the weights of the domains follow it by exponentiated gradient (`updated`);
3. the proxy learns from the same batch: the sum of weight times loss over the sum of weights, for all tokens.

The mean of the weights over all steps is the result.

The excess loss is of the batch over all ranks and micro-batches, taken in a forward pass of its own before the
weights are used. So it does not depend on how the batch is cut. (The published code weighs all micro-batches but the
last by the weights of the step before.)

A rank is `python -m gristmill.training.doremi RUN.json`, RUN.json being a DoReMiRun (`gristmill.storage.checked_json`).
Nothing is kept on the way: a run that is killed is trained again.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from pydantic import Field, model_validator

from gristmill.samples.order import Order
from gristmill.storage import checked_json, files, parquet
from gristmill.storage.settings import CheckedSettings
from gristmill.storage.training_manifest import TrainingManifest, load_training_manifest
from gristmill.training.batches import batches, check_digests
from gristmill.training.config import TrainingConfig
from gristmill.training.decoder import Decoder
from gristmill.training.hub.weights import load_model
from gristmill.training.loss import IGNORE
from gristmill.training.model_config import ModelConfig
from gristmill.training.run import heartbeat
from gristmill.training.run.deathsig import PARENT, die_with_parent
from gristmill.training.step.optimizer import Optimizers, learning_rate, optimizers
from gristmill.training.world import World, begin_micro_batch, local, processes, sharded_model, world_of

WEIGHTS = "domain_weights.parquet"
RESULT = "result.json"

SCHEMA = pa.schema(
    [
        pa.field("step", pa.int64(), nullable=False),  # from 1
        pa.field("source", pa.string(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("excess", pa.float64(), nullable=False),  # nats per token
    ]
)


class DoReMiRun(CheckedSettings):
    """The settings of a run, as RUN.json holds them. `reference`: the folder with a model's config.json and
    model.safetensors."""

    model: ModelConfig
    training: TrainingConfig
    eta: float = Field(1.0, gt=0, description="step size of the exponentiated gradient; default: the paper's")
    smoothing: float = Field(
        1e-3, ge=0, lt=1, description="share of uniform weights; default: as in the paper's runs on the Pile"
    )
    data: Path
    reference: Path
    out: Path
    timeout_seconds: float = Field(600, gt=0, description="maximum time to wait for another rank (seconds)")

    @model_validator(mode="after")
    def _check_settings(self) -> DoReMiRun:
        if self.training.precision == "fp16" or self.training.z_loss:
            raise ValueError(
                f"training.precision is {self.training.precision} and z_loss {self.training.z_loss:g}; DoReMi has "
                "neither a loss scale nor a z-loss: give precision auto, bf16 or fp32, and z_loss 0"
            )
        if self.training.parallel.model_ranks > 1:
            raise ValueError(
                "training.parallel has tensor, pipeline or context above 1; DoReMi only supports replicas and shard: "
                "remove the others"
            )
        if self.training.objective != "causal":
            raise ValueError(
                f"training.objective is {self.training.objective}; DoReMi compares causal losses: give causal"
            )
        return self


def train(run: DoReMiRun) -> np.ndarray:
    """Train a proxy and return the mean weights of the manifest's sources, float64 (sources,); every rank calls it.

    Writes WEIGHTS and, last, RESULT below run.out. Raises ValueError for data or a reference that do not fit;
    FloatingPointError when training diverged.
    """
    run.out.mkdir(parents=True, exist_ok=True)
    with processes(run.timeout_seconds, partial(world_of, parallel=run.training.parallel)) as world:
        manifest = load_training_manifest(run.data)
        check_digests(manifest)
        weights, excess = trained(run, manifest, world)
        if not np.isfinite(weights).all() or not np.isfinite(excess).all():
            raise FloatingPointError("the proxy's loss is not finite; lower its learning rate")
        names = [source.name for source in manifest.sources]
        if world.leads:
            steps = np.repeat(np.arange(1, len(weights) + 1), len(names))
            columns = [steps, names * len(weights), weights.ravel(), excess.ravel()]
            parquet.write_table(str(run.out / WEIGHTS), pa.table(columns, schema=SCHEMA))
            mean = dict(zip(names, weights.mean(0).tolist(), strict=True))
            files.write_json(str(run.out / RESULT), {"weights": mean})
        return weights.mean(0)


def trained(run: DoReMiRun, manifest: TrainingManifest, world: World) -> tuple[np.ndarray, np.ndarray]:
    """Weights and excess losses of all steps, float64 (steps, sources)."""
    training = run.training
    order = Order(uniform(manifest), seq_len=run.model.seq_len, batch=training.batch, seed=training.data_seed)
    reference = load_model(run.reference).to(world.device)
    if reference.vocab_size != manifest.vocab_size:
        raise ValueError(
            f"{run.reference}: the reference has {reference.vocab_size} tokens, the data "
            f"{manifest.vocab_size}; train it on the same tokenizer"
        )
    model = sharded_model(run.model, training, manifest.vocab_size, manifest.end_of_text, world)
    optimizer = optimizers(model, training)
    count = len(manifest.sources)
    weights = torch.full((count,), 1 / count, dtype=torch.float64, device=world.device)
    excess = torch.zeros_like(weights)
    history = []
    with batches(order, training, world, 0) as coming:
        for step, (inputs, targets) in enumerate(coming):
            heartbeat.beat("step" if step else "start", step + 1)
            pieces = list(cut(order, step, training, world, inputs, targets))
            sums = excess_sums(model, reference, pieces, count, world)
            excess = excess_losses(sums, excess)
            weights = updated(weights, excess, run.eta, run.smoothing)
            rate = learning_rate(step + 1, training.steps, training)
            learn(model, optimizer, pieces, weights, sums[:, 1], rate, training, world)
            history.append(torch.stack([weights, excess]))
            if step % max(1, training.steps // 20) == 0 and world.leads:
                shown = "  ".join(
                    f"{source.name} {weight:.3f}" for source, weight in zip(manifest.sources, weights, strict=True)
                )
                logging.info("step %d/%d  %s", step + 1, training.steps, shown)
    return tuple(torch.stack(history).cpu().numpy().swapaxes(0, 1))


def uniform(manifest: TrainingManifest) -> TrainingManifest:
    """The manifest with equal shares of its sources, from beginning to end."""
    share = 1 / len(manifest.sources)
    sources = tuple(source.model_copy(update={"share": share}) for source in manifest.sources)
    return manifest.model_copy(update={"sources": sources, "phases": ()})


def updated(weights: torch.Tensor, excess: torch.Tensor, eta: float, smoothing: float) -> torch.Tensor:
    """The weights after a step: float64 (domains,), above 0, with the sum 1 (DoReMi, arXiv 2305.10429, algorithm 1).

    `weights`: those before it, likewise; `excess`: how much more each domain costs the proxy than the reference, in
    nats per token; `eta`: the step size; `smoothing`: the share of the uniform weights that is mixed in.
    """
    raised = torch.softmax(weights.log() + eta * excess, 0)
    return (1 - smoothing) * raised + smoothing / len(weights)


def excess_losses(sums: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """The excess loss of each domain in a batch, float64 (domains,).

    `sums`: (domains, 2), its summed token losses above the reference's, each clipped at 0, and its tokens, over the
    whole batch. A domain without a token there keeps its `last` one, as in the published code.
    """
    excess, tokens = sums.unbind(1)
    return torch.where(tokens > 0, excess / tokens.clamp(min=1), last)


Piece = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # inputs, targets (rows, seq_len); domains (rows,)


def cut(
    order: Order, step: int, training: TrainingConfig, world: World, inputs: torch.Tensor, targets: torch.Tensor
) -> Iterator[Piece]:
    """This rank's micro-batches. Rows that pad a batch are of the first domain, and have no targets."""
    drawn = [order.schedule.draw(sample)[0] for sample in order.samples(step)[world.rank :: world.size]]
    domains = torch.tensor(drawn + [0] * (len(inputs) - len(drawn)), device=world.device)
    micro = min(training.micro_batch, len(inputs))
    return zip(inputs.split(micro), targets.split(micro), domains.split(micro), strict=True)


@torch.no_grad()
def excess_sums(model: Decoder, reference: Decoder, pieces: list[Piece], domains: int, world: World) -> torch.Tensor:
    """For each domain, over all ranks: the sum of its tokens' clipped excess losses, and their number; float64
    (domains, 2)."""
    sums = torch.zeros((domains, 2), dtype=torch.float64, device=world.device)
    for x, y, sources in pieces:
        above = (model.losses(x, y) - reference.losses(x, y)).clamp(min=0)
        rows = torch.stack([above.double().sum(1), (y != IGNORE).double().sum(1)], 1)
        sums.index_add_(0, sources, rows)
    return world.sum(sums)


def learn(
    model: Decoder,
    optimizer: Optimizers,
    pieces: list[Piece],
    weights: torch.Tensor,
    tokens: torch.Tensor,
    rate: float,
    training: TrainingConfig,
    world: World,
) -> None:
    """Take one optimizer step. `tokens`: of each domain in the whole batch, over all ranks."""
    of_token = weights / (weights * tokens).sum()
    for index, (x, y, sources) in enumerate(pieces):
        begin_micro_batch(model, training, world, last=index == len(pieces) - 1)
        (model.losses(x, y).sum(1) * of_token[sources].float()).sum().backward()
    norms = torch._foreach_norm([local(parameter.grad) for parameter in model.parameters()])
    norm = world.sum(torch.stack(norms).double().square().sum() / world.replicas).sqrt()
    divisor = torch.ones_like(norm).float()
    if training.clip_norm is not None:
        divisor = (norm / training.clip_norm).clamp(min=1).float()
    optimizer.step(rate, divisor, torch.zeros((), dtype=torch.bool, device=world.device))


def main(run_json: str) -> None:
    """Run one rank."""
    if PARENT in os.environ:
        die_with_parent(int(os.environ[PARENT]))
    heartbeat.begin()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    train(DoReMiRun.model_validate(checked_json.read(run_json)))


if __name__ == "__main__":
    main(sys.argv[1])
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)  # as in gristmill.training.run.launch
