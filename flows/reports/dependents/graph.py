"""The graph of a home: which stages were made from which, and the runs, exports and verdicts that rest on them.

All of it is in files of the home. A manifest has the labels of the stages that were read and the digests of their
contents, a recorded run its stages, an export outside of the home a manifest of its own, and a decision, a scaling law
or a study the keys of its training runs. Where a stage that was read is not in the home any more, one with equal
contents takes its place.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gristmill.flows.machine.runs import RecordedRun, read_runs
from gristmill.storage import checked_json, files, layout
from gristmill.storage.damage import DamagedFileError
from gristmill.storage.home import CollectedStage, FinishedStage, Home
from gristmill.storage.printable import redact_url

READS, EQUAL, TRUNK = "reads", "reads equal contents", "continues"
# Folders of a home with verdicts, and where their JSON has the keys of the runs that they rest on.
VERDICTS = {"decisions": "decision", "scaling": "scaling law", "studies": "study"}
MODEL_EXPORT = "gristmill.json"  # of folders that `export tokens` and `export model` write


@dataclass(frozen=True)
class Edge:
    """Why a stage depends on another one: `source` is the label of that, `how` one of READS, EQUAL and TRUNK."""

    source: str
    how: str


@dataclass(frozen=True)
class Export:
    """A folder outside of the home that was written from its stages. `reads`: their labels; `label`: `export-KEY` of
    exported documents, and else what it is."""

    address: str
    label: str
    reads: tuple[str, ...]


@dataclass(frozen=True)
class StoredVerdict:
    """A verdict in the home. `kind`: a value of VERDICTS; `base`: the name of its recipe; `runs`: the labels of its
    training runs; `sentences`: what it found; `id`: by which MLflow has it."""

    kind: str
    id: str
    base: str
    file: str
    runs: tuple[str, ...]
    sentences: tuple[str, ...]


@dataclass
class HomeGraph:
    """`stages`: by label, finished and collected ones (`collected`); `edges`: of each stage, those that read it.
    `gaps`: what cannot be known, a sentence each."""

    home: str
    stages: dict[str, FinishedStage] = field(default_factory=dict)
    collected: set[str] = field(default_factory=set)
    runs: list[RecordedRun] = field(default_factory=list)
    exports: list[Export] = field(default_factory=list)
    verdicts: list[StoredVerdict] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    edges: dict[str, dict[str, Edge]] = field(default_factory=dict)

    @cached_property
    def _sources(self) -> dict[str, list[str]]:
        """By label those of the stages that it was made from."""
        found: dict[str, list[str]] = {}
        for source, readers in self.edges.items():
            for label in readers:
                found.setdefault(label, []).append(source)
        return found

    def dependents(self, roots: Iterable[str]) -> dict[str, Edge | None]:
        """Labels of the stages that depend on some stages, each with the edge that leads there; None for these
        themselves. The nearest come first."""
        found: dict[str, Edge | None] = dict.fromkeys(sorted(roots))
        waiting = deque(found)
        while waiting:
            for label, edge in self.edges.get(waiting.popleft(), {}).items():
                if label not in found:
                    found[label] = edge
                    waiting.append(label)
        return found

    def equals(self, labels: Iterable[str]) -> set[str]:
        """Labels of the other stages with the name and the contents of one of these."""
        wanted = {(self.stages[label].name, self.stages[label].contents) for label in labels}
        same = {label for label, stage in self.stages.items() if (stage.name, stage.contents) in wanted}
        return same - set(labels)

    def origins(self, labels: Iterable[str]) -> set[str]:
        """Labels of some stages and of all that they were made from."""
        found = {label for label in labels if label in self.stages}
        waiting = deque(sorted(found))
        while waiting:
            for label in self._sources.get(waiting.popleft(), ()):
                if label in self.stages and label not in found:
                    found.add(label)
                    waiting.append(label)
        return found

    def extractions(self, label: str) -> set[str]:
        """Labels of the stages `documents` that have the documents of a stage. What rewrites in these were made from is
        not among them."""
        found, waiting, seen = set[str](), deque([label]), {label}
        while waiting:
            each = waiting.popleft()
            if each in self.stages and self.stages[each].name == "documents":
                found.add(each)
                continue
            more = [source for source in self._sources.get(each, ()) if source not in seen]
            seen.update(more)
            waiting.extend(more)
        return found


def trunk_of(stage: FinishedStage) -> str | None:
    """The label of the model whose checkpoint a training began with."""
    trunk = stage.settings.get("trunk")
    return f"model-{trunk['key']}" if isinstance(trunk, Mapping) and trunk.get("key") else None


def graph_of(home: str, exports: Iterable[str] = ()) -> HomeGraph:
    """Read the graph of a home: a manifest for each stage, and a small file for each run and verdict.

    `exports`: folders that no recorded run names, such as those of `export model`. What cannot be read is in `gaps`.
    Raises FileNotFoundError for a folder of these that does not exist.
    """
    graph = HomeGraph(home)
    here = Home(home)
    for stage in (*here.stages(), *here.collected()):
        is_collected = isinstance(stage, CollectedStage)
        described = stage.described if isinstance(stage, CollectedStage) else stage
        graph.stages[stage.label] = described  # type: ignore[assignment]
        if is_collected:
            graph.collected.add(stage.label)
    for unreadable in here.unreadable():
        graph.gaps.append(f"{unreadable.label} cannot be read, so its inputs are unknown: {unreadable.trouble}")
    for unfinished in here.unfinished():
        graph.gaps.append(f"{unfinished.label} is not finished, so its inputs are not recorded yet")
    _read_edges(graph)
    graph.runs, damaged = read_runs(home)
    graph.gaps += [f"a recorded run cannot be read: {error}" for error in damaged]
    _read_exports(graph, exports)
    _read_verdicts(graph)
    return graph


def _read_edges(graph: HomeGraph) -> None:
    by_contents: dict[tuple[str, str], list[str]] = {}
    for label, stage in graph.stages.items():
        by_contents.setdefault((stage.name, stage.contents), []).append(label)
    missing: dict[str, list[str]] = {}
    for label, stage in graph.stages.items():
        for name, source in stage.read.items():
            _add(graph, source, label, READS)
            if source not in graph.stages:
                missing.setdefault(source, []).append(label)
                for other in by_contents.get((source.rpartition("-")[0], stage.digests[name]), ()):
                    _add(graph, other, label, EQUAL)
        if (trunk := trunk_of(stage)) is not None:
            _add(graph, trunk, label, TRUNK)
    graph.gaps += [
        f"{source} is not in the home, so what it was made from is unknown; {readers[0]} reads it"
        for source, readers in sorted(missing.items())
    ]


def _add(graph: HomeGraph, source: str, label: str, how: str) -> None:
    graph.edges.setdefault(source, {}).setdefault(label, Edge(source, how))


def _read_exports(graph: HomeGraph, more: Iterable[str]) -> None:
    """Exports of documents by the runs that wrote them, then other folders that the caller names."""
    seen: set[str] = set()
    for run in graph.runs:
        for label, to in _exports_of(run).items():
            if to not in seen:
                seen.add(to)
                _read_export(graph, run, to, label)
    for address in more:
        if files.absolute(address) not in seen:
            seen.add(files.absolute(address))
            graph.exports.append(_other_export(graph, files.absolute(address)))


def _exports_of(run: RecordedRun) -> Mapping[str, str]:
    """Where a run has exported documents to; of a run of an earlier release as its recipe says."""
    if run.exports:
        return run.exports
    labels = [label for label in run.stages if label.startswith("export-")]
    to = ((run.recipe or {}).get("export") or {}).get("to")
    return {labels[-1]: str(to)} if labels and to else {}


def _read_export(graph: HomeGraph, run: RecordedRun, to: str, label: str) -> None:
    """The export of a run. Where its folder is gone or has another export, it is taken to read what the run made."""
    shown = redact_url(to)
    if "://" not in to and not to.startswith("/"):
        graph.gaps.append(f"{label} of {run.label} went to the relative folder {shown}: name it with --export")
        return
    try:
        if not files.exists(to):
            graph.gaps.append(f"{label} of {run.label} is not in {shown} any more; copies of it are not known")
            return
        stage = open_stage_at(to)
    except (OSError, LookupError, RuntimeError, ValueError) as error:
        graph.gaps.append(f"{label} of {run.label} in {shown} cannot be read: {error}")
        curated = tuple(each for each in run.stages if each in graph.stages)
        graph.exports.append(Export(to, label, curated))
        return
    if stage.label != label:
        graph.gaps.append(f"{shown} has {stage.label} now, and not {label} of {run.label}")
    graph.exports.append(Export(to, stage.label, tuple(stage.read.values())))


def open_stage_at(folder: str) -> FinishedStage:
    """The finished export in a folder of any name. Raises as `layout.manifest`; LookupError where it is none."""
    manifest = layout.manifest(folder)
    if manifest is None:
        raise LookupError(f"{redact_url(folder)} has no manifest.json")
    return FinishedStage(str(manifest["stage"]), str(manifest["key"]), folder, Home(folder), manifest)


def _other_export(graph: HomeGraph, address: str) -> Export:
    """A folder that no run names: an export of documents, of tokens or of a model, by the digests in it."""
    if not files.exists(address):
        raise FileNotFoundError(f"export not found: {redact_url(address)}. Check --export")
    try:
        stage = open_stage_at(address)
        known = [label for label, each in graph.stages.items() if each.contents in stage.digests.values()]
        return Export(address, stage.label, tuple(dict.fromkeys([*stage.read.values(), *known])))
    except (LookupError, RuntimeError, OSError, ValueError):
        pass
    try:
        identity = checked_json.read(files.join(address, MODEL_EXPORT))
    except (FileNotFoundError, NotADirectoryError, DamagedFileError, ValueError):
        graph.gaps.append(
            f"{redact_url(address)} names no stage: it was not written by an export of gristmill, or its manifest is "
            "gone, so only its texts can be searched"
        )
        return Export(address, "unknown export", ())
    wanted = _values(identity)
    reads = [label for label, stage in graph.stages.items() if _wrote(stage, label in graph.collected, wanted)]
    kind = "exported tokens" if "trainer" in identity else "exported model"
    if not reads:
        graph.gaps.append(f"the {kind} in {redact_url(address)} are of no stage of this home")
    return Export(address, kind, tuple(reads))


def _values(value: Any) -> set[str]:
    """All texts in a value of JSON's types."""
    if isinstance(value, Mapping):
        return {text for each in value.values() for text in _values(each)}
    if isinstance(value, list):
        return {text for each in value for text in _values(each)}
    return {value} if isinstance(value, str) else set()


