"""A run of MLflow with a child for each training of its grid, found again when the same work is tried again."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from mlflow.entities import DatasetInput, Metric, Param

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run.tracking.experiment import BATCH, TrackedExperiment, flat

PARENT_TAG = "mlflow.parentRunId"
STAGE_TAG = "gristmill.proxy"
_CHILD_TAG = "gristmill.request"
_COMPLETE_TAG = "gristmill.artifacts"


class ParentRun:
    """The MLflow run of work that trains many models, in the experiment of its recipe.

    Used as a block around the work, it makes the run, or finds that of an earlier try, and sets its end status, so that
    none stays RUNNING. The same work, by the value of `tag`, has one parent and one child for each training.
    """

    def __init__(
        self,
        settings: MachineSettings,
        experiment: str,
        tag: tuple[str, str],
        name: str,
        params: Mapping[str, Any],
        datasets: Sequence[DatasetInput],
    ) -> None:
        self.experiment = TrackedExperiment(settings, experiment)
        self.client = self.experiment.client
        self.name = name
        self._tag, self._params, self._datasets = tag, params, datasets
        self._local = settings.local_folder
        self._children: dict[str, tuple[str, bool]] = {}

    def __enter__(self) -> "ParentRun":
        self.experiment.end_stale_runs()
        runs = self.experiment.tagged(*self._tag)
        parents = [run for run in runs if PARENT_TAG not in run.data.tags]
        self._children = {
            run.data.tags.get(_CHILD_TAG, run.info.run_name): (run.info.run_id, run.info.status == "FINISHED")
            for run in runs
            if PARENT_TAG in run.data.tags
        }
        if parents:
            self.id = parents[0].info.run_id
            self.experiment.begin(self.id)
        else:
            self.id = self.experiment.create(self.name, dict([self._tag]))
            self.log(self.id, self._params, {})
            self.client.log_inputs(self.id, list(self._datasets))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.experiment.end(self.id, error)

    def log_child(
        self,
        name: str,
        stage: str,
        params: Mapping[str, Any],
        values: Mapping[str, float],
        losses: Sequence[tuple[int, float]] = (),
        tags: Mapping[str, str] | None = None,
        datasets: Sequence[DatasetInput] = (),
    ) -> None:
        """Log a finished training as a child, once. `name`: no other child of this parent has it; `stage`: the key of
        its stage; `losses`: (step, training loss)."""
        child, finished = self._children.get(name, ("", False))
        if finished:
            return
        own = {PARENT_TAG: self.id, _CHILD_TAG: name, STAGE_TAG: stage}
        child = child or self.experiment.create(name, dict([self._tag]) | own | dict(tags or {}))
        self.client.log_inputs(child, list(datasets))
        self.log(child, params, values, losses)
        self.client.set_terminated(child, "FINISHED")
        self._children[name] = (child, True)

    def log(
        self,
        run: str,
        params: Mapping[str, Any],
        values: Mapping[str, float],
        losses: Sequence[tuple[int, float]] = (),
    ) -> None:
        """Log parameters and metrics of this run or of a child, by its id."""
        # points of one time: MLflow keeps one of two that are equal, so what was logged before a crash is there once
        points = [Metric(name, value, 0, 0) for name, value in values.items()]
        points += [Metric("train/loss", loss, 0, step) for step, loss in losses]
        given = [Param(name, str(value)[:6000]) for name, value in flat(dict(params)).items()]
        self.client.log_batch(run, params=given)
        for start in range(0, len(points), BATCH):
            self.client.log_batch(run, metrics=points[start : start + BATCH])

    def is_complete(self) -> bool:
        """Whether an earlier try came to its end."""
        return _COMPLETE_TAG in self.client.get_run(self.id).data.tags

    def complete(self, write: Callable[[Path], None], description: str, name: str | None = None) -> str:
        """Log the files that `write` writes to a folder, a description in Markdown, and a new name; returns the id."""
        with tempfile.TemporaryDirectory(dir=self._local, prefix=".mlflow-") as folder:
            write(Path(folder))
            self.client.log_artifacts(self.id, folder)
        self.client.set_tag(self.id, "mlflow.note.content", description)
        if name:
            self.client.update_run(self.id, name=name)
        # last: a run that has it is complete
        self.client.set_tag(self.id, _COMPLETE_TAG, "complete")
        return self.id
