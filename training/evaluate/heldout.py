"""Loss on held-out text, of the model and of a unigram model that knows only how frequent each token is; and the loss
of every held-out document by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch

from gristmill.samples.shards import Tokens
from gristmill.storage import parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.tokenizer_files import read_tokenizer
from gristmill.storage.training_manifest import SourceShards, TrainingManifest
from gristmill.training.config import RunConfig, TrainingConfig
from gristmill.training.decoder import Decoder
from gristmill.training.evaluate.task_scores import scored, task_scores
from gristmill.training.evaluate.tasks import read_tasks
from gristmill.training.loss import IGNORE, bits_per_byte, inputs_and_targets
from gristmill.training.objectives import Objective
from gristmill.training.world import World, micro_batch

CHUNK = 1 << 22  # tokens counted at once
COUNTED = 1 << 26  # tokens of each source that are counted, at most


@dataclass(frozen=True)
class HeldoutWindows:
    """Fixed windows of held-out text: inputs and targets are int64 (windows, seq_len), targets padded with
    IGNORE.

    `names`: of the sets, such as `heldout/web`; `source[i]` is the one that window i came from. In memory: 16 bytes
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
        """UTF-8 bytes of each window's targets, int64 (windows,)."""
        real = self.targets != IGNORE
        return (self.token_bytes[np.where(real, self.targets, 0)] * real).sum(1)