def _wrote(stage: FinishedStage, is_collected: bool, digests: set[str]) -> bool:
    """Whether a model or a mixture wrote a file with one of some digests. Of a mixture its checksum counts, too."""
    if stage.name not in ("model", "mixture", "proxy"):
        return False
    try:
        written = {facts["content"] for job in stage.jobs for facts in job.files.values()}
        if stage.name == "mixture" and not is_collected:
            head = files.read_bytes(files.join(stage.folder, "mixture.json"))[:64]
            written.add(head.partition(b'"checksum": "')[2][:32].decode("ascii", "replace"))
    except (OSError, RuntimeError):
        return False
    return bool(written & digests)


def _read_verdicts(graph: HomeGraph) -> None:
    by_key = {stage.key: label for label, stage in graph.stages.items()}
    for folder, kind in VERDICTS.items():
        root = files.join(graph.home, folder)
        paths = [files.join(root, name) for name in files.names(root) if name.endswith(".json")]
        with ThreadPoolExecutor(16) as pool:  # requests to a store are mostly waiting
            for path, value in zip(paths, pool.map(_read_verdict, paths), strict=True):
                if isinstance(value, str):
                    graph.gaps.append(f"the {kind} {path} cannot be read: {value}")
                    continue
                verdict = _verdict(kind, path, value, by_key)
                graph.verdicts.append(verdict)
                if gone := [label for label in verdict.runs if label not in graph.stages]:
                    graph.gaps.append(
                        f"the {kind} {path} rests on runs that are not in the home, such as {gone[0]}: whether its "
                        "inputs have moved is unknown"
                    )
                if not verdict.runs:
                    graph.gaps.append(f"the {kind} {path} does not name its training runs: an older release wrote it")


def _read_verdict(path: str) -> dict[str, Any] | str:
    try:
        return checked_json.read(path)
    except (OSError, DamagedFileError) as error:
        return str(error)


def _verdict(kind: str, path: str, value: Mapping[str, Any], by_key: Mapping[str, str]) -> StoredVerdict:
    runs = value.get("runs") or value.get("rows") or ()
    keys = [key for run in runs for key in ([run["key"]] if "key" in run else run.get("keys", ()))]
    labels = dict.fromkeys(by_key.get(key, f"proxy-{key}") for key in keys)
    sentences = [each["sentence"] for each in value.get("verdicts", ()) if "sentence" in each]
    if not sentences and value.get("sentence"):
        sentences = [value["sentence"]]
    base = str(value.get("base") or value.get("recipe") or "")
    return StoredVerdict(kind, str(value.get("id", "")), base, path, tuple(labels), tuple(sentences))
