"""Retractions in a home, and the verdicts that are stale because of them, or because their inputs have changed.

<home>/retractions/<id>.json    a thing, the reason and the time; for documents also the stages that have them

Only `Staleness.of` decides whether a verdict is stale. Stale verdicts are marked in terminals, on pages and in MLflow:
on a page, the note is between two comments after the heading, so that it can be replaced and removed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import orjson
from markupsafe import escape

from gristmill.flows.machine.runs import FLOWS, RELEASED, RecordedRun, excluding_lists
from gristmill.flows.reports.dependents.graph import HomeGraph, StoredVerdict, graph_of
from gristmill.flows.reports.dependents.things import OF_DOCUMENTS, Thing, stage_roots
from gristmill.storage import checked_json, files
from gristmill.storage.damage import DamagedFileError
from gristmill.storage.home import FinishedStage
from gristmill.storage.printable import redact_url, redact_user

FOLDER = "retractions"


@dataclass(frozen=True)
class Retraction:
    """`id`: of the thing; `when`: in UTC; `stages`: for documents, the labels of the stages that had them at the time.
    The stages of other things are looked up when they are needed, so that later stages count, too."""

    id: str
    thing: Thing
    reason: str
    when: str
    stages: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        return f"{self.thing} was retracted on {self.when[:10]}: {self.reason}"

    def roots(self, graph: HomeGraph) -> dict[str, str]:
        """The stages that have the thing, each with the reason."""
        if self.thing.kind in OF_DOCUMENTS:
            return {label: "holds the documents" for label in self.stages if label in graph.stages}
        return stage_roots(graph, self.thing).why


def id_of(thing: Thing) -> str:
    """16 hexadecimal characters, the same for the same thing."""
    return files.digest(orjson.dumps([thing.kind, thing.name, thing.version, thing.digest]))[:16]


def retraction(thing: Thing, reason: str, stages: Iterable[str] = ()) -> Retraction:
    """A retraction with the current time. Raises ValueError without a reason."""
    if not reason.strip():
        raise ValueError("a retraction needs a reason. Add --reason TEXT")
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    return Retraction(id_of(thing), thing, reason.strip(), now, tuple(sorted(stages)))


def write(home: str, one: Retraction) -> str:
    """Record a retraction, and return its path. Raises FileExistsError if the thing is already retracted."""
    path = _path(home, one.id)
    if files.exists(path):
        known = _read(path)
        raise FileExistsError(f"{known.sentence}. To give another reason, first remove it with --undo {one.id}")
    name = redact_user(one.thing.name) if one.thing.kind == "url" else redact_url(one.thing.name)
    thing = {"kind": one.thing.kind, "name": name, "version": one.thing.version}
    value = {"thing": thing | {"digest": one.thing.digest}, "reason": one.reason, "when": one.when}
    checked_json.write(path, value | {"stages": list(one.stages)})
    return path


def undo(home: str, id_: str) -> Retraction:
    """Remove a retraction, and return it. Raises LookupError if there is none."""
    path = _path(home, id_)
    if not id_ or not files.exists(path):
        known = ", ".join(one.id for one in retractions(home)[0]) or "none"
        raise LookupError(f"no retraction {id_} in {redact_url(home)}; the retractions are {known}")
    one = _read(path)
    files.remove(path)
    return one


def retractions(home: str) -> tuple[list[Retraction], list[str]]:
    """All retractions of a home, oldest first, and a sentence for each file that cannot be read."""
    found, gaps = [], []
    folder = files.join(home, FOLDER)
    for name in files.names(folder):
        if name.endswith(".json"):
            try:
                found.append(_read(files.join(folder, name)))
            except (OSError, DamagedFileError, KeyError, TypeError) as error:
                gaps.append(f"a retraction cannot be read: {error}")
    return sorted(found, key=lambda one: (one.when, one.id)), gaps


def _path(home: str, id_: str) -> str:
    return files.join(home, FOLDER, f"{id_}.json")


def _read(path: str) -> Retraction:
    value = checked_json.read(path)
    id_ = path.rpartition("/")[2].removesuffix(".json")
    return Retraction(id_, Thing(**value["thing"]), value["reason"], value["when"], tuple(value["stages"]))


class Staleness:
    """Decides which verdicts of a home are stale. Reads the home's `graph` once for all verdicts."""

    def __init__(self, graph: HomeGraph) -> None:
        self.graph = graph
        self._retractions, self.gaps = retractions(graph.home)

    @cached_property
    def _retracted(self) -> list[tuple[Retraction, set[str]]]:
        """Each retraction with the labels of all stages that depend on it."""
        graph = self.graph
        return [(one, set(graph.dependents(one.roots(graph)))) for one in self._retractions]

    def retractions_of(self, labels: Iterable[str]) -> list[Retraction]:
        """The retractions that at least one of the stages depends on."""
        wanted = set(labels)
        return [one for one, reached in self._retracted if reached & wanted]

    def of_verdict(self, verdict: StoredVerdict) -> tuple[str, ...]:
        """As `of`, for a verdict of the home."""
        return self.of(verdict.runs, verdict.base, self._time_of(verdict))

    def of(self, labels: Sequence[str], base: str = "", since: str = "") -> tuple[str, ...]:
        """Why a verdict that depends on some stages is stale, in sentences; empty if it is not stale.

        It is stale if an input was retracted or has changed: a stage was made again with different contents, or a run
        of the recipe `base` after `since` (UTC, as runs record it) made the same stage from different files, or used
        lists of takedowns or rights that the verdict's data was made without.
        """
        reasons = [one.sentence for one in self.retractions_of(labels)]
        origins = [self.graph.stages[label] for label in sorted(self.graph.origins(labels))]
        reasons += self._remade(origins)
        if base and (run := self._newest(base)) is not None and run.began > since:
            reasons += self._moved(origins, run)
        return tuple(dict.fromkeys(reasons))

    def of_model(self, label: str) -> tuple[str, ...]:
        """Why a trained model is stale, in sentences: an input was retracted, or a later run of its recipe has lists of
        takedowns or rights that its data was made without. Changed source files do not make a model stale."""
        reasons = [one.sentence for one in self.retractions_of([label])]
        origins = self.graph.origins([label])
        # without its tokens, the lists that were applied to its data are unknown
        if any(name.startswith("tokens-") for name in origins):
            for name in self._recipes_of(label):
                if (run := self._newest(name)) is not None and label not in run.stages:
                    now = [self.graph.stages[each] for each in run.stages if each in self.graph.stages]
                    reasons += _newer_lists(now, [self.graph.stages[each] for each in sorted(origins)], run)
        return tuple(dict.fromkeys(reasons))

    def _recipes_of(self, label: str) -> list[str]:
        """The recipes whose runs had a model, including one whose run was released because of a newer list."""
        names = [run.name for run in self.graph.runs if label in run.stages]
        path = files.join(self.graph.stages[label].folder, RELEASED)
        if label not in self.graph.collected and files.exists(path):
            try:
                names.append(str(checked_json.read(path)["run"]).partition("/")[0])
            except (OSError, DamagedFileError, KeyError) as error:
                self.gaps.append(f"whether {label} is older than a list is unknown: {error}")
        return list(dict.fromkeys(names))

    @cached_property
    def _current(self) -> Mapping[str, str]:
        """For each stage that was made again, by label, the label of the folder that counts."""
        found, folder = {}, files.join(self.graph.home, "remade")
        for name in files.names(folder):
            label = name.removesuffix(".json")
            if label in self.graph.stages and name.endswith(".json"):
                try:
                    found[label] = f"{label.rpartition('-')[0]}-{checked_json.read(files.join(folder, name))['key']}"
                except (OSError, DamagedFileError, KeyError) as error:
                    self.gaps.append(f"whether {label} was made again is unknown: {error}")
        return found

    def _remade(self, origins: Iterable[FinishedStage]) -> Iterator[str]:
        for stage in origins:
            again = self.graph.stages.get(self._current.get(stage.label, ""))
            if again is not None and again.contents != stage.contents:
                yield f"its input {stage.label} was made again, as {again.label}, with other contents"

    def _newest(self, base: str) -> RecordedRun | None:
        """The newest finished run of a recipe, which reports open."""
        runs = [run for run in self.graph.runs if run.name == base and run.ended and run.flow in FLOWS]
        return max(runs, key=lambda run: run.id, default=None)

    def _moved(self, origins: Sequence[FinishedStage], run: RecordedRun) -> Iterator[str]:
        now = [self.graph.stages[label] for label in run.stages if label in self.graph.stages]
        known = {stage.label for stage in origins}
        when = f"the newest run of {run.name} ({run.began[:10]})"
        for stage in origins:
            others = [other for other in now if _is_same_but_files(stage, other)]
            if others and not any(other.label in known or _has_same_files(stage, other) for other in now):
                yield f"its input {stage.label} has moved: {when} read other files, in {others[0].label}"
        yield from _newer_lists(now, origins, run)

    def _time_of(self, verdict: StoredVerdict) -> str:
        """When a verdict was reached: the start of the newest run that made or used its training runs, or else the time
        of its file."""
        runs = [run.began for run in self.graph.runs if run.flow not in FLOWS and {*verdict.runs} & {*run.stages}]
        if runs:
            return max(runs)
        return f"{datetime.fromtimestamp(files.modified(verdict.file), UTC):%Y-%m-%d %H:%M:%S}"


