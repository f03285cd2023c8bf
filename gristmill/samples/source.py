"""The samples of a training by their numbers: `SampleSource`. Needs only numpy."""

from __future__ import annotations

import hashlib
import operator
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from gristmill.samples.order import Order
from gristmill.samples.shards import Manifest, Rows, Shard, Span, load_manifest
from gristmill.storage.damage import damaged, missing

HEAD = "<9sQBQQ"
HEAD_BYTES = struct.calcsize(HEAD)
WIDTHS = {4: 4, 8: 2}  # bytes of a token, by the format's code of its type: int32 and uint16


def find_document(shard: Shard, token: int) -> tuple[int, int]:
    """(number of the document in the shard, number of the token in the document). Reads what a binary search needs.

    Raises ValueError for a shard that has no index, DamagedFileError for an index of another number of tokens.
    """
    path = shard.path.with_suffix(".idx")
    if not path.exists():
        raise ValueError(f"{shard.path} has no index {path.name} in the same folder, so its documents are unknown")
    with path.open("rb") as f:
        magic, version, code, count, _ = struct.unpack(HEAD, f.read(HEAD_BYTES))
    if (magic, version) != (b"MMIDIDX\0\0", 1) or code not in WIDTHS or not count:
        raise damaged(str(path), "is not an index of documents")
    lengths = np.memmap(path, "<i4", "r", HEAD_BYTES, (count,))
    starts = np.memmap(path, "<i8", "r", HEAD_BYTES + 4 * count, (count,))  # in bytes
    if starts[-1] // WIDTHS[code] + lengths[-1] != shard.tokens:
        raise damaged(str(path), f"does not match {shard.tokens:,} tokens")
    document = int(np.searchsorted(starts, token * WIDTHS[code], side="right")) - 1
    return document, token - int(starts[document]) // WIDTHS[code]


IGNORE = -100  # the label of what is no target, as torch's cross-entropy has it


class TokenPlace(NamedTuple):
    """`offset`: of the token in the shard `path`, in tokens; `document`: the number of its document in that shard, and
    `within`: of the token in the document."""

    path: Path
    offset: int
    document: int
    within: int


@dataclass(frozen=True)
class Sample:
    """What training reads as one sequence.

    `input_ids`, `labels`: int64 (seq_len,), labels[j] being what follows input_ids[j], or IGNORE;
    `document_lengths`: int64 (documents,), which sum to seq_len: tokens that see each other under
    `training.document_mask`, so a document begins with the end-of-text token ahead of it; `spans`: where the tokens
    are, input_ids and the last label; a token that packing fills in is in none.
    """

    input_ids: np.ndarray
    labels: np.ndarray
    document_lengths: np.ndarray
    source: str
    spans: tuple[Span, ...]

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """(shard, offset) of each of input_ids, int64 (seq_len,) each: the number of the shard in its source, and the
        number of the token in the shard; -1 for what packing fills in."""
        shards = np.full(len(self.input_ids) + 1, -1, np.int64)
        offsets = shards.copy()
        for position, shard, offset, length in self.spans:
            shards[position : position + length] = shard
            offsets[position : position + length] = np.arange(offset, offset + length)
        return shards[:-1], offsets[:-1]


