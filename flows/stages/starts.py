"""The checkpoint of another model that a training starts from: of its trunk, or of a shorter run of its recipe.

A branch starts where its recipe says (`gristmill.flows.recipe.trunk`). A recipe that was trained with fewer steps, and
whose learning rate is the same up to a checkpoint, resumes from that checkpoint. The model is bit-identical to one that
is trained from scratch, so its key does not include the start. This requires that the longer mixture begins with the
same samples (`gristmill.training.trunk.read_digest`), and that all other settings that affect a step are equal.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gristmill.flows.machine.runs import runs_of
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.trunk import check_fits, checkpoint_folder, trunk_of
from gristmill.flows.stages.heldout import Data
from gristmill.storage import checked_json, files, layout
from gristmill.storage.training_manifest import TrainingManifest
from gristmill.tasks.engine.spec import StageSpec
from gristmill.training.checkpoint.keeping import COMMIT, folder_name, stored
from gristmill.training.config import CHECKPOINTS, TrainingConfig
from gristmill.training.run.tracking import METRICS, TIMING
from gristmill.training.start import Start, offset_of
from gristmill.training.trunk import read_digest, same_rates

# Settings of training that may differ in a shorter run: the length and shape of the schedule, whose rates are compared
# step by step, what is kept, and what is done after the last step.
_MAY_DIFFER = (
    *("steps", "schedule", "decay_ratio", "final_ratio", "warmup_steps", "checkpoint_every", "keep_checkpoints"),
    *("keep_every", "profile_steps", "log_every", "sample_tokens", "sample_temperature", "sample_top_k"),
)


@dataclass(frozen=True)
class Beginning:
    """`start`: a Start as JSON, or empty; `lines`: see `ModelPlaces`; `note`: a sentence for the log."""

    start: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    note: str = ""


def beginning(settings: MachineSettings, recipe: Recipe, data: Data, spec: StageSpec) -> Beginning:
    """The checkpoint that the training of a new model starts from, if any. Raises ValueError for a branch whose trunk
    does not fit, or has lost the checkpoint."""
    if data.branch is not None:
        return _of_branch(settings, recipe, data)
    return _of_shorter(settings, recipe, data, spec)


def _of_branch(settings: MachineSettings, recipe: Recipe, data: Data) -> Beginning:
    trunk, branch, seq_len = trunk_of(settings, recipe), data.branch, recipe.model.seq_len
    assert branch is not None, "the recipe is a branch"
    check_fits(settings, recipe, trunk)
    if branch.samples:
        theirs = read_digest(_manifest(settings, trunk.plan), trunk.config(), seq_len, branch.samples)
        if theirs != read_digest(_own(data), recipe.training, seq_len, branch.samples):
            raise ValueError(
                f"training.init_from is {recipe.training.init_from}: the mixture has the same settings as that of "
                f"{trunk.label}, but for {recipe.training.steps:,} steps it begins with other samples than the trunk "
                "read, because max_epochs or the phases share other tokens. Give the mixture weights that need no "
                "cap, or another mixture or training.order_seed, which is read from its beginning"
            )
    start = Start(
        **_checkpoint(files.join(checkpoint_folder(settings, trunk), folder_name(trunk.step))),
        step=trunk.step,
        offset=offset_of(recipe.training.batches(seq_len), trunk.step, branch.samples),
        same_data=branch.samples > 0,
    )
    data_read = "its data from there on" if branch.samples else "another mixture from its beginning"
    note = f"branching from step {trunk.step:,} of {trunk.label}, with {data_read}"
    return Beginning(start.model_dump(mode="json"), note=note)


def _checkpoint(folder: str) -> dict[str, str]:
    return {"address": folder, "digest": files.checksum(files.join(folder, COMMIT))}


def _manifest(settings: MachineSettings, label: str) -> TrainingManifest:
    """The training manifest of a stage, with its paths unchanged. Raises ValueError if its files are gone."""
    try:
        address = files.join(settings.home, "stages", label, "mixture.json")
        return TrainingManifest.model_validate(checked_json.read(address))
    except FileNotFoundError:
        raise ValueError(f"{label} has no mixture.json any more; run its recipe again") from None


def _own(data: Data) -> TrainingManifest:
    return TrainingManifest.model_validate(checked_json.read(files.join(data.mixture.folder, "mixture.json")))


def _of_shorter(settings: MachineSettings, recipe: Recipe, data: Data, spec: StageSpec) -> Beginning:
    """Start from the latest usable checkpoint of a finished model of the same recipe name. If there are only unusable
    models with other numbers of steps, the note explains why, and how to branch."""
    best: tuple[int, str] | None = None
    label, steps, why = "", 0, ""
    for other, record in _siblings(settings, recipe, spec):
        trained = TrainingConfig.model_validate({**record["training"], "init_from": None, "eval_tasks": None})
        step, reason = _last_common_step(settings, recipe, data, other, trained, record["plan"])
        if step and (best is None or step > best[0]):
            best = step, other
        if not label or steps >= recipe.training.steps > trained.steps:
            label, steps, why = other, trained.steps, reason
    if best is None:
        if not label:
            return Beginning()
        kept = sorted(stored(files.join(settings.home, "stages", label, CHECKPOINTS)))
        branch = f". To begin with it, set training.init_from: {label}@step-{kept[-1]}" if kept else ""
        note = f"{label} is a finished model of {steps:,} steps, but this one begins from step 1: {why}{branch}"
        return Beginning(note=note)
    step, label = best
    stage = files.join(settings.home, "stages", label)
    checkpoint = _checkpoint(files.join(stage, CHECKPOINTS, folder_name(step)))
    start = Start(**checkpoint, step=step, offset=0, same_data=True)
    lines = {name: files.join(stage, name) for name in (METRICS, TIMING)}
    note = (
        f"going on from step {step:,} of {label}: this training has the same steps up to there, so only "
        f"{recipe.training.steps - step:,} of {recipe.training.steps:,} are trained"
    )
    return Beginning(start.model_dump(mode="json"), lines, note)


def _siblings(settings: MachineSettings, recipe: Recipe, spec: StageSpec) -> Iterator[tuple[str, dict[str, Any]]]:
    """Label and record of finished models of the recipe's name that differ only in settings that may differ, and
    perhaps in the mixture, newest runs first. `plan` in a record: the label of the mixture."""
    ours = spec.record.model_dump(mode="json")
    labels = [label for run in runs_of(settings.home, recipe.name) for label in run.stages]
    for label in dict.fromkeys(label for label in labels if label.startswith("model-")):
        folder = files.join(settings.home, "stages", label)
        manifest = layout.manifest(folder)
        if manifest is None or manifest.get(layout.COLLECTED) or manifest["version"] != spec.version:
            continue
        theirs = manifest["record"]
        fits = _fixed(theirs["training"]) == _fixed(ours["training"])
        files_of = [
            {name: digest for name, digest in inputs.items() if name not in ("mixture", "tokens", "tokenizer")}
            for inputs in (manifest["inputs"], spec.identity["inputs"])
        ]
        if fits and theirs["model"] == ours["model"] and "trunk" not in theirs and files_of[0] == files_of[1]:
            yield label, {**theirs, "plan": manifest["read"]["mixture"]}


def _fixed(training: dict[str, Any]) -> dict[str, Any]:
    """Settings of a record that both trainings must share, with current defaults."""
    return TrainingConfig.model_validate(training).model_dump(mode="json", exclude=set(_MAY_DIFFER))


def _last_common_step(
    settings: MachineSettings, recipe: Recipe, data: Data, label: str, trained: TrainingConfig, plan: str
) -> tuple[int, str]:
    """The last step of a finished model with a checkpoint that this training can resume from; 0, and the reason, if
    there is none. `plan`: the label of its mixture."""
    training, seq_len = recipe.training, recipe.model.seq_len
    if trained.steps >= training.steps:
        return 0, "only a training of more steps goes on from it"
    folder = files.join(settings.home, "stages", label)
    checkpoints = sorted(stored(files.join(folder, CHECKPOINTS)), reverse=True)
    reason = "it has no checkpoint from before its learning rate fell"
    # the last step is excluded: it was evaluated only because it was the last
    for step in [each for each in checkpoints if each < trained.steps]:
        if not same_rates(training, trained, seq_len, step):
            if training.schedule != "wsd":
                reason = f"the schedule {training.schedule} has another learning rate with {training.steps:,} steps"
            continue
        commit = checked_json.read(files.join(folder, CHECKPOINTS, folder_name(step), COMMIT))
        if any(event["what"] == "rollback" for event in commit["progress"]["events"]):
            reason = "its guard went back, and left out as many batches as its steps ask for"
            continue
        samples = training.batches(seq_len).first(step)
        one, other = _manifest(settings, plan), _own(data)
        if _evaluated(one) != _evaluated(other) or read_digest(one, trained, seq_len, samples) != read_digest(
            other, training, seq_len, samples
        ):
            return 0, "its mixture or its held-out texts are not those of this training"
        return step, ""
    return 0, reason


def _evaluated(manifest: TrainingManifest) -> Any:
    """Everything that evaluation results depend on, and the guard's entropy of tokens, which includes the shares."""
    sets = [(each.kind, each.name, each.digest, [shard.digest for shard in each.shards]) for each in manifest.heldout]
    shares = [round(source.share, 9) for source in manifest.sources]
    return manifest.token_bytes, manifest.tokenizer.digest, sets, shares
