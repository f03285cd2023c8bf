"""Where a document comes from and what every stage made of it, back to the bytes that the crawler wrote."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from flows.reports.status import cut, folders
from storage import files, layout, parquet
from storage.remote.config import RemoteIOConfig
from storage.remote.streams import RemoteIOError
from storage.schema import DOCUMENTS
from tasks.reading.charset import decode, detect
from tasks.reading.listing import Shard
from tasks.reading.record import Record
from tasks.reading.shard import read_again

_SHARD = TypeAdapter(Shard)


@dataclass(frozen=True)
class Lineage:
    """One document of one `documents` stage.

    `row`: its columns, or its row of the ledger if the record never became a document; `record`: read again from
    the source's file, or None, and `trouble` says why; `scores`: columns of the stages behind, by stage; `fate`:
    stage by stage, kept or dropped.
    """

    stage: str
    row: dict
    record: Record | None
    trouble: str = ""
    scores: dict[str, dict] = field(default_factory=dict)
    fate: tuple[str, ...] = ()

    @property
    def raw(self) -> str:
        """The payload as text, in the document's charset; why there is none, if there is none."""
        if self.record is None:
            return self.trouble
        if self.record.problem:
            return ": ".join(self.record.problem)
        charset = self.row.get("charset") or detect(self.record.payload, self.record.charset, True)
        return decode(self.record.payload, charset)


def trace(home: str, prefix: str, remote_io: RemoteIOConfig) -> Iterator[Lineage]:
    """Every document whose id begins with `prefix`, in each `documents` stage of the home.

    Of an archive the record's range alone is read, unless records share a compressed member; a table is read up to
    its row. Holds the ids of a shard. Raises LookupError if there is no such document.
    """
    found = False
    for name, folder in folders(home):
        if not name.startswith("documents-") or (manifest := layout.manifest(folder)) is None:
            continue
        for shard, made in enumerate(manifest["shards"]):
            for row in _rows(folder, shard, prefix):
                found = True
                record, trouble = _read_again(manifest, made["shard"], row, remote_io)
                scores, fate = _behind(home, name.removeprefix("documents-"), shard, row["id"])
                if "rule" in row:
                    fate = (f"{name}: {_dropped(row)}",)
                yield Lineage(name, row, record, trouble, scores, fate)
    if not found:
        raise LookupError(f"no document in {home} has an id that begins with {prefix}; `gristmill show` prints ids")


def _read_again(manifest: dict, shard: dict, row: dict, remote_io: RemoteIOConfig) -> tuple[Record | None, str]:
    """The record, or why it cannot be had: the file may have moved, or be another one by now."""
    where = f"{shard['path']}, offset {row['offset']}"
    place = row["file"], row["offset"], row["length"]
    try:
        found = read_again(
            _SHARD.validate_python(shard), *place, manifest["settings"]["extract"]["max_bytes"], remote_io
        )
    except (OSError, LookupError, RemoteIOError) as error:
        return None, f"{where} cannot be read again: {error}"
    for name in ("url", "record_id"):
        if name in row and row[name] != getattr(found, name):
            return None, f"{where} is another record by now: its {name} is {getattr(found, name)!r}"
    return found, ""


def _rows(folder: str, shard: int, prefix: str) -> Iterator[dict]:
    """The document's row with its signals, or the ledger's row of a record that has a place in the file."""
    for path in (layout.part(folder, shard), layout.ledger_part(folder, shard)):
        matching = pc.starts_with(parquet.read_table(path, ["id"])["id"], prefix)
        if pc.any(matching).as_py():
            yield from (
                row for row in parquet.read_table(path).filter(matching).to_pylist() if row["offset"] is not None
            )


def _behind(home: str, key: str, shard: int, document: str) -> tuple[dict[str, dict], tuple[str, ...]]:
    """Scores and fate of a document in the stages that were made from its `documents` stage."""
    scores: dict[str, dict] = {}
    fate: list[tuple[int, str]] = []
    made = {name: (folder, manifest) for name, folder, manifest in _made_from(home, key)}
    before = {manifest["key"]: manifest["inputs"].get("kept") for _, manifest in made.values()}
    for name, (folder, manifest) in made.items():
        part = layout.part(folder, shard)
        if manifest["stage"] == "signatures" or not files.exists(part):  # hashes tell a reader nothing
            continue
        row = _one(parquet.read_table(part), document)
        known = {k: v for k, v in row.items() if k not in DOCUMENTS.names and v is not None}
        if known:
            scores[name] = known
        if "shards" not in manifest:
            continue
        verdict = "kept" if row else ""
        if not row and (lost := _one(parquet.read_table(layout.ledger_part(folder, shard)), document)):
            verdict = _dropped(lost)
        if verdict:
            fate.append((_nth(manifest["key"], before), f"{name}: {verdict}"))
    return scores, tuple(line for _, line in sorted(fate))


def _nth(key: str | None, before: dict[str, str | None]) -> int:
    """How many stages chose documents ahead of this one; `before`: the stage that each goes on from."""
    return _nth(before[key], before) + 1 if key in before else 0


def _made_from(home: str, key: str) -> Iterator[tuple[str, str, dict]]:
    """The finished stages made from a `documents` stage, or from its documents as later stages have cut into them."""
    for name, folder in folders(home):
        manifest = layout.manifest(folder)
        if manifest is not None and manifest["inputs"].get("documents") == key:
            yield name, folder, manifest
            if any("edits" in step for made in manifest.get("shards", []) for step in made["steps"]):
                yield from _made_from(home, manifest["key"])


def _one(table: pa.Table, document: str) -> dict:
    rows = table.filter(pc.equal(table["id"], document)).to_pylist() if "id" in table.column_names else []
    return rows[0] if rows else {}


def _dropped(row: dict) -> str:
    told = [f"dropped by {row['step']}.{row['rule']}"]
    told += [
        f"{name} {row[name]}" for name in ("value", "threshold", "detail", "representative") if row[name] is not None
    ]
    return ", ".join(told)


def readable(found: Lineage, characters: int) -> Iterator[str]:
    """Sections for a reader: record, fate, scores, raw page, text; of page and text the first `characters`."""
    yield f"== {found.stage}  {found.row['id']}"
    columns = {**{n: found.row.get(n) for n in DOCUMENTS.names if n not in ("id", "text")}}
    yield from (f"{name}: {value}" for name, value in columns.items() if value is not None)
    yield "\n-- fate"
    yield from found.fate or ("kept by every stage so far",)
    yield "\n-- scores"
    signals = {n: v for n, v in found.row.items() if n not in DOCUMENTS.names and "rule" not in found.row}
    for stage, scores in ({found.stage: signals} | found.scores).items():
        yield from (f"{stage}  {name}: {value}" for name, value in scores.items() if value is not None)
    yield f"\n-- raw, {len(found.record.payload) if found.record else 0:,} bytes"
    yield cut(found.raw, characters)
    if "text" in found.row:
        yield f"\n-- text, {found.row['characters']:,} characters"
        yield cut(found.row["text"], characters)
