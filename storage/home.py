"""The only reader of a home: its finished stages, their inputs and contents, and the unfinished stages.

A home is read on first use; create another `Home` to see later changes. Manifests are read here,
in `gristmill.storage.layout` and by the engine, and nowhere else.
"""

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

from gristmill.storage import files, layout, ledger
from gristmill.storage.damage import DamagedFileError, RecordedFile

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StageFolder:
    """A stage, finished or not. Its folder is called `<name>-<key>`."""

    name: str
    key: str
    folder: str

    @property
    def label(self) -> str:
        """`<name>-<key>`, by which a stage is named to a user."""
        return f"{self.name}-{self.key}"

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """Paths of the Parquet parts that are there, in the order of the shards. One request: the folder is listed."""
        names = files.names(self.folder)
        return tuple(files.join(self.folder, n) for n in names if n.startswith("part-") and n.endswith(".parquet"))

    def part(self, shard: int) -> str:
        return layout.part(self.folder, shard)


@dataclass(frozen=True)
class UnfinishedStage(StageFolder):
    """A stage that was begun. `jobs_done`: its jobs that need not be done again."""

    jobs_done: int


@dataclass(frozen=True)
class UnreadableStage(StageFolder):
    """A stage whose manifest cannot be used: another version has made it, or it is damaged. `trouble`: the reason."""

    trouble: str


@dataclass(frozen=True)
class FinishedStage(StageFolder):
    """A stage that has its manifest. `home`: where the stages are looked up that it was made from."""

    home: "Home" = field(repr=False, compare=False)
    _manifest: dict[str, Any] = field(repr=False, compare=False)

    @property
    def settings(self) -> dict[str, Any]:
        """The record that its key holds: all that its jobs could read of the recipe."""
        return self._manifest["record"]

    @property
    def version(self) -> int:
        """The declared version of the stage."""
        return self._manifest["version"]

    @property
    def decided_by(self) -> dict[str, dict[str, Any]]:
        """What besides the record decides the contents: `versions` of steps, releases of `libraries`, digests of `data`
        in packages."""
        return {name: self._manifest[name] for name in ("versions", "libraries", "data")}

    @property
    def release(self) -> str:
        """The release of Gristmill that made it."""
        return str(self._manifest["release"])

    @property
    def read(self) -> dict[str, str]:
        """Labels of the stages that were read, by what they are to the stage."""
        return self._manifest["read"]

    @property
    def contents(self) -> str:
        """The digest of all that it holds, as values."""
        return layout.contents(self._manifest)

    @property
    def inputs(self) -> dict[str, str]:
        """Keys of the stages that were read, or digests of files, by what they are to the stage."""
        read = {name: label.rpartition("-")[2] for name, label in self._manifest["read"].items()}
        return {**self._manifest["inputs"], **read}

    @property
    def digests(self) -> dict[str, str]:
        """Digests of the contents of the stages that were read, or of files, by what they are to the stage."""
        return self._manifest["inputs"]

    def reads(self, name: str, other: "FinishedStage") -> bool:
        """Whether another stage, or one with equal contents, was read under this name."""
        return other.key == self.inputs.get(name) or other.contents == self.digests.get(name)

    def input(self, name: str) -> "FinishedStage | None":
        """The stage that was read under a name, or one with equal contents; None if the home has none."""
        if name not in self.inputs:
            return None
        return self.home.find(self.inputs[name]) or self.home.with_contents(self.digests[name])

    @property
    def result(self) -> dict[str, Any]:
        """What the stage's body recorded of the whole stage."""
        return self._manifest["result"]

    @property
    def step_counts(self) -> list[dict[str, Any]]:
        """What each step did (`gristmill.storage.ledger.count`), summed over the shards; empty for a stage that drops
        nothing."""
        return self._manifest["counts"]["steps"]

    @property
    def bytes(self) -> int:
        """The size of all its files."""
        return self._manifest["parts"]["bytes"]

    @property
    def counts_documents(self) -> bool:
        """Whether the stage decides which documents are kept: then every shard has a ledger."""
        return bool(self.step_counts)

    @property
    def jobs(self) -> layout.Parts:
        """What each of its jobs wrote and recorded. Reads the list of parts."""
        return layout.parts(self.folder, self._manifest)

    @cached_property
    def part_records(self) -> list[dict[str, Any]]:
        """What was recorded of each shard of documents, in order. Reads the list of parts."""
        document_parts = [part for part in layout.parts(self.folder, self._manifest) if part.counts_documents]
        return [part.record for part in sorted(document_parts, key=lambda part: part.number)]

    @property
    def edits_texts(self) -> bool:
        """Whether the stage has texts of its own, into which steps have cut: then every part has a file of edits."""
        return any("edits" in count for count in self.step_counts)

    def ledger(self, shard: int) -> str:
        return layout.ledger_part(self.folder, shard)

    def edits(self, shard: int) -> str:
        return layout.edits_part(self.folder, shard)

    def file(self, name: str) -> RecordedFile:
        """A file that the stage's jobs wrote, with its digest. Reads the list of parts; raises LookupError."""
        return layout.recorded_file(self.folder, self._manifest, name)

    @property
    def documents(self) -> "FinishedStage | None":
        """The stage with the texts that reached this one; None if it reads none, or that stage is not in the home."""
        return self.input("documents")

    @property
    def selection(self) -> "FinishedStage | None":
        """The stage whose parts name the documents that reached this one; None as for `documents`."""
        return self.input("kept")

    @property
    def measured(self) -> "tuple[FinishedStage, ...]":
        """The stages of the home whose signals it read, in the order in which they were measured."""
        names = [name for name in self.inputs if name.startswith("measured ")]
        stages = (self.input(name) for name in sorted(names, key=lambda name: int(name.removeprefix("measured "))))
        return tuple(stage for stage in stages if stage is not None)


