"""MLflow: the client of this machine's server or database, and experiments whose runs do not stay RUNNING.

MLflow keeps the addresses of artifacts absolute, and has no call that changes them: a home that was moved or copied has
them mended here, or it would write its artifacts into the one that it was copied from.
"""

import contextlib
import hashlib
import os
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlflow
import orjson
from mlflow.entities import Dataset, DatasetInput, Experiment, InputTag, Run

from gristmill.flows.machine import run_log
from gristmill.flows.machine.databases import ensure_mlflow, private_folder
from gristmill.flows.machine.settings import MachineSettings
from gristmill.storage.leftovers import has_ended, this_process
from gristmill.storage.printable import redact_url
from gristmill.storage.remote.addresses import without_user
from gristmill.tasks.engine.make import StageResult

_ADDRESSES = {"experiments": "artifact_location", "runs": "artifact_uri", "logged_models": "artifact_location"}


def move_artifacts(database: Path, old: str, new: str) -> None:
    """Let the experiments, runs and logged models whose artifacts are in the folder `old` have them in `new`."""
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        for table, column in _ADDRESSES.items():
            connection.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
                (new, len(old) + 1, old, len(old) + 1, f"{old}/"),
            )


PROCESS_TAG = "gristmill.process"
BATCH = 1000  # metrics that a server takes in one request
_SQLITE = "sqlite:///"


class TrackedExperiment:
    """The experiment of a recipe, by its name; it is made when the first run is."""

    def __init__(self, settings: MachineSettings, name: str) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        self.name = name
        uri = settings.tracking_uri
        self._database = Path(uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else None
        self._artifacts = f"{settings.local_folder}/mlflow-artifacts"
        if self._database:
            ensure_mlflow(self._database)
        if uri.startswith("http"):
            # its client asks again for four minutes, with waits that double and a line for each
            said = f"MLflow at {redact_url(uri)} does not answer; it is asked again for four minutes"
            run_log.say_once("urllib3.connectionpool", "Retrying", said)
            # MLflow's errors show its address, and Prefect keeps errors
            uri, user, password = without_user(uri)
            if user:
                os.environ |= {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}
        self.client = mlflow.MlflowClient(uri)

    def find(self) -> Experiment | None:
        """The experiment, with its artifacts in this home; None if there is none."""
        found = self.client.get_experiment_by_name(self.name)
        if self._database and found is not None and found.artifact_location != self._artifacts:
            move_artifacts(self._database, found.artifact_location, self._artifacts)
        return found

    def id(self) -> str:
        """The id of the experiment, which is made if there is none."""
        if (found := self.find()) is not None:
            return found.experiment_id
        # a server knows where its artifacts go; without one they stay in the home
        place = str(private_folder(self._artifacts)) if self._database else None
        return self.client.create_experiment(self.name, artifact_location=place)

    def create(self, name: str, tags: Mapping[str, str]) -> str:
        """The id of a new run of this process."""
        given = {PROCESS_TAG: this_process(), **tags}
        return self.client.create_run(self.id(), tags=given, run_name=name).info.run_id

    def tagged(self, tag: str, value: str) -> list[Run]:
        """All runs with this tag."""
        if (experiment := self.find()) is None:
            return []
        found: list[Run] = []
        page: str | None = None
        while page is None or page:
            some = self.client.search_runs(
                [experiment.experiment_id], f"tags.`{tag}` = '{value}'", max_results=1000, page_token=page
            )
            found += some
            page = some.token or ""
        return found

    def end_stale_runs(self) -> None:
        """Record as KILLED the runs of this experiment whose process has ended without a word."""
        if (found := self.client.get_experiment_by_name(self.name)) is None:
            return
        for run in self.client.search_runs([found.experiment_id], "attributes.status = 'RUNNING'"):
            if (process := run.data.tags.get(PROCESS_TAG)) and has_ended(process):
                self.client.set_terminated(run.info.run_id, "KILLED")

    def end(self, run: str, error: BaseException | None) -> None:
        """Record how a run has ended. A server that does not answer any more leaves an error as it is: the next run
        records it as KILLED."""
        try:
            self.client.set_terminated(run, end_status(type(error) if error else None))
        except mlflow.MlflowException:
            if error is None:
                raise

    def begin(self, run: str) -> None:
        """A run that is there already goes on, in this process."""
        self.client.set_tag(run, PROCESS_TAG, this_process())
        self.client.update_run(run, status="RUNNING")


def end_status(error: type[BaseException] | None) -> str:
    """MLflow's status of a run that ended so; what is no Exception came from a signal."""
    if error is None:
        return "FINISHED"
    return "FAILED" if issubclass(error, Exception) else "KILLED"


def dataset_input(stage: StageResult, context: str) -> DatasetInput:
    """A stage as a dataset of a run, by its key; `context`: what it is to the run."""
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
    """Nested settings as `mixture.weights.web`; steps under their own names; short lists of values as they are."""
    if isinstance(value, dict):
        return {k: v for key, inner in value.items() for k, v in flat(inner, f"{name}.{key}".strip(".")).items()}
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        named = {item.get("step") or item.get("name") or str(i): item for i, item in enumerate(value)}
        return flat(named, name)
    return {name: value}


def tag_name(name: str) -> str:
    """A candidate's name as MLflow takes it in names of tags, metrics and files; one that is changed has a digest."""
    plain = re.sub(r"[^\w.\- ]|\.\.", "-", name)[:150].strip(". ")
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
