"""The engine `blocks`: reads a page in one pass and lets a classifier choose among its blocks.

It classifies twice. The second classifier also reads the first one's probabilities of a block's neighbors and
containers: stacked sequential learning (Cohen and Carvalho 2005).

To ask trafilatura too where the classifier is unsure was tried: on pages held out it measures the same (F1 +.001 to
-.003) at half to three quarters of the speed. So was to tell the classifier which words resiliparse takes for main
text: on its training pages, by hosts left out in turn, +.000, +.001 and -.002 on the three sets at half the speed.
"""

from collections import namedtuple
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load_file

from gristmill.storage import files
from gristmill.tasks.extraction.blocks import scan
from gristmill.tasks.extraction.description import Described, describe, elements_apart
from gristmill.tasks.extraction.features import FEATURES, LEVELS, features, log_count
from gristmill.tasks.extraction.meanings import same_blocks, with_meanings
from gristmill.tasks.extraction.rendering.completed import completed
from gristmill.tasks.extraction.rendering.controls import controls
from gristmill.tasks.extraction.rendering.document import render
from gristmill.tasks.extraction.rendering.left_out import beside, repeats
from gristmill.tasks.extraction.rendering.notices import notices
from gristmill.tasks.extraction.rendering.recipes import recipe_blocks
from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.rendering.visibility import hidden_blocks, hidden_elements
from gristmill.tasks.extraction.rendering.whole import shared, units
from gristmill.tasks.extraction.vocabulary import Page
from gristmill.tasks.kernels.buffers import trailing_zeros
from gristmill.tasks.kernels.compiled import nb

MODEL = Path(__file__).with_name("blocks.safetensors")
# xxh3-128 of the model: so a stage's key, which is made of this code, names the model too.
MODEL_CHECKSUM = "a079b3a5a973c679856a2b31fe3ad284"

Forest = namedtuple("Forest", "feature threshold right value start bias")
Forest.__doc__ = """A sum of trees. A node's left child follows it.

feature: int16, -1 in a leaf. threshold: float32, left if the number is not above it. right: int32, the other child.
value: float32, of a leaf. start: int32, the root of each tree. bias: float32, shape (1,), added to the sum.
"""


def load(path: Path, name: str) -> Forest:
    """The forest `name` of a file; holds 16 bytes for each node.

    Raises FileNotFoundError, and ValueError for a file without it.
    """
    arrays = load_file(path)
    try:
        return Forest(*(arrays[f"{name}.{field}"] for field in Forest._fields))
    except KeyError as error:
        raise ValueError(f"{path} holds no array {error}; train it again with tools.train_blocks.train") from None


class Masks(NamedTuple):
    """A forest as lists of tests, in the order of its trees, by which blocks of rows are answered at once.

    feature: int32, threshold: float32, of each test. mask: uint32, has the bits of the leaves that a row may still end
    in if it fails the test: all but those of the test's left child. tests: int64, the first test of each tree and the
    number of all. value: float32, of each leaf; leaves: int64, the first leaf of each tree. bias: float32, shape (1,).
    """

    feature: np.ndarray
    threshold: np.ndarray
    mask: np.ndarray
    tests: np.ndarray
    value: np.ndarray
    leaves: np.ndarray
    bias: np.ndarray


def masks(forest: Forest) -> Masks:
    """The tests of a forest. Raises ValueError for a tree of more than 32 leaves."""
    leaf = forest.feature < 0
    before = np.cumsum(leaf) - leaf  # leaves before each node
    leaves = before[forest.start]
    most = int(np.diff(leaves, append=leaf.sum()).max())
    if most > 32:
        raise ValueError(f"a tree of the block model has {most} leaves, more than 32; train it with fewer num_leaves")
    inner = np.flatnonzero(~leaf)
    base = leaves[np.searchsorted(forest.start, inner, "right") - 1]
    first, last = before[inner] - base, before[forest.right[inner]] - base
    return Masks(
        forest.feature[inner].astype(np.int32),
        forest.threshold[inner],
        ~((1 << last) - (1 << first)).astype(np.uint32),
        np.append(forest.start - leaves, len(inner)),
        forest.value[leaf],
        leaves,
        forest.bias,
    )


