"""The trunk of a training: the model and the step that `training.init_from` names as RECIPE@step-1200.

What is known of a trunk is what its stage and that of its mixture recorded, so a branch that is finished is found again
after the trunk's checkpoints are gone. `gristmill.training.start` says how a branch goes on.
"""

import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gristmill.flows.machine.runs import RecordedRun, is_finished, redacted, runs_of
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.storage import checked_json, files, layout
from gristmill.storage.printable import redact_url
from gristmill.tasks.documents.step import Settings
from gristmill.training.checkpoint.keeping import stored
from gristmill.training.config import CHECKPOINTS, TrainingConfig
from gristmill.training.start import offset_of
from gristmill.training.trunk import unlike_trunk

KEY = "training.init_from"
_POINT = re.compile(r"(.+)@(?:step-(\d+)|last)")
_MODEL = re.compile(r"model-[0-9a-f]{8,16}")
RUN = "run.json"


class BranchPoint(Settings):
    """Where a branch begins: `key` of the trunk's model, steps of it, and how many samples of the branch's own mixture
    it had read by then, none if it read another one."""

    key: str
    step: int
    samples: int


@dataclass(frozen=True)
class Trunk:
    """A model and a step of it, as its stage recorded them. `model`, `training`: its settings; `offset`: see
    `gristmill.training.start.Start`; `mixture`: settings of its mixture but for the budget; `inputs`: digests of the
    stages that this was planned from, by name; `tokenizer`, `plan`: labels of the stages of its tokenizer and of its
    mixture."""

    key: str
    step: int
    model: dict[str, Any]
    training: dict[str, Any]
    offset: int
    mixture: dict[str, Any]
    inputs: dict[str, str]
    tokenizer: str
    plan: str

    @property
    def label(self) -> str:
        return f"model-{self.key}"

    def facts(self) -> dict[str, Any]:
        """It as JSON, from which `Trunk(**facts)` makes it again."""
        return asdict(self)

    def config(self) -> TrainingConfig:
        """The settings of its training, with today's defaults for those that it did not know."""
        return TrainingConfig.model_validate({**self.training, "init_from": None, "eval_tasks": None})

    def samples_read(self) -> int:
        """Samples of its own mixture that it had read, without those that its guard left out."""
        return self.config().batches(self.model["seq_len"]).first(self.step) - self.offset


def is_branch(settings: MachineSettings, recipe: Recipe) -> bool:
    """Whether `training.init_from` names a checkpoint of a model, not a folder of weights."""
    address = recipe.training.init_from
    if address is None or _POINT.fullmatch(address) is None:
        return False
    return "://" in address or not settings.placed_folder(KEY, address).is_dir()


def trunk_of(settings: MachineSettings, recipe: Recipe) -> Trunk:
    """The trunk of a recipe that is a branch. Raises ValueError, which names what there is, where the home lacks it."""
    address = recipe.training.init_from
    assert address is not None, "it names a checkpoint"
    match = _POINT.fullmatch(address)
    assert match is not None, "it names a checkpoint"
    label = _label(settings, recipe, match[1])
    folder = files.join(settings.home, "stages", label)
    manifest = layout.manifest(folder)
    if manifest is not None:
        model, training = manifest["record"]["model"], manifest["record"]["training"]
        plan, began = manifest["read"]["mixture"], manifest["record"].get("trunk")
        offset = 0
        if began is not None:
            batches = TrainingConfig.model_validate(training).batches(model["seq_len"])
            offset = offset_of(batches, began["step"], began["samples"])
    else:
        try:
            run = checked_json.read(files.join(folder, RUN))
        except FileNotFoundError:
            raise ValueError(f"{label}, which is the trunk, is not in {redact_url(settings.home)}; train it") from None
        model, training, plan = run["model"], run["training"], Path(run["data"]).parent.name
        offset = run["start"]["offset"] if run.get("start") else 0
    if match[2] is None and manifest is None:
        raise ValueError(f"{label} is still in training, so it has no last step; {_existing(settings, label)}")
    mixture = layout.manifest(files.join(settings.home, "stages", plan))
    if mixture is None:
        raise ValueError(f"{plan}, the mixture of {label}, is not in {redact_url(settings.home)}; train {label} again")
    settings_of = {name: value for name, value in mixture["record"].items() if name not in ("budget", "heldout")}
    inputs = {name: digest for name, digest in mixture["inputs"].items() if name != "evaluation_tokens"}
    step = training["steps"] if match[2] is None else int(match[2])
    key, tokenizer = label.removeprefix("model-"), mixture["read"]["tokenizer"]
    return Trunk(key, step, model, training, offset, settings_of, inputs, tokenizer, plan)


