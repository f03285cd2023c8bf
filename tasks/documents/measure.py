"""Batches of documents, the columns that steps give them, and steps over them: in their order, a slice of about two
megabytes of text after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import ledger
from gristmill.storage.schema import EDITS, LEDGER
from gristmill.tasks import kernels
from gristmill.tasks.documents.accepted import accepted_columns, accepted_edits
from gristmill.tasks.documents.edits import Edits, applied, merged, rows, scanned
from gristmill.tasks.documents.step import DocumentStep, EditStep, Signal, Step, work_of
from gristmill.tasks.engine import own_code

_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
}


def field(signal: Signal) -> pa.Field:
    """The column of a signal, with its unit and the source of its definition as metadata."""
    metadata = {"unit": signal.unit, "source": signal.source}
    return pa.field(signal.name, _TYPES[signal.kind], metadata=metadata)


def schema(step: Step | type[Step]) -> pa.Schema:
    """The columns of a step's signals."""
    return pa.schema([field(signal) for signal in step.signals])


def names(steps: Iterable[Step]) -> list[str]:
    """The names of the signals of steps, in their order, each once."""
    return list(dict.fromkeys(signal.name for step in steps for signal in step.signals))


def fields(steps: Iterable[Step]) -> list[pa.Field]:
    """The columns of the signals of steps, in their order, each once: several steps of one kind share them."""
    return list({signal.name: field(signal) for step in steps for signal in step.signals}.values())


class Batch:
    """Documents that a step measures, about two megabytes of text.

    `batch["text"]` is the `pyarrow.ChunkedArray` of a column: `id`, `url`, `text`, and the signals of earlier steps.
    `len(batch)` is the number of documents. `batch.table` is the whole `pyarrow.Table`.
    """

    def __init__(self, table: pa.Table, scanned: Callable[[], kernels.scan.Scan] | None = None) -> None:
        self.table = table
        self._scanned = scanned

    def __getitem__(self, column: str) -> pa.ChunkedArray:
        return self.table[column]

    def __len__(self) -> int:
        return len(self.table)

    def add(self, signals: pa.Schema, columns: Mapping[str, pa.Array]) -> None:
        """Append a step's signals to the columns."""
        schema = pa.schema([*self.table.schema, *signals], self.table.schema.metadata)
        added = [columns[name] for name in signals.names]
        self.table = pa.Table.from_arrays([*self.table.columns, *added], schema=schema)

    def replace(self, columns: Mapping[str, pa.Array]) -> None:
        """Put other values into columns that there are; not into `text`, which has a scan."""
        for name, values in columns.items():
            index = self.table.schema.get_field_index(name)
            self.table = self.table.set_column(index, self.table.schema.field(index), values)

    @cached_property
    def scan(self) -> kernels.scan.Scan:
        """The words, lines, ... of the texts: found once, read by all rules."""
        return self._scanned() if self._scanned else kernels.scan.scan(self.table["text"])


# What is found in a slice, some five times its text, stays in the caches of a core, and outweighs a call's overhead.
SLICE = 2 << 20


@dataclass(frozen=True)
class Measured:
    """Documents with their signals and the text that the last step left, and what was cut out of it (EDITS)."""

    table: pa.Table
    edits: pa.Table


def measured(documents: pa.Table, steps: Sequence[DocumentStep], source: str = "") -> Measured:
    """Signals and edits of `steps` for documents of one source (columns `text`, those that the steps read, and any
    others). The columns of steps that do not apply to the source are null, unless the documents have them.

    Holds, besides the documents and what is returned, the scans of two megabytes of text or of one document, as
    the last edit found it and as it left it.
    """
    applied_steps = [step for step in steps if step.applies_to(source)]
    results = [_run_steps(part, applied_steps) for part in slices(documents)]
    table = pa.concat_tables(table for table, _ in results)
    if len(applied_steps) < len(steps):
        table = _with_all_columns(table, [name for name in documents.column_names if name not in names(steps)], steps)
    return Measured(table, pa.concat_tables(edits for _, edits in results))