def heldout_windows(
    manifest: TrainingManifest, seq_len: int, eval_tokens: int, training: TrainingConfig | None = None
) -> HeldoutWindows:
    """Cut each held-out set into windows whose targets do not overlap; the last one may be short.

    All of a set whose documents are fixed is read, so that the same text is evaluated with any tokenizer.
    Another one with more than eval_tokens targets gives windows spread evenly over its length. Nothing depends on a
    seed or on the world size. `training`: with the objective masked, windows are masked, each the same way every time.
    """
    fixed = training and training.model_copy(update={"order_seed": 0})
    masked = Objective(fixed, seq_len, manifest) if fixed and fixed.objective == "masked" else None
    sources, inputs, targets = [], [], []
    for index, heldout in enumerate(manifest.heldout):
        tokens = Tokens(heldout.shards, manifest.vocab_size, manifest.dtype)
        total = -(-(len(tokens) - 1) // seq_len)
        if not total:
            raise ValueError(
                f"held-out source {heldout.name!r} has {len(tokens)} token, but needs two; hold out more of it"
            )
        window_count = total if heldout.digest else min(total, max(1, eval_tokens // seq_len))
        for turn in range(window_count):
            start = turn * total // window_count * seq_len
            ids = tokens.read(start, min(start + seq_len + 1, len(tokens)))
            ids = masked(ids, start) if masked else ids
            padding = (0, seq_len + 1 - len(ids))
            [read], [predicted] = inputs_and_targets(torch.from_numpy(ids)[None], 1)
            inputs.append(np.pad(read, padding))
            targets.append(np.pad(predicted, padding, constant_values=IGNORE))
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
        self.windows = heldout_windows(manifest, run.model.seq_len, training.eval_tokens, training)
        self.counts = token_counts(manifest, world)
        self.unigram_entropy = unigram_entropy(manifest, self.counts)
        self.tasks = read_tasks(Path(training.eval_tasks))[0] if training.eval_tasks else []
        recorded = RecordedFile(str(manifest.tokenizer.path), manifest.tokenizer.digest)
        self.tokenizer = read_tokenizer(recorded.read(), recorded.path) if self.tasks else None

    def __call__(self, model: Decoder, last: bool) -> dict[str, float]:
        """Metrics of the model, and after the `last` step also those of the unigram model; a collective."""
        metrics = heldout_loss(model, self.windows, self.micro_batch, self.world)
        if self.tokenizer:
            metrics |= scored(task_scores(model, self.tasks, self.tokenizer, self.world, tokens=self.tokens))
        if last:
            metrics |= unigram_loss(self.counts, self.windows)
        return metrics


# Loss of each held-out document, from which comparisons of training data are made.


SEARCH_CHUNK = 1 << 22  # tokens searched at once
TOKENS = 1 << 14  # of a forward pass, padding included, or one window
LENGTHS = 4  # that windows are padded to: on a GPU each is compiled separately

SCHEMA = pa.schema(
    [
        pa.field("set", pa.string(), nullable=False),
        pa.field("document", pa.int64(), nullable=False),  # counted from 0 within its set
        pa.field("bits", pa.float64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)


class _Piece(NamedTuple):
    """Targets [start, stop) of a held-out set, all of one document, which is the `document`-th of all sets."""

    document: int
    heldout: int
    start: int
    stop: int
    first: bool


@dataclass(frozen=True)
class DocumentLosses:
    """`sets`: the name of each document's set; `index`: its place there; `bits` float64, `sizes`: UTF-8 bytes of its
    text, int64; all (documents,), in the order of the manifest's held-out sets and of their shards."""

    sets: list[str]
    index: np.ndarray
    bits: np.ndarray
    sizes: np.ndarray


def document_losses(
    model: Decoder, manifest: TrainingManifest, world: World, tokens_a_pass: int = TOKENS
) -> DocumentLosses:
    """The loss of each document, all of its tokens and the end-of-text token after them counted once; a collective.

    A document is read after an end-of-text token, as in training, in windows of the model's seq_len, of which each
    later one sees only the last token of the one before it. The windows of all documents are put into `passes`, at
    which ranks take turns. So on a CPU a document's bits are the same for any number of ranks; what else is in its
    pass, and the size of that, may round them otherwise.

    Raises ValueError for a held-out set whose last document has no end.
    """
    seq_len = model.config.seq_len
    tokens = [Tokens(heldout.shards, manifest.vocab_size, manifest.dtype) for heldout in manifest.heldout]
    bounds = [
        document_ends(each, heldout, manifest.end_of_text)
        for each, heldout in zip(tokens, manifest.heldout, strict=True)
    ]
    pieces = [
        _Piece(document, heldout, begin, min(begin + seq_len, stop), begin == start)
        for document, (heldout, start, stop) in enumerate(
            (heldout, start, stop)
            for heldout, ends in enumerate(bounds)
            for start, stop in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
        )
        for begin in range(start, stop, seq_len)
    ]
    # one column a piece, each of one rank: their sum over ranks only adds zeros, so it is exact
    sums = np.zeros((2, len(pieces)))
    token_bytes = np.array(manifest.token_bytes, dtype=np.int64)
    was_training = model.training
    model.eval()
    each = passes([piece.stop - piece.start for piece in pieces], seq_len, tokens_a_pass)
    for turn in range(-(-len(each) // world.size)):
        mine = turn * world.size + world.rank
        one = each[min(mine, len(each) - 1)]  # every rank takes part in each forward pass of a sharded model
        inputs = np.full((one.rows, one.length), manifest.end_of_text)
        targets = np.full_like(inputs, IGNORE)
        for row, number in enumerate(one.pieces):
            ids = _read(pieces[number], tokens[pieces[number].heldout], manifest.end_of_text)
            inputs[row, : len(ids) - 1], targets[row, : len(ids) - 1] = ids[:-1], ids[1:]
        nats = _nats(model, inputs, targets, world)
        if mine < len(each):
            real = targets != IGNORE
            sizes = (token_bytes[np.where(real, targets, 0)] * real).sum(1)
            sums[:, one.pieces] = np.stack([nats, sizes])[:, : len(one.pieces)]
    model.train(was_training)
    nats, sizes = world.sum(torch.from_numpy(sums).to(world.device)).cpu().numpy()
    document_numbers = [piece.document for piece in pieces]
    return DocumentLosses(
        sets=[heldout.name for heldout, ends in zip(manifest.heldout, bounds, strict=True) for _ in ends],
        index=np.concatenate([np.arange(len(ends)) for ends in bounds]),
        bits=np.bincount(document_numbers, nats) / math.log(2),
        sizes=np.bincount(document_numbers, sizes).astype(np.int64),
    )


def write_document_losses(
    path: Path, model: Decoder, manifest: TrainingManifest, world: World, tokens_a_pass: int
) -> None:
    """Write `document_losses` as Parquet: set, document (its index in the set), bits, bytes; a collective."""
    losses = document_losses(model, manifest, world.readers, tokens_a_pass)
    if world.leads:
        columns = [losses.sets, losses.index, losses.bits, losses.sizes]
        parquet.write_table(str(path), pa.table(columns, schema=SCHEMA))


def document_ends(tokens: Tokens, heldout: SourceShards, end_of_text: int) -> np.ndarray:
    """Where the documents of a held-out set end, after their end-of-text tokens, int64 (documents,).

    Raises ValueError if the last token is not an end of text.
    """
    ends = [
        start + 1 + np.flatnonzero(tokens.read(start, min(start + SEARCH_CHUNK, len(tokens))) == end_of_text)
        for start in range(0, len(tokens), SEARCH_CHUNK)
    ]
    ends_of_documents = np.concatenate(ends)
    if not len(ends_of_documents) or ends_of_documents[-1] != len(tokens):
        raise ValueError(
            f"held-out source {heldout.name!r}: {heldout.shards[-1].path} does not end with the end-of-text "
            f"token {end_of_text}; make its token shards again"
        )
    return ends_of_documents


class Pass(NamedTuple):
    """A forward pass of `rows` windows, padded to `length` tokens. `pieces`: the numbers of those in its first rows;
    the rest is empty."""

    length: int
    rows: int
    pieces: list[int]


def passes(sizes: list[int], seq_len: int, tokens: int) -> list[Pass]:
    """The forward passes of pieces with these numbers of tokens, each piece in one pass. They depend only on the
    numbers.

    There are LENGTHS lengths, and each has passes of one shape, of at most `tokens` tokens, or one row: what fills no
    pass is padded to the next length, and the last pass has empty rows.
    """
    lengths = sorted({-(-seq_len * part // LENGTHS) for part in range(1, LENGTHS + 1)})
    forward_passes, waiting, shorter = [], [], 0
    for length in lengths:
        waiting += [number for number, size in enumerate(sizes) if shorter < size <= length]
        rows = max(1, tokens // length)
        last = length == lengths[-1]
        while len(waiting) >= rows or (last and waiting):
            forward_passes.append(Pass(length, rows, waiting[:rows]))
            waiting = waiting[rows:]
        shorter = length
    return forward_passes


def _read(piece: _Piece, tokens: Tokens, end_of_text: int) -> np.ndarray:
    """The piece's tokens after the one before them."""
    ids = tokens.read(max(piece.start - 1, 0), piece.stop)
    if piece.first:  # what is before it is the end of another document, or nothing
        ids = np.concatenate([[end_of_text], ids[-(piece.stop - piece.start) :]])
    return ids


@torch.no_grad()
def _nats(model: Decoder, inputs: np.ndarray, targets: np.ndarray, world: World) -> np.ndarray:
    """The summed loss of each row, float64 (rows,)."""
    tensors = (torch.from_numpy(part).to(world.device) for part in (inputs, targets))
    return model.losses(*tensors).double().sum(1).cpu().numpy()
