"""The decision history of a document: what each stage decided about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage import files, parquet
from storage.home import FinishedStage
from tasks.documents.rows import read_rows


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


def rows_of(part: str, documents: Sequence[str], columns: list[str] | None = None) -> list[dict[str, Any]]:
    """The rows of some documents that a part has, in its order; of them all columns, or these. Holds the part's ids,
    and of the row groups with one of the documents the columns, one after the other."""
    found = pc.is_in(parquet.read_table(part, ["id"])["id"], pa.array(documents, pa.string()))
    rows = np.flatnonzero(found.to_numpy())
    return read_rows(part, rows, columns or parquet.columns(part)).to_pylist()
