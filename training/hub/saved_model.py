"""A trained model on a local disk, in one of the three forms that it is kept in, and the mean of several of its kind.

    the folder of a training run    run.json, result.json, config.json, model.safetensors
    one of its checkpoints          <run>/checkpoints/step-00000040
    an exported folder              see `gristmill.training.hub.model_folder`

The mean of several checkpoints' weights is often better than the last of them (Izmailov et al. 2018).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from gristmill.storage import checked_json, files
from gristmill.storage.damage import DamagedFileError, RecordedFile, damaged
from gristmill.storage.training_manifest import TrainingManifest, load_training_manifest
from gristmill.training.checkpoint.commit import COMMIT, Commit, check_files, commit_of
from gristmill.training.config import RunConfig
from gristmill.training.hub.weight_files import TOKENIZERS
from gristmill.training.hub.weights import empty_model, load_model
from gristmill.training.model.decoder import Decoder

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
        """The model, float32, on the CPU, in evaluation mode. Raises DamagedFileError."""
        if (self.folder / COMMIT).exists():
            return self._of_checkpoint()
        if self.run is None:
            for name, digest in _exported(self.folder).items():
                path = self.folder / name
                if not path.is_file() or files.checksum(str(path)) != digest:
                    raise DamagedFileError(
                        f"{path} is not what was exported; run `gristmill export model RECIPE --to {self.folder}` "
                        "again, which mends it"
                    )
        return load_model(self.folder)

    def _of_checkpoint(self) -> Decoder:
        assert self.run is not None and self.data is not None, "a checkpoint is of a run"
        commit = Commit.model_validate(checked_json.read(str(self.folder / COMMIT)))
        for name, digest in commit.files.items():
            if files.checksum(str(self.folder / name)) != digest:
                raise damaged(str(self.folder / name), "is not what was written")
        model = empty_model(self.run.model, self.data.vocab_size).to_empty(device="cpu")
        state = {f"model.{name}": parameter.detach() for name, parameter in model.named_parameters()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that one process reads it
            dcp.load(state, storage_reader=dcp.FileSystemReader(self.folder), no_dist=True)
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
                f"{out / RUN} names the data {path}, which are not there: put them back, or name the recipe in "
                "place of the folder, in the home that has them"
            )
        manifest = load_training_manifest(path)
        tokenizer = RecordedFile(str(manifest.tokenizer.path), manifest.tokenizer.digest)
        return SavedModel(folder, out, report, tokenizer, run, manifest)
    if (folder / MANIFEST).exists():
        recorded = _exported(folder)
        name = next(name for name in TOKENIZERS if name in recorded)
        return SavedModel(folder, out, report, RecordedFile(str(folder / name), recorded[name]))
    raise ValueError(
        f"{folder} holds no trained model: name a recipe, the folder of a finished training run ({RUN}, {RESULT}), one "
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
