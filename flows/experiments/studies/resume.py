"""The study `resume`: does a run that was resumed have the weights of one that was not interrupted?

The proxy is trained to the end, then again from the checkpoint of half of its steps, by as many processes and by two.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from gristmill.flows.experiments.decisions.arm_data import proxy_data
from gristmill.flows.experiments.studies.options import StudyOptions
from gristmill.flows.experiments.studies.questions import RESUME
from gristmill.flows.experiments.studies.report import ArmResult, StudyReport
from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.proxy import ProxyConfig
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.model import local_mixture
from gristmill.flows.stages.proxy import ENVIRONMENT, RESULT, run_record
from gristmill.storage import checked_json, files
from gristmill.training.config import CHECKPOINTS, RunConfig, TrainingConfig
from gristmill.training.run import launch

ASKS = "Does a resumed run have the weights of an uninterrupted one?"
_WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class _Runs:
    """`folder`: of the runs; `base`: the settings of all but the folder."""

    folder: Path
    base: RunConfig

    def trained(self, name: str, processes: int, checkpoint: Path | None = None) -> Path:
        """The folder of a run, which goes on from a checkpoint. Raises RuntimeError for a run that fails."""
        out = self.folder / name
        if checkpoint is not None:
            shutil.copytree(checkpoint, out / CHECKPOINTS / checkpoint.name)
        checked_json.write(str(out / "run.json"), self.base.model_copy(update={"out": out}).model_dump(mode="json"))
        log = out / "training.log"
        if code := launch.launch(out / "run.json", processes, log, env=ENVIRONMENT):
            last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise RuntimeError(f"the run {name} of the study ended with code {code}: {last}")
        return out

    def halfway(self, run: Path) -> Path:
        """The first checkpoint of a run."""
        return min((run / CHECKPOINTS).iterdir(), key=lambda path: path.name)


def resumed(context: RunContext, recipe: Recipe, proxy: ProxyConfig, options: StudyOptions) -> StudyReport:
    """Train, resume and compare. Raises RuntimeError for a run that fails."""
    data = proxy_data(context, proxy, {recipe.name: recipe}, options.tokens or proxy.tokens, clean=options.clean)
    rate, rows = proxy.learning_rates[-1], list[ArmResult]()
    record = run_record(proxy, data.budget_tokens, rate, 1, 0)
    steps = record.training.steps
    kept = {"checkpoint_every": -(-steps // 2), "keep_checkpoints": 3}
    training = TrainingConfig.model_validate(record.training.model_dump() | kept)
    mixture = Path(local_mixture(context.settings, data.mixture(recipe.name, 1).folder))
    with TemporaryDirectory(prefix="gristmill-resume-", dir=context.settings.local_folder) as folder:
        base = RunConfig(model=record.model, training=training, data=mixture, out=Path(folder))
        runs = _Runs(Path(folder), base)
        whole = runs.trained("uninterrupted", 1)
        rows.append(ArmResult("uninterrupted", loss=_loss(whole)))
        for label, processes in (("resumed", 1), ("resumed by 2 processes", 2)):
            again = runs.trained(label.replace(" ", "-"), processes, runs.halfway(whole))
            rows.append(ArmResult(label, loss=_loss(again), outcome=_distance(whole, again)))
    identity = files.digest(f"{data.mixture(recipe.name, 1).key} {record.model_dump_json()}".encode())[:16]
    return StudyReport(identity, recipe.name, RESUME, ASKS, "", tuple(rows))


def _loss(run: Path) -> float:
    return float(files.read_json(str(run / RESULT))["heldout/bits_per_byte"])


def _distance(one: Path, other: Path) -> str:
    """`the same bits`, or how far the weights are from each other, relative to their size."""
    from safetensors.numpy import load_file

    first, second = (load_file(run / _WEIGHTS) for run in (one, other))
    if all(np.array_equal(first[name], second[name]) for name in first):
        return "the same bits"
    squares = sum(float(((first[name] - second[name]).astype(np.float64) ** 2).sum()) for name in first)
    whole = sum(float((first[name].astype(np.float64) ** 2).sum()) for name in first)
    return f"weights differ by {np.sqrt(squares / whole):.1e} of their norm"
