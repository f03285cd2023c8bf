"""Texts of documents derived again from their records.

Extraction, normalisation and the document steps of the stage `documents` run once more. What later steps cut out of a
text depends on other documents, or on signals that did, so it is taken from the ledgers of edits.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from flows.reports.history import rows_of
from flows.reports.lineage import record_again
from flows.steps import AnyStep
from storage import parquet
from storage.home import FinishedStage
from storage.remote.config import RemoteIOConfig
from storage.schema import DOCUMENTS
from tasks.documents.measure import measured
from tasks.documents.normalize import Normalize
from tasks.documents.normalize_work import rewrite
from tasks.documents.step import DocumentStep, EditStep
from tasks.extraction.extract import Extract
from tasks.extraction.page import extract_page
from tasks.guard.parent import Guard
from tasks.reading.record import Record

_STEPS = TypeAdapter(tuple[AnyStep, ...])
_PLACE = ["id", "source", "file", "offset", "length", "url", "record_id"]
_OF_RECORD = ("url", "date", "ip", "status", "truncated", "note", "record_id", "digest")


@dataclass
class DerivedTexts:
    """`texts`: by document, as a record gives them; `troubles`: by document, why a record gives none."""

    texts: dict[str, str] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)


def derive_texts(
    through: Sequence[FinishedStage], number: int, documents: Sequence[str], remote_io: RemoteIOConfig
) -> DerivedTexts:
    """Texts of some documents of a shard as the last of some stages has them. `through`: a stage `documents` and those
    that made its texts anew, in their order; `number`: of the shard. Holds the texts.

    Raises ValueError for a step that this machine does not know.
    """
    first, *later = through
    found = DerivedTexts()
    pages = _pages(first, number, documents, remote_io, found.troubles)
    table = pa.Table.from_pylist(list(pages), schema=DOCUMENTS)
    if settings := first.settings["normalize"]:
        texts = rewrite(Normalize.model_validate(settings), table["text"], pc.equal(table["engine"], "blocks"))
        table = table.set_column(table.schema.get_field_index("text"), DOCUMENTS.field("text"), texts)
    table = _edited(first, table)
    found.texts.update(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    for stage in later:
        _cut(stage, number, found.texts)
    return found


def _pages(
    stage: FinishedStage,
    number: int,
    documents: Sequence[str],
    remote_io: RemoteIOConfig,
    troubles: dict[str, str],
) -> Iterator[dict[str, Any]]:
    """A row of DOCUMENTS for each record that gives a text."""
    extract = Extract.model_validate(stage.settings["extract"])
    records = _records(stage, number, documents, remote_io, troubles)
    waiting: deque[dict[str, Any]] = deque()

    def calls() -> Iterator[tuple]:
        for row, record in records:
            waiting.append(row | {name: getattr(record, name) for name in _OF_RECORD})
            yield record.payload, record.content_type, record.charset, record.url, extract.engine, extract.format

    with Guard(f"{extract_page.__module__}:{extract_page.__name__}", extract.limits) as guard:
        for page in guard.map(calls()):
            row = waiting.popleft()
            if "rule" in page:
                troubles[row["id"]] = f"{page['rule']}: {page['detail']}"
            else:
                yield row | page | {"characters": len(page["text"])}


def _records(
    stage: FinishedStage,
    number: int,
    documents: Sequence[str],
    remote_io: RemoteIOConfig,
    troubles: dict[str, str],
) -> Iterator[tuple[dict[str, Any], Record]]:
    for row in rows_of(stage.part(number), documents, _PLACE):
        record, trouble = record_again(stage, number, row, remote_io)
        if record is None:
            troubles[row["id"]] = trouble
        elif record.problem:
            troubles[row["id"]] = ": ".join(record.problem)
        else:
            yield row, record


def _edited(stage: FinishedStage, table: pa.Table) -> pa.Table:
    """The documents behind the last step of the stage that changes texts."""
    given = _STEPS.validate_python([*stage.settings["before"], *stage.settings["steps"]])
    steps = [step for step in given if isinstance(step, DocumentStep)]
    behind = max((at + 1 for at, step in enumerate(steps) if isinstance(step, EditStep)), default=0)
    return measured(table, steps[:behind]).table if behind and len(table) else table


def _cut(stage: FinishedStage, number: int, texts: dict[str, str]) -> None:
    """Cut out of the texts what a stage did, step by step in its order."""
    edits = parquet.read_table(stage.edits(number))
    own = edits.filter(pc.is_in(edits["id"], pa.array(texts, pa.string()))).to_pylist()
    own.sort(key=lambda row: row["id"])  # stable: of each document in the order of steps and places
    for (document, _), rows in groupby(own, lambda row: (row["id"], row["step"])):
        texts[document] = _without(texts[document], rows)


def _without(text: str, edits: Iterable[dict[str, Any]]) -> str:
    """The text with the spans of a step's rows of EDITS replaced."""
    pieces, at = [], 0
    for row in edits:
        pieces += [text[at : row["start"]], row["replacement"]]
        at = row["stop"]
    return "".join([*pieces, text[at:]])
