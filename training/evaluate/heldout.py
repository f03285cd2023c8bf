"""Loss on held-out text, of the model and of a unigram model that knows only how frequent each token is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from gristmill.samples.shards import Tokens
from gristmill.storage.damage import RecordedFile
from gristmill.storage.tokenizer_files import read_tokenizer
from gristmill.storage.training_manifest import TrainingManifest
from gristmill.training.config import RunConfig
from gristmill.training.evaluate.task_scores import scored, task_scores
from gristmill.training.evaluate.tasks import read_tasks
from gristmill.training.model.decoder import Decoder
from gristmill.training.model.loss import IGNORE, bits_per_byte
from gristmill.training.parallel.world import World, micro_batch

CHUNK = 1 << 22  # tokens counted at once
COUNTED = 1 << 26  # tokens of each source that are counted, at most


@dataclass(frozen=True)
class HeldoutWindows:
    """Fixed windows of held-out text: inputs and targets are int64 (windows, seq_len), targets padded with
    IGNORE.

    `names` are those of the sets, as `heldout/web`; `source[i]` is the one that window i came from. In memory: 16 bytes
    a token, eval_tokens of each set at most, or all of a set whose documents are fixed.
    """

    names: tuple[str, ...]
    source: np.ndarray
    inputs: np.ndarray
    targets: np.ndarray
    token_bytes: np.ndarray

    def of(self, kind: str) -> np.ndarray:
        """Which sets are of a kind, bool (sets,)."""
        return np.array([name.partition("/")[0] == kind for name in self.names])

    def sizes(self) -> np.ndarray:
        """UTF-8 bytes that each window's targets stand for, int64 (windows,)."""
        real = self.targets != IGNORE
        return (self.token_bytes[np.where(real, self.targets, 0)] * real).sum(1)


