"""The mixture: which token shards there are, in which shares, and how to read windows of them.

The mixture's JSON file:

    {"vocab_size": int, "tokenizer": "path of the SentencePiece .model",
     "token_bytes": [UTF-8 bytes that each token id stands for; 0 for control tokens],
     "sources": [{"name", "share", "tokens", "epochs", "shards": [{"path", "tokens"}, ...]}, ...],
     "heldout": [{"name", "shards": [...]}, ...]}

A shard is a file of raw little-endian uint16 token ids; each document ends with the end-of-text token.
Relative paths are relative to the JSON file. Keys that are not named here are lineage for others and ignored.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from pydantic import BaseModel, Field, ValidationError, model_validator

TOKEN = np.dtype("<u2")
EDGE_BYTES = 4096


class Shard(BaseModel, frozen=True):
    path: Path
    tokens: int = Field(gt=0)


class Heldout(BaseModel, frozen=True):
    name: str
    shards: tuple[Shard, ...] = Field(min_length=1)


class Source(Heldout, frozen=True):
    share: float = Field(ge=0, le=1)
    tokens: int = Field(gt=0)
    epochs: float = Field(gt=0, description="how often the run may read it: the cap, or what is planned")


class Mixture(BaseModel, frozen=True):
    vocab_size: int = Field(gt=0, le=1 << 16)
    tokenizer: Path
    token_bytes: tuple[int, ...]
    sources: tuple[Source, ...] = Field(min_length=1)
    heldout: tuple[Heldout, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Mixture:
        if len(self.token_bytes) != self.vocab_size:
            raise ValueError(f"token_bytes has {len(self.token_bytes)} entries, vocab_size is {self.vocab_size}")
        if abs(sum(source.share for source in self.sources) - 1) > 1e-6:
            raise ValueError(f"shares {[source.share for source in self.sources]} do not sum to 1")
        for part in (self.sources, self.heldout):
            names = [source.name for source in part]
            if len(set(names)) < len(names):
                raise ValueError(f"a source is named twice in {names}")
        return self


def load_mixture(path: Path) -> Mixture:
    """Read and check the mixture's JSON file; its relative paths become absolute.

    Raises FileNotFoundError, or ValueError naming the file and the field that is wrong.
    """
    path = Path(path)
    try:
        mixture = Mixture.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ValueError(f"{path}: not a mixture: {error}; run the mixture stage again") from error
    base = path.resolve().parent

    def absolute(part):
        shards = tuple(shard.model_copy(update={"path": base / shard.path}) for shard in part.shards)
        return part.model_copy(update={"shards": shards})

    return mixture.model_copy(
        update={
            "tokenizer": base / mixture.tokenizer,
            "sources": tuple(map(absolute, mixture.sources)),
            "heldout": tuple(map(absolute, mixture.heldout)),
        }
    )


class Tokens:
    """The shards of one source as one long sequence of token ids. Holds memory maps, not tokens."""

    def __init__(self, shards: tuple[Shard, ...], vocab_size: int):
        self.vocab_size = vocab_size
        self.shards = shards
        self.maps = []
        for shard in shards:
            size = shard.path.stat().st_size
            if size != shard.tokens * TOKEN.itemsize:
                raise ValueError(
                    f"{shard.path}: {size} bytes, but the mixture says {shard.tokens} tokens of "
                    f"{TOKEN.itemsize} bytes; remove the shard's stage directory and run that stage again"
                )
            self.maps.append(np.memmap(shard.path, dtype=TOKEN, mode="r"))
        self.starts = np.cumsum([0] + [shard.tokens for shard in shards])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def read(self, start: int, stop: int) -> np.ndarray:
        """Token ids [start, stop) as int64; a range may span shards. Raises ValueError on an id off the
        vocabulary."""
        if not 0 <= start < stop <= len(self):
            raise IndexError(f"tokens {start}:{stop} of {len(self)}")
        pieces = []
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, stop, side="left"))
        for index in range(first, last):
            base = self.starts[index]
            piece = self.maps[index][max(start - base, 0) : stop - base]
            if piece.max() >= self.vocab_size:
                raise ValueError(
                    f"{self.shards[index].path}: token id {piece.max()}, the vocabulary has "
                    f"{self.vocab_size}; the shard was made with another tokenizer"
                )
            pieces.append(piece)
        return np.concatenate(pieces).astype(np.int64)


def fingerprint(mixture: Mixture) -> str:
    """SHA-256 that names the data: the mixture without its directories, and the ends of each shard.

    Leaving directories out lets a run move to another machine and resume there; hashing the first and last
    4 KiB of every shard catches another corpus under the same file names without reading terabytes.
    """
    digest = hashlib.sha256()
    digest.update(mixture.model_dump_json(exclude={"tokenizer", "sources", "heldout"}).encode())
    for part in (*mixture.sources, *mixture.heldout):
        digest.update(part.model_dump_json(exclude={"shards"}).encode())
        for shard in part.shards:
            digest.update(f"\0{shard.path.name}\0{shard.tokens}\0".encode())
            with shard.path.open("rb") as file:
                digest.update(file.read(EDGE_BYTES))
                file.seek(-min(EDGE_BYTES, shard.tokens * TOKEN.itemsize), 2)
                digest.update(file.read())
    return digest.hexdigest()
