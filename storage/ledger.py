"""The ledger of drops: why each document that is gone is gone, and what a job writes of a shard of documents.

For every shard and step: rows in = rows out + rows in the ledger.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, layout, parquet
from gristmill.storage.schema import LEDGER, SELECTION


class LedgerError(RuntimeError):
    """Documents are missing, or dropped without a reason."""


def from_rows(rows: list[dict]) -> pa.Table:
    """Ledger rows, given as mappings, columns that a row does not name are null."""
    return pa.Table.from_pylist(rows, schema=LEDGER)


def drops(step: str, rule: str, ids: pa.Array | pa.ChunkedArray, **columns: Any) -> pa.Table:
    """Ledger rows of documents that a rule of a step dropped.

    `columns`: other columns of LEDGER, as arrays, or as one number for all documents; the remaining columns are null.
    """
    values = {"step": step, "rule": rule, "id": ids, **columns}
    ledger_columns = {}
    for field in LEDGER:
        value = values.get(field.name)
        if value is None:
            value = pa.nulls(len(ids), field.type)
        elif isinstance(value, str | int | float):
            value = pa.repeat(value, len(ids))
        ledger_columns[field.name] = value
    return pa.table(ledger_columns).cast(LEDGER)


def count(step: str, rows_in: int, characters_in: int | None, dropped: pa.Table, characters: int | None) -> dict:
    """What one step did to one shard: documents and characters in and out, drops by rule.

    `dropped` are the step's ledger rows and `characters` is their text's length; `characters_in` is None where
    there is no text before the step.
    """
    if characters_in is not None:
        assert characters is not None, "documents with text have a length"
        characters = characters_in - characters
    return {
        "step": step,
        "rows_in": rows_in,
        "rows_out": rows_in - len(dropped),
        "characters_in": characters_in,
        "characters_out": characters,
        "drops": {rule: n for (rule,), n in sorted(tally(dropped, "rule").items())},
    }


def balance(where: str, rows_in: int, rows_out: int, steps: list[dict], ledger: pa.Table) -> None:
    """Check one shard: the steps follow each other without a gap and the ledger has every drop.

    Raises LedgerError, which names the shard, the step and the numbers.
    """
    documents = rows_in
    ledger_counts = tally(ledger, "step", "rule")
    step_names = {s["step"] for s in steps}
    for s in steps:
        if s["rows_in"] != documents:
            raise LedgerError(f"{where}: {documents} documents reach step {s['step']}, which counts {s['rows_in']}")
        by_rule = {rule: n for (step, rule), n in ledger_counts.items() if step == s["step"]}
        dropped = sum(by_rule.values())
        if s["rows_in"] != s["rows_out"] + dropped or by_rule != s["drops"]:
            raise LedgerError(
                f"{where}, step {s['step']}: {s['rows_in']} documents in, {s['rows_out']} out, "
                f"but {dropped} rows in the ledger, by rule {by_rule}, where its record has {s['drops']}; "
                "remove the stage's folder to compute it again"
            )
        documents = s["rows_out"]
    if documents != rows_out:
        raise LedgerError(f"{where}: the steps let {documents} documents through, the shard holds {rows_out}")
    if strange := sorted({step for step, _ in ledger_counts} - step_names):
        raise LedgerError(f"{where}: the ledger speaks of steps that did not run: {strange}")


def balance_edits(where: str, steps: list[dict], edits: pa.Table) -> None:
    """Check that the edits of one shard are the ones that its steps have counted. Raises LedgerError."""
    recorded_counts = {(s["step"], rule): n for s in steps for rule, n in s.get("edits", {}).items()}
    file_counts = tally(edits, "step", "rule")
    if recorded_counts != file_counts:
        raise LedgerError(f"{where}: {file_counts} edits in the file, {recorded_counts} in its record")


def tally(table: pa.Table, *columns: str) -> dict[tuple[str, ...], int]:
    """Rows of a table by the values of some columns."""
    groups = table.group_by(list(columns)).aggregate([([], "count_all")]).to_pylist()
    return {tuple(group[column] for column in columns): group["count_all"] for group in groups}


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
        raise LedgerError(f"{where}: {kept} rows in the file, {record['rows_out']} in its record")
    dropped = parquet.read_table(layout.ledger_part(folder, number), ["step", "rule"])
    balance(where, record["rows_in"], kept, record["steps"], dropped)
    if any("edits" in step for step in record["steps"]):
        edits = parquet.read_table(layout.edits_part(folder, number), ["step", "rule"])
        balance_edits(where, record["steps"], edits)


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
            raise LedgerError(f"{folder}, shard {shard}: step {step} drops {len(dropped)} documents, has {len(lost)}")
        steps.append(count(step, len(alive), _characters(alive), dropped, _characters(lost)))
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
    and are not part of the contents."""
    for name in names:
        path = files.join(folder, name)
        table = name.endswith(".parquet")
        files.record(path, parquet.digest_rows(path) if table else None)
    for name in logs:
        files.record(files.join(folder, name), "")
    return {"files": len([*names, *logs])}