def heldout_windows(manifest: TrainingManifest, seq_len: int, eval_tokens: int) -> HeldoutWindows:
    """Cut each held-out set into windows whose targets do not overlap; the last one may be short.

    All of a set whose documents are fixed is read, so that the same text is evaluated whatever the tokenizer is.
    Another one with more than eval_tokens targets gives windows spread evenly over its length. Nothing depends on a
    seed or on the world size.
    """
    sources, inputs, targets = [], [], []
    for index, heldout in enumerate(manifest.heldout):
        tokens = Tokens(heldout.shards, manifest.vocab_size, manifest.dtype)
        total = -(-(len(tokens) - 1) // seq_len)
        if not total:
            raise ValueError(
                f"held-out source {heldout.name!r} has {len(tokens)} token, it needs two; hold out more of it"
            )
        window_count = total if heldout.digest else min(total, max(1, eval_tokens // seq_len))
        for turn in range(window_count):
            start = turn * total // window_count * seq_len
            ids = tokens.read(start, min(start + seq_len + 1, len(tokens)))
            padding = (0, seq_len + 1 - len(ids))
            inputs.append(np.pad(ids[:-1], padding))
            targets.append(np.pad(ids[1:], padding, constant_values=IGNORE))
            sources.append(index)
    return HeldoutWindows(
        names=tuple(f"{heldout.kind}/{heldout.name}" for heldout in manifest.heldout),
        source=np.array(sources),
        inputs=np.array(inputs),
        targets=np.array(targets),
        token_bytes=np.array(manifest.token_bytes, dtype=np.int64),
    )


@torch.no_grad()
def heldout_loss(model: Decoder, windows: HeldoutWindows, micro_batch: int, world: World) -> dict[str, float]:
    """Metrics of a model: loss in nats per target token of the held-out documents, and bits per byte of these and of
    the survivors among them, overall and per source, and of each set of texts that the recipe names; a collective.

    Ranks take turns at micro-batches of windows, all with the same number of forward passes; sums are
    float64.
    """
    model.eval()
    sizes = windows.sizes()
    sums = np.zeros((len(windows.names), 3))  # nats, tokens, bytes
    passes = -(-len(windows.source) // (world.size * micro_batch))
    for turn in range(passes):
        first = (turn * world.size + world.rank) * micro_batch
        mine = np.arange(first, first + micro_batch)
        real = mine < len(windows.source)
        rows = np.where(real, mine, 0)
        targets = np.where(real[:, None], windows.targets[rows], IGNORE)
        inputs = torch.from_numpy(windows.inputs[rows]).to(world.device)
        nats = model.losses(inputs, torch.from_numpy(targets).to(world.device)).double().sum(1)
        row_sums = np.stack([nats.cpu().numpy(), (targets != IGNORE).sum(1), sizes[rows] * real], axis=1)
        np.add.at(sums, windows.source[rows], row_sums)
    model.train()
    total = world.sum(torch.from_numpy(sums).to(world.device)).cpu()
    metrics: dict[str, float] = {}
    for kind in ("heldout", "survivors"):
        in_kind = windows.of(kind)
        if in_kind.any():
            nats, tokens, size = total[in_kind].sum(0).tolist()
            metrics |= {"heldout/loss": nats / tokens} if kind == "heldout" else {}
            metrics |= _bits(kind, nats, size)
    for name, (nats, _, size) in zip(windows.names, total.tolist(), strict=True):
        metrics |= _bits(name, nats, size)
    return metrics


def _bits(name: str, nats: float, size: int) -> dict[str, float]:
    """None of a set that is one document of one token: no byte of it is predicted."""
    return {f"{name}/bits_per_byte": bits_per_byte(nats, size)} if size else {}


def token_counts(manifest: TrainingManifest, world: World) -> np.ndarray:
    """How often each source of the training data has each token, int64 (sources, vocab_size); a collective.

    Of a source with more than COUNTED tokens, chunks evenly spread over its length are counted. Ranks share the
    reading.
    """
    counts = np.zeros((len(manifest.sources), manifest.vocab_size), dtype=np.int64)
    for source_counts, source in zip(counts, manifest.sources, strict=True):
        if not source.share:
            continue
        tokens = Tokens(source.shards, manifest.vocab_size, manifest.dtype)
        chunks = -(-len(tokens) // CHUNK)
        chunk_count = min(chunks, COUNTED // CHUNK)
        for turn in range(world.rank, chunk_count, world.size):
            start = turn * chunks // chunk_count * CHUNK
            ids = tokens.read(start, min(start + CHUNK, len(tokens)))
            source_counts += np.bincount(ids, minlength=manifest.vocab_size)
    return world.sum(torch.from_numpy(counts).to(world.device)).cpu().numpy()


def unigram_entropy(manifest: TrainingManifest, counts: np.ndarray) -> float:
    """Nats per token of the tokens' frequencies in what training reads, `counts` being those of `token_counts`: the
    least training loss of a model that knows no more than them."""
    shares = np.array([source.share for source in manifest.sources])
    sizes = np.maximum(counts.sum(1, keepdims=True), 1)
    probabilities = shares @ (counts / sizes) / shares.sum()
    seen = probabilities[probabilities > 0]
    return float(-(seen * np.log(seen)).sum())


def unigram_loss(counts: np.ndarray, windows: HeldoutWindows) -> dict[str, float]:
    """Loss and bits per byte of the held-out documents, for the add-one-smoothed unigram model of the training tokens
    that `token_counts` counted.

    A token with c occurrences among n has probability (c + 1) / (n + vocab_size).
    """
    token_totals = counts.sum(0)
    nats = math.log(token_totals.sum() + len(token_totals)) - np.log(token_totals + 1.0)
    rows = windows.of("heldout")[windows.source]
    targets = windows.targets[rows]
    targets = targets[targets != IGNORE]
    total = float(nats[targets].sum())
    return {
        "unigram/loss": total / len(targets),
        "unigram/bits_per_byte": bits_per_byte(total, int(windows.sizes()[rows].sum())),
    }


class Evaluator:
    """What a run is scored on while it trains, read once: held-out windows, the training data's tokens, and tasks.

    To make one is a collective.
    """

    def __init__(self, run: RunConfig, manifest: TrainingManifest, world: World) -> None:
        training = run.training
        self.world, self.micro_batch = world, micro_batch(training, world.size)
        self.tokens = self.micro_batch * run.model.seq_len
        self.windows = heldout_windows(manifest, run.model.seq_len, training.eval_tokens)
        self.counts = token_counts(manifest, world)
        self.unigram_entropy = unigram_entropy(manifest, self.counts)
        self.tasks = read_tasks(Path(training.eval_tasks))[0] if training.eval_tasks else []
        recorded = RecordedFile(str(manifest.tokenizer.path), manifest.tokenizer.digest)
        self.tokenizer = read_tokenizer(recorded.read(), recorded.path) if self.tasks else None

    def __call__(self, model: Decoder, last: bool) -> dict[str, float]:
        """Metrics of the model, beside those of the unigram model after the `last` step; a collective."""
        metrics = heldout_loss(model, self.windows, self.micro_batch, self.world)
        if self.tokenizer:
            metrics |= scored(task_scores(model, self.tasks, self.tokenizer, self.world, tokens=self.tokens))
        if last:
            metrics |= unigram_loss(self.counts, self.windows)
        return metrics
