"""The history of a document: where it comes from, what each stage did to it, and the bytes that the crawler wrote."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from gristmill.flows.recipe import own_steps
from gristmill.storage import files, parquet
from gristmill.storage.contents import ADDRESSES
from gristmill.storage.home import FinishedStage, Home
from gristmill.storage.printable import redact_user
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.storage.remote.streams import RemoteIOError
from gristmill.storage.schema import DOCUMENTS
from gristmill.tasks.documents.selection import read_rows
from gristmill.tasks.documents.step import StepError, function_at
from gristmill.tasks.reading.charset import decode, detect
from gristmill.tasks.reading.listing import Shard, recorded_file
from gristmill.tasks.reading.record import Record
from gristmill.tasks.reading.shard import read_again
from gristmill.tasks.url.canonical import with_scheme


@dataclass(frozen=True)
class Decision:
    """What one stage decided about one document. `row`: of the stage's part, if it was kept, else of its ledger."""

    stage: str
    kept: bool
    row: dict[str, Any]


def decision(stage: FinishedStage, shard: int, document: str) -> Decision | None:
    """What a stage decided about the document with an id, in a shard; None if it never reached the stage, or if the
    stage decides nothing. Holds as `rows_of`."""
    if not stage.counts_documents:
        return None
    if kept := row_of(stage.part(shard), document):
        return Decision(stage.label, True, kept)
    if dropped := row_of(stage.ledger(shard), document):
        return Decision(stage.label, False, dropped)
    return None


def row_of(part: str, document: str) -> dict[str, Any] | None:
    """The row of a document in a part; None if there is no such row, or no such part."""
    if not files.exists(part) or "id" not in parquet.columns(part):
        return None
    return next(iter(rows_of(part, [document])), None)


