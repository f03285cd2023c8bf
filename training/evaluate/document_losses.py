"""Loss of every held-out document by itself: what comparisons of training data are made from."""

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
from gristmill.storage.training_manifest import SourceShards, TrainingManifest
from gristmill.training.model.decoder import Decoder
from gristmill.training.model.loss import IGNORE
from gristmill.training.parallel.world import World

CHUNK = 1 << 22  # tokens searched at once
TOKENS = 1 << 14  # of a forward pass, padding included, or one window
LENGTHS = 4  # that windows are padded to: on a GPU each is compiled by itself

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
    """The loss of each document, all of its tokens and the end-of-text token behind them counted once; a collective.

    A document is read behind an end-of-text token, as in training, in windows of the model's seq_len, of which each
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
    # one column a piece, each of one rank: their sum over ranks adds zeros alone, so it is exact
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
    """Where the documents of a held-out set end, behind their end-of-text tokens, int64 (documents,).

    Raises ValueError where the last token is no end of text.
    """
    ends = [
        start + 1 + np.flatnonzero(tokens.read(start, min(start + CHUNK, len(tokens))) == end_of_text)
        for start in range(0, len(tokens), CHUNK)
    ]
    ends_of_documents = np.concatenate(ends)
    if not len(ends_of_documents) or ends_of_documents[-1] != len(tokens):
        raise ValueError(
            f"held-out source {heldout.name!r}: {heldout.shards[-1].path} does not end with the end-of-text token "
            f"{end_of_text}; make its token shards again"
        )
    return ends_of_documents


class Pass(NamedTuple):
    """A forward pass of `rows` windows, padded to `length` tokens. `pieces`: the numbers of those in its first rows;
    the rest is empty."""

    length: int
    rows: int
    pieces: list[int]


def passes(sizes: list[int], seq_len: int, tokens: int) -> list[Pass]:
    """The forward passes of pieces of so many tokens, each in one. They follow from the numbers alone.

    There are LENGTHS lengths, and each has passes of one shape, of at most so many tokens, or one row: what fills no
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
    """The piece's tokens behind the one before them."""
    ids = tokens.read(max(piece.start - 1, 0), piece.stop)
    if piece.first:  # what stands before it is the end of another document, or nothing
        ids = np.concatenate([[end_of_text], ids[-(piece.stop - piece.start) :]])
    return ids


@torch.no_grad()
def _nats(model: Decoder, inputs: np.ndarray, targets: np.ndarray, world: World) -> np.ndarray:
    """The summed loss of each row, float64 (rows,)."""
    tensors = (torch.from_numpy(part).to(world.device) for part in (inputs, targets))
    return model.losses(*tensors).double().sum(1).cpu().numpy()
