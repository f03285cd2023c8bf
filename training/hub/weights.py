"""Final weights as safetensors with a Hugging Face config next to them, and back.

The names are from LlamaForCausalLM, with qk-norm of Qwen3ForCausalLM, and with the block nanochat of
NanoChatForCausalLM. A model that none of them computes has a model type of our own, which `transformers` refuses.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from gristmill.storage import checked_json, files
from gristmill.storage.damage import DamagedFileError, RecordedFile, damaged
from gristmill.storage.training_manifest import TrainingManifest, load_training_manifest
from gristmill.training.checkpoint.commit import COMMIT, Commit, check_files, commit_of
from gristmill.training.checkpoint.reader import CheckpointReader
from gristmill.training.config import RunConfig
from gristmill.training.decoder import Decoder
from gristmill.training.hub.weight_files import (
    CONFIG,
    MASKED,
    TOKENIZERS,
    WEIGHTS,
    check_fits,
    hugging_face_config,
    model_config,
    tokenizer_file,
    weight_files,
)
from gristmill.training.model_config import ModelConfig
from gristmill.training.world import World, all_gather, local, local_part, rank_slice, set_first_weights


def public_name(name: str) -> str:
    """A parameter's name in the file of weights."""
    return name if name.startswith("lm_head.") else f"model.{name}"


def own_name(name: str) -> str:
    """The Decoder's name of a parameter in the file of weights."""
    return name.removeprefix("model.")


