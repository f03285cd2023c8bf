"""What the order of samples needs of a training manifest, read with the standard library and numpy.

`gristmill.storage.tokens.training_manifest` describes the file, and has all of it, with pydantic's checks. Here its
checksum says that it is what those checks let through when it was written.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from gristmill.samples.xxh3 import digest
from gristmill.storage.damage import check_name, damaged, missing


class Shard(NamedTuple):
    path: Path
    tokens: int
    digest: str
    offset: int = 0


class Rows(NamedTuple):
    path: Path
    rows: int
    pieces: int
    digest: str


class Source(NamedTuple):
    name: str
    share: float
    tokens: int
    epochs: float
    shards: tuple[Shard, ...]
    rows: tuple[Rows, ...] = ()


class Phase(NamedTuple):
    first: int
    shares: tuple[float, ...]


class Manifest(NamedTuple):
    """`checksum`: of the file, which names shards with their digests; `token_budget`: target tokens of the training
    that it was made for."""

    checksum: str
    vocab_size: int
    dtype: str
    end_of_text: int
    sources: tuple[Source, ...]
    phases: tuple[Phase, ...]
    row_length: int | None

    @property
    def token_budget(self) -> int:
        return round(sum(source.epochs * source.tokens for source in self.sources))


def load_manifest(path: Path) -> Manifest:
    """Read `mixture.json`; its relative paths become absolute. Raises MissingFileError and DamagedFileError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise missing(str(path)) from None
    head, _, rest = data.partition(b",")
    checksum = digest(rest)
    if head != b'{\n  "checksum": "%s"' % checksum.encode():
        raise damaged(str(path), "is not what was written")
    value = json.loads(data)
    check_name(str(path), value.get("file", "a file of another version"))
    base = path.resolve().parent

    def with_full_path(entry: dict[str, Any]) -> dict[str, Any]:
        return entry | {"path": Path(os.path.normpath(base / entry["path"]))}

    sources = tuple(
        Source(
            source["name"],
            source["share"],
            source["tokens"],
            source["epochs"],
            tuple(Shard(**with_full_path(shard)) for shard in source["shards"]),
            tuple(Rows(**with_full_path(rows)) for rows in source.get("rows", ())),
        )
        for source in value["sources"]
    )
    phases = tuple(Phase(phase["first"], tuple(phase["shares"])) for phase in value.get("phases", ()))
    return Manifest(
        checksum,
        value["vocab_size"],
        value.get("dtype", "<u2"),
        value["end_of_text"],
        sources,
        phases,
        value.get("row_length"),
    )
