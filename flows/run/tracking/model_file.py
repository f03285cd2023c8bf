"""MLflow's record of a classifier or a head that a command has trained: its settings, its measures and its curves."""

from collections.abc import Iterator, Mapping
from typing import Any

from mlflow.entities import Metric, Param

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run.tracking.experiment import BATCH, TrackedExperiment, tag_name
from gristmill.storage import files

_LONGEST = 6000  # characters of a parameter that MLflow takes


def log(
    settings: MachineSettings,
    experiment: str,
    path: str,
    kind: str,
    params: Mapping[str, Any],
    found: Mapping[str, Any],
) -> str:
    """Log the training of the model at an address; returns the id of the run, which is called as the file is.

    `found`: what was measured; its numbers are metrics, with the F1 of each label as `f1/LABEL`, and all of it is the
    artifact `<kind>.json`. The curves that lie beside the model are `<kind>.svg`.
    """
    tracked = TrackedExperiment(settings, experiment)
    client = tracked.client
    run = tracked.create(path.rsplit("/", 1)[-1], {"gristmill.file": files.checksum(path)})
    try:
        given = {"file": path, **params}
        client.log_batch(run, params=[Param(name, str(value)[:_LONGEST]) for name, value in given.items()])
        points = [Metric(name, float(value), 0, 0) for name, value in _numbers(found)]
        for start in range(0, len(points), BATCH):
            client.log_batch(run, metrics=points[start : start + BATCH])
        client.log_dict(run, dict(found), f"{kind}.json")
        if files.exists(f"{path}.svg"):
            client.log_text(run, files.read_bytes(f"{path}.svg").decode(), f"{kind}.svg")
    except BaseException as error:
        tracked.end(run, error)
        raise
    client.set_terminated(run, "FINISHED")
    return run


def _numbers(found: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in found.items():
        if isinstance(value, int | float):
            yield name, value
    for label, measures in found.get("by_label", {}).items():
        yield f"f1/{tag_name(label)}", measures["f1"]
    for label, value in found.get("f1_from", {}).items():
        yield f"f1_from/{tag_name(label)}", value