@dataclass(frozen=True)
class CollectedStage(StageFolder):
    """A stage whose files were removed, and of which only the manifest is there. `described`: what the manifest says,
    without any of the files."""

    described: FinishedStage = field(repr=False, compare=False)


class Home:
    """The stages under an address: a folder, `s3://bucket/prefix`, ..."""

    def __init__(self, address: str) -> None:
        self.address = address

    def stages(self, name: str | None = None) -> list[FinishedStage]:
        """The finished stages, in the order of their labels; or those with a name (`rules`) or a label.

        Those that cannot be read are left out. Raises ManifestError where only such stages have the name.
        """
        matches = [stage for stage in self._finished if name is None or name in (stage.name, stage.label)]
        if name is not None and not matches and (unreadable := self.unreadable(name)):
            raise layout.ManifestError(unreadable[0].trouble)
        return matches

    def unfinished(self, name: str | None = None) -> list[UnfinishedStage]:
        """The stages without a manifest; `name` as for `stages`."""
        return [stage for stage in self._unfinished if name is None or name in (stage.name, stage.label)]

    def collected(self) -> list[CollectedStage]:
        """The stages whose files were removed."""
        return [stage for stage in self._all if isinstance(stage, CollectedStage)]

    def unreadable(self, name: str | None = None) -> list[UnreadableStage]:
        """The stages whose manifest cannot be used; `name` as for `stages`."""
        return [stage for stage in self._unreadable if name is None or name in (stage.name, stage.label)]

    def check_readable(self) -> None:
        """Warn if some stages cannot be read, with the reason. Raises ManifestError where there are no others."""
        if not (unreadable := self.unreadable()):
            return
        message = f"{len(unreadable)} stages of {self.address} cannot be read, such as {unreadable[0].label}: "
        if not self._finished:
            raise layout.ManifestError(message + unreadable[0].trouble)
        log.warning("%s%s", message, unreadable[0].trouble)

    def find(self, key: str) -> FinishedStage | None:
        """The finished stage with a key, if the home has it."""
        return next((stage for stage in self._finished if stage.key == key), None)

    def with_contents(self, digest: str) -> FinishedStage | None:
        """A finished stage whose contents have a digest, if the home has one."""
        return next((stage for stage in self._finished if stage.contents == digest), None)

    def stage(self, key: str) -> FinishedStage:
        """The finished stage with a key. Raises LookupError if the home has none."""
        if (match := self.find(key)) is None:
            raise LookupError(f"{self.address} has no finished stage with the key {key}")
        return match

    def derived_from(self, stage: FinishedStage) -> Iterator[FinishedStage]:
        """The finished stages that were made from a stage's texts, or from these as a later stage has cut them."""
        for other in self._finished:
            if other.reads("documents", stage):
                yield other
                if other.edits_texts:
                    yield from self.derived_from(other)

    @cached_property
    def _all(self) -> tuple[FinishedStage | UnfinishedStage | UnreadableStage | CollectedStage, ...]:
        root = files.join(self.address, "stages")
        labels = [name for name in files.names(root) if not name.startswith(".")]
        # requests to a store are mostly waiting
        with ThreadPoolExecutor(16) as pool:
            return tuple(pool.map(lambda label: self._read(label, files.join(root, label)), labels))

    def _read(self, label: str, folder: str) -> FinishedStage | UnfinishedStage | UnreadableStage | CollectedStage:
        name, _, key = label.rpartition("-")
        try:
            manifest = layout.manifest(folder)
        except layout.ManifestError as error:
            # a home keeps the stages of other versions; those of this version are valid
            return UnreadableStage(name, key, folder, str(error))
        if manifest is None:
            return UnfinishedStage(name, key, folder, len(files.names(files.join(folder, "done"))))
        if manifest.get(layout.COLLECTED):
            return CollectedStage(name, key, folder, FinishedStage(name, key, folder, self, manifest))
        return FinishedStage(name, key, folder, self, manifest)

    @cached_property
    def _finished(self) -> tuple[FinishedStage, ...]:
        return tuple(stage for stage in self._all if isinstance(stage, FinishedStage))

    @cached_property
    def _unfinished(self) -> tuple[UnfinishedStage, ...]:
        return tuple(stage for stage in self._all if isinstance(stage, UnfinishedStage))

    @cached_property
    def _unreadable(self) -> tuple[UnreadableStage, ...]:
        return tuple(stage for stage in self._all if isinstance(stage, UnreadableStage))