def _label(settings: MachineSettings, recipe: Recipe, name: str) -> str:
    """The label of the model that a name, a path of a recipe or the label itself stands for."""
    path = Path(name) if "://" in name else settings.placed_folder(KEY, name)
    home = redact_url(settings.home)
    if _MODEL.fullmatch(path.name):
        stages = files.names(files.join(settings.home, "stages"))
        labels = [label for label in stages if label.startswith(path.name)]
        if len(labels) != 1:
            there = ", ".join(label for label in stages if label.startswith("model-")) or "no model"
            raise ValueError(f"{path.name} is {len(labels)} models of {home}, which has {there}; name one of them")
        return labels[0]
    if path.is_file():
        trunk = load(str(path))
        if trunk == recipe:
            raise ValueError(f"{path} is the recipe itself; copy it, and name the copy or the original")
        runs = [run for run in runs_of(settings.home, trunk.name) if _is_of(run, trunk)]
    elif path.suffix in (".yaml", ".yml"):
        raise FileNotFoundError(f"{path} does not exist; give the path of a recipe that was trained")
    elif path.name == recipe.name:
        raise ValueError(
            f"{path.name} is the name of this recipe, too; give this one another name, or name the model, as "
            "model-KEY of `gristmill home status`"
        )
    else:
        runs = runs_of(settings.home, path.name)
    labels = [label for run in runs for label in run.stages if label.startswith("model-")]
    if not labels:
        raise ValueError(
            f"{path.name} has no training in {home}; run it first, or name a model, as model-KEY of `gristmill home "
            "status`"
        )
    return labels[0]


def _is_of(run: RecordedRun, recipe: Recipe) -> bool:
    """Whether a run is of exactly this recipe."""
    with suppress(ValidationError):
        recorded = Recipe.model_validate(run.recipe).model_dump(mode="json")
        return bool(redacted(recorded) == redacted(recipe.model_dump(mode="json")))
    return False


def checkpoint_folder(settings: MachineSettings, trunk: Trunk) -> str:
    """The address of the checkpoints of a trunk."""
    return files.join(settings.home, "stages", trunk.label, CHECKPOINTS)


def check_fits(settings: MachineSettings, recipe: Recipe, trunk: Trunk) -> None:
    """Raise ValueError where a recipe cannot branch from a trunk: another model, too few steps, or no checkpoint."""
    ours = recipe.model.model_dump(mode="json"), recipe.training.model_dump(mode="json")
    if unlike := list(unlike_trunk(*ours, trunk.model, trunk.training)):
        raise ValueError(f"{trunk.label} is another kind of model: {'; '.join(unlike)}; set the values of the trunk")
    if trunk.step >= recipe.training.steps:
        raise ValueError(
            f"step {trunk.step:,} of {trunk.label} is not before the last of training.steps "
            f"{recipe.training.steps:,}, which count from the first step of the trunk; raise training.steps"
        )
    if trunk.step not in stored(checkpoint_folder(settings, trunk)):
        raise ValueError(
            f"{trunk.label} has no checkpoint of step {trunk.step:,}; {_existing(settings, trunk.label)}, or train "
            "the trunk again with training.keep_every"
        )


def _existing(settings: MachineSettings, label: str) -> str:
    steps = sorted(stored(files.join(settings.home, "stages", label, CHECKPOINTS)))
    if not steps:
        return "it has no checkpoint"
    return f"name one that it has: {', '.join(f'{label}@step-{step}' for step in steps)}"


def trained_tokens(settings: MachineSettings, recipe: Recipe) -> int:
    """Target tokens that the training of a recipe reads itself: all, or those after the checkpoint of its trunk.
    Raises as `trunk_of`."""
    training, seq_len = recipe.training, recipe.model.seq_len
    before = trunk_of(settings, recipe).step if is_branch(settings, recipe) else 0
    return training.token_budget(seq_len) - training.tokens_read(before, seq_len)


def trunk_problem(settings: MachineSettings, recipe: Recipe) -> str:
    """Why a recipe that is a branch cannot begin; empty if it can, or if it is finished."""
    try:
        check_fits(settings, recipe, trunk_of(settings, recipe))
    except (OSError, ValueError) as error:
        return "" if is_finished(settings.home, recipe.name, recipe.model_dump(mode="json")) else f"{error}"
    return ""
