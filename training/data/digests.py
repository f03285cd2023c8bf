"""Whether the shards of a training manifest are what was written, compared by the ranks together, and a name for their
content."""

from __future__ import annotations

import hashlib

from gristmill.storage import files
from gristmill.storage.damage import damaged, missing
from gristmill.storage.tokens.training_manifest import RowsEntry, ShardEntry, TrainingManifest
from gristmill.training.model.collectives import all_gather, rank_slice


def check_digests(manifest: TrainingManifest, own_disks: bool = False) -> None:
    """Compare every shard and its packed rows with their digests; a collective in which the ranks share the reading.
    `own_disks`: of those that each node has.

    Raises MissingFileError, and DamagedFileError, on all ranks.
    """
    shards = [shard for part in (*manifest.sources, *manifest.heldout) for shard in part.shards]
    entries: list[ShardEntry | RowsEntry] = [*shards, *(rows for source in manifest.sources for rows in source.rows)]
    wrong = [
        (str(entry.path), entry.path.exists()) for entry in rank_slice(entries, own_disks) if not _as_written(entry)
    ]
    for path, there in (each for some in all_gather(wrong) for each in some):
        raise damaged(path, "is not what was written") if there else missing(path)


def _as_written(entry: ShardEntry | RowsEntry) -> bool:
    return entry.path.exists() and files.checksum(str(entry.path)) == entry.digest


def fingerprint(manifest: TrainingManifest) -> str:
    """SHA-256 that names the data: the manifest without its directories, so that a run can move to another machine and
    resume there."""
    digest = hashlib.sha256()
    # what a manifest need not have is left out where it has none, so that older checkpoints know their data
    absent = {name for name in ("phases", "row_length") if not getattr(manifest, name)}
    digest.update(manifest.model_dump_json(exclude={"tokenizer", "sources", "heldout", *absent}).encode())
    for part in (*manifest.sources, *manifest.heldout):
        unnamed = set() if getattr(part, "digest", "") else {"kind", "digest"}
        digest.update(part.model_dump_json(exclude={"shards", "rows"} | unnamed).encode())
        for shard in part.shards:
            digest.update(f"\0{shard.path.name}\0{shard.tokens}\0{shard.digest}\0".encode())
    for rows in (rows for source in manifest.sources for rows in source.rows):
        digest.update(f"\0{rows.path.name}\0{rows.rows}\0{rows.digest}\0".encode())
    return digest.hexdigest()
