"""The mean of several checkpoints' weights, which is often better than the last of them (Izmailov et al. 2018)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from storage import files
from training.checkpoint import check_files, commit_of

PREFIX = "model."


def averaged(paths: Sequence[Path]) -> dict[str, torch.Tensor]:
    """The weights of committed checkpoints averaged, by the Decoder's names: whole, float32, on the CPU.

    They are summed in float64: 8 bytes for each parameter, and 4 for the checkpoint that is read. Needs no process
    group. Raises ValueError for one that was damaged, or for checkpoints of other settings or data than the first's.
    """
    total: dict[str, torch.Tensor] = {}
    names: dict[str, str] | None = None
    for path in map(Path, paths):
        commit = commit_of(path, names)
        names = commit.fingerprint
        found = {name: files.checksum(str(path / name)) for name in commit.files if (path / name).exists()}
        check_files(path, commit, found)
        reader = dcp.FileSystemReader(path)
        weights = {
            name: torch.empty(entry.size, dtype=torch.float32)
            for name, entry in reader.read_metadata().state_dict_metadata.items()
            if name.startswith(PREFIX) and isinstance(entry, TensorStorageMetadata)
        }
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # as no_dist asks for
            dcp.load(weights, storage_reader=reader, no_dist=True)
        for name, weight in weights.items():
            mean = total.setdefault(name.removeprefix(PREFIX), torch.zeros_like(weight, dtype=torch.float64))
            mean += weight.double() / len(paths)
    if not total:
        raise ValueError("no checkpoint to average; give the path of at least one")
    return {name: mean.float() for name, mean in total.items()}
