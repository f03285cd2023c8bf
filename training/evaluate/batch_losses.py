"""The losses of training batches, by document: what a spike of the loss came from, as the weights before it see it.

A window of a batch has pieces of documents, which end with end-of-text tokens. A document is named by its source, the
path of its token shard and the number there of its first token. Losses are of the objective `causal`: with others
a window's tokens are in another order, and only the loss of whole batches is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from gristmill.samples.order import Order
from gristmill.training.config import TrainingConfig
from gristmill.training.decoder import Decoder
from gristmill.training.loss import IGNORE, inputs_and_targets
from gristmill.training.world import World, all_gather, rows_per_rank

SENT = 100  # documents of a rank that the other ranks get to know, those with the largest excess
_SEARCHED = 4096  # tokens of a shard that are searched at once for the end of the document before


class DocumentLoss(NamedTuple):
    """`shard`: the path of a token shard; `token`: the number there of the document's first token; `tokens`: how many
    of the document's tokens are targets in the batches; `nats`: their summed loss."""

    source: str
    shard: str
    token: int
    tokens: int
    nats: float

    @property
    def loss(self) -> float:
        return self.nats / self.tokens

    def excess(self, level: float) -> float:
        """Nats above a loss of `level` nats per token: what the document adds to a rise of the loss of its batches."""
        return self.nats - level * self.tokens


@dataclass(frozen=True)
class BatchLosses:
    """`nats`, `tokens`: of all targets of the batches; `documents`: of this rank's samples, if no rank before it
    reads the same."""

    nats: float
    tokens: int
    documents: tuple[DocumentLoss, ...]

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / self.tokens

    def highest(self, level: float, count: int) -> list[DocumentLoss]:
        """The documents of all ranks with the largest excess over a level, largest first; a collective."""
        own = sorted(self.documents, key=lambda each: -each.excess(level))[:SENT]
        every = merged(each for some in all_gather(own) for each in some)
        return sorted(every, key=lambda each: (-each.excess(level), each[:3]))[:count]


@torch.no_grad()
def batch_losses(
    model: Decoder, order: Order, numbers: Sequence[int], training: TrainingConfig, end_of_text: int, world: World
) -> BatchLosses:
    """The losses of the weights as they are on batches, by number; a collective of the ranks `world.readers`. Without
    documents where the order has a transform."""
    readers = world.readers
    sums = torch.zeros(2, dtype=torch.float64, device=world.device)
    documents: list[DocumentLoss] = []
    for number in numbers:
        read = torch.from_numpy(order.batch(number, readers.rank, readers.size))
        rows = rows_per_rank(order.plan.size(number), readers.size, training.micro_batch)
        micro = min(training.micro_batch, rows)
        inputs, targets = (part.to(world.device) for part in inputs_and_targets(read, rows))
        pieces = zip(inputs.split(micro), targets.split(micro), strict=True)
        losses = torch.cat([model.losses(x, y) for x, y in pieces]).double()
        is_target = targets != IGNORE
        sums += torch.stack([losses.sum(), is_target.sum().double()])
        if order.transform is None and world.speaks:
            values = losses.cpu().numpy(), is_target.cpu().numpy()
            documents += _documents(order, order.samples(number)[readers.rank :: readers.size], *values, end_of_text)
    nats, tokens = readers.sum(sums).tolist()
    return BatchLosses(nats, int(tokens), tuple(merged(documents)))


def _documents(
    order: Order, samples: range, losses: np.ndarray, is_target: np.ndarray, end_of_text: int
) -> Iterator[DocumentLoss]:
    """The pieces of documents in samples. `losses`, `is_target`: of each token but the first, (rows, seq_len)."""
    for row, (source, _, window) in enumerate(order.windows_of(samples)):
        tokens = order.tokens[source]
        for span in order.read[source].spans(window):
            ids = tokens.maps[span.shard][span.offset : span.offset + span.length]
            ends = np.flatnonzero(ids == end_of_text) + 1
            bounds = [0, *ends[ends < span.length].tolist(), span.length]
            path = str(order.sources[source].shards[span.shard].path)
            for number, (begin, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
                # the first token of a sample is not a target, so the loss of a token is at the place before it
                places = slice(max(span.at + begin - 1, 0), span.at + end - 1)
                count = int(is_target[row, places].sum())
                if not count:
                    continue
                first = span.offset + begin
                if number == 0:
                    first = _begin(tokens.maps[span.shard], first, end_of_text)
                nats = float(losses[row, places][is_target[row, places]].sum())
                yield DocumentLoss(order.sources[source].name, path, first, count, nats)


def _begin(ids: np.ndarray, token: int, end_of_text: int) -> int:
    """The first token of the document that a token of a shard is in."""
    while token > 0:
        low = max(0, token - _SEARCHED)
        if len(ends := np.flatnonzero(ids[low:token] == end_of_text)):
            return low + int(ends[-1]) + 1
        token = low
    return 0


def merged(pieces: Iterator[DocumentLoss] | Sequence[DocumentLoss]) -> list[DocumentLoss]:
    """Pieces of one document as one."""
    sums: dict[tuple[str, str, int], list[float]] = defaultdict(lambda: [0, 0.0])
    for each in pieces:
        total = sums[each[:3]]
        total[0] += each.tokens
        total[1] += each.nats
    return [DocumentLoss(*key, int(tokens), nats) for key, (tokens, nats) in sums.items()]
