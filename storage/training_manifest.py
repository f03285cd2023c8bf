"""The training manifest, `mixture.json`: which token shards training reads, in which shares, and its packed rows.

    {"checksum": of the file, see `gristmill.storage.checked_json`,
     "vocab_size": int, "dtype": "<u2" or "<u4", "tokenizer": {"path", "digest"},
     "end_of_text": id of the token that ends each document,
     "token_bytes": [UTF-8 bytes of each token id; 0 for control tokens],
     "sources": [{"name", "share", "tokens", "epochs", "shards": [{"path", "tokens", "digest"}, ...]}, ...],
     "heldout": [{"name", "kind", "digest", "shards": [...]}, ...], the last two only of sets whose documents are fixed:
     the xxh3-128 of their ids and texts,
     "phases": [{"first": target tokens before it, "shares": [of each source]}, ...], only where there are some,
     "row_length": tokens of context that the rows are packed for, only where they are: then each source has
     "rows": [{"path", "rows", "pieces", "digest"}, ...]}

A shard is a file of raw token ids of this type; each document ends with the end-of-text token. Relative paths are
relative to the JSON file. A digest is the xxh3-128 of a file's content.

Packed rows list the pieces of a source's tokens in each row that training reads: a file of little-endian numbers, the
first piece of each row, and the number of pieces (int64, rows + 1); the first token of each piece, in the source's
tokens shard after shard (int64); the tokens of each piece (int32). `gristmill.samples.shards` reads them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from pydantic import BaseModel, Field, ValidationError, model_validator

from gristmill.storage import checked_json, files
from gristmill.storage.damage import missing

SETS = ("sources", "heldout")


def local_manifest(address: str, folder: str, sets: Sequence[str] = SETS) -> Path:
    """The path of a copy of `<home>/stages/mixture-<key>/mixture.json` below a local folder, where the stages that it
    names are beside its own. What is there already is not fetched again. `sets`: of which the shards are copied.

    Digests are not compared: who maps the shards does that. Raises FileNotFoundError, and DamagedFileError for a
    manifest that is not what was written.
    """
    stage, _, name = address.rpartition("/")
    stages, _, own = stage.rpartition("/")
    plan = checked_json.read(address)
    entries = [shard for part in sets for source in plan[part] for shard in source["shards"]]
    rows = [f"../{own}/{packed['path']}" for source in plan["sources"] for packed in source.get("rows", ())]
    for path in (plan["tokenizer"]["path"], *(shard["path"] for shard in entries), *rows, f"../{own}/{name}"):
        inner = path.removeprefix("../")
        files.copy(files.join(stages, inner), f"{folder}/{inner}")
    return Path(folder) / own / name


def write_rows(path: str, first: np.ndarray, start: np.ndarray, length: np.ndarray) -> str:
    """The digest of what is written."""
    data = first.astype("<i8").tobytes() + start.astype("<i8").tobytes() + length.astype("<i4").tobytes()
    files.write_bytes(path, data)
    return files.digest(data)


TokenDtype = Literal["<u2", "<u4"]  # as numpy writes it: little-endian uint16 and uint32


def token_dtype(vocab_size: int) -> TokenDtype:
    """The type of the ids of a vocabulary: the smaller one that holds them."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


class ShardEntry(BaseModel, frozen=True):
    path: Path
    tokens: int = Field(gt=0)
    digest: str
    offset: int = Field(default=0, ge=0, description="bytes before the first token, in a file written by another tool")


class TokenizerEntry(BaseModel, frozen=True):
    path: Path
    digest: str


class RowsEntry(BaseModel, frozen=True):
    path: Path
    rows: int = Field(gt=0)
    pieces: int = Field(gt=0)
    digest: str


Entry = TypeVar("Entry", ShardEntry, TokenizerEntry, RowsEntry)


class SourceShards(BaseModel, frozen=True):
    name: str
    shards: tuple[ShardEntry, ...] = Field(min_length=1)


