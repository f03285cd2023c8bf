"""Shards of documents: what a job writes of one, and the check that all documents are accounted for."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import layout, ledger, parquet
from gristmill.storage.schema import LEDGER, SELECTION


def check_balance(folder: str, found: Sequence[layout.Part]) -> None:
    """Balance every shard that counts documents: its ledger and its rows are read back from the files.

    Holds the ledgers of sixteen shards, since reading is mostly waiting. Raises LedgerError.
    """

    def check_shard(each: layout.Part) -> None:
        index, shard = each.number, each.record
        where = f"{folder}, shard {index}"
        kept = parquet.rows(layout.part(folder, index))
        if kept != shard["rows_out"]:
            raise ledger.LedgerError(f"{where}: {kept} rows in the file, {shard['rows_out']} in its record")
        dropped = parquet.read_table(layout.ledger_part(folder, index), ["step", "rule"])
        ledger.balance(where, shard["rows_in"], kept, shard["steps"], dropped)
        if any("edits" in step for step in shard["steps"]):
            edits = parquet.read_table(layout.edits_part(folder, index), ["step", "rule"])
            ledger.balance_edits(where, shard["steps"], edits)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(check_shard, (each for each in found if each.counts_documents)))


def write_ledger(folder: str, shard: int, dropped: pa.Table) -> None:
    parquet.write_table(layout.ledger_part(folder, shard), dropped)


def write_selection(folder: str, shard: int, arriving: pa.Table, drops: list[tuple[str, pa.Table]]) -> dict:
    """Write which documents stay (`id`, `characters`) and the ledger of the others, and return the shard's record.

    `arriving` are the documents before the first step; further columns of theirs are written, too. `drops` are the
    steps in order, each with its ledger rows. Raises LedgerError for a drop of a document that is not, or no longer,
    there.
    """
    steps = []
    alive = arriving
    for step, dropped in drops:
        gone = pc.is_in(alive["id"], dropped["id"].combine_chunks())
        lost = alive.filter(gone)
        if len(lost) != len(dropped):
            raise ledger.LedgerError(
                f"{folder}, shard {shard}: step {step} drops {len(dropped)} documents, has {len(lost)}"
            )
        steps.append(ledger.count(step, len(alive), _characters(alive), dropped, _characters(lost)))
        alive = alive.filter(pc.invert(gone))
    further = [field for field in alive.schema if field.name not in SELECTION.names]
    parquet.write_table(layout.part(folder, shard), alive.cast(pa.schema([*SELECTION, *further])))
    write_ledger(folder, shard, pa.concat_tables([LEDGER.empty_table(), *(dropped for _, dropped in drops)]))
    return {
        "rows_in": len(arriving),
        "rows_out": len(alive),
        "steps": steps,
    }


def _characters(table: pa.Table) -> int:
    return pc.sum(table["characters"]).as_py() or 0
