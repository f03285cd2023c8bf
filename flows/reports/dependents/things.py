"""What a user may ask about or retract, and the stages that have it: a stage, a step or library with a version, a
release of Gristmill, a file that steps read, a file of a source.

Documents are found by `gristmill.flows.explore.dependents.documents`: that reads tables, and this only manifests.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from gristmill.flows.reports.dependents.graph import HomeGraph
from gristmill.storage import files, parquet
from gristmill.storage.contents import ADDRESSES
from gristmill.storage.home import FinishedStage
from gristmill.storage.printable import redact_url, redact_user
from gristmill.tasks.reading.listing import Shard

Kind = Literal["stage", "step", "library", "release", "file", "source-file", "document", "url", "host", "text"]
KINDS: tuple[Kind, ...] = (
    *("stage", "step", "library", "release", "file", "source-file"),
    *("document", "url", "host", "text"),
)
OF_DOCUMENTS = ("document", "url", "host", "text")  # which are found in tables
RELEASE = "gristmill"  # `gristmill@0.2.0`
_DIGEST = re.compile(r"[0-9a-f]{32}")
_ID = re.compile(r"[0-9a-f]{4,32}")


@dataclass(frozen=True)
class Thing:
    """`name`: as the user gave it, without the version; `digest`: xxh3-128 of a file's content, or of a text."""

    kind: Kind
    name: str
    version: str = ""
    digest: str = ""

    def __str__(self) -> str:
        # a query is a part of a page's name, and what is left out of an address would name another page
        name = redact_user(self.name) if self.kind == "url" else redact_url(self.name)
        return f"{self.kind.replace('-', ' ')} {name}{f'@{self.version}' if self.version else ''}"


