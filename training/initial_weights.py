"""First weights from files in place of drawn ones: continued pretraining."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from torch.distributed.tensor import DTensor, distribute_tensor

from storage import files
from storage.training_manifest import TrainingManifest
from training.config import RunConfig
from training.export import own_name
from training.model import Decoder
from training.parallel import World, all_gather, rank_slice, set_first_weights
from training.weight_files import check_fits, tokenizer_file, weight_files


def set_initial_weights(model: Decoder, run: RunConfig, manifest: TrainingManifest, world: World) -> None:
    """The weights that a run begins with, in place: those of training.init_from, or drawn; a collective."""
    if run.training.init_from:
        load_initial_weights(model, run, manifest, world)
    else:
        set_first_weights(model, run.training.seed, world)


def load_initial_weights(model: Decoder, run: RunConfig, manifest: TrainingManifest, world: World) -> None:
    """Give a sharded model the weights in training.init_from; a collective. Held: one whole parameter on each rank.

    Raises ValueError, on all ranks, where the files are not those that the run was planned with, do not fit the model,
    or have another tokenizer.
    """
    folder = Path(run.training.init_from or "")
    check_fits(folder, run.model, manifest.vocab_size)
    tokenizer = tokenizer_file(folder)
    found = {path.name: path for path in (*weight_files(folder), tokenizer)}
    wanted = {tokenizer.name: manifest.tokenizer.digest, **run.init_digests}
    mine = [name for name in rank_slice(sorted(found)) if files.checksum(str(found[name])) != wanted.get(name)]
    if wrong := sorted(name for some in all_gather(mine) for name in some):
        raise ValueError(
            f"training.init_from is {folder}, whose {wrong[0]} is another than when the run was planned; put it back, "
            "or run the recipe again"
        )
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for path in weight_files(folder):
            with safe_open(path, framework="pt") as tensors:
                for name in tensors.keys():
                    parameter = parameters.get(own_name(name))
                    if parameter is None:  # the copy of a tied matrix, or positions
                        continue
                    assert isinstance(parameter, DTensor), "fully_shard has cut every parameter"
                    whole = tensors.get_tensor(name).float().to(world.device)
                    parameter.copy_(distribute_tensor(whole, world.mesh, parameter.placements, src_data_rank=None))
