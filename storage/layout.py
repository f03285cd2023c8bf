"""Where a stage's files are, and its manifest.

    <home>/stages/<name>-<key>/
        part-00000.parquet ...       what the stage makes, shard by shard
        ledger/part-00000.parquet    what each shard dropped, and why
        edits/part-00000.parquet     what was cut out of the texts, where a stage makes texts
        drawn/part-00000.parquet     documents that may be held out, where `url` steps come before the extraction
        done/<phase>-00000.json      a job is finished: its record and its files
        parts.json                   what each job wrote and counted, a line for each
        manifest.json                written last: the stage is finished. Of one size, however many parts there are

A stage that was killed has no manifest; the same command finds its finished jobs and resumes.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import orjson

from gristmill.storage import checked_json, files
from gristmill.storage.contents import PartsDigest, sum_counts
from gristmill.storage.damage import DamagedFileError, RecordedFile, check_name, damaged

FORMAT = 6
_DONE = re.compile(r"(.+)-(\d{5,})\.json")


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
        return counts_documents(self.record)

    def line(self) -> bytes:
        """It as JSON, sorted by key, in one line."""
        value = {"phase": self.phase, "number": self.number, "record": self.record, "files": self.files}
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


class Parts(Sequence[Part]):
    """Parts that are held as their lines of JSON, about 1 kB each, and parsed on access."""

    def __init__(self, lines: Iterable[bytes] = ()) -> None:
        self.lines = list(lines)

    def __len__(self) -> int:
        return len(self.lines)

    def __iter__(self) -> Iterator[Part]:
        return (Part(**orjson.loads(line)) for line in self.lines)

    @overload
    def __getitem__(self, index: int) -> Part: ...

    @overload
    def __getitem__(self, index: slice) -> "Parts": ...

    def __getitem__(self, index: int | slice) -> "Part | Parts":
        return Parts(self.lines[index]) if isinstance(index, slice) else Part(**orjson.loads(self.lines[index]))


def counts_documents(record: Mapping[str, Any]) -> bool:
    """Whether a record is that of a shard of documents, with a ledger."""
    return "rows_out" in record and "steps" in record


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


def drawn_folder(folder: str) -> str:
    return files.join(folder, "drawn")


def done_record(folder: str, phase: str, number: int) -> dict | None:
    """What `mark_done` wrote for a job, or None. Raises DamagedFileError."""
    try:
        return checked_json.read(done_path(folder, phase, number))
    except FileNotFoundError:
        return None


def mark_done(folder: str, phase: str, number: int, done: dict) -> None:
    """Record that a job's files are all in place; call it after they are."""
    checked_json.write(done_path(folder, phase, number), done)


def done_part(folder: str, phase: str, number: int) -> Part:
    """What a job of a finished stage recorded, read only from its mark: one request for any number of jobs. Raises
    DamagedFileError, also if the mark is missing."""
    if (done := done_record(folder, phase, number)) is None:
        raise damaged(done_path(folder, phase, number), "is missing")
    return Part(phase, number, done["record"], done["files"])


def done_numbers(folder: str) -> dict[str, set[int]]:
    """The jobs that are marked done, by phase: one listing, however many there are."""
    numbers: dict[str, set[int]] = defaultdict(set)
    for name in files.names(files.join(folder, "done")):
        if match := _DONE.fullmatch(name):
            numbers[match[1]].add(int(match[2]))
    return numbers


def done_path(folder: str, phase: str, number: int) -> str:
    """The mark of a job that is done."""
    return files.join(folder, "done", f"{phase}-{number:05d}.json")


def manifest(folder: str) -> dict | None:
    """The manifest of a finished stage, or None. One request. Raises ManifestError where it cannot be used, also where
    it is of another stage."""
    path = files.join(folder, "manifest.json")
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        value = checked_json.content(data, path)
        if (format_version := value.get("format")) in (FORMAT, None):
            check_name(path, value.pop("file", "a file of another version"))
            return value
    except DamagedFileError as error:
        raise ManifestError(str(error)) from None
    raise ManifestError(
        f"{path} has format {format_version}, but this version reads {FORMAT}: another version of gristmill "
        "made the stage; run its recipe again, or install that version"
    )