def _is_same_but_files(stage: FinishedStage, other: FinishedStage) -> bool:
    """Whether two stages were made in the same way from files with different contents. Of stages `documents`, only the
    sources and the limit are compared, because a decision measures signals in other passes than a run."""
    if stage.name != other.name or _files(stage) == _files(other):
        return False
    if stage.name == "documents":
        return all(stage.settings.get(name) == other.settings.get(name) for name in ("formats", "limit"))
    return _made_by(stage) == _made_by(other)


def _has_same_files(stage: FinishedStage, other: FinishedStage) -> bool:
    return stage.name == other.name and _files(stage) == _files(other)


def _files(stage: FinishedStage) -> dict[str, str]:
    """The digests of the files outside of the home that a stage read."""
    return {name: digest for name, digest in stage.digests.items() if name not in stage.read}


def _made_by(stage: FinishedStage) -> tuple[Any, ...]:
    stages = {name: digest for name, digest in stage.digests.items() if name in stage.read}
    return stage.version, stage.settings, stage.decided_by, stages


def _newer_lists(now: Iterable[FinishedStage], origins: Iterable[FinishedStage], run: RecordedRun) -> Iterator[str]:
    if newer := len(_lists(now) - _lists(origins)):
        lists = f"{newer} list{'s' * (newer > 1)} of takedowns or rights"
        when = f"the newest run of {run.name} ({run.began[:10]})"
        yield f"its inputs have moved: {when} has {lists} that they were made without"


