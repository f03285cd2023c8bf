"""Which stages the last run of a recipe had, and what it saw outside of the home; the log of runs as lines of JSON.

<home>/runs/<recipe>.json    for readers alone, no key knows of it
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from gristmill.storage import checked_json, files, leftovers, space
from gristmill.storage.damage import DamagedFileError
from gristmill.tasks.engine.log_fields import JsonLines, bound, current

log = logging.getLogger(__name__)


class LastRun:
    """The stages of a run, written down as each begins, and what it saw of files outside of the home. Those of the run
    before stay noted until this one has ended: a run that was stopped goes on with them.

    `seen`: what the run before saw, in place of files that are gone; those that are there are looked at.
    """

    def __init__(self, home: str, recipe: str, seen: "Seen | None" = None) -> None:
        self._path = files.join(home, "runs", f"{recipe}.json")
        for folder in ("runs", "fingerprints"):  # no stage's, for which the one who makes it does so
            leftovers.remove_temporary(files.join(home, folder))
        self._instead = seen
        self._labels: list[str] = []
        self._seen: dict[str, Any] = {}
        self._earlier: tuple[list[str], dict[str, Any]] | None = None

    def add(self, *labels: str) -> None:
        """Note stages, by their labels, that are found or made next."""
        if new := [label for label in dict.fromkeys(labels) if label not in self._labels]:
            self._labels += new
            self._write(*self._before())

    def outside(self, given: Any, look: Callable[[], Any]) -> Any:
        """What `look` says of the files that settings name, noted with the next stage. See `Seen`."""
        self._before()
        try:
            found = look()
        except (OSError, ValueError):
            if self._instead is None or (found := self._instead.noted(given)) is None:
                raise
        self._seen[_name_of(given)] = found
        return found

    def finished(self) -> None:
        """Note that the run has ended as it should: the stages of the run before are not needed for it any more."""
        if self._labels:
            self._write([], {})

    def _before(self) -> tuple[list[str], dict[str, Any]]:
        if self._earlier is None:
            run = _read(self._path)
            self._earlier = sorted({*run.get("stages", ()), *run.get("earlier", ())}), run.get("outside", {})
        return self._earlier

    def _write(self, earlier: list[str], seen: dict[str, Any]) -> None:
        left = [label for label in earlier if label not in self._labels]
        noted = {"stages": self._labels, "outside": seen | self._seen}
        with space.said_of(self._path.rpartition("/")[0]):
            checked_json.write(self._path, {**noted, **({"earlier": left} if left else {})})


class Seen:
    """What the last run of a recipe saw outside of the home, by the settings that name it. Who reads finished work
    takes it from here: the sources may be elsewhere by now."""

    def __init__(self, home: str, recipe: str) -> None:
        self._noted = _read(files.join(home, "runs", f"{recipe}.json")).get("outside", {})

    def outside(self, given: Any, look: Callable[[], Any]) -> Any:
        """What was noted for these settings; else what `look` says now."""
        return look() if (found := self.noted(given)) is None else found

    def noted(self, given: Any) -> Any:
        """What was noted for these settings; None for nothing."""
        return self._noted.get(_name_of(given))


def _name_of(given: Any) -> str:
    return files.digest(orjson.dumps(given, option=orjson.OPT_SORT_KEYS))


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


def stages_of_runs(home: str) -> set[str]:
    """The labels of all stages that the last run of a recipe had, or the one before it, where the last has not ended.

    Raises DamagedFileError for a file that cannot be read: nobody knows what that recipe needs.
    """
    folder = files.join(home, "runs")
    names = [name for name in files.names(folder) if name.endswith(".json")]
    with ThreadPoolExecutor(16) as pool:
        runs = pool.map(lambda name: checked_json.read(files.join(folder, name)), names)
        return {label for run in runs for label in (*run["stages"], *run.get("earlier", ()))}


def _stages(path: str) -> list[str]:
    return _read(path).get("stages", [])


def _read(path: str) -> dict[str, Any]:
    try:
        return checked_json.read(path)
    except FileNotFoundError:
        return {}
    except DamagedFileError as error:
        log.warning("%s", error)
        return {}


class OfRun(JsonLines):
    """What Prefect writes ahead of the first stage has the run too, whose id is with its records."""

    def format(self, record: logging.LogRecord) -> str:
        run = getattr(record, "flow_run_id", None)
        if run is None or "run" in current():
            return super().format(record)
        with bound(run=str(run)):
            return super().format(record)


def install(log_format: str) -> None:
    """`json`: write what would be shown on the console, and warnings, as lines of JSON to the standard error. Anything
    else leaves the log as it is. Prefect has been imported before: that sets the console up."""
    if log_format != "json":
        return
    logging.captureWarnings(True)
    lines = logging.StreamHandler()
    lines.setFormatter(OfRun())
    logging.getLogger().handlers[:] = [lines]


class _Once(logging.Filter):
    """Drops the lines of a logger that begin so, and with the first of them says a sentence."""

    def __init__(self, begins: str, sentence: str) -> None:
        super().__init__(sentence)
        self.begins, self.sentence, self.said = begins, sentence, False

    def filter(self, record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith(self.begins):
            return record.levelno > logging.DEBUG
        if not self.said:
            log.warning("%s", self.sentence)
        self.said = True
        return False


def say_once(logger: str, begins: str, sentence: str) -> None:
    """Write a warning, once in this process, in place of all lines of a library's logger that begin so."""
    quieted = logging.getLogger(logger)
    if not any(isinstance(each, _Once) and each.sentence == sentence for each in quieted.filters):
        quieted.addFilter(_Once(begins, sentence))