def rows_of(part: str, documents: Sequence[str], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The rows of some documents that a part has, in its order; of them all columns, or these. Holds the part's ids,
    and of the row groups with one of the documents the columns, one after the other."""
    found = pc.is_in(parquet.read_table(part, ["id"])["id"], pa.array(documents, pa.string()))
    rows = np.flatnonzero(found.to_numpy())
    return read_rows(part, rows, [*(columns or parquet.columns(part))]).to_pylist()


_SHARDS = TypeAdapter(list[Shard])
# Columns of the stage `documents` that say where a document is from.
ORIGIN = ("id", "source", "url", "file", "offset", "length", "record_id")


@dataclass(frozen=True)
class Lineage:
    """One document of one `documents` stage.

    `row`: its columns, or its row of the ledger if the record never became a document; `record`: read again from
    the source's file, or None, and `trouble` is the reason; `scores`: columns of later stages, by stage;
    `decisions`: the decision history, in the order of the stages; `own`: the columns of the sources' own; `origin`: of
    a rewrite the lineage of the document that it was rewritten from, None if that is not in the home.
    """

    stage: str
    row: dict[str, Any]
    record: Record | None
    trouble: str = ""
    scores: dict[str, dict[str, Any]] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    own: tuple[str, ...] = ()
    origin: "Lineage | None" = None

    @property
    def became_document(self) -> bool:
        return "rule" not in self.row

    @property
    def columns(self) -> dict[str, Any]:
        """Where the document comes from: its columns but for id, text, signals and those without a value."""
        names = [name for name in (*DOCUMENTS.names, *self.own) if name not in ("id", "text")]
        return {name: value for name in names if (value := self.row.get(name)) is not None}

    @property
    def signals(self) -> dict[str, Any]:
        """What was measured while the document was made."""
        known = (*DOCUMENTS.names, *self.own)
        return {n: v for n, v in self.row.items() if n not in known} if self.became_document else {}

    @property
    def raw(self) -> str:
        """The payload as text, in the document's charset; the reason why there is none, if there is none."""
        if self.record is None:
            return self.trouble
        if self.record.problem:
            return ": ".join(self.record.problem)
        charset = self.row.get("charset") or detect(self.record.payload, self.record.charset, True)
        return decode(self.record.payload, charset)


def trace(home: str, prefix: str, remote_io: RemoteIOConfig, stage: str = "documents") -> Iterator[Lineage]:
    """Every document whose id begins with `prefix`, in each `documents` stage of the home, or in the one with a label.

    Reads only the record's range of an archive, unless records share a compressed member, and a table up to its row.
    Holds the ids of a shard. Raises LookupError if there is no such document."""
    found = False
    for made in Home(home).stages(stage):
        for shard in range(len(made.part_records)):
            for row in _rows(made, shard, prefix):
                found = True
                yield lineage_of(made, shard, row, remote_io)
    if not found:
        raise LookupError(
            f"no document in {home} has an id that begins with {prefix}; `gristmill explain show` prints ids"
        )


def lineage_of(stage: FinishedStage, shard: int, row: dict[str, Any], remote_io: RemoteIOConfig) -> Lineage:
    """The lineage of a document of a `documents` stage, given its row there, or its row of the ledger."""
    record, trouble = record_again(stage, shard, row, remote_io)
    scores, decisions = _behind(stage, shard, row["id"])
    if "rule" in row:
        decisions = (Decision(stage.label, False, row),)
    own = tuple(stage.result.get("own", ()))
    return Lineage(stage.label, row, record, trouble, scores, decisions, own, _origin(stage, row, remote_io))


def _origin(stage: FinishedStage, row: dict[str, Any], remote_io: RemoteIOConfig) -> Lineage | None:
    """The lineage of the document that a row of a rewrite is from. Holds the ids of a shard."""
    source = row.get("derived_from")
    rewrites = stage.input(f"rewrites {row['source']}") if source else None
    first = None if rewrites is None else rewrites.documents
    while first is not None and first.name != "documents":
        first = first.documents
    if first is None or source is None:
        return None
    for shard in range(len(first.part_records)):
        if (found := row_of(first.part(shard), source)) is not None:
            return lineage_of(first, shard, found, remote_io)
    return None


def record_again(
    stage: FinishedStage, number: int, row: dict[str, Any], remote_io: RemoteIOConfig
) -> tuple[Record | None, str]:
    """The record of a row of a shard, or why it cannot be had: the file may have moved, or be another one by now."""
    record = stage.part_records[number]
    shard = recorded_file(_SHARDS.validate_python(record[ADDRESSES]), row["file"])
    where = f"{shard.path}, offset {row['offset']}"
    place = row["file"], row["offset"], row["length"]
    try:
        if ":" in shard.format:  # the manifest names the code: this machine has to allow it
            function_at(own_steps.address_of(shard.format, own_steps.READERS) or "")
        found = read_again(shard, *place, stage.settings["extract"]["max_bytes"], remote_io)
    except (OSError, LookupError, RemoteIOError, StepError) as error:
        return None, f"{where} cannot be read again: {error}"
    if "url" in row and with_scheme(row["url"]) != found.url:  # stages of earlier releases have it without a scheme
        return None, f"{where} now has a different record: its url is {redact_user(found.url)!r}"
    if "record_id" in row and row["record_id"] != found.record_id:
        return None, f"{where} now has a different record: its record_id is {found.record_id!r}"
    return found, ""


def _rows(stage: FinishedStage, shard: int, prefix: str) -> Iterator[dict[str, Any]]:
    """The document's row with its signals, or the ledger's row of a record that has an offset in the file."""
    for path in (stage.part(shard), stage.ledger(shard)):
        matching = pc.starts_with(parquet.read_table(path, ["id"])["id"], prefix)
        if pc.any(matching).as_py():
            rows = parquet.read_table(path).filter(matching).to_pylist()
            yield from (row for row in rows if row["offset"] is not None)


def _behind(
    documents: FinishedStage, shard: int, document: str
) -> tuple[dict[str, dict[str, Any]], tuple[Decision, ...]]:
    """Scores and decisions about a document in the stages that were made from its `documents` stage."""
    scores: dict[str, dict[str, Any]] = {}
    decisions: list[tuple[int, Decision]] = []
    for stage in documents.home.derived_from(documents):
        if stage.name == "signatures":  # hashes are of no use to a reader
            continue
        if made := decision(stage, shard, document):
            decisions.append((_nth(stage), made))
        row = _scored(stage, shard, document, made)
        known_names = (*DOCUMENTS.names, *documents.result.get("own", ()))
        if known := {k: v for k, v in row.items() if k not in known_names and v is not None}:
            scores[stage.label] = known
    return scores, tuple(made for _, made in sorted(decisions, key=lambda each: (each[0], each[1].stage)))


def _scored(stage: FinishedStage, shard: int, document: str, made: Decision | None) -> dict[str, Any]:
    """The document's row of a stage's part; empty if the stage does not have it any more."""
    if stage.counts_documents:
        return made.row if made and made.kept else {}
    return row_of(stage.part(shard), document) or {}


def _nth(stage: FinishedStage) -> int:
    """How many earlier stages chose documents."""
    before = stage.selection
    return 0 if before is None else _nth(before) + 1
