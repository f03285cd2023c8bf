"""MLflow: the client of the server or database in the settings, experiments, and runs other than those of models.

No run of an experiment stays RUNNING. MLflow stores absolute addresses of artifacts and has no call that changes them.
If a home was moved or copied, this module rewrites them, because MLflow would write artifacts into the original home.

`ParentRun` has a child run for each training of its grid. `log_model_file` records a classifier or a head that a
command has trained.
"""

import contextlib
import hashlib
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import mlflow
import orjson
from mlflow.entities import Dataset, DatasetInput, Experiment, InputTag, LifecycleStage, Metric, Param, Run

from gristmill.flows.machine import run_log
from gristmill.flows.machine.databases import ensure_mlflow, private_folder
from gristmill.flows.machine.settings import MachineSettings
from gristmill.storage import files
from gristmill.storage.leftovers import has_ended, this_process
from gristmill.storage.printable import redact_url
from gristmill.storage.remote.addresses import without_user
from gristmill.tasks.engine.make import StageResult
from gristmill.training.run.tracking import quiet_database

_ADDRESSES = {"experiments": "artifact_location", "runs": "artifact_uri", "logged_models": "artifact_location"}


def move_artifacts(database: Path, old: str, new: str) -> None:
    """Change the folder of artifacts from `old` to `new` for experiments, runs and logged models."""
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        for table, column in _ADDRESSES.items():
            connection.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
                (new, len(old) + 1, old, len(old) + 1, f"{old}/"),
            )


# Without it MLflow's pages take an experiment for one of language model applications, and open at its traces.
KIND = {"mlflow.experimentKind": "custom_model_development"}
PROCESS_TAG = "gristmill.process"
BATCH = 1000  # metrics that a server takes in one request
SQLITE = "sqlite:///"


class TrackedExperiment:
    """The experiment of a recipe, by name. It is created with the first run."""

    def __init__(self, settings: MachineSettings, name: str) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        quiet_database()
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        self.name = name
        uri = settings.tracking_uri
        self._database = Path(uri.removeprefix(SQLITE)) if uri.startswith(SQLITE) else None
        self._artifacts = f"{settings.local_folder}/mlflow-artifacts"
        if self._database:
            ensure_mlflow(self._database)
        if uri.startswith("http"):
            # its client asks again for four minutes, with waits that double and a line for each
            message = f"MLflow at {redact_url(uri)} does not answer. Retrying for four minutes."
            run_log.say_once("urllib3.connectionpool", "Retrying", message)
            # MLflow's errors show its address, and Prefect keeps errors
            uri, user, password = without_user(uri)
            if user:
                os.environ |= {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}
        self.client = mlflow.MlflowClient(uri)

    def find(self) -> Experiment | None:
        """Return the experiment, with its artifacts in this home; None if it does not exist."""
        experiment = self.client.get_experiment_by_name(self.name)
        if self._database and experiment is not None and experiment.artifact_location != self._artifacts:
            move_artifacts(self._database, experiment.artifact_location, self._artifacts)
        if experiment is not None and experiment.lifecycle_stage == LifecycleStage.ACTIVE:
            if not experiment.tags.keys() >= KIND.keys():  # a person may have chosen another
                self.client.set_experiment_tag(experiment.experiment_id, *next(iter(KIND.items())))
        return experiment

    def id(self) -> str:
        """The id of the experiment, which is created if it does not exist."""
        if (experiment := self.find()) is not None:
            return experiment.experiment_id
        # a server knows where its artifacts go; without one they stay in the home
        place = str(private_folder(self._artifacts)) if self._database else None
        return self.client.create_experiment(self.name, artifact_location=place, tags=dict(KIND))

    def create(self, name: str, tags: Mapping[str, str]) -> str:
        """Create a run of this process, and return its id."""
        all_tags = {PROCESS_TAG: this_process(), **tags}
        return self.client.create_run(self.id(), tags=all_tags, run_name=name).info.run_id

    def tagged(self, tag: str, value: str) -> list[Run]:
        """All runs with this tag."""
        if (experiment := self.find()) is None:
            return []
        runs: list[Run] = []
        page: str | None = None
        while page is None or page:
            some = self.client.search_runs(
                [experiment.experiment_id], f"tags.`{tag}` = '{value}'", max_results=1000, page_token=page
            )
            runs += some
            page = some.token or ""
        return runs

    def end_stale_runs(self) -> None:
        """Record runs of this experiment as KILLED if their process has ended without recording it."""
        if (experiment := self.client.get_experiment_by_name(self.name)) is None:
            return
        for run in self.client.search_runs([experiment.experiment_id], "attributes.status = 'RUNNING'"):
            if (process := run.data.tags.get(PROCESS_TAG)) and has_ended(process):
                self.client.set_terminated(run.info.run_id, "KILLED")

    def end(self, run: str, error: BaseException | None) -> None:
        """Record how a run has ended. If the server does not answer any more after an error, the next run records this
        one as KILLED."""
        try:
            self.client.set_terminated(run, end_status(type(error) if error else None))
        except mlflow.MlflowException:
            if error is None:
                raise

    def begin(self, run: str) -> None:
        """Continue an existing run in this process."""
        self.client.set_tag(run, PROCESS_TAG, this_process())
        self.client.update_run(run, status="RUNNING")