def contents(value: Mapping[str, Any]) -> str:
    """The digest of the contents of a stage with this manifest."""
    return str(value["contents"])


# In the manifest of a stage whose files `gristmill home gc` has removed: it still says what they held.
COLLECTED = "collected"


def collect(folder: str) -> None:
    """Remove the files of a finished stage and keep its manifest and its list of parts, by which later stages know its
    contents. The caller holds the stage's lease. Raises ManifestError."""
    value = manifest(folder)
    assert value is not None, f"{folder} is a finished stage"
    checked_json.write(files.join(folder, "manifest.json"), {**value, COLLECTED: True})
    for name in removable(folder):
        files.remove(files.join(folder, name))


def removable(folder: str) -> list[str]:
    """What `collect` removes of a stage's folder; after one that was killed, something is left. The marks of done jobs
    come first, so that no mark is left whose files are gone."""
    names = [name for name in files.names(folder) if name not in ("manifest.json", "parts.json", "lease")]
    return sorted(names, key=lambda name: name != "done")


def write_manifest(folder: str, value: Mapping[str, Any], parts: Iterable[Part]) -> dict:
    """Write the list of parts and, last, the manifest, which has their digest, that of the stage's contents
    (`gristmill.storage.contents`), and their counts summed up. Goes over the parts once, and holds one at a time.
    `value` may have the stage's `result`."""
    holding = PartsDigest()
    totals = {"jobs": 0, "files": 0, "bytes": 0}
    rows = {"rows_in": 0, "rows_out": 0}
    digest = files.Digest()
    with files.create(files.join(folder, "parts.json")) as f:

        def write(data: bytes) -> None:
            f.write(data)
            digest.update(data)

        def written() -> Iterator[list[dict]]:
            """The steps of each part that counts documents, once it is written."""
            for each in parts:
                write((b",\n" if totals["jobs"] else b"[\n") + each.line())
                holding.add(each.number, each.record, each.files)
                totals["jobs"] += 1
                totals["files"] += len(each.files)
                totals["bytes"] += sum(facts["bytes"] for facts in each.files.values())
                if each.counts_documents:
                    rows["rows_in"] += each.record["rows_in"]
                    rows["rows_out"] += each.record["rows_out"]
                    yield each.record["steps"]

        steps = sum_counts(written())
        write(b"\n]" if totals["jobs"] else b"[]")
    whole = {
        "format": FORMAT,
        **value,
        "contents": holding.hexdigest(value.get("result")),
        "counts": {**rows, "steps": steps},
        "parts": {**totals, "digest": digest.hexdigest()},
    }
    checked_json.write(files.join(folder, "manifest.json"), whole)
    return whole


def parts(folder: str, value: Mapping[str, Any]) -> Parts:
    """The list of parts of a stage with this manifest. Raises ManifestError if it is not the one that was written."""
    path = files.join(folder, "parts.json")
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        raise ManifestError(str(damaged(path, "is missing"))) from None
    if files.digest(data) != value["parts"]["digest"]:
        raise ManifestError(str(damaged(path, "does not match its manifest")))
    return Parts(line.removesuffix(b",") for line in data.split(b"\n")[1:-1])


def recorded_file(folder: str, value: Mapping[str, Any], name: str) -> RecordedFile:
    """A file of a stage with this manifest. Raises LookupError for one that none of its jobs has written."""
    for each in parts(folder, value):
        if name in each.files:
            return RecordedFile(files.join(folder, name), each.files[name]["content"])
    raise LookupError(f"{folder} lacks the recorded file {name}")


def digest_of(values: Mapping[str, str] | list[str]) -> str:
    """xxh3-128 of names and values, or of values in their order, hexadecimal."""
    return files.digest(orjson.dumps(values, option=orjson.OPT_SORT_KEYS))
