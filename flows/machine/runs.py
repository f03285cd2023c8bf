"""The recorded runs of a home: recipe, stages in the order of their requests, and the state of files outside of the
home.

<home>/runs/<recipe>/<time>-<random>.json    a run

Readers open the newest finished run of a recipe. `gristmill home gc` removes no stage of a run until the run is
forgotten.
"""

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from gristmill.storage import checked_json, files, layout, leftovers
from gristmill.storage.damage import DamagedFileError
from gristmill.storage.printable import redact_url
from gristmill.tasks.engine.code_version import release

log = logging.getLogger(__name__)

# The flows whose runs readers open. Others, such as decisions, also record stages of other recipes.
FLOWS = ("corpus", "tokens", "pretrain", "pipeline", "index", "word_index")
RELEASED = "released.json"  # in the folder of a model whose run a person, or a takedown, has released


@dataclass(frozen=True)
class RecordedRun:
    """A run of a recipe. `id`: its name among the recipe's runs, which begins with its time in UTC; `flow`: what ran;
    `stages`: labels in their order; `recipe`: the whole recipe, None where it was not recorded; `outside`: what was
    seen of files outside of the home; `ended`: when it was finished, "" if it was not; `exports`: addresses of the
    exports that it wrote, by label, which earlier releases did not record."""

    name: str
    id: str
    path: str
    flow: str
    stages: tuple[str, ...]
    outside: Mapping[str, Any]
    recipe: Mapping[str, Any] | None
    release: str
    began: str
    ended: str
    exports: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`<recipe>/<id>`, the name for users."""
        return f"{self.name}/{self.id}"


_TIME = "%Y%m%d-%H%M%S-%f"  # as ids of runs begin with it
_SKEW = timedelta(minutes=1)  # between the clocks of two machines, of which nothing is said


def _time_after_others(home: str, name: str, now: datetime) -> str:
    """The time in the name of a run that begins now. It is later than that of every other run of the recipe, because
    readers open the newest, and the clock of this machine may have been set back or be slower than another one."""
    times = []
    for other in files.names(files.join(home, "runs", name)):
        with suppress(ValueError):  # a temporary file
            times.append(datetime.strptime(other.rpartition("-")[0], _TIME).replace(tzinfo=UTC))
    newest = max(times, default=now)
    if newest < now or not times:
        return f"{now:{_TIME}}"
    if newest - now > _SKEW:
        log.warning(
            "the clock of this machine is %s, which is before a run of %s at %s: set the clock; this run is "
            "recorded as the newest",
            f"{now:%Y-%m-%d %H:%M:%S} UTC",
            name,
            f"{newest:%Y-%m-%d %H:%M:%S} UTC",
        )
    return f"{newest + timedelta(microseconds=1):{_TIME}}"


class RunRecorder:
    """Records the stages of a run as they begin, and the state of files outside of the home.

    `recipe`: the whole recipe as JSON; None: not recorded. `seen`: what an earlier run recorded, used for files that
    are missing now.
    """

    def __init__(
        self,
        home: str,
        name: str,
        seen: "Seen | None" = None,
        flow: str = "",
        recipe: Mapping[str, Any] | None = None,
    ) -> None:
        now = datetime.now(UTC)
        self._home, self._name = home, name
        time = _time_after_others(home, name, now)
        self._path = files.join(home, "runs", name, f"{time}-{secrets.token_hex(2)}.json")
        for folder in ("runs", f"runs/{name}", "fingerprints"):  # no stage's, for which the one who makes it does so
            leftovers.remove_temporary(files.join(home, folder))
        self._instead = seen
        self._labels: list[str] = []
        self._seen: dict[str, Any] = {}
        self._exports: dict[str, str] = {}
        self._facts: dict[str, Any] = {"flow": flow, "began": f"{now:%Y-%m-%d %H:%M:%S}", "release": release()}
        self._facts |= {"recipe": None if recipe is None else redacted(recipe), "ended": ""}

    def add(self, *labels: str) -> None:
        """Record the labels of stages that are found or made next."""
        if new := [label for label in dict.fromkeys(labels) if label not in self._labels]:
            self._labels += new
            self._write()

    def exported(self, label: str, address: str) -> None:
        """Record the address of a stage outside of the home, without secrets, for `gristmill home affected`."""
        self._exports[label] = redact_url(address) if "://" in address else address
        self._write()

    def replace(self, label: str, other: str) -> None:
        """Record that a stage is in another folder than the recorded one."""
        if label != other and label in self._labels:
            self._labels[self._labels.index(label)] = other
            self._write()

    def outside(self, subject: Any, look: Callable[[], Any]) -> Any:
        """The result of `look` for the files that settings name. It is recorded with the next stage. See `Seen`."""
        try:
            observation = look()
        except (OSError, ValueError):
            if self._instead is None or (observation := self._instead.noted(subject)) is None:
                raise
        self._seen[_name_of(subject)] = observation
        return observation

    def finished(self) -> None:
        """Record that the run has finished. Earlier runs that it repeats are removed: those of the same recipe, or that
        did not finish, whose stages it has all."""
        if not self._labels:
            return
        self._facts["ended"] = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        self._write()
        for run in runs_of(self._home, self._name):
            same = not run.ended or run.recipe == self._facts["recipe"]
            same = same and run.exports.items() <= self._exports.items()
            if run.path != self._path and same and set(run.stages) <= set(self._labels):
                files.remove(run.path)
            elif run.path != self._path and self._takes_down(run):
                log.info("removed the record of %s, because it has documents that newer lists exclude", run.label)
                forget(self._home, run)

    def _takes_down(self, run: RecordedRun) -> bool:
        """Whether this run excluded documents with lists that an earlier run of the recipe did not have."""
        return bool(_excluding_lists(self._home, self._labels) - _excluding_lists(self._home, run.stages))

    def _write(self) -> None:
        with files.said_of(files.join(self._home, "runs")):
            exports = {"exports": self._exports} if self._exports else {}
            facts = {**self._facts, "stages": self._labels, "outside": self._seen, **exports}
            checked_json.write(self._path, facts)


# The stages that exclude documents of lists, and the key of the lists in their record.
_LISTS = {"takedowns": "takedowns", "site_rights": "hosts", "site_files": ""}


def excluding_lists(name: str, record: Mapping[str, Any], inputs: Mapping[str, str]) -> set[str]:
    """Checksums of the lists with which a stage excludes documents: takedown lists, lists of hosts, and files of sites.
    `record`, `inputs`: of its manifest."""
    if name not in _LISTS:
        return set()
    if name == "site_files":
        return {*inputs.values()}
    return {checksum for _, checksum in record[_LISTS[name]]["checksums"]}


def _excluding_lists(home: str, labels: Iterable[str]) -> set[str]:
    contents: set[str] = set()
    for label in labels:
        name = label.rpartition("-")[0]
        if name in _LISTS and (manifest := layout.manifest(files.join(home, "stages", label))) is not None:
            contents |= excluding_lists(name, manifest["record"], manifest["inputs"])
    return contents


class Seen:
    """The state of files outside of the home that the newest run of a recipe recorded, by the settings that name them.
    Readers of finished work use it, because the sources may have been moved since."""

    def __init__(self, home: str, name: str) -> None:
        self._noted = dict[str, Any]()
        for run in reversed(runs_of(home, name)):
            self._noted |= run.outside

    def outside(self, subject: Any, look: Callable[[], Any]) -> Any:
        """The recorded result for these settings; else that of `look` now."""
        return look() if (observation := self.noted(subject)) is None else observation

    def noted(self, subject: Any) -> Any:
        """The recorded result for these settings; None if there is none."""
        return self._noted.get(_name_of(subject))


def _name_of(subject: Any) -> str:
    return files.digest(orjson.dumps(subject, option=orjson.OPT_SORT_KEYS))


def redacted(value: Any) -> Any:
    """A JSON value without the secrets in addresses."""
    if isinstance(value, Mapping):
        return {key: redacted(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(each) for each in value]
    return redact_url(value) if isinstance(value, str) and "://" in value else value


def runs_of(home: str, name: str) -> list[RecordedRun]:
    """The runs of a recipe: finished ones first, newest first. A damaged record is skipped with a warning, because no
    stage needs it."""
    runs = [run for run in _read_all(home, [name]) if isinstance(run, RecordedRun)]
    return sorted(runs, key=lambda run: (bool(run.ended), run.id), reverse=True)


def is_finished(home: str, name: str, recipe: Mapping[str, Any]) -> bool:
    """Whether the home has a finished run of a recipe, given as JSON. Its stages may have been removed."""
    return any(run.ended and run.recipe == redacted(recipe) for run in runs_of(home, name))


def all_runs(home: str) -> list[RecordedRun]:
    """The runs of all recipes, by recipe and time. Raises DamagedFileError for an unreadable file, because the stages
    of that run are unknown."""
    runs = []
    for run in _read_all(home, _names(home)):
        if isinstance(run, DamagedFileError):
            raise run
        runs.append(run)
    return sorted(runs, key=lambda run: (run.name, run.id))


def read_runs(home: str) -> tuple[list[RecordedRun], list[DamagedFileError]]:
    """The runs of all recipes, by recipe and time, and the errors of unreadable ones."""
    read = [*_read_all(home, _names(home))]
    runs = [run for run in read if isinstance(run, RecordedRun)]
    damaged = [run for run in read if isinstance(run, DamagedFileError)]
    return sorted(runs, key=lambda run: (run.name, run.id)), damaged


def forget(home: str, run: RecordedRun) -> None:
    """Remove the record of a run, so that `home gc` may remove its stages and models."""
    for label in run.stages:
        folder = files.join(home, "stages", label)
        if label.rpartition("-")[0] == "model" and files.exists(files.join(folder, "manifest.json")):
            checked_json.write(files.join(folder, RELEASED), {"run": run.label})
    files.remove(run.path)


def released_models(home: str) -> set[str]:
    """The labels of models that a user, or a run with a newer list, has released."""
    folder = files.join(home, "stages")
    labels = [name for name in files.names(folder) if name.startswith("model-")]
    return {label for label in labels if files.exists(files.join(folder, label, RELEASED))}


def recipes_by_stage(home: str) -> Mapping[str, list[str]]:
    """The names of the recipes whose newest run had a stage, by the label of the stage. Reads a small file per run.

    A damaged record is skipped with a warning, because no stage needs it.
    """
    newest: dict[str, RecordedRun] = {}
    for run in _read_all(home, _names(home)):
        if isinstance(run, RecordedRun):
            last = newest.get(run.name)
            if last is None or run.id > last.id:
                newest[run.name] = run
    recipes: dict[str, list[str]] = {}
    for name, run in sorted(newest.items()):
        for label in run.stages:
            recipes.setdefault(label, []).append(name)
    return recipes


def stages_of_runs(home: str) -> set[str]:
    """The labels of all stages of recorded runs. Raises DamagedFileError as `all_runs`."""
    return {label for run in all_runs(home) for label in run.stages}


def _names(home: str) -> list[str]:
    return [name for name in files.names(files.join(home, "runs")) if not name.endswith(".json")]


def _read_all(home: str, names: list[str]) -> Iterator[RecordedRun | DamagedFileError]:
    """The runs of some recipes, or the errors of unreadable ones."""
    paths = []
    for name in names:
        folder = files.join(home, "runs", name)
        paths += [(name, each.removesuffix(".json"), files.join(folder, each)) for each in files.names(folder)]
    with ThreadPoolExecutor(16) as pool:  # requests to a store are mostly waiting
        for run in pool.map(lambda one: _read(*one), [one for one in paths if one[2].endswith(".json")]):
            if isinstance(run, DamagedFileError):
                log.warning("%s", run)
            if run is not None:
                yield run


def _read(name: str, id_: str, path: str) -> RecordedRun | DamagedFileError | None:
    try:
        value = checked_json.read(path)
    except FileNotFoundError:
        return None
    except DamagedFileError as error:
        return error
    return RecordedRun(
        name,
        id_,
        path,
        flow=value["flow"],
        stages=tuple(value["stages"]),
        outside=value["outside"],
        recipe=value["recipe"],
        release=value["release"],
        began=value["began"],
        ended=value["ended"],
        exports=value.get("exports", {}),
    )