@dataclass
class Roots:
    """The stages that have a thing. `why`: by label; `shards`: by label the shards with it, where these are known;
    `notes`: what could not be decided."""

    why: dict[str, str] = field(default_factory=dict)
    shards: dict[str, tuple[int, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def text_thing(path: str) -> Thing:
    """The text in a local file. Raises FileNotFoundError."""
    if not files.is_local(path) or not files.exists(path) or files.is_folder(path):
        raise FileNotFoundError(f"file not found: {path}. Check --text-like")
    return Thing("text", path, digest=files.checksum(path))


def recognize(graph: HomeGraph, text: str, kind: str = "") -> Thing:
    """What a user means by an argument, if need be by a `kind`. Raises LookupError for what the home does not have,
    with the kinds that it may be."""
    name, _, version = text.partition("@")
    tests: dict[Kind, Callable[[], bool]] = {
        "stage": lambda: not version and any(text in _names(stage) for stage in graph.stages.values()),
        "release": lambda: name == RELEASE and bool(version),
        "step": lambda: name in _steps(graph) and "/" not in text,
        "library": lambda: bool(version) and any(name in _libraries(stage) for stage in graph.stages.values()),
        "source-file": lambda: bool(source_roots(graph, text).why),
        "file": lambda: bool(_file_roots(graph, text, _digest_of(text)).why),
        "url": lambda: "://" in text,
        "document": lambda: bool(_ID.fullmatch(text)),
        "host": lambda: is_host(text) and not files.exists(text),
    }
    if kind and kind not in KINDS:
        raise ValueError(f"--kind is {kind}, but the kinds are {', '.join(KINDS)}")
    meant: Any = next((each for each, test in tests.items() if not kind and test()), kind)
    if not meant:
        raise LookupError(
            f"nothing in {redact_url(graph.home)} is called {redact_url(text)}. Give a stage as `home status` lists "
            "it, STEP@VERSION, gristmill@RELEASE, a file or its digest, an id, a URL or a host; or choose with --kind "
            f"one of {', '.join(KINDS)}{_hint(text)}"
        )
    is_versioned = meant in ("step", "library", "release")
    digest = _digest_of(text) if meant == "file" else ""
    if meant == "host" and ":" in text and not text.startswith("["):
        text = f"[{text}]"  # an address of IPv6, as URLs have it
    return Thing(meant, name if is_versioned else text, version if is_versioned else "", digest)


def is_host(text: str) -> bool:
    """Whether a text has the form of a host: a name with a dot, or an IP address; without a port."""
    if text.count(":") > 1:
        try:
            ipaddress.IPv6Address(text.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True
    return "." in text and not {*text} & {*"/@: "}


def _hint(text: str) -> str:
    """What to write instead, if that can be guessed."""
    host, slash, _ = text.partition("/")
    if slash and is_host(host):
        return f". If it is the address of a page, write https://{redact_url(text)}"
    name, colon, port = text.rpartition(":")
    if colon and port.isdigit() and is_host(name):
        return f". A host is written without its port: {name}"
    return ""


def stage_roots(graph: HomeGraph, thing: Thing) -> Roots:
    """The stages that have a thing which is not about documents."""
    if thing.kind == "source-file":
        return source_roots(graph, thing.name)
    if thing.kind == "file":
        return _file_roots(graph, thing.name, thing.digest or _digest_of(thing.name))
    found = Roots()
    for label, stage in graph.stages.items():
        if thing.kind == "stage" and thing.name in _names(stage):
            found.why[label] = "the stage itself"
        if thing.kind == "release" and stage.release == thing.version:
            found.why[label] = f"made by gristmill {thing.version}"
        if thing.kind == "library":
            release = _libraries(stage).get(thing.name)
            if release is not None and thing.version in ("", release):
                found.why[label] = f"stores output of {thing.name} {release}"
        if thing.kind == "step":
            _add_step(found, stage, thing)
    if thing.kind == "stage":
        found.why |= {label: "has the same contents" for label in sorted(graph.equals(found.why))}
    return found


def _add_step(found: Roots, stage: FinishedStage, thing: Thing) -> None:
    """A stage that did the work of a step, or whose records name it."""
    version = stage.decided_by["versions"].get(thing.name)
    if version is not None:
        if thing.version in ("", str(version)):
            found.why[stage.label] = f"did the work of {thing.name}, version {version}"
        return
    if thing.name == stage.name or any(count["step"] == thing.name for count in stage.step_counts):
        if not thing.version:
            found.why[stage.label] = f"decided for {thing.name}"
        elif thing.name == stage.name and thing.version == str(stage.version):
            found.why[stage.label] = f"version {stage.version} of the stage"
        elif not _is_of_signals(stage):
            found.notes.append(
                f"{stage.label} decided for {thing.name}, but its manifest has no version of the step, only version "
                f"{stage.version} of the stage: it is left out"
            )


def _is_of_signals(stage: FinishedStage) -> bool:
    """Whether a stage compares signals with thresholds: the versions of the steps are in the stages that it reads."""
    return any(name.startswith("measured ") for name in stage.read)


def _names(stage: FinishedStage) -> tuple[str, ...]:
    return stage.name, stage.key, stage.label


def _libraries(stage: FinishedStage) -> Mapping[str, str]:
    return stage.decided_by["libraries"]


def _steps(graph: HomeGraph) -> set[str]:
    """Names of steps in the manifests of a home."""
    versions = {name for stage in graph.stages.values() for name in stage.decided_by["versions"]}
    return versions | {count["step"] for stage in graph.stages.values() for count in stage.step_counts}


def _digest_of(text: str) -> str:
    """The xxh3-128 of a local file, or what is one by its form; "" for neither. An address is not asked for."""
    if _DIGEST.fullmatch(text):
        return text
    if not files.is_local(text):
        return ""
    path = files.absolute(text)
    return files.checksum(path) if files.exists(path) and not files.is_folder(path) else ""


def _file_roots(graph: HomeGraph, text: str, digest: str) -> Roots:
    """The stages whose settings name a file, or whose settings or inputs have its digest: a model, a list, a
    benchmark, first weights. One that a stage wrote counts as the stage.

    Some inputs are recorded by the name of the file without its folder. These count if no stage has the digest, so that
    a file is found that was changed since, or that is named without its folder.
    """
    found, path, name = Roots(), files.absolute(text), text.rpartition("/")[2]
    by_name: dict[str, str] = {}
    for label, stage in graph.stages.items():
        for where, value in _texts({"inputs": stage.digests, **stage.decided_by, "record": stage.settings}):
            recorded, content = _recorded_file(value)
            if digest and digest in (value, content):
                found.why.setdefault(label, f"{where} has its digest")
            elif "/" in recorded and recorded in (path, redact_url(text)):
                found.why[label] = f"{where} names the file"
            elif "." in name and (name == recorded or ("/" not in text and name == recorded.rpartition("/")[2])):
                by_name.setdefault(label, f"{where} names a file {name}, perhaps of another folder or content")
        if digest and label not in graph.collected and label not in found.why and _has_written(stage, digest):
            found.why[label] = "wrote the file"
    found.why = found.why or by_name
    return found


def _recorded_file(value: str) -> tuple[str, str]:
    """The path, address or name of a file in a text of a manifest, and the digest of its content; "" for what the text
    does not have. Fingerprints (`gristmill.storage.fingerprint`) have both."""
    before, _, last = value.rpartition(" ")
    if before and _DIGEST.fullmatch(last):
        return before, last
    if "://" in value:
        address = value.partition(" ")[0]
        return (address, "") if "/" in address.partition("://")[2] else ("", "")
    return (value, "") if value.startswith("/") else ("", "")


def _has_written(stage: FinishedStage, digest: str) -> bool:
    """Whether a stage with a model in it wrote a file with this content."""
    if not ("model" in stage.name or stage.name == "tokenizer"):
        return False
    try:
        return any(facts["content"] == digest for job in stage.jobs for facts in job.files.values())
    except (OSError, RuntimeError):
        return False


def _texts(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """(where, text) of all texts in a value of JSON's types, also the first of pairs."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _texts(each, f"{where}.{name}" if where else str(name))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each, where)
    elif isinstance(value, str):
        yield where, value


_SHARDS = TypeAdapter(list[Shard])


def source_roots(graph: HomeGraph, text: str) -> Roots:
    """The `documents` stages that read a file of a source, and their shards with it. A name without a folder may be
    that of several files."""
    found, path = Roots(), text if "://" in text else files.absolute(text)
    for label, stage in graph.stages.items():
        if stage.name != "documents":
            continue
        try:
            jobs = [job for job in stage.jobs if ADDRESSES in job.record]
        except (OSError, RuntimeError) as error:
            found.notes.append(f"which files {label} read is unknown: {error}")
            continue
        numbers = {job.number for job in jobs if _reads(stage, job.number, job.record[ADDRESSES], text, path, found)}
        if numbers:
            found.why[label] = "read the file"
            found.shards[label] = tuple(sorted(numbers))
    return found


def _reads(stage: FinishedStage, number: int, read: Any, text: str, path: str, found: Roots) -> bool:
    """Whether a shard read a file. Of many files in one folder only the folder is recorded: then the documents say
    which files they are from."""
    for file in _SHARDS.validate_python(read):
        if file.name:
            if file.path in (redact_url(text), path) or ("/" not in text and file.path.rpartition("/")[2] == text):
                return True
        elif path.startswith(file.path) or "/" not in text:
            name = path.removeprefix(file.path) if path.startswith(file.path) else text
            try:
                tables = [parquet.read_table(part, ["file"]) for part in (stage.part(number), stage.ledger(number))]
            except (OSError, RuntimeError) as error:
                if path.startswith(file.path):
                    found.notes.append(
                        f"shard {number} of {stage.label} read files of {redact_url(file.path)}; whether {name} is one "
                        f"of them is unknown, because its documents cannot be read: {error}"
                    )
                continue
            if any(name in set(table["file"].to_pylist()) for table in tables):
                return True
    return False
