"""Document steps over documents: in their order, a slice of about two megabytes of text after the other."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import ledger
from gristmill.storage.schema import EDITS, LEDGER
from gristmill.tasks.documents.batch import Batch, schema
from gristmill.tasks.documents.edits import Edits, applied, merged, rows, scanned
from gristmill.tasks.documents.step import DocumentStep, EditStep, work_of

# What is found in a slice, some five times its text, stays in the caches of a core, and outweighs a call's overhead.
SLICE = 2 << 20


@dataclass(frozen=True)
class Measured:
    """Documents with their signals and the text that the last step left, and what was cut out of it (EDITS)."""

    table: pa.Table
    edits: pa.Table


def measured(documents: pa.Table, steps: Sequence[DocumentStep]) -> Measured:
    """Signals and edits of `steps` for documents (columns `text`, those that the steps read, and any others).

    Holds, besides the documents and what is returned, the scans of two megabytes of text or of one document, as
    the last edit found it and as it left it.
    """
    results = [_run_steps(part, steps) for part in slices(documents)]
    return Measured(pa.concat_tables(table for table, _ in results), pa.concat_tables(edits for _, edits in results))


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
            edits, columns = work_of(step).edit(step, batch)
            if len(edits):
                # what a later step masks may stand in what this one removes
                keeps = all(later.keeps_removed for later in steps[index:] if isinstance(later, EditStep))
                spans = merged(edits)
                cut.append(rows(batch["id"].combine_chunks(), step.step, batch.scan, spans, keeps))
                batch = _edited(batch, edits, applied(batch["text"], spans))
            batch.replace({name: columns[name] for name in step.rewrites})
            columns = columns | {step.left: pc.utf8_length(batch["text"]).cast(pa.int64())}
        else:
            columns = work_of(step).measure(step, batch)
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
    """What the edit steps of a pass do to a shard, as counts of its record."""

    def __init__(self, steps: Iterable[DocumentStep]) -> None:
        self._steps = [step for step in steps if isinstance(step, EditStep)]
        self._left: Counter[str] = Counter()
        self._cuts: Counter[tuple[str, ...]] = Counter()

    def add(self, result: Measured) -> None:
        for step in self._steps:
            self._left[step.step] += pc.sum(result.table[step.left]).as_py() or 0
        self._cuts.update(ledger.tally(result.edits, "step", "rule"))

    def counts(self, rows: int, characters: int) -> list[dict]:
        """A count for each edit step, none of which drops a document; `characters` come to the first."""
        counts = []
        for name in (step.step for step in self._steps):
            count = ledger.count(name, rows, characters, LEDGER.empty_table(), characters - self._left[name])
            cuts = {rule: n for (step, rule), n in sorted(self._cuts.items()) if step == name}
            counts.append(count | {"edits": cuts})
            characters = self._left[name]
        return counts