def end_status(error: type[BaseException] | None) -> str:
    """MLflow's status for the error that ended a run. An error that is not an Exception comes from a signal."""
    if error is None:
        return "FINISHED"
    return "FAILED" if issubclass(error, Exception) else "KILLED"


def dataset_input(stage: StageResult, context: str) -> DatasetInput:
    """A stage as a dataset of a run, by its key. `context`: its role in the run."""
    steps = stage.step_counts
    return DatasetInput(
        Dataset(
            name=stage.name,
            digest=stage.key,
            source_type="gristmill",
            source=orjson.dumps({"uri": f"stages/{stage.name}-{stage.key}"}).decode(),
            profile=orjson.dumps({"documents": steps[-1]["rows_out"]} if steps else {}).decode(),
        ),
        [InputTag("mlflow.data.context", context)],
    )


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Flatten nested settings to keys such as `mixture.weights.web`. Steps have their names, short lists of values stay
    lists."""
    if isinstance(value, dict):
        return {k: v for key, inner in value.items() for k, v in flat(inner, f"{name}.{key}".strip(".")).items()}
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        named = {item.get("step") or item.get("name") or str(i): item for i, item in enumerate(value)}
        return flat(named, name)
    return {name: value}


def tag_name(name: str) -> str:
    """A candidate's name in the characters that MLflow allows for tags, metrics and files. A changed name has a
    digest."""
    plain = re.sub(r"[^\w.\- ]|\.\.", "-", name)[:150].strip(". ")
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


PARENT_TAG = "mlflow.parentRunId"
STAGE_TAG = "gristmill.proxy"
_CHILD_TAG = "gristmill.request"
_COMPLETE_TAG = "gristmill.artifacts"


class ParentRun:
    """The MLflow run of work that trains many models, in the experiment of its recipe.

    As a context manager around the work it creates the run, or finds that of an earlier try, and sets its end status,
    so that no run stays RUNNING. The value of `tag` identifies the work, which has one parent and one child per
    training.

    `exclusive`: if several processes may do the same work at once, this function opens a block in which no other
    process logs to this run. They log within `turn`.
    """

    def __init__(
        self,
        settings: MachineSettings,
        experiment: str,
        tag: tuple[str, str],
        name: str,
        params: Mapping[str, Any],
        datasets: Sequence[DatasetInput],
        exclusive: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        self.experiment = TrackedExperiment(settings, experiment)
        self.client = self.experiment.client
        self.name, self._exclusive = name, exclusive
        self._tag, self._params, self._datasets = tag, params, datasets
        self._local = settings.local_folder
        self._children: dict[str, tuple[str, bool]] = {}

    def __enter__(self) -> "ParentRun":
        with self._exclusive():
            self.experiment.end_stale_runs()
            if parents := self._find():
                self.id = parents[0].info.run_id
                self.experiment.begin(self.id)
            else:
                self.id = self.experiment.create(self.name, dict([self._tag]))
                self.log(self.id, self._params, {})
                self.client.log_inputs(self.id, list(self._datasets))
        return self

    def _find(self) -> list[Run]:
        """Find the parents of the work, and read its children, some of which other processes may have logged."""
        runs = self.experiment.tagged(*self._tag)
        self._children = {
            run.data.tags.get(_CHILD_TAG, run.info.run_name): (run.info.run_id, run.info.status == "FINISHED")
            for run in runs
            if PARENT_TAG in run.data.tags
        }
        return [run for run in runs if PARENT_TAG not in run.data.tags]

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """A block in which only this process logs to the run."""
        with self._exclusive():
            self._find()
            yield

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
        """Log a finished training as a child run, once. `name`: unique among the children; `stage`: the key of its
        stage; `losses`: (step, training loss)."""
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
        """Log parameters and metrics of this run, or of a child by its id."""
        # points of one time: MLflow keeps one of two that are equal, so what was logged before a crash is there once
        points = [Metric(name, value, 0, 0) for name, value in values.items()]
        points += [Metric("train/loss", loss, 0, step) for step, loss in losses]
        parameters = [Param(name, str(value)[:6000]) for name, value in flat(dict(params)).items()]
        self.client.log_batch(run, params=parameters)
        for start in range(0, len(points), BATCH):
            self.client.log_batch(run, metrics=points[start : start + BATCH])

    def is_complete(self) -> bool:
        """Whether an earlier try completed the run."""
        return _COMPLETE_TAG in self.client.get_run(self.id).data.tags

    def complete(self, write: Callable[[Path], None], description: str, name: str | None = None) -> str:
        """Log the files that `write` writes to a folder, a description in Markdown and a new name, and return the
        id."""
        with tempfile.TemporaryDirectory(dir=self._local, prefix=".mlflow-") as folder:
            write(Path(folder))
            self.client.log_artifacts(self.id, folder)
        self.client.set_tag(self.id, "mlflow.note.content", description)
        if name:
            self.client.update_run(self.id, name=name)
        # last: a run that has it is complete
        self.client.set_tag(self.id, _COMPLETE_TAG, "complete")
        return self.id


_LONGEST = 6000  # characters of a parameter that MLflow takes


def log_model_file(
    settings: MachineSettings,
    experiment: str,
    path: str,
    kind: str,
    params: Mapping[str, Any],
    measures: Mapping[str, Any],
) -> str:
    """Log the training of the model at an address, and return the id of the run, which has the name of the file.

    `measures`: its numbers become metrics, with the F1 of each label as `f1/LABEL`, and all of it is the artifact
    `<kind>.json`. Curves in a file beside the model are logged as `<kind>.svg`.
    """
    tracked = TrackedExperiment(settings, experiment)
    client = tracked.client
    run = tracked.create(path.rsplit("/", 1)[-1], {"gristmill.file": files.checksum(path)})
    try:
        parameters = {"file": path, **params}
        client.log_batch(run, params=[Param(name, str(value)[:_LONGEST]) for name, value in parameters.items()])
        points = [Metric(name, float(value), 0, 0) for name, value in _numbers(measures)]
        for start in range(0, len(points), BATCH):
            client.log_batch(run, metrics=points[start : start + BATCH])
        client.log_dict(run, dict(measures), f"{kind}.json")
        if files.exists(f"{path}.svg"):
            client.log_text(run, files.read_bytes(f"{path}.svg").decode(), f"{kind}.svg")
    except BaseException as error:
        tracked.end(run, error)
        raise
    client.set_terminated(run, "FINISHED")
    return run


def _numbers(measurements: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in measurements.items():
        if isinstance(value, int | float):
            yield name, value
    for label, measures in measurements.get("by_label", {}).items():
        yield f"f1/{tag_name(label)}", measures["f1"]
    for label, value in measurements.get("f1_from", {}).items():
        yield f"f1_from/{tag_name(label)}", value