def open_stage(folder: str) -> FinishedStage:
    """The finished stage in a folder. Raises LookupError if it is not finished, ManifestError if it cannot be read."""
    address, _, label = folder.rstrip("/").rpartition("/stages/")
    name, _, key = label.rpartition("-")
    if (manifest := layout.manifest(folder)) is None:
        raise LookupError(f"{folder} is not a finished stage")
    return FinishedStage(name, key, folder, Home(address), manifest)


# Everything that a finished stage has, read again and compared with what was noted when it was written.

_FILES_AT_ONCE = 1024  # files that wait for a thread


@dataclass(frozen=True)
class Damage:
    """A file that is not what was written, and how."""

    path: str
    trouble: str


@dataclass(frozen=True)
class Verified:
    """`files`, `bytes`: what was read; `damages`: what is wrong with it, empty for a sound stage."""

    folder: str
    files: int
    bytes: int
    damages: tuple[Damage, ...]


def verify(folder: str) -> Verified:
    """Read a finished stage of a home whole: what `verify_files` reads, and the marks of its jobs.

    Raises as `verify_files`.
    """
    verified = verify_files(folder)
    every = iter(layout.parts(folder, layout.manifest(folder) or {}))
    damages = list(verified.damages)
    with ThreadPoolExecutor(16) as pool:
        while some := list(islice(every, _FILES_AT_ONCE)):
            damages += filter(None, pool.map(partial(_mark_damage, folder), some))
    return replace(verified, damages=tuple(damages))


def verify_files(folder: str) -> Verified:
    """Read a finished stage without the marks of its jobs, which an export has not: manifest, list of parts, every
    file, and the balance of documents.

    The content of every file is compared with its digest, sixteen files at a time. Holds a line of the list for each
    job, and the ledgers of sixteen shards. Raises LookupError for a stage that is not finished, ManifestError for a
    manifest or a list of parts that cannot be used.
    """
    manifest = layout.manifest(folder)
    if manifest is None:
        raise LookupError(f"{folder} is not a finished stage: it has no manifest.json")
    parts = layout.parts(folder, manifest)
    paths = ((files.join(folder, name), facts) for part in parts for name, facts in part.files.items())
    damages: list[Damage] = []
    with ThreadPoolExecutor(16) as pool:
        while some := list(islice(paths, _FILES_AT_ONCE)):
            damages += (damage for _, damage in pool.map(lambda item: verify_file(*item), some) if damage)
    if not damages:
        try:
            ledger.check_balance(folder, parts)
        except ledger.LedgerError as error:
            damages.append(Damage(folder, str(error)))
    return Verified(folder, manifest["parts"]["files"], manifest["parts"]["bytes"], tuple(damages))


def _mark_damage(folder: str, part: layout.Part) -> Damage | None:
    """What is wrong with the mark of a job that is done: readers of single shards know these by it."""
    # imported here, since most who read a home verify nothing
    from gristmill.storage.remote.retry import RemoteIOError

    path = layout.done_path(folder, part.phase, part.number)
    try:
        done = layout.done_record(folder, part.phase, part.number)
    except DamagedFileError:
        return Damage(path, "is not what was written")
    except (OSError, RemoteIOError) as error:
        return Damage(path, f"cannot be read: {error}")
    if done is None:
        return Damage(path, "is missing")
    if (done["record"], done["files"]) != (part.record, part.files):
        return Damage(path, "does not match the list of parts")
    return None


def verify_file(path: str, facts: Mapping[str, Any]) -> tuple[int, Damage | None]:
    """Read a file, compare it with some of what `gristmill.storage.files.facts` says of it, such as its `content`, and
    return its bytes and what is wrong with it."""
    from gristmill.storage.remote.retry import RemoteIOError

    try:
        with files.open_file(path) as f:
            as_read = files.facts(f)
    except FileNotFoundError:
        return 0, Damage(path, "is missing")
    except (OSError, RemoteIOError) as error:
        return 0, Damage(path, f"cannot be read: {error}")
    is_whole = all(as_read.get(name) == fact for name, fact in facts.items() if name != "values")
    return as_read["bytes"], None if is_whole else Damage(path, "is not what was written")