def _with_all_columns(table: pa.Table, leading: Sequence[str], steps: Iterable[Step]) -> pa.Table:
    """The columns `leading`, and the columns of all steps in their order, null where there are none."""
    columns = {name: table[name] for name in leading}
    for each in fields(steps):
        there = each.name in table.column_names
        columns[each.name] = table[each.name] if there else pa.chunked_array([pa.nulls(len(table), each.type)])
    schema = pa.schema([*map(table.schema.field, leading), *fields(steps)], table.schema.metadata)
    return pa.table(columns, schema=schema)


def slices(documents: pa.Table) -> Iterable[pa.Table]:
    """The documents in their order, about two megabytes of text or one document at a time; one slice at least."""
    sizes = np.asarray(pc.binary_length(documents["text"]), np.int64)
    group = (np.cumsum(sizes) - sizes) // SLICE
    bounds = np.flatnonzero(np.diff(group)) + 1
    for start, stop in zip([0, *bounds], [*bounds, len(documents)], strict=True):
        yield documents.slice(start, stop - start)


def _run_steps(documents: pa.Table, steps: Sequence[DocumentStep]) -> tuple[pa.Table, pa.Table]:
    batch = Batch(documents)
    cut = [EDITS.empty_table()]
    for index, step in enumerate(steps):
        if isinstance(step, EditStep):
            accept = partial(accepted_edits, step, schema(step), batch["text"])
            edits, columns = own_code.call(f"step {step.step}", work_of(step).edit, step, batch, accept=accept)
            if len(edits):
                # the text that this step removes may contain what a later step masks
                keeps = all(later.keeps_removed for later in steps[index:] if isinstance(later, EditStep))
                spans = merged(edits)
                cut.append(rows(batch["id"].combine_chunks(), step.step, batch.scan, spans, keeps))
                batch = _edited(batch, edits, applied(batch["text"], spans))
            batch.replace({name: columns[name] for name in step.rewrites})
            columns = columns | {step.left: pc.utf8_length(batch["text"]).cast(pa.int64())}
        else:
            accept_columns = partial(accepted_columns, schema(step), len(batch))
            columns = own_code.call(f"step {step.step}", work_of(step).measure, step, batch, accept=accept_columns)
        batch.add(schema(step), columns)
    return batch.table, pa.concat_tables(cut)


def _edited(batch: Batch, edits: Edits, texts: pa.Array) -> Batch:
    table = batch.table
    table = table.set_column(table.schema.get_field_index("text"), table.schema.field("text"), texts)
    if (index := table.schema.get_field_index("characters")) >= 0:
        lengths = pc.utf8_length(texts).cast(pa.int64())
        table = table.set_column(index, table.schema.field(index), lengths)
    return Batch(table, partial(scanned, batch.scan, edits, texts))


class EditCounts:
    """What the edit steps of a pass do to a shard of a source, as counts of its record. A step that does not apply to
    the source is counted, too, as one that cuts nothing."""

    def __init__(self, steps: Iterable[DocumentStep], source: str) -> None:
        self._steps = [step for step in steps if isinstance(step, EditStep)]
        self._source = source
        self._left: Counter[str] = Counter()
        self._cuts: Counter[tuple[str, ...]] = Counter()

    def add(self, result: Measured) -> None:
        for step in self._steps:
            if step.applies_to(self._source):
                self._left[step.step] += pc.sum(result.table[step.left]).as_py() or 0
        self._cuts.update(ledger.tally(result.edits, "step", "rule"))

    def counts(self, rows: int, characters: int) -> list[dict]:
        """A count for each edit step, none of which drops a document; `characters` come to the first."""
        counts = []
        for step in self._steps:
            left = self._left[step.step] if step.applies_to(self._source) else characters
            count = ledger.count(step.step, rows, characters, LEDGER.empty_table(), characters - left)
            cuts = {rule: n for (name, rule), n in sorted(self._cuts.items()) if name == step.step}
            counts.append(count | {"edits": cuts})
            characters = left
        return counts
