"""Shards of documents: what a job writes of one, and the check that all documents are accounted for."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, layout, ledger, parquet
from gristmill.storage.schema import LEDGER, SELECTION

_AT_ONCE = 1024  # shards that wait for a thread, with their records


def check_balance(folder: str, parts: Iterable[layout.Part]) -> None:
    """`check_shard` of every part that counts documents. Holds the ledgers of sixteen shards, since reading is mostly
    waiting. Raises LedgerError."""
    counting = (each for each in parts if each.counts_documents)
    with ThreadPoolExecutor(16) as pool:
        while some := list(islice(counting, _AT_ONCE)):
            list(pool.map(lambda each: check_shard(folder, each.number, each.record), some))


def check_shard(folder: str, number: int, record: Mapping[str, Any]) -> None:
    """Balance a shard that counts documents: its rows, its ledger and its edits are read back from the files.

    Raises LedgerError.
    """
    where = f"{folder}, shard {number}"
    kept = parquet.rows(layout.part(folder, number))
    if kept != record["rows_out"]:
        raise ledger.LedgerError(f"{where}: {kept} rows in the file, {record['rows_out']} in its record")
    dropped = parquet.read_table(layout.ledger_part(folder, number), ["step", "rule"])
    ledger.balance(where, record["rows_in"], kept, record["steps"], dropped)
    if any("edits" in step for step in record["steps"]):
        edits = parquet.read_table(layout.edits_part(folder, number), ["step", "rule"])
        ledger.balance_edits(where, record["steps"], edits)


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
        is_dropped = pc.is_in(alive["id"], dropped["id"].combine_chunks())
        lost = alive.filter(is_dropped)
        if len(lost) != len(dropped):
            raise ledger.LedgerError(
                f"{folder}, shard {shard}: step {step} drops {len(dropped)} documents, has {len(lost)}"
            )
        steps.append(ledger.count(step, len(alive), _characters(alive), dropped, _characters(lost)))
        alive = alive.filter(pc.invert(is_dropped))
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


def record_files(folder: str, number: int, names: Sequence[str], logs: Sequence[str] = ()) -> dict:
    """A job that notes files of the stage's folder which another process wrote. `logs`: further ones, which hold times
    and are no part of the contents."""
    for name in names:
        path = files.join(folder, name)
        table = name.endswith(".parquet")
        files.record(path, parquet.digest_rows(path) if table else None)
    for name in logs:
        files.record(files.join(folder, name), "")
    return {"files": len([*names, *logs])}