def _lists(stages: Iterable[FinishedStage]) -> set[str]:
    """Checksums of the lists that stages excluded documents with."""
    return {one for stage in stages for one in excluding_lists(stage.name, stage.settings, stage.digests)}


def stale(home: str, keys: Iterable[str], base: str = "", since: str = "") -> tuple[str, ...]:
    """Why a verdict that depends on proxy runs with these keys is stale: `Staleness.of` for one verdict."""
    graph = graph_of(home)
    by_key = {stage.key: label for label, stage in graph.stages.items()}
    return Staleness(graph).of([by_key[key] for key in keys if key in by_key], base, since)


TAG = "gristmill.stale"  # of MLflow runs
MAX_TAG = 5000  # characters of a tag that MLflow accepts
_BEGIN, _END = "<!-- stale -->", "<!-- end of stale -->"
_NOTE = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
_HEADING = "</h1>"


def stale_lines(reasons: Sequence[str]) -> Iterator[str]:
    """The lines to print above a verdict."""
    yield from (f"stale: {reason}" for reason in reasons)


def marked(page: str, reasons: Sequence[str]) -> str:
    """The page of a verdict with a note on why it is stale, or without a note if there are no reasons. A page without a
    heading is returned unchanged."""
    plain = _NOTE.sub("", page)
    if not reasons or _HEADING not in plain:
        return plain
    note = "".join(f"<p><strong>Stale:</strong> {escape(reason)}.</p>" for reason in reasons)
    head, heading, body = plain.partition(_HEADING)
    return f"{head}{heading}{_BEGIN}{note}{_END}{body}"


def mark_pages(staleness: Staleness) -> tuple[list[str], list[str]]:
    """Update the notes on the pages of all verdicts of a home. Returns the paths of the changed pages, and a sentence
    for each page that cannot be read or written."""
    changed, gaps = [], []
    for verdict in staleness.graph.verdicts:
        path = f"{verdict.file.removesuffix('.json')}.html"
        try:
            if not files.exists(path):
                continue
            before = files.read_bytes(path).decode("utf-8")
            after = marked(before, staleness.of_verdict(verdict))
            if after != before:
                files.write_bytes(path, after.encode())
                changed.append(path)
        except (OSError, UnicodeDecodeError) as error:
            gaps.append(f"the page {path} has no note: {error}")
    return changed, gaps


def tag_of(reasons: Sequence[str]) -> str:
    """The value of the tag."""
    return "; ".join(reasons)[:MAX_TAG]
