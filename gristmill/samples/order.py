"""Which tokens are the i-th training sample: a pure function, so any world size sees the same batches.

    sample i ──Schedule──▶ (source, k: its k-th draw) ──permute──▶ window of epoch k // windows ──▶ tokens

Nothing is stored and nothing is shuffled in memory: a resume at step s asks for the samples of step s.
"""

from __future__ import annotations

import bisect
import hashlib
import heapq
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import numpy as np

from gristmill.samples.batch_plan import BatchPlan
from gristmill.samples.shards import PackedRows, Tokens, Windows

if TYPE_CHECKING:
    from gristmill.samples.shards import Manifest, Source
    from gristmill.storage.training_manifest import SourceShare, TrainingManifest

ROUNDS = 8  # of the Feistel network; one 64-byte BLAKE2b digest gives exactly this many 64-bit round keys


_Numbers = TypeVar("_Numbers", int, np.ndarray)
# A source, or an inner node of the tree: (weight of the left branch, weight, left branch, right branch).
_Node: TypeAlias = "int | tuple[int, int, _Node, _Node]"


class Schedule:
    """Samples dealt to sources in proportion to their shares, without keeping counts.

    The rule: sources are the leaves of a Huffman tree over their shares. At an inner node whose left branch
    has the part p of the node's share, the left branch has received round(n p) of the node's first n samples.
    So the n-th sample's branch, and its index within that branch, follow from n alone, level by level.

    After n samples each source has been drawn n * share times, give or take less than 2, for any number of
    sources: each level adds at most 1/2, scaled by the parts p below it, and in a Huffman tree the parts of
    two successive levels multiply to at most 1/2, hence 1/2 (1 + 1 + 1/2 + 1/2 + 1/4 + ...) = 2. Two sources
    stay within 1/2. Arithmetic is exact (integers), at any sample index.
    """

    def __init__(self, shares: list[float]) -> None:
        exact = [Fraction(share) for share in shares]
        scale = max(share.denominator for share in exact)  # powers of two, so the largest is the common one
        # Ties are broken by the order of the list, never by the order of a heap's insertion.
        heap: list[tuple[int, int, _Node]]
        heap = [(int(share * scale), index, index) for index, share in enumerate(exact) if share > 0]
        if not heap:
            raise ValueError(f"shares {shares}: at least one must be above 0")
        heapq.heapify(heap)
        while len(heap) > 1:
            right_weight, tie_right, right_node = heapq.heappop(heap)
            left_weight, tie_left, left_node = heapq.heappop(heap)
            weight = left_weight + right_weight
            heapq.heappush(heap, (weight, min(tie_left, tie_right), (left_weight, weight, left_node, right_node)))
        self.root = heap[0][2]
        self.sources = len(shares)

    @staticmethod
    def _left_count(node: tuple, n: int) -> int:
        left_weight, weight = node[:2]
        return (2 * n * left_weight + weight) // (2 * weight)

    def draw(self, sample: int) -> tuple[int, int]:
        """The source of a sample, and how many earlier samples came from the same source."""
        node = self.root
        while isinstance(node, tuple):
            before = self._left_count(node, sample)
            if self._left_count(node, sample + 1) > before:
                node, sample = node[2], before
            else:
                node, sample = node[3], sample - before
        return node, sample

    def sample(self, source: int, k: int) -> int:
        """The sample that is the k-th draw of a source, from 0: the inverse of `draw`. Raises ValueError for a source
        that is never drawn."""
        path = next((path for leaf, path in _leaves(self.root) if leaf == source), None)
        if path is None:
            raise ValueError(f"source {source} has a share of 0, so no sample is of it")
        for (left_weight, weight, *_), is_left in reversed(path):
            # the first n for which the branch has more than k of the node's first n + 1 samples
            odd = weight * (2 * k + 1)
            k = -(-odd // (2 * left_weight)) - 1 if is_left else odd // (2 * (weight - left_weight))
        return k

    def counts(self, samples: int) -> list[int]:
        """How many of the first `samples` samples each source gets."""
        counts = [0] * self.sources
        todo = [(self.root, samples)]
        while todo:
            node, n = todo.pop()
            if isinstance(node, tuple):
                left_count = self._left_count(node, n)
                todo += [(node[2], left_count), (node[3], n - left_count)]
            else:
                counts[node] = n
        return counts


def _leaves(root: _Node) -> Iterator[tuple[int, list[tuple[tuple, bool]]]]:
    """The sources below a node, each with the inner nodes above it from the top, and whether it is on their left."""
    todo: list[tuple[_Node, list[tuple[tuple, bool]]]] = [(root, [])]
    while todo:
        node, path = todo.pop()
        if isinstance(node, tuple):
            todo += [(node[2], [*path, (node, True)]), (node[3], [*path, (node, False)])]
        else:
            yield node, path


_WORD = (1 << 64) - 1


def _mix(x: _Numbers) -> _Numbers:
    """Finaliser of splitmix64 (Steele, Lea, Flood 2014): spreads every input bit over all 64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _WORD
    return x ^ (x >> 31)


class _Permutation:
    """A keyed permutation of range(size). O(1) memory, whatever the size.

    A balanced Feistel network permutes the next even power of two; values that fall outside the range walk
    on along their cycle until they are inside (Black and Rogaway 2002), fewer than 4 steps on average.
    """

    def __init__(self, size: int, key: bytes) -> None:
        digest = hashlib.blake2b(key, digest_size=8 * ROUNDS).digest()
        self.keys = [int.from_bytes(digest[offset : offset + 8], "little") for offset in range(0, len(digest), 8)]
        self.size, self.half = size, max(1, ((size - 1).bit_length() + 1) // 2)

    def step(self, x: _Numbers) -> _Numbers:
        """One step along a cycle: of an int, or of an array of uint64."""
        left, right = x >> self.half, x & ((1 << self.half) - 1)
        for key in self.keys:
            left, right = right, left ^ (_mix((right + key) & _WORD) >> (64 - self.half))
        return (left << self.half) | right

    def back(self, x: int) -> int:
        """The number of which `step` gives this one."""
        left, right = x >> self.half, x & ((1 << self.half) - 1)
        for key in reversed(self.keys):
            left, right = right ^ (_mix((left + key) & _WORD) >> (64 - self.half)), left
        return (left << self.half) | right


def permute(index: np.ndarray, size: int, key: bytes) -> np.ndarray:
    """Where a keyed permutation of range(size) sends each index, int64."""
    permutation = _Permutation(size, key)
    out = np.array(index, dtype=np.uint64)
    walking = np.arange(out.size)
    while walking.size:
        out[walking] = permutation.step(out[walking])
        walking = walking[out[walking] >= size]
    return out.astype(np.int64)


def permute_one(index: int, size: int, key: bytes) -> int:
    """As `permute`, of one index: without numpy, which takes five times as long for one."""
    permutation = _Permutation(size, key)
    index = permutation.step(index)
    while index >= size:
        index = permutation.step(index)
    return index


def index_of(place: int, size: int, key: bytes) -> int:
    """The index that `permute_one` sends to a place."""
    permutation = _Permutation(size, key)
    index = permutation.back(place)
    while index >= size:
        index = permutation.back(index)
    return index


def step_of(number: int, windows: Sequence[tuple[int, int]]) -> int | None:
    """The step of a batch, both counted from 0; None for one within a window: the inverse of `batch_number`."""
    left_out = {each for first, end in windows for each in range(first, min(end, number + 1))}
    return None if number in left_out else number - len(left_out)


def batch_number(step: int, windows: Sequence[tuple[int, int]]) -> int:
    """The batch of a step, both counted from 0: the step-th of those outside of all windows (first, end)."""
    number, passed = step, 0
    for first, end in sorted(windows):
        first = max(first, passed)
        if number < first:
            break
        number += max(0, end - first)
        passed = max(passed, end)
    return number


class Phases:
    """Schedules one after the other. A source goes on in a phase where it was at the end of the one before, so that
    its epochs are those of the whole training.

    `firsts`: the first sample of each phase; `shares`: those of the sources in it. The last phase does not end.
    """

    def __init__(self, firsts: Sequence[int], shares: Sequence[Sequence[float]]) -> None:
        self.firsts = list(firsts)
        self.schedules = [Schedule(list(each)) for each in shares]
        self.before = [[0] * len(shares[0])]  # draws of each source ahead of each phase
        for schedule, first, end in zip(self.schedules, self.firsts, self.firsts[1:], strict=False):
            self.before.append([a + b for a, b in zip(self.before[-1], schedule.counts(end - first), strict=True)])

    def phase(self, sample: int) -> int:
        """The number of the phase of a sample."""
        return bisect.bisect_right(self.firsts, sample) - 1

    def draw(self, sample: int) -> tuple[int, int]:
        """The source of a sample, and how many earlier samples came from the same source."""
        phase = self.phase(sample)
        source, k = self.schedules[phase].draw(sample - self.firsts[phase])
        return source, self.before[phase][source] + k

    def sample(self, source: int, k: int) -> int:
        """The sample that is the k-th draw of a source: the inverse of `draw`."""
        phase = max(number for number, before in enumerate(self.before) if before[source] <= k)
        return self.firsts[phase] + self.schedules[phase].sample(source, k - self.before[phase][source])

    def counts(self, samples: int) -> list[int]:
        """How many of the first `samples` samples each source gets."""
        phase = self.phase(samples)
        now = self.schedules[phase].counts(samples - self.firsts[phase])
        return [a + b for a, b in zip(self.before[phase], now, strict=True)]


def schedule_of(manifest: TrainingManifest | Manifest, seq_len: int, tokens: Sequence[float]) -> Phases:
    """Which source each sample of a manifest is from. `tokens`: those of a window of each source, on average, since
    shares are of tokens, not of windows."""

    def of_windows(shares: Sequence[float]) -> list[float]:
        if manifest.row_length is None:
            return list(shares)
        each = [share / (count or 1) for share, count in zip(shares, tokens, strict=True)]
        return [one / sum(each) for one in each]

    if not manifest.phases:
        return Phases([0], [of_windows([source.share for source in manifest.sources])])
    firsts = [round(phase.first / seq_len) for phase in manifest.phases]
    return Phases(firsts, [of_windows(phase.shares) for phase in manifest.phases])


class Transform(Protocol):
    """What an objective makes of the text of a sample: see `gristmill.training.objectives`. `tokens`: of text."""

    tokens: int

    def __call__(self, text: np.ndarray, sample: int) -> np.ndarray: ...


class Order:
    """The training samples of a manifest, by step.

    A source's tokens, shard after shard, are cut into windows of seq_len + 1 tokens at a stride of seq_len,
    so that every token but the first is a target once an epoch; a window may span two shards. The tail that
    fills no window is left out. Of a manifest with packed rows, the rows are the windows: see `shards`. Each epoch
    visits all windows once, in an order keyed by seed, source name and epoch.

    `batch`: the samples of a batch, or the plan of batches that grow. `transform` makes samples of windows of its
    number of tokens; without it they are the samples. `offset`: the sample of the plan that reads the first window of
    the manifest, for a run that begins with the weights of another one.
    """

    def __init__(
        self,
        manifest: TrainingManifest | Manifest,
        *,
        seq_len: int,
        batch: int | BatchPlan,
        seed: int,
        transform: Transform | None = None,
        offset: int = 0,
    ) -> None:
        self.seq_len, self.seed, self.transform, self.offset = seq_len, seed, transform, offset
        self.plan = batch if isinstance(batch, BatchPlan) else BatchPlan(batch, seq_len)
        window = seq_len if transform is None else transform.tokens - 1
        self.sources: list[SourceShare | Source] = [*manifest.sources]
        if manifest.row_length not in (None, seq_len):
            raise ValueError(
                f"the mixture is packed for a context of {manifest.row_length} tokens, the model has seq_len "
                f"{seq_len}; make the mixture for this model"
            )
        self.tokens = [Tokens(source.shards, manifest.vocab_size, manifest.dtype) for source in manifest.sources]
        self.read: list[Windows | PackedRows]
        if manifest.row_length is None:
            self.read = [Windows(tokens, window) for tokens in self.tokens]
        else:
            packed = zip(self.tokens, self.sources, strict=True)
            self.read = [PackedRows(tokens, source.rows, seq_len, manifest.end_of_text) for tokens, source in packed]
        self.windows = [len(read) for read in self.read]
        each = [len(tokens) / max(1, windows) for tokens, windows in zip(self.tokens, self.windows, strict=True)]
        self.schedule = schedule_of(manifest, seq_len, each)
        for source, tokens, windows in zip(self.sources, self.tokens, self.windows, strict=True):
            if source.share and not windows:
                raise ValueError(
                    f"source {source.name!r}: {len(tokens)} tokens do not fill one window of {window} + 1; "
                    "add data, set its share to 0 or use a shorter seq_len"
                )

    def check_epochs(self, steps: int) -> None:
        """Raise ValueError if a run of `steps` steps would read a source more often than its cap says."""
        counts = self.schedule.counts(self.plan.first(steps) - self.offset)
        for source, windows, count in zip(self.sources, self.windows, counts, strict=True):
            # The schedule's rounding (2 draws a phase) and the tail that fills no window are not the recipe's fault.
            if count > source.epochs * (windows + 1) + 2 * len(self.schedule.firsts):
                raise ValueError(
                    f"source {source.name!r}: {steps} steps read it {count / windows:.2f} times, but its limit is "
                    f"{source.epochs} epochs; make the mixture for this budget, train less or raise the limit"
                )

    def windows_of(self, samples: Iterable[int]) -> list[tuple[int, int, int]]:
        """(source, epoch, window) of each sample."""
        draws = [self.schedule.draw(int(sample) - self.offset) for sample in samples]
        places = [(source, *divmod(k, self.windows[source])) for source, k in draws]
        result: list[tuple[int, int, int]] = [(0, 0, 0)] * len(places)
        for source, epoch in dict.fromkeys((source, epoch) for source, epoch, _ in places):
            rows = [row for row, place in enumerate(places) if place[:2] == (source, epoch)]
            key = self._key(source, epoch)
            turns = np.array([places[row][2] for row in rows])
            for row, window in zip(rows, permute(turns, self.windows[source], key), strict=True):
                result[row] = (source, epoch, int(window))
        return result

    def window_of(self, sample: int) -> tuple[int, int, int]:
        """(source, epoch, window) of one sample, as `windows_of` has it."""
        source, k = self.schedule.draw(sample - self.offset)
        epoch, turn = divmod(k, self.windows[source])
        return source, epoch, permute_one(turn, self.windows[source], self._key(source, epoch))

    def samples_of(self, source: int, window: int, end: int) -> Iterator[int]:
        """The samples before the sample `end` that read a window of a source, one for each of its epochs, in order."""
        draws = self.schedule.counts(max(0, end - self.offset))[source]
        for epoch in range(-(-draws // self.windows[source])):
            k = epoch * self.windows[source] + index_of(window, self.windows[source], self._key(source, epoch))
            if k < draws:
                yield self.schedule.sample(source, k) + self.offset

    def _key(self, source: int, epoch: int) -> bytes:
        return f"{self.seed}\0{self.sources[source].name}\0{epoch}".encode()

    def samples(self, number: int, end: int | None = None) -> range:
        """Those of a batch, or of the batches from `number` to before `end`."""
        return range(self.plan.first(number), self.plan.first(number + 1 if end is None else end))

    def begins_phase(self, step: int, windows: Sequence[tuple[int, int]]) -> bool:
        """Whether the batch of a step, counted from 0, is the first with samples of a later phase of the mixture.
        `windows`: batches that are left out, as for `batch_number`."""
        if step == 0 or len(self.schedule.firsts) == 1:
            return False
        ends = (self.samples(batch_number(each, windows)).stop for each in (step - 1, step))
        before, now = (self.schedule.phase(end - 1 - self.offset) for end in ends)
        return before != now

    def batch(self, number: int, rank: int = 0, world: int = 1) -> np.ndarray:
        """Token ids of a batch, int64 of shape (rows, seq_len + 1); rows = its size when world is 1. A token that is no
        target is given as ~id, see `gristmill.training.loss.inputs_and_targets`.

        Row j of rank r is row j * world + r of the whole batch, so the ranks' rows together are the same
        batch for every world size.
        """
        samples = self.samples(number)[rank::world]
        rows = [self.read[source](window) for source, _, window in self.windows_of(samples)]
        if self.transform:
            rows = [self.transform(row, sample - self.offset) for row, sample in zip(rows, samples, strict=True)]
        return np.array(rows, dtype=np.int64).reshape(len(rows), self.seq_len + 1)