@nb.njit(nogil=True, cache=True)
def probability(masks: Masks, columns: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` (float32) with the probability that a forest gives to each row; `columns`: float32, shape (features,
    rows), C order.

    Every test of a tree is made for all rows, two tests at once: no branch is guessed wrong, and a processor does
    several rows at once.
    The leaf of a row is the first one that no failed test excludes (QuickScorer, Lucchese et al. 2015).
    """
    every = np.uint32(0xFFFFFFFF)
    total = np.full(len(out), np.float64(masks.bias[0]))
    left = np.empty(len(out), np.uint32)
    for tree in range(len(masks.leaves)):
        left[:] = every
        last = masks.tests[tree + 1] - 1
        for a in range(masks.tests[tree], last + 1, 2):
            b = min(a + 1, last)
            column, threshold, mask = columns[masks.feature[a]], masks.threshold[a], masks.mask[a]
            other, other_threshold, other_mask = columns[masks.feature[b]], masks.threshold[b], masks.mask[b]
            for k in range(len(out)):
                left[k] &= every if column[k] <= threshold else mask
                left[k] &= every if other[k] <= other_threshold else other_mask
        for k in range(len(out)):
            total[k] += masks.value[masks.leaves[tree] + trailing_zeros(np.uint64(left[k]))]
    for k in range(len(out)):
        out[k] = 1 / (1 + np.exp(-total[k]))


_STEPS = (-4, -3, -2, -1, 1, 2, 3, 4)
_WINDOWS = (2, 5, 15)
SECOND = (
    *FEATURES,
    "first",
    *(f"first_{step:+d}" for step in _STEPS),
    *(f"first_window_{width}" for width in _WINDOWS),
    *(f"first_container_{level}" for level in range(LEVELS)),
    *("first_path", "first_shape", "first_page", "first_best", "first_before", "first_after"),
    *("since_sure", "to_sure", "in_segment", "from_segment", "segment_share", "in_subtree", "subtree_apart"),
    "subtree_share",
)


class Context(NamedTuple):
    """What the first classifier found in a page, summed up.

    by_node, by_path, by_shape: float64, shape (n, 2): words, and words times probability, of each node and of each
    group of blocks. begin, end: the blocks in a row, heaviest: the node, that gather the most probable words.
    """

    by_node: np.ndarray
    by_path: np.ndarray
    by_shape: np.ndarray
    begin: int
    end: int
    heaviest: int


@nb.njit(nogil=True, cache=True)
def context(page: Page, described: Described, likely: np.ndarray) -> Context:
    """Sums of what the first classifier found; `likely`: float32, the probability of each block."""
    blocks, nodes, text = page.blocks, page.nodes, described.text
    n, m = len(blocks.begin), len(nodes.parent)
    by_node = np.zeros((m, 2), np.float64)
    by_path = np.zeros((len(described.totals[0]), 2), np.float64)
    by_shape = np.zeros((len(described.totals[1]), 2), np.float64)
    best = running = 0.0
    begin = end = since = 0
    for k in range(n):
        w = text.words[k] + 1.0
        p = w * likely[k]
        for table, at in (
            (by_node, blocks.node[k]),
            (by_path, described.path[k]),
            (by_shape, described.shape[k]),
        ):
            table[at, 0] += w
            table[at, 1] += p
        running += p - 0.5 * w
        if running <= 0:
            running = 0.0
            since = k + 1
        elif running > best:
            best = running
            begin, end = since, k + 1
    for node in range(m - 1, 0, -1):
        by_node[nodes.parent[node]] += by_node[node]
    heaviest = 0
    for node in range(m):
        if by_node[node, 1] - 0.5 * by_node[node, 0] >= by_node[heaviest, 1] - 0.5 * by_node[heaviest, 0]:
            heaviest = node
    return Context(by_node, by_path, by_shape, begin, end, heaviest)


@nb.njit(nogil=True, cache=True)
def second(
    page: Page, described: Described, likely: np.ndarray, gathered: Context, begin: int, end: int, out: np.ndarray
) -> None:
    """Fill the columns of `out` that follow FEATURES for the blocks from `begin` to `end`.

    likely: float32, the probability of each block by the first classifier. out: float32, shape (end - begin, SECOND).
    """
    blocks, nodes, text = page.blocks, page.nodes, described.text
    by_node, by_path, by_shape, span_begin, span_end, heaviest = gathered
    n = len(blocks.begin)
    total = max(1.0, by_node[0, 0])
    sure = max(1e-6, by_node[0, 1])
    top = 0.0
    last = -1
    before = 0.0
    for k in range(n):
        top = max(top, likely[k])
        if k < begin:
            before += (text.words[k] + 1.0) * likely[k]
            if likely[k] > 0.5:
                last = k
    apart = elements_apart(nodes.parent, described.first, described.last, heaviest)
    following = begin
    for k in range(begin, end):
        row = out[k - begin]
        f = len(FEATURES)
        row[f] = likely[k]
        f += 1
        for step in _STEPS:
            row[f] = likely[k + step] if 0 <= k + step < n else -1
            f += 1
        for width in _WINDOWS:
            w = p = 0.0
            for j in range(max(0, k - width), min(n, k + width + 1)):
                if j != k:
                    w += text.words[j] + 1.0
                    p += (text.words[j] + 1.0) * likely[j]
            row[f] = p / w if w else -1
            f += 1
        up = np.int64(blocks.node[k])
        for _ in range(LEVELS):
            row[f] = by_node[up, 1] / max(1.0, by_node[up, 0])
            f += 1
            up = described.container[up]
        group, shape = by_path[described.path[k]], by_shape[described.shape[k]]
        row[f] = group[1] / group[0]
        row[f + 1] = shape[1] / shape[0]
        row[f + 2] = sure / total
        row[f + 3] = top
        row[f + 4] = before / sure
        own = (text.words[k] + 1.0) * likely[k]
        row[f + 5] = (sure - before - own) / sure
        f += 6
        while following < n and (following <= k or likely[following] <= 0.5):
            following += 1
        row[f] = log_count(k - last) if last >= 0 else -1
        row[f + 1] = log_count(following - k) if following < n else -1
        row[f + 2] = span_begin <= k < span_end
        row[f + 3] = 0 if span_begin <= k < span_end else (k - span_begin if k < span_begin else k - span_end + 1)
        row[f + 4] = (span_end - span_begin) / n
        row[f + 5] = described.first[heaviest] <= k <= described.last[heaviest]
        row[f + 6] = apart[blocks.node[k]]
        row[f + 7] = by_node[heaviest, 1] / sure
        before += own
        if likely[k] > 0.5:
            last = k


@cache
def _forests() -> tuple[Masks, Masks]:
    checksum = files.checksum(str(MODEL))
    if checksum != MODEL_CHECKSUM:
        raise ValueError(
            f"{MODEL} has the checksum {checksum}, not {MODEL_CHECKSUM}: install gristmill again; "
            "if you have trained it again, set MODEL_CHECKSUM"
        )
    return masks(load(MODEL, "first")), masks(load(MODEL, "second"))


class Choice(NamedTuple):
    """What the classifier makes of a page: its bytes and their scan, the probability of each block to be main text and
    its number of words (float32), and the blocks that are best kept (bool)."""

    data: bytes
    page: Page
    likely: np.ndarray
    words: np.ndarray
    kept: np.ndarray


def choose(page: str | bytes, batch: int = 4096) -> Choice:
    """Scan a page and classify its blocks, twice: first alone, then with the others' probabilities.

    Where elements mean what their names do not say (`with_meanings`), blocks that are the same in the page as it is
    have their probabilities there, as the classifier has learned them.

    `page`: may be in UTF-8. `batch`: rows of features that are held at once, about 250 features of 4 bytes each.
    """
    source = page if isinstance(page, bytes) else page.encode("utf-8", "replace")
    scanned, likely, words = _classified(np.frombuffer(source, np.uint8), *_forests(), batch)
    if rewritten := with_meanings(source, scanned):
        plain, as_it_is = scanned, likely
        scanned, likely, words = _classified(np.frombuffer(rewritten, np.uint8), *_forests(), batch)
        same, of_plain = same_blocks(scanned, plain)
        likely[same] = as_it_is[of_plain]
        source = rewritten
    return Choice(source, scanned, likely, words, best_f1(likely, words))


@nb.njit(nogil=True, cache=True)
def _classified(data, one, two, batch):
    """(the scan of a page, the probability of each block, its number of words).

    All in one kernel: to pass a page from Python to a kernel takes as long as to scan a small one.
    """
    scanned = scan(data)
    described = describe(data, scanned)
    n = len(scanned.blocks.begin)
    first, likely = np.empty(n, np.float32), np.empty(n, np.float32)
    columns = np.empty((len(SECOND), 0), np.float32)
    for begin in range(0, n, batch):
        end = min(n, begin + batch)
        columns = np.empty((len(SECOND), end - begin), np.float32)
        features(scanned, described, begin, end, columns.T)
        probability(one, columns, first[begin:end])
    gathered = context(scanned, described, first)
    for begin in range(0, n, batch):
        end = min(n, begin + batch)
        if n > batch:
            columns = np.empty((len(SECOND), end - begin), np.float32)
            features(scanned, described, begin, end, columns.T)
        second(scanned, described, first, gathered, begin, end, columns.T)
        probability(two, columns, likely[begin:end])
    return scanned, likely, described.text.words


@nb.njit(nogil=True, cache=True)
def best_f1(likely: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The blocks (bool) that maximize the expected F1 of their words.

    With words w and probabilities p the F1 of a choice S is taken as 2 * sum_S(pw) / (sum_S(w) + sum(pw)); the best
    choice is the blocks above some probability (Lewis 1995), which is found by trying them all.
    """
    kept = np.zeros(len(likely), np.bool_)
    negative = np.empty_like(likely)
    for k in range(len(likely)):
        negative[k] = -likely[k]
    order = np.argsort(negative, kind="mergesort")
    total = 0.0
    for k in order:
        total += likely[k] * words[k]
    gain = size = best = 0.0
    most = 0  # blocks of the best choice
    for i in range(len(order) if total > 0 else 0):
        gain += likely[order[i]] * words[order[i]]
        size += words[order[i]]
        if 2 * gain / (size + total) > best:
            best = 2 * gain / (size + total)
            most = i + 1
    for k in order[:most]:
        kept[k] = True
    return kept


def main_text(page: str | bytes, markdown: bool = False) -> str:
    """The text of the blocks that are best kept, plain or as Markdown. `page`: may be in UTF-8."""
    choice = choose(page)
    source = Source(choice.data, choice.page)
    together = units(source)
    kept = choice.kept
    if together.wholes:
        kept = best_f1(shared(choice.page, choice.likely, choice.words, together.unit), choice.words)
    chosen = kept | recipe_blocks(source, together, kept)
    kept = completed(source, together, chosen)
    if hidden := hidden_elements(source, together, kept, choice.words):
        # once more, so that nothing is kept for the sake of what is hidden
        seen = ~hidden_blocks(choice.page, hidden)
        kept = completed(source, together, chosen & seen) & seen
        source = Source(choice.data, choice.page, hidden)
    kept &= ~beside(choice.page, kept, choice.words)
    kept &= ~notices(source, kept, choice.words)
    kept &= ~controls(source, together, kept, choice.words)
    kept &= ~repeats(choice.page, kept, together.unit > 0)
    return render(source, together, kept, markdown)
