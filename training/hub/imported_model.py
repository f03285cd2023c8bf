"""A model that another program trained on the token shards of a recipe, as a folder like those that are exported here.

Read is a folder as Hugging Face lays it out, of Llama or Qwen3. Trainers with a format of their own have a converter to
it: docs/trainers.md names them.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import torch
from safetensors import safe_open

from gristmill.storage import checked_json, files
from gristmill.storage.tokenizer_files import SentencePieceTokenizer, load_tokenizer
from gristmill.storage.training_manifest import TrainingManifest
from gristmill.training.config import ModelConfig
from gristmill.training.evaluate.document_losses import TOKENS, write_document_losses
from gristmill.training.evaluate.heldout import heldout_loss, heldout_windows
from gristmill.training.hub.model_folder import heldout_texts, write_tokenizer
from gristmill.training.hub.saved_model import MANIFEST
from gristmill.training.hub.tokenizer import check_same_ids
from gristmill.training.hub.weight_files import CONFIG, TOKENIZERS, check_fits, weight_files
from gristmill.training.hub.weights import export_model, load_model, model_config, own_name
from gristmill.training.parallel.world import processes

KEY = "--model"  # what names the folder, in errors
MICRO_BATCH = 4  # windows in one forward pass of the evaluation


def shape_of(source: Path, data: TrainingManifest) -> ModelConfig:
    """The shape of the model in a folder, whose weights and tokenizer are checked against the recipe's data.

    The vocabulary of the weights may be larger than the tokenizer's: trainers pad it.

    Raises FileNotFoundError for a folder without config or weights; ValueError for a model of another kind, for weights
    of other shapes than its config's, and for another tokenizer.
    """
    weight_files(source, KEY)
    hub_config = json.loads((source / CONFIG).read_text(encoding="utf-8"))
    config = model_config(hub_config)
    check_fits(source, config, key=KEY)
    if hub_config["vocab_size"] < data.vocab_size:
        raise ValueError(
            f"{source / CONFIG} has a vocab_size of {hub_config['vocab_size']:,}, and the recipe's tokenizer has "
            f"{data.vocab_size:,}: the model was not trained on this recipe's tokens; name another folder"
        )
    _check_tokenizer(source, data)
    return config


def write_imported_folder(source: Path, config: ModelConfig, data: TrainingManifest, to: Path) -> None:
    """Write the model of `shape_of` as float32, with the recipe's tokenizer, and `gristmill.json`. It appears whole,
    under its name by one rename; one that is there is left. Held: the weights, once.
    """
    if (to / MANIFEST).is_file():
        return
    temporary = to.with_name(f".{to.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # of an import that was killed
    temporary.mkdir(parents=True)
    hub_config = json.loads((source / CONFIG).read_text(encoding="utf-8"))
    sources = weight_files(source)
    export_model(_weights(sources, config), config, hub_config["vocab_size"], temporary)
    write_tokenizer(temporary, Path(data.tokenizer.path), config.seq_len, data)
    digests = {path.name: files.checksum(str(path)) for path in sorted(temporary.iterdir())}
    identity = {path.name: files.checksum(str(path)) for path in sources}
    checked_json.write(str(temporary / MANIFEST), {"model": identity, "files": digests})
    for path in temporary.iterdir():
        files.sync(path)
    os.rename(temporary, to)
    files.sync(to.parent)


def evaluated(folder: Path, data: TrainingManifest, eval_tokens: int, losses: Path) -> dict[str, float]:
    """The metrics of an imported model on the recipe's held-out text, named as training names them; the loss of each
    held-out document is written to `losses`, as Parquet."""
    with processes(timeout_seconds=600) as world:
        model = load_model(folder).to(world.device)
        windows = heldout_windows(data, model.config.seq_len, eval_tokens)
        metrics = heldout_loss(model, windows, MICRO_BATCH, world)
        write_document_losses(losses, model, data, world, min(TOKENS, MICRO_BATCH * model.config.seq_len))
    return metrics


def _weights(sources: list[Path], config: ModelConfig) -> dict[str, torch.Tensor]:
    """By the Decoder's names, float32. Of tied matrices there is one; positions follow from the config."""
    weights: dict[str, torch.Tensor] = {}
    for path in sources:
        with safe_open(path, framework="pt") as tensors:
            for name in tensors.keys():
                if not name.endswith("rotary_emb.inv_freq") and not (config.tie_embeddings and "lm_head" in name):
                    weights[own_name(name)] = tensors.get_tensor(name).float()
    return weights


def _check_tokenizer(source: Path, data: TrainingManifest) -> None:
    """Raise ValueError where the folder has a tokenizer with other ids than the recipe's. One without any was trained
    on the recipe's token shards, by whoever names it so."""
    ours = Path(data.tokenizer.path)
    there = [source / name for name in TOKENIZERS if (source / name).is_file()]
    if not there or any(files.checksum(str(path)) == data.tokenizer.digest for path in there):
        return
    trained = load_tokenizer(ours)
    [path, *_] = sorted(there, key=lambda one: one.suffix != ".json")
    if path.suffix == ".json" and isinstance(trained, SentencePieceTokenizer):
        check_same_ids(trained, json.loads(path.read_text(encoding="utf-8")), heldout_texts(data, trained))
        return
    raise ValueError(
        f"{path} is another tokenizer than the recipe's, {ours.name}: bits of its tokens cannot be compared by "
        "document; put the recipe's tokenizer there, or import the losses alone, without --model"
    )
