"""Notes of the models in MLflow. Separate: a run that reuses its model does not load MLflow.

    <local folder>/mlflow-runs/<digest of server, experiment and model>    the id of the model's run

Remove the folder to have MLflow asked again, and models recorded again where they are missing.
"""

from pathlib import Path

from gristmill.flows.machine.settings import MachineSettings
from gristmill.storage import files

_SQLITE = "sqlite:///"


def run_of(settings: MachineSettings, experiment: str, key: str) -> str:
    """The id of the run that has the model with a key; empty if it is not known."""
    uri = settings.tracking_uri
    note = _path(settings, experiment, key)
    is_gone = uri.startswith(_SQLITE) and not Path(uri.removeprefix(_SQLITE)).exists()
    return note.read_text() if note.exists() and not is_gone else ""


def write(settings: MachineSettings, experiment: str, key: str, run: str) -> None:
    """Note that the run has the model, complete with its metrics."""
    files.write_bytes(str(_path(settings, experiment, key)), run.encode())


def _path(settings: MachineSettings, experiment: str, key: str) -> Path:
    name = files.digest("\n".join([settings.tracking_uri, experiment, key]).encode())
    return Path(settings.local_folder) / "mlflow-runs" / name
