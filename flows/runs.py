"""Which stages the last run of a recipe had: `<home>/runs/<recipe>.json`. For readers alone, no key knows of it."""

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from storage import checked_json, files
from storage.damage import DamagedFileError

if TYPE_CHECKING:
    from tasks.engine.spec import StageSpec

log = logging.getLogger(__name__)


class LastRun:
    """The stages of a run, written down as each begins."""

    def __init__(self, home: str, recipe: str) -> None:
        self._path = files.join(home, "runs", f"{recipe}.json")
        self._labels: list[str] = []

    def add(self, *specs: "StageSpec") -> None:
        """Note stages that are found or made next."""
        labels = [f"{spec.name}-{spec.key}" for spec in specs]
        if new := [label for label in dict.fromkeys(labels) if label not in self._labels]:
            self._labels += new
            checked_json.write(self._path, {"stages": self._labels})


def recipes_by_stage(home: str) -> Mapping[str, list[str]]:
    """The names of the recipes whose last run had a stage, by its label. Reads a small file for each recipe.

    One that is damaged is passed over with a warning, since no stage needs it.
    """
    folder = files.join(home, "runs")
    names = [name for name in files.names(folder) if name.endswith(".json")]
    found: dict[str, list[str]] = {}
    with ThreadPoolExecutor(16) as pool:
        runs = pool.map(lambda name: _stages(files.join(folder, name)), names)
        for name, labels in zip(names, runs, strict=True):
            for label in labels:
                found.setdefault(label, []).append(name.removesuffix(".json"))
    return found


def _stages(path: str) -> list[str]:
    try:
        return checked_json.read(path)["stages"]
    except DamagedFileError as error:
        log.warning("%s", error)
        return []
