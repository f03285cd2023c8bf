"""The decision history of a document: what each stage decided about it."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from storage import files, parquet
from storage.home import FinishedStage


@dataclass(frozen=True)
class Decision:
    """What one stage decided about one document. `row`: of the stage's part, if it was kept, else of its ledger."""

    stage: str
    kept: bool
    row: dict[str, Any]


def decision(stage: FinishedStage, shard: int, document: str) -> Decision | None:
    """What a stage decided about the document with an id, in a shard; None if it never reached the stage, or if the
    stage decides nothing. Holds the shard's part, then its ledger."""
    if not stage.counts_documents:
        return None
    if kept := row_of(stage.part(shard), document):
        return Decision(stage.label, True, kept)
    if dropped := row_of(stage.ledger(shard), document):
        return Decision(stage.label, False, dropped)
    return None


def row_of(part: str, document: str) -> dict[str, Any] | None:
    """The row of a document in a part; None if there is no such row, or no such part."""
    if not files.exists(part):
        return None
    table: pa.Table = parquet.read_table(part)
    if "id" not in table.column_names:
        return None
    return next(iter(table.filter(pc.equal(table["id"], document)).to_pylist()), None)