class SampleSource:
    """Sample i is what Gristmill's own training reads at step i // batch: row i % batch of that batch.

    `manifest`: `mixture.json` of a finished stage `mixture`, or of `train from-tokens`: a path, or an address in a
    store; then its files are copied to the local folder `cache` (default: in the user's cache folder). `seq_len`,
    `batch`: `model.seq_len`, `training.batch`; `seed`: `training.order_seed`, or `training.seed`. `steps`: of the run
    (default: as many as the manifest was made for). A run whose guard leaves batches out, or whose `training.objective`
    is not causal, reads them otherwise.

    `verify`: compare manifest, shards and packed rows with their digests, which reads each shard once; with False call
    `check` yourself, say on each of several ranks for its part. Holds memory maps, and no tokens; a pickled source
    holds paths, and opens them again without reading the shards.

    Raises MissingFileError and DamagedFileError, which name the file and the remedy, and ValueError for a run that the
    tokens do not fill, or that reads a source more often than it may.
    """

    def __init__(
        self,
        manifest: str | Path,
        seq_len: int,
        batch: int,
        seed: int,
        *,
        steps: int | None = None,
        verify: bool = True,
        cache: str | Path | None = None,
    ) -> None:
        if "://" in str(manifest):
            from gristmill.storage.training_manifest import local_manifest

            folder = cache or Path.home() / ".cache" / "gristmill" / "stages"
            manifest = local_manifest(str(manifest), str(folder), ["sources"])
        self.path = Path(manifest).resolve()
        self.seq_len, self.batch, self.seed = seq_len, batch, seed
        read = load_manifest(self.path)
        self.checksum = read.checksum
        self._open(read)
        self.steps = read.token_budget // (seq_len * batch) if steps is None else steps
        if self.steps < 1:
            raise ValueError(
                f"{self.path} was made for {read.token_budget:,} tokens, which are not a whole number of "
                f"steps of {batch} sequences of {seq_len:,} tokens; give the `seq_len` and `batch` that it "
                "was made for, or `steps`"
            )
        self.order.check_epochs(self.steps)
        if verify:
            self.check()

    def _open(self, read: Manifest) -> None:
        self.manifest = read
        self.order = Order(read, seq_len=self.seq_len, batch=self.batch, seed=self.seed)

    def check(self, rank: int = 0, world: int = 1) -> None:
        """Compare every `world`-th file from `rank` on with its digest. Raises MissingFileError, DamagedFileError."""
        sources = self.manifest.sources
        entries: list[Shard | Rows] = [shard for source in sources for shard in source.shards]
        entries += [rows for source in sources for rows in source.rows]
        for entry in entries[rank::world]:
            if not entry.path.exists():
                raise missing(str(entry.path))
            with open(entry.path, "rb") as file:
                digest = hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()
            if digest != entry.digest:
                raise damaged(str(entry.path), "is not what was written")

    @property
    def fingerprint(self) -> str:
        """SHA-256 that names the samples and their order."""
        return hashlib.sha256(f"{self.checksum}\0{self.seq_len}\0{self.seed}\0{len(self)}".encode()).hexdigest()

    def __len__(self) -> int:
        """Samples of the run."""
        return self.steps * self.batch

    def __getitem__(self, index: int) -> Sample:
        """Raises IndexError for a number that no sample of the run has, negative ones included."""
        return self._sample(*self.order.window_of(self._valid(index)))

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Several at once, which torch's DataLoader asks for."""
        return [self._sample(*place) for place in self.order.windows_of([self._valid(index) for index in indices])]

    def _valid(self, index: int) -> int:
        index = operator.index(index)
        if not 0 <= index < len(self):
            raise IndexError(f"no sample {index:,}: the run has {len(self):,}, numbered from 0")
        return index

    def row(self, index: int) -> np.ndarray:
        """The tokens of a sample, int64 (seq_len + 1,): its inputs and the last label; ~id where one is no target.
        Raises IndexError as `source[index]` does."""
        source, _, window = self.order.window_of(self._valid(index))
        return self.order.read[source](window)

    def _sample(self, source: int, _: int, window: int) -> Sample:
        row = self.order.read[source](window)
        ids, labels = row[:-1].copy(), row[1:].copy()
        if row.min() < 0:  # ~id is read and no target
            np.copyto(ids, ~ids, where=ids < 0)
            labels[labels < 0] = IGNORE
        begins = np.flatnonzero(ids == self.manifest.end_of_text).tolist()
        edges = [0, *(begins[1:] if begins[:1] == [0] else begins), self.seq_len]
        lengths = np.array([end - begin for begin, end in pairwise(edges)])
        name = self.manifest.sources[source].name
        return Sample(ids, labels, lengths, name, tuple(self.order.read[source].spans(window)))

    def place(self, index: int, token: int) -> TokenPlace | None:
        """Where input_ids[token] of a sample is from; None for what packing fills in.

        `gristmill trace-token` says of a shard and an offset what the document was. Raises IndexError, and ValueError
        for a shard without an index (`.idx`), as `train from-tokens` reads.
        """
        source, _, window = self.order.window_of(self._valid(index))
        token = range(self.seq_len)[token]
        for position, shard, offset, length in self.order.read[source].spans(window):
            if position <= token < position + length:
                entry = self.manifest.sources[source].shards[shard]
                return TokenPlace(
                    entry.path, offset + token - position, *find_document(entry, offset + token - position)
                )
        return None

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("path", "seq_len", "batch", "seed", "steps", "checksum")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        read = load_manifest(self.path)
        if read.checksum != self.checksum:
            raise damaged(str(self.path), "has changed since the source was made")
        self._open(read)