class SourceShare(SourceShards, frozen=True):
    share: float = Field(ge=0, le=1)
    tokens: int = Field(gt=0)
    epochs: float = Field(
        gt=0, description="maximum number of times the run may read it: the limit, or the planned number"
    )
    rows: tuple[RowsEntry, ...] = ()


class HeldoutSet(SourceShards, frozen=True):
    """Documents that training is evaluated on. `kind`: drawn from a source, or of these those that the recipe keeps, or
    texts that the recipe names. `digest`: of their ids and texts, where they are fixed; then all are evaluated on."""

    kind: Literal["heldout", "survivors", "evaluation"] = "heldout"
    digest: str = ""


class PhaseShares(BaseModel, frozen=True):
    """`first`: target tokens of training before the phase; `shares`: in the order of the sources."""

    first: int = Field(ge=0)
    shares: tuple[float, ...]


class TrainingManifest(BaseModel, frozen=True):
    vocab_size: int = Field(gt=0, le=1 << 31)
    dtype: TokenDtype = "<u2"
    tokenizer: TokenizerEntry
    end_of_text: int = Field(ge=0)
    token_bytes: tuple[int, ...]
    sources: tuple[SourceShare, ...] = Field(min_length=1)
    heldout: tuple[HeldoutSet, ...] = Field(min_length=1)
    phases: tuple[PhaseShares, ...] = ()
    row_length: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _consistent(self) -> TrainingManifest:
        if self.end_of_text >= self.vocab_size:
            raise ValueError(f"end_of_text {self.end_of_text} is not an id of a vocabulary of {self.vocab_size}")
        if self.dtype == "<u2" and token_dtype(self.vocab_size) != "<u2":
            raise ValueError(f"dtype <u2 cannot store the ids of a vocabulary of {self.vocab_size}")
        if len(self.token_bytes) != self.vocab_size:
            raise ValueError(f"token_bytes has {len(self.token_bytes)} entries, vocab_size is {self.vocab_size}")
        if abs(sum(source.share for source in self.sources) - 1) > 1e-6:
            raise ValueError(f"shares {[source.share for source in self.sources]} do not sum to 1")
        if any((self.row_length is not None) != bool(source.rows) for source in self.sources):
            raise ValueError(f"row_length is {self.row_length}: either all sources have rows and it, or none")
        firsts = [phase.first for phase in self.phases]
        if firsts and (firsts[0] != 0 or firsts != sorted(firsts)):
            raise ValueError(f"the phases begin at {firsts} tokens, which must be ascending from 0")
        for phase in self.phases:
            if len(phase.shares) != len(self.sources) or abs(sum(phase.shares) - 1) > 1e-6:
                raise ValueError(f"the shares {list(phase.shares)} of a phase do not match the sources")
        sets = [f"{each.kind}/{each.name}" for each in self.heldout]
        for names in ([source.name for source in self.sources], sets):
            if len(set(names)) < len(names):
                raise ValueError(f"a source is listed twice in {names}")
        return self


def load_training_manifest(path: Path) -> TrainingManifest:
    """Read and check the JSON file; its relative paths become absolute.

    Raises MissingFileError, DamagedFileError, or ValueError naming the file and the field that is wrong.
    """
    path = Path(path)
    try:
        manifest = TrainingManifest.model_validate(checked_json.read(str(path)))
    except FileNotFoundError:
        raise missing(str(path)) from None
    except ValidationError as error:
        raise ValueError(f"{path}: not a mixture: {error}; run the mixture stage again") from error
    base = path.resolve().parent

    def with_full_path(entry: Entry) -> Entry:
        return entry.model_copy(update={"path": Path(os.path.normpath(base / entry.path))})

    def absolute(part: SourceShards) -> SourceShards:
        rows = {"rows": tuple(map(with_full_path, part.rows))} if isinstance(part, SourceShare) else {}
        return part.model_copy(update={"shards": tuple(map(with_full_path, part.shards)), **rows})

    return manifest.model_copy(
        update={
            "tokenizer": with_full_path(manifest.tokenizer),
            "sources": tuple(map(absolute, manifest.sources)),
            "heldout": tuple(map(absolute, manifest.heldout)),
        }
    )