def export_model(
    weights: dict[str, torch.Tensor], config: ModelConfig, vocab_size: int, out: Path, causal: bool = True
) -> Path:
    """Write weights (whole, by the Decoder's names, float32) and config into `out`; returns the weights'
    path.

    Tied embeddings are one tensor here: a model with tie_word_embeddings needs no lm_head.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / CONFIG, hugging_face_config(config, vocab_size, causal))
    temporary = out / f"{WEIGHTS}.tmp"
    save_weights({public_name(name): tensor for name, tensor in weights.items()}, temporary)
    return temporary.replace(out / WEIGHTS)


def save_weights(weights: dict[str, torch.Tensor], path: Path) -> None:
    """Write tensors by their public names."""
    # the library creates a file that only its user may read, and ignores the umask
    path.touch()
    rights = path.stat().st_mode
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, path, metadata={"format": "pt"})
    path.chmod(rights)


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def load_model(out: Path) -> Decoder:
    """The exported model, unsharded, float32, on the CPU, in evaluation mode."""
    hub_config = json.loads((Path(out) / CONFIG).read_text(encoding="utf-8"))
    model = empty_model(model_config(hub_config), hub_config["vocab_size"], hub_config["model_type"] != MASKED)
    weights = load_file(Path(out) / WEIGHTS)
    model.load_state_dict({own_name(name): tensor.float() for name, tensor in weights.items()}, assign=True)
    return model.eval()


def empty_model(config: ModelConfig, vocab_size: int, causal: bool = True) -> Decoder:
    """A Decoder without memory, to load weights into."""
    with torch.device("meta"):
        return Decoder(config, vocab_size, causal=causal)


def set_initial_weights(model: Decoder, run: RunConfig, manifest: TrainingManifest, world: World) -> None:
    """The weights that a run begins with, in place: from training.init_from, or drawn; a collective."""
    if run.training.init_from:
        load_initial_weights(model, run, manifest, world)
    else:
        set_first_weights(model, run.training, world)


def load_initial_weights(model: Decoder, run: RunConfig, manifest: TrainingManifest, world: World) -> None:
    """Give a sharded model the weights in training.init_from; a collective. Held: one whole parameter on each rank.

    Raises ValueError, on all ranks, where the files are not those that the run was planned with, do not fit the model,
    or have another tokenizer.
    """
    folder = Path(run.training.init_from or "")
    check_fits(folder, run.model, manifest.vocab_size)
    tokenizer = tokenizer_file(folder)
    paths = {path.name: path for path in (*weight_files(folder), tokenizer)}
    digests = {tokenizer.name: manifest.tokenizer.digest, **run.init_digests}
    read = rank_slice(sorted(paths), run.own_disks)
    mine = [name for name in read if files.checksum(str(paths[name])) != digests.get(name)]
    if wrong := sorted(name for some in all_gather(mine) for name in some):
        raise ValueError(
            f"training.init_from is {folder}, whose {wrong[0]} has changed since the run was planned; "
            "restore it, or run the recipe again"
        )
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for path in weight_files(folder):
            with safe_open(path, framework="pt") as tensors:
                for name in tensors.keys():
                    parameter = parameters.get(own_name(name))
                    if parameter is None:  # the copy of a tied matrix, or positions
                        continue
                    local(parameter).copy_(local_part(tensors.get_tensor(name).float(), parameter))


# A trained model on a local disk, in one of the three forms that it is kept in, and the mean of several of its kind.
#
#     the folder of a training run    run.json, result.json, config.json, model.safetensors
#     one of its checkpoints          <run>/checkpoints/step-00000040
#     an exported folder              see `gristmill.training.hub.model_folder`
#
# The mean of several checkpoints' weights is often better than the last of them (Izmailov et al. 2018).


RUN, RESULT = "run.json", "result.json"
MANIFEST = "gristmill.json"  # of an exported folder


@dataclass(frozen=True)
class SavedModel:
    """`folder`: the weights'; `out`: that of the run of which they are a checkpoint, or their own; `report`: how an
    evaluation of it is called there; `run`, `data`: what it was trained as and on, None for an exported folder."""

    folder: Path
    out: Path
    report: str
    tokenizer: RecordedFile
    run: RunConfig | None = None
    data: TrainingManifest | None = None

    def load(self) -> Decoder:
        """The model, float32, on the CPU, in evaluation mode. Raises DamagedFileError, and ValueError for a checkpoint
        whose layout is not one of torch."""
        if (self.folder / COMMIT).exists():
            return self._of_checkpoint()
        if self.run is None:
            for name, digest in _exported(self.folder).items():
                path = self.folder / name
                if not path.is_file() or files.checksum(str(path)) != digest:
                    raise DamagedFileError(
                        f"{path} differs from the export; run `gristmill export model RECIPE --to "
                        f"{self.folder}` again to repair it"
                    )
        return load_model(self.folder)

    def _of_checkpoint(self) -> Decoder:
        assert self.run is not None and self.data is not None, "a checkpoint is of a run"
        commit = Commit.model_validate(checked_json.read(str(self.folder / COMMIT)))
        for name, digest in commit.files.items():
            if not (self.folder / name).is_file() or files.checksum(str(self.folder / name)) != digest:
                raise damaged(str(self.folder / name), "is not what was written")
        causal = self.run.training.objective != "masked"
        model = empty_model(self.run.model, self.data.vocab_size, causal).to_empty(device="cpu")
        state = {f"model.{name}": parameter.detach() for name, parameter in model.named_parameters()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that one process reads it
            dcp.load(state, storage_reader=CheckpointReader(self.folder), no_dist=True)
        return model.eval()


def _exported(folder: Path) -> dict[str, str]:
    """The digests of the files of an exported model, by name. Raises DamagedFileError."""
    try:
        return checked_json.read(str(folder / MANIFEST))["files"]
    except DamagedFileError:
        raise DamagedFileError(
            f"{folder / MANIFEST} is not what was written; remove {folder} and run `gristmill export model RECIPE --to "
            f"{folder}` again"
        ) from None


def open_model(folder: Path, data: Path | None = None) -> SavedModel:
    """The model in a folder. `data`: its mixture.json, where that has moved since the training.

    Raises ValueError for a folder that holds no model, FileNotFoundError where its data are gone.
    """
    folder = Path(folder).resolve()
    if (folder / COMMIT).exists():
        out, report = folder.parent.parent, f"evaluation-{folder.name}.json"
    else:
        out, report = folder, "evaluation.json"
    if (out / RUN).exists() and ((out / RESULT).exists() or out != folder):
        run = RunConfig.model_validate(checked_json.read(str(out / RUN)))
        path = data or run.data
        if not path.exists():
            raise FileNotFoundError(
                f"{out / RUN} refers to the data {path}, which do not exist: restore them, or give the "
                "recipe instead of the folder, in the home that has them"
            )
        manifest = load_training_manifest(path)
        tokenizer = RecordedFile(str(manifest.tokenizer.path), manifest.tokenizer.digest)
        return SavedModel(folder, out, report, tokenizer, run, manifest)
    if (folder / MANIFEST).exists():
        recorded = _exported(folder)
        name = next(name for name in TOKENIZERS if name in recorded)
        return SavedModel(folder, out, report, RecordedFile(str(folder / name), recorded[name]))
    raise ValueError(
        f"{folder} has no trained model: give a recipe, the folder of a finished training run ({RUN}, {RESULT}), one "
        f"of its checkpoints ({COMMIT}), or a folder that `gristmill export model` wrote ({MANIFEST})"
    )


def result(saved: SavedModel) -> dict:
    """What training has recorded of a finished run."""
    return json.loads((saved.folder / RESULT).read_text(encoding="utf-8"))


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
        digests = {name: files.checksum(str(path / name)) for name in commit.files if (path / name).exists()}
        check_files(path, commit, digests)
        reader = CheckpointReader(path)
        weights = {
            name: torch.empty(entry.size, dtype=torch.float32)
            for name, entry in reader.layout.state_dict_metadata.items()
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
