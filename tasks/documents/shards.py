"""Document steps as jobs over shards: signals, decisions over them, and texts as steps leave them."""

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import layout, parquet, shards
from gristmill.storage.schema import LEDGER, SELECTION, carried
from gristmill.tasks.documents import measure
from gristmill.tasks.documents.batch import names
from gristmill.tasks.documents.decisions import Decisions, decide, gathered
from gristmill.tasks.documents.selection import gather, select
from gristmill.tasks.documents.step import DocumentStep


def decide_shard(folder: str, shard: int, signals: tuple[str, ...], kept: str, decisions: Decisions) -> dict:
    """Apply decisions to stored signals, which may lie in several parts; writes the ids that stay, and the ledger."""
    table = gathered(signals, kept, decisions)
    arriving = parquet.read_table(kept, SELECTION.names)
    return shards.write_selection(folder, shard, arriving, decide(table, decisions))


def count_characters(folder: str, shard: int, kept: str) -> dict:
    """How many characters the documents of a selection have."""
    return {"characters": pc.sum(parquet.read_table(kept, ["characters"])["characters"]).as_py() or 0}


def keep_shard(folder: str, shard: int, kept: str, step: str) -> dict:
    """Let a shard through a step that does not judge it: the same ids, and a count of them."""
    arriving = parquet.read_table(kept, SELECTION.names)
    return shards.write_selection(folder, shard, arriving, [(step, LEDGER.empty_table())])


def measure_shard(
    folder: str, shard: int, documents: str, kept: str, measured: tuple[str, ...], steps: tuple[DocumentStep, ...]
) -> dict:
    """Signals of `steps` for the documents of a selection: for steps that come after a corpus step.

    `measured`: the shard's parts with the signals of the steps before. Holds the shard's texts.
    """
    table = _with_signals(select(documents, kept, ["url", "text"]), measured, kept, steps)
    parquet.write_table(layout.part(folder, shard), measure.measured(table, steps).table.select(["id", *names(steps)]))
    return {"rows": len(table)}


def edit_shard(
    folder: str, shard: int, documents: str, kept: str, measured: tuple[str, ...], steps: tuple[DocumentStep, ...]
) -> dict:
    """The documents of a selection again, with the texts that `steps` leave, and their signals.

    `measured`: the shard's parts with the signals of the steps before. Holds the shard's texts twice.
    """
    arriving = select(documents, kept, carried(parquet.schema(documents)))
    counts = measure.EditCounts(steps)
    found = measure.measured(_with_signals(arriving, measured, kept, steps), steps)
    counts.add(found)
    parquet.write_table(layout.part(folder, shard), found.table.select([*carried(arriving.schema), *names(steps)]))
    parquet.write_table(layout.edits_part(folder, shard), found.edits)
    shards.write_ledger(folder, shard, LEDGER.empty_table())
    return {
        "rows_in": len(arriving),
        "rows_out": len(arriving),
        "steps": counts.counts(len(arriving), pc.sum(arriving["characters"]).as_py() or 0),
    }


def _with_signals(
    documents: pa.Table, measured: tuple[str, ...], kept: str, steps: tuple[DocumentStep, ...]
) -> pa.Table:
    """The documents with the columns that the steps read, or consider, of what was measured before."""
    own = set(names(steps))
    there = {name for part in measured for name in parquet.columns(part)}
    considered = [name for step in steps for name in step.considers if name in there]
    reads = [name for name in (*(name for step in steps for name in step.reads), *considered) if name not in own]
    signals = gather(measured, kept, reads)
    signals = signals.take(pc.index_in(documents["id"], signals["id"].combine_chunks()))
    for name in dict.fromkeys(reads):
        documents = documents.append_column(name, signals[name])
    return documents
