"""Training on files of tokens that others have written, as nanoGPT and llm.c do: what is trained, and its manifest."""

import glob
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

import wrapt
from pydantic import Field, model_validator

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe import settings_file
from gristmill.storage import checked_json, files
from gristmill.storage.damage import RecordedFile
from gristmill.storage.token_shards import token_file
from gristmill.storage.tokenizer_files import read_tokenizer
from gristmill.storage.training_manifest import token_dtype
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.plan import write_mixture
from gristmill.tasks.tokens.tokenizer import given_tokenizer
from gristmill.tasks.tokens.trial import tried
from gristmill.training.config import RunConfig, TrainingConfig
from gristmill.training.layout.limits import lacking
from gristmill.training.model_config import ModelConfig

if TYPE_CHECKING:
    from gristmill.flows.stages import model as model_stage
    from gristmill.training.run import environment, launch
else:
    model_stage = wrapt.lazy_import("gristmill.flows.stages.model")
    environment = wrapt.lazy_import("gristmill.training.run.environment")
    launch = wrapt.lazy_import("gristmill.training.run.launch")

_WHAT = "settings"
DATA = "data"


class TokenTraining(Settings):
    """Files of tokens, the tokenizer that they were made with, a model and its training. Unknown keys are an error."""

    sources: dict[str, tuple[str, ...]] = Field(min_length=1, description="paths or globs of token files, by source")
    heldout: dict[str, tuple[str, ...]] = Field(
        min_length=1, description="paths or globs of token files to evaluate on, by source"
    )
    tokenizer: str = Field(description="tokenizer file: a `tokenizer.json`, or a SentencePiece model")
    end_of_text: str | None = Field(None, description="as `tokenizer.end_of_text` of a recipe")
    weights: dict[str, float] = Field(
        {}, description="weights in tokens, by source; none: proportional to the tokens of each source"
    )
    max_epochs: float = Field(4, gt=0, description="maximum number of times a source is repeated")
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if unknown := sorted(set(self.weights) - set(self.sources)):
            raise ValueError(f"weights has {', '.join(unknown)}, which are not sources ({', '.join(self.sources)})")
        if self.training.init_from is not None:
            raise ValueError(
                "training.init_from requires a recipe, whose tokens are made with the model's own tokenizer"
            )
        for path, sentence in lacking(self.model, self.training):
            raise ValueError(f"{'.'.join(path)} {sentence}")
        return self

    @property
    def mixture(self) -> Mixture:
        if self.weights:
            return Mixture(weights=self.weights, max_epochs=self.max_epochs)
        return Mixture(strategy="proportional", max_epochs=self.max_epochs)


def load(path: Path) -> TokenTraining:
    """The settings in a YAML file. Raises FileNotFoundError, or RecipeError with a line for all that is wrong."""
    return settings_file.validated(
        TokenTraining, *settings_file.read(path, path.parent, _WHAT), _WHAT, "sources, heldout and tokenizer"
    )


def write_manifest(settings: TokenTraining, folder: Path) -> Path:
    """Write the tokenizer and `mixture.json`, which names the files of tokens where they are; its path.

    Reads each file once, for its digest. Raises FileNotFoundError for a pattern without a file, and ValueError for
    files that are of another kind than the tokenizer's ids, or named twice.
    """
    content = Path(settings.tokenizer).read_bytes()
    tried(content, settings.tokenizer, settings.end_of_text)
    data, name = given_tokenizer(content, settings.tokenizer, settings.end_of_text)
    tokenizer = read_tokenizer(data, name)
    token_bytes = json.dumps(tokenizer.token_bytes()).encode()
    files.write_bytes(str(folder / name), data)
    files.write_bytes(str(folder / "token_bytes.json"), token_bytes)
    dtype = token_dtype(tokenizer.vocab_size)

    trained = {
        source: patterns for source, patterns in settings.sources.items() if source in (settings.weights or [source])
    }
    paths = [
        {source: _paths(source, patterns) for source, patterns in part.items()} for part in (trained, settings.heldout)
    ]
    _check_once([path for part in paths for source_paths in part.values() for path in source_paths])
    tokens, heldout = (
        {source: [_entry(path, dtype) for path in source_paths] for source, source_paths in part.items()}
        for part in paths
    )
    write_mixture(
        str(folder),
        0,
        tokens,
        heldout,
        RecordedFile(name, files.digest(data)),
        RecordedFile(str(folder / "token_bytes.json"), files.digest(token_bytes)),
        tokenizer.end_of_text,
        settings.training.token_budget(settings.model.seq_len),
        settings.mixture,
    )
    return folder / "mixture.json"


def _paths(source: str, patterns: tuple[str, ...]) -> list[Path]:
    matches = []
    for pattern in patterns:
        paths = sorted(glob.glob(pattern))
        if not paths:
            raise FileNotFoundError(f"{source}: no file matches {pattern}; correct it")
        matches += [Path(path).resolve() for path in paths]
    return matches


def _check_once(paths: list[Path]) -> None:
    if twice := sorted(path for path, times in Counter(paths).items() if times > 1):
        raise ValueError(
            f"{twice[0]} is listed more than once in `sources` and `heldout`; list it once, so that it is "
            "trained on as often as the weights say and training text is not used for evaluation"
        )


def _entry(path: Path, dtype: str) -> dict:
    file = token_file(path)
    if file.dtype != dtype:
        raise ValueError(
            f"{path} has tokens of {file.dtype[-1]} bytes, but ids of the tokenizer take {dtype[-1]}; use "
            "the tokenizer that the file was made with"
        )
    digest = files.checksum(str(path))
    return {"path": str(path), "tokens": file.tokens, "digest": digest, "offset": file.offset}


def train_tokens(
    request: TokenTraining, folder: Path, settings: MachineSettings, on_line: Callable[[str], None] = lambda line: None
) -> dict:
    """Train in a local folder, from its newest checkpoint if it has one; what `result.json` holds.

    Raises RuntimeError, with the cause, for a training that does not end well; ValueError where several machines are
    to train together.
    """
    if settings.training_nodes > 1:
        raise ValueError(
            f"GRISTMILL_TRAINING_NODES is {settings.training_nodes}, but this command trains on one machine; "
            "unset it, or make a recipe for the texts"
        )

    folder = folder.resolve()
    mixture = write_manifest(request, folder / DATA)
    run = RunConfig(model=request.model, training=request.training, data=mixture, out=folder)
    checked_json.write(str(folder / "run.json"), run.model_dump(mode="json"))
    processes = settings.training_processes or environment.default_processes()
    log = folder / "training.log"
    code = launch.launch(
        folder / "run.json",
        processes,
        log,
        on_line=on_line,
        restarts=settings.training_restarts,
        limits=settings.training_limits,
    )
    model_stage.check_ended_well(code, folder, log)
    return files.read_json(str(folder / model_stage.RESULT))
