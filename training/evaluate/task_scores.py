"""What a model makes of tasks: each continuation's log-likelihood behind its context, and what follows from them.

Scored as EleutherAI's lm-evaluation-harness does (docs/task_guide.md, lm_eval/api/task.py): the choice of the highest
log-likelihood is the model's answer; normalised, the one of the highest log-likelihood a byte. A context begins with
the end-of-text token, as a document does, and is cut at its left to fit the model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gristmill.storage.tokens.text_tokens import TextTokenizer
from gristmill.training.evaluate.tasks import Task
from gristmill.training.model.decoder import Decoder
from gristmill.training.model.loss import IGNORE, bits_per_byte, token_losses
from gristmill.training.model.parallel import World

# Logits of a batch: 256 MB in float32 on a CPU, a gigabyte on a GPU.
_LOGITS = {"cpu": 1 << 26, "cuda": 1 << 28}


@dataclass(frozen=True)
class _Row:
    """A continuation, or a piece of a long one, behind its context: `tokens`, of which the last `scored` count."""

    pair: int
    tokens: list[int]
    scored: int


@torch.no_grad()
def task_scores(
    model: Decoder,
    tasks: Sequence[Task],
    tokenizer: TextTokenizer,
    world: World,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, dict[str, float | int | None]]:
    """The figures of each task by its name; a collective, of a sharded model or a whole one on the world's device.

    Of multiple choice: `examples`; `accuracy` and `accuracy_normalised` (by bytes), each with its standard error
    `..._stderr`; `chance`, the accuracy of guessing; `bits_per_byte` of the right answers. Of cloze: `examples`;
    `accuracy` of the likeliest tokens, all of them right; `accuracy_stderr`; `perplexity` of the continuation as a
    whole; `bits_per_byte`. `cut` counts the pairs whose context was cut. Ties go to the first choice.

    The same figures on each rank. `progress` is called with the batches done, and all of them.
    """
    pairs = [pair for task in tasks for example in task.examples for pair in example.pairs]
    rows, cut = [], np.zeros(len(pairs), dtype=bool)
    for index, (context, continuation) in enumerate(pairs):
        before, behind = joined(context, continuation)
        start = [tokenizer.end_of_text, *tokenizer.encode(before)]
        ids = tokenizer.encode(behind)
        cut[index] = len(start) + len(ids) > model.config.seq_len + 1
        rows += _rows(index, start, ids, model.config.seq_len)
    nats, wrong = _losses(model, rows, len(pairs), world, progress)
    figures, first = {}, 0
    for task in tasks:
        count = sum(len(example.pairs) for example in task.examples)
        part = slice(first, first + count)
        found = (_choice if task.kind == "choice" else _cloze)(task, nats[part], wrong[part])
        figures[task.name] = {**found, "cut": int(cut[part].sum())}
        first += count
    return figures


def scored(figures: dict[str, dict[str, float | int | None]]) -> dict[str, float]:
    """The figures as metrics: by the name `tasks/<task>/<figure>`, as MLflow takes names; those that there are."""
    return {
        re.sub(r"[^\w. :/-]", "_", f"tasks/{task}/{name}"): float(value)
        for task, found in figures.items()
        for name, value in found.items()
        if value is not None
    }


def joined(context: str, continuation: str) -> tuple[str, str]:
    """The two texts as they are encoded. White space between them belongs to the continuation, since tokens begin with
    it; where there is none, it is a space."""
    before = context.rstrip()
    between = context[len(before) :]
    if before and not between and not continuation[:1].isspace():
        between = " "
    return before, between + continuation


def _rows(pair: int, context: list[int], continuation: list[int], seq_len: int) -> list[_Row]:
    """One row, unless the continuation alone is longer than the model's window: then pieces of seq_len tokens, of which
    the first token of each later one sees only the one before it."""
    tokens, rows = context + continuation, []
    for start in range(len(context), len(tokens), seq_len):
        end = min(start + seq_len, len(tokens))
        rows.append(_Row(pair, tokens[max(0, end - seq_len - 1) : end], end - start))
    return rows


def _losses(
    model: Decoder, rows: list[_Row], pairs: int, world: World, progress: Callable[[int, int], None]
) -> tuple[np.ndarray, np.ndarray]:
    """Nats of each pair's continuation, and how many of its tokens are not the likeliest, float64 (pairs,).

    Ranks take turns at batches of rows of like length, all with the same number of forward passes.
    """
    vocab_size = model.embed_tokens.num_embeddings
    batches = _batches(rows, max(1, _LOGITS[world.device.type] // vocab_size))
    sums, was_training = np.zeros((pairs, 2)), model.training
    model.eval()
    passes = -(-len(batches) // world.size)
    for turn in range(passes):
        mine = turn * world.size + world.rank
        batch = batches[min(mine, len(batches) - 1)]
        found = _batch_losses(model, batch, world.device)
        if mine < len(batches):
            np.add.at(sums, [row.pair for row in batch], found)
        progress(turn + 1, passes)
    model.train(was_training)
    total = world.sum(torch.from_numpy(sums).to(world.device)).cpu().numpy()
    return total[:, 0], total[:, 1]


def _batches(rows: list[_Row], most: int) -> list[list[_Row]]:
    """Rows of like length together, the longest first, padded to at most so many tokens a batch, or one row."""
    batches: list[list[_Row]] = []
    for row in sorted(rows, key=lambda row: (-len(row.tokens), row.pair)):
        if not batches or (len(batches[-1]) + 1) * len(batches[-1][0].tokens) > most:
            batches.append([])
        batches[-1].append(row)
    return batches


def _batch_losses(model: Decoder, batch: list[_Row], device: torch.device) -> np.ndarray:
    """Nats, and tokens that are not the likeliest, of each row, float64 (rows, 2). Padding is at the right, where no
    token of a row sees it."""
    longest = len(batch[0].tokens) - 1
    inputs = torch.zeros(len(batch), longest, dtype=torch.long)
    targets = torch.full((len(batch), longest), IGNORE)
    for at, row in enumerate(batch):
        length = len(row.tokens) - 1
        inputs[at, :length] = torch.tensor(row.tokens[:-1])
        targets[at, length - row.scored : length] = torch.tensor(row.tokens[length + 1 - row.scored :])
    targets = targets.to(device)
    logits = model(inputs.to(device))
    nats = token_losses(logits, targets).double().sum(1)
    wrong = ((logits.argmax(-1) != targets) & (targets != IGNORE)).double().sum(1)
    return torch.stack([nats, wrong], 1).cpu().numpy()


def _choice(task: Task, nats: np.ndarray, wrong: np.ndarray) -> dict[str, float | int | None]:
    hits, normalised, chances, right, size = [], [], [], 0.0, 0
    first = 0
    for example in task.examples:
        scores = -nats[first : first + len(example.pairs)]
        sizes = np.array([len(continuation.encode()) for _, continuation in example.pairs])
        hits.append(int(scores.argmax()) == example.answer)
        normalised.append(int((scores / sizes).argmax()) == example.answer)
        chances.append(1 / len(example.pairs))
        right, size = right - float(scores[example.answer]), size + int(sizes[example.answer])
        first += len(example.pairs)
    return {
        "examples": len(task.examples),
        **_accuracy("accuracy", hits),
        **_accuracy("accuracy_normalised", normalised),
        "chance": float(np.mean(chances)),
        "bits_per_byte": bits_per_byte(right, size),
    }


def _cloze(task: Task, nats: np.ndarray, wrong: np.ndarray) -> dict[str, float | int | None]:
    size = sum(len(example.pairs[0][1].encode()) for example in task.examples)
    mean = float(nats.mean())
    return {
        "examples": len(task.examples),
        **_accuracy("accuracy", (wrong == 0).tolist()),
        "perplexity": math.exp(mean) if mean < 700 else None,
        "bits_per_byte": bits_per_byte(float(nats.sum()), size),
    }


def _accuracy(name: str, hits: list[bool]) -> dict[str, float | int | None]:
    """The share of hits, and its standard error by the sample's variance; None for one example."""
    share = float(np.mean(hits))
    error = math.sqrt(share * (1 - share) / (len(hits) - 1)) if len(hits) > 1 else None
    return {name: share, f"{name}_stderr": error}
