"""Which models MLflow is known to have: a run that reuses its model need not ask, since MLflow takes seconds to load.

    <local folder>/mlflow-runs/<digest of server, experiment and model>    the id of the model's run

Remove the folder to have a model asked for, and recorded again where it is missing.
"""

from pathlib import Path

from flows.machine import MachineSettings
from storage import files

_SQLITE = "sqlite:///"


def noted(settings: MachineSettings, experiment: str, key: str) -> str:
    """The id of the run that has the model with a key; empty if it is not known."""
    uri = settings.tracking_uri
    note = _note(settings, experiment, key)
    gone = uri.startswith(_SQLITE) and not Path(uri.removeprefix(_SQLITE)).exists()
    return note.read_text() if note.exists() and not gone else ""


def note(settings: MachineSettings, experiment: str, key: str, run: str) -> None:
    """Keep in mind that the run has the model, complete with its metrics."""
    files.write_bytes(str(_note(settings, experiment, key)), run.encode())


def _note(settings: MachineSettings, experiment: str, key: str) -> Path:
    name = files.digest("\n".join([settings.tracking_uri, experiment, key]).encode())
    return Path(settings.local_folder) / "mlflow-runs" / name
