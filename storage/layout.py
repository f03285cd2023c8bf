"""Where a stage's files lie, and its manifest.

    <home>/stages/<name>-<key>/
        part-00000.parquet ...       what the stage makes, shard by shard
        ledger/part-00000.parquet    what each shard dropped, and why
        edits/part-00000.parquet     what was cut out of the texts, where a stage makes texts
        done/<phase>-00000.json      a job is finished: its record and its files
        parts.json                   what each job wrote and counted
        manifest.json                written last: the stage is finished. Of one size, however many parts there are

A stage that was killed has no manifest; the same command finds its finished jobs and goes on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from gristmill.storage import checked_json, counts, files
from gristmill.storage.damage import DamagedFileError, RecordedFile, check_name, damaged

FORMAT = 4


@dataclass(frozen=True)
class Part:
    """One job of a phase: its record, and the files that it wrote, by name, as `gristmill.storage.files.facts` has
    them."""

    phase: str
    number: int
    record: dict[str, Any]
    files: dict[str, dict[str, Any]]

    @property
    def counts_documents(self) -> bool:
        """Whether the record is that of a shard of documents, with a ledger."""
        return "rows_out" in self.record and "steps" in self.record


class ManifestError(RuntimeError):
    """A manifest or a list of parts is damaged, or of another version; the message names file and remedy."""


def stage_folder(home: str, name: str, key: str) -> str:
    return files.join(home, "stages", f"{name}-{key}")


def part(folder: str, shard: int, suffix: str = "parquet") -> str:
    return files.join(folder, f"part-{shard:05d}.{suffix}")


def ledger_part(folder: str, shard: int) -> str:
    return files.join(folder, "ledger", f"part-{shard:05d}.parquet")


def edits_part(folder: str, shard: int) -> str:
    return files.join(folder, "edits", f"part-{shard:05d}.parquet")


def done_record(folder: str, phase: str, number: int) -> dict | None:
    """What `mark_done` wrote for a job, or None. Raises DamagedFileError."""
    try:
        return checked_json.read(_done(folder, phase, number))
    except FileNotFoundError:
        return None


def mark_done(folder: str, phase: str, number: int, done: dict) -> None:
    """Record that a job's files are all in place; call it after they are."""
    checked_json.write(_done(folder, phase, number), done)


def _done(folder: str, phase: str, number: int) -> str:
    return files.join(folder, "done", f"{phase}-{number:05d}.json")


def manifest(folder: str) -> dict | None:
    """The manifest of a finished stage, or None. One request. Raises ManifestError where it cannot be used, also where
    it is that of another stage."""
    path = files.join(folder, "manifest.json")
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        value = checked_json.content(data, path)
        if (found := value.get("format")) in (FORMAT, None):
            check_name(path, value.pop("file", "a file of another version"))
            return value
    except DamagedFileError as error:
        if (found := _older_format(data)) is None:
            raise ManifestError(str(error)) from None
    raise ManifestError(
        f"{path} is of format {found}, this version reads {FORMAT}: another version of gristmill made the stage; run "
        "its recipe again, or install that version"
    )


def _older_format(data: bytes) -> int | None:
    """The format of a manifest without a checksum: those before 3 had none."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    found = value.get("format", 1) if isinstance(value, dict) and "checksum" not in value else None
    return found if found in (1, 2) else None


def write_manifest(folder: str, value: Mapping[str, Any], parts: Sequence[Part]) -> dict:
    """Write the list of parts and, last, the manifest, which has their digest and their counts summed up."""
    listed = [asdict(each) for each in parts]
    data = orjson.dumps(listed, option=orjson.OPT_SORT_KEYS)
    files.write_bytes(files.join(folder, "parts.json"), data)
    documents = [each.record for each in parts if each.counts_documents]
    whole = {
        "format": FORMAT,
        **value,
        "counts": {
            "rows_in": sum(record["rows_in"] for record in documents),
            "rows_out": sum(record["rows_out"] for record in documents),
            "steps": counts.summed(record["steps"] for record in documents),
        },
        "parts": {
            "jobs": len(listed),
            "files": sum(len(each["files"]) for each in listed),
            "bytes": sum(facts["bytes"] for each in listed for facts in each["files"].values()),
            "digest": files.digest(data),
        },
    }
    checked_json.write(files.join(folder, "manifest.json"), whole)
    return whole


def parts(folder: str, value: Mapping[str, Any]) -> list[Part]:
    """The list of parts of a stage with this manifest. Raises ManifestError if it is not the one that was written."""
    path = files.join(folder, "parts.json")
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        raise ManifestError(str(damaged(path, "is missing"))) from None
    if files.digest(data) != value["parts"]["digest"]:
        raise ManifestError(str(damaged(path, "is not what its manifest says")))
    return [Part(**each) for each in orjson.loads(data)]


def recorded_file(folder: str, value: Mapping[str, Any], name: str) -> RecordedFile:
    """A file of a stage with this manifest. Raises LookupError for one that none of its jobs has written."""
    for each in parts(folder, value):
        if name in each.files:
            return RecordedFile(files.join(folder, name), each.files[name]["content"])
    raise LookupError(f"{folder} has no file {name} that was recorded")


def record_files(folder: str, number: int, names: list[str]) -> dict:
    """A job that notes files of the stage's folder which another process wrote."""
    for name in names:
        files.record(files.join(folder, name))
    return {"files": len(names)}


def digest_of(values: Mapping[str, str] | list[str]) -> str:
    """xxh3-128 of names and values, or of values in their order, hexadecimal."""
    return files.digest(orjson.dumps(values, option=orjson.OPT_SORT_KEYS))
