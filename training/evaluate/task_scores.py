"""A model's scores on tasks: each continuation's log-likelihood after its context, and the measures computed from it.

Scored as EleutherAI's lm-evaluation-harness does (docs/task_guide.md, lm_eval/api/task.py): the choice of the highest
log-likelihood is the model's answer (its `acc`), or the one of the highest log-likelihood a character (`acc_norm`) or a
UTF-8 byte of the choice (`acc_bytes`). A context begins with
the end-of-text token, as a document does, and is cut at its left to fit the model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gristmill.storage.tokenizer_files import TextTokenizer
from gristmill.training.decoder import Decoder
from gristmill.training.evaluate.tasks import Task
from gristmill.training.loss import IGNORE
from gristmill.training.world import World

TOKENS = 1 << 14  # of one forward pass, padding included


@dataclass(frozen=True)
class _Row:
    """A continuation, or a piece of a long one, after its context: `tokens`, of which the last `scored` count."""

    pair: int
    tokens: list[int]
    scored: int


@dataclass(frozen=True, eq=False)
class ExampleScores:
    """The examples of a task one by one, all (examples,). `bits`, `sizes`: of the right answer after its context,
    float64, and its UTF-8 bytes, int64. `hits`, `hits_norm`, `hits_bytes`: whether the model's answer is right, and
    that by the log-likelihood a character and a byte; of a cloze, whether all tokens are the likeliest. `chances`: of
    guessing, 0 for a cloze. `cut`: pairs whose context was cut."""

    bits: np.ndarray
    sizes: np.ndarray
    hits: np.ndarray
    hits_norm: np.ndarray
    hits_bytes: np.ndarray
    chances: np.ndarray
    cut: int


@torch.no_grad()
def example_scores(
    model: Decoder,
    tasks: Sequence[Task],
    tokenizer: TextTokenizer,
    world: World,
    progress: Callable[[int, int], None] = lambda done, total: None,
    tokens: int = TOKENS,
) -> list[ExampleScores]:
    """Of each task, in their order; a collective, of a sharded model or a whole one on the world's device. Ties go to
    the first choice. The same on each rank. `progress` is called with the batches done, and all of them. `tokens`: of
    one forward pass at most, unless one row has more."""
    pairs = [pair for task in tasks for example in task.examples for pair in example.pairs]
    rows, cut = [], np.zeros(len(pairs), dtype=bool)
    for index, (context, continuation) in enumerate(pairs):
        before, after = joined(context, continuation)
        start = [tokenizer.end_of_text, *tokenizer.encode(before)]
        ids = tokenizer.encode(after)
        cut[index] = len(start) + len(ids) > model.config.seq_len + 1
        rows += _rows(index, start, ids, model.config.seq_len)
    nats, wrong = _losses(model, _batches(rows, tokens), len(pairs), world, progress)
    scores, first = [], 0
    for task in tasks:
        count = sum(len(example.pairs) for example in task.examples)
        part = slice(first, first + count)
        scores.append(_of_task(task, nats[part], wrong[part], int(cut[part].sum())))
        first += count
    return scores


def task_scores(
    model: Decoder,
    tasks: Sequence[Task],
    tokenizer: TextTokenizer,
    world: World,
    progress: Callable[[int, int], None] = lambda done, total: None,
    tokens: int = TOKENS,
) -> dict[str, dict[str, float | int | None]]:
    """The figures of each task by its name; see `example_scores`.

    Of multiple choice: `examples`; `acc`, `acc_norm` and `acc_bytes`, each with its standard error `..._stderr`;
    `chance`, the accuracy of guessing; `bits_per_byte` of the right answers. Of cloze: `examples`;
    `acc` of the likeliest tokens, all of them right; `acc_stderr`; `perplexity` of the continuation as a
    whole; `bits_per_byte`. `cut` counts the pairs whose context was cut.
    """
    all_scores = example_scores(model, tasks, tokenizer, world, progress, tokens)
    return {task.name: _figures(task, scores) for task, scores in zip(tasks, all_scores, strict=True)}


def scored(figures: dict[str, dict[str, float | int | None]]) -> dict[str, float]:
    """The figures as metrics: by the name `tasks/<task>/<figure>`, as MLflow takes names; those that there are."""
    return {
        re.sub(r"[^\w. :/-]", "_", f"tasks/{task}/{name}"): float(value)
        for task, task_figures in figures.items()
        for name, value in task_figures.items()
        if value is not None
    }


def joined(context: str, continuation: str) -> tuple[str, str]:
    """The two texts as they are encoded. White space between them belongs to the continuation, since tokens begin with
    it; without one, it is a space."""
    before = context.rstrip()
    between = context[len(before) :]
    if before and not between and not continuation[:1].isspace():
        between = " "
    return before, between + continuation


def _rows(pair: int, context: list[int], continuation: list[int], seq_len: int) -> list[_Row]:
    """One row, unless only the continuation is longer than the model's window: then pieces of seq_len tokens, of which
    the first token of each later one sees only the one before it."""
    tokens, rows = context + continuation, []
    for start in range(len(context), len(tokens), seq_len):
        end = min(start + seq_len, len(tokens))
        rows.append(_Row(pair, tokens[max(0, end - seq_len - 1) : end], end - start))
    return rows


def _losses(
    model: Decoder, batches: list[list[_Row]], pairs: int, world: World, progress: Callable[[int, int], None]
) -> tuple[np.ndarray, np.ndarray]:
    """Nats of each pair's continuation, and how many of its tokens are not the likeliest, float64 (pairs,).

    Ranks take turns at the batches, all with the same number of forward passes.
    """
    sums, was_training = np.zeros((pairs, 2)), model.training
    model.eval()
    passes = -(-len(batches) // world.size)
    for turn in range(passes):
        mine = turn * world.size + world.rank
        batch = batches[min(mine, len(batches) - 1)]
        row_losses = _batch_losses(model, batch, world.device)
        if mine < len(batches):
            np.add.at(sums, [row.pair for row in batch], row_losses)
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
    for index, row in enumerate(batch):
        length = len(row.tokens) - 1
        inputs[index, :length] = torch.tensor(row.tokens[:-1])
        targets[index, length - row.scored : length] = torch.tensor(row.tokens[length + 1 - row.scored :])
    scores = model.scores(inputs.to(device), targets.to(device))
    return scores.double().sum(2).T.cpu().numpy()


def _of_task(task: Task, nats: np.ndarray, wrong: np.ndarray, cut: int) -> ExampleScores:
    """`nats`, `wrong`: of the task's pairs."""
    texts = [continuation for example in task.examples for _, continuation in example.pairs]
    sizes = np.array([len(text.encode()) for text in texts])
    characters = np.array([len(text) for text in texts])
    counts = np.array([len(example.pairs) for example in task.examples])
    begins = np.cumsum(counts) - counts
    answers = np.array([example.answer for example in task.examples])
    if task.kind == "cloze":
        hits = by_character = by_byte = wrong == 0
        chances = np.zeros(len(counts))
    else:
        each = [slice(begin, begin + count) for begin, count in zip(begins, counts, strict=True)]
        hits, by_character, by_byte = (
            np.array([(nats[part] / lengths[part]).argmin() for part in each]) == answers
            for lengths in (np.ones(len(texts)), characters, sizes)
        )
        chances = 1 / counts
    right = begins + answers
    return ExampleScores(nats[right] / math.log(2), sizes[right], hits, by_character, by_byte, chances, cut)


def _figures(task: Task, scores: ExampleScores) -> dict[str, float | int | None]:
    values: dict[str, float | int | None] = {"examples": len(task.examples), **_accuracy("acc", scores.hits)}
    if task.kind == "choice":
        values |= _accuracy("acc_norm", scores.hits_norm) | _accuracy("acc_bytes", scores.hits_bytes)
        values["chance"] = float(scores.chances.mean())
    else:
        mean = float(scores.bits.mean())
        values["perplexity"] = 2**mean if mean < 1000 else None
    return {**values, "bits_per_byte": float(scores.bits.sum() / scores.sizes.sum()), "cut": scores.cut}


def _accuracy(name: str, hits: np.ndarray) -> dict[str, float | int | None]:
    """The share of hits, and its standard error by the sample's variance; None for one example."""
    share = float(np.mean(hits))
    error = math.sqrt(share * (1 - share) / (len(hits) - 1)) if len(hits) > 1 else None
    return {name: share, f"{name}_stderr": error}
