"""Content-addressed stages: what a stage is called, where it lies, when it is finished.

    <home>/stages/<name>-<key>/
        part-00000.parquet ...       what the stage makes, shard by shard
        ledger/part-00000.parquet    what each shard dropped, and why
        edits/part-00000.parquet     what was cut out of the texts, where a stage makes texts
        done/<phase>-00000.json      a shard of a phase is finished: its counts
        manifest.json                written last: the stage is finished

A stage that was killed has no manifest; the same command finds its finished shards and goes on.
"""

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from storage import files, ledger, parquet
from storage.schema import LEDGER, SELECTION


@dataclass(frozen=True)
class Stage:
    """What a stage is made of. Equal stages have equal keys, and equal keys give equal bytes.

    `code`: digest of the code (`tasks.engine.code_version.code_version`); `settings`: its slice of the recipe;
    `inputs`: the keys of the stages that it reads, or fingerprints of source files, by name.
    """

    name: str
    code: Mapping[str, str]
    settings: Mapping[str, Any]
    inputs: Mapping[str, str]

    @cached_property
    def key(self) -> str:
        record = {"name": self.name, "code": self.code, "settings": self.settings, "inputs": self.inputs}
        return hashlib.sha256(orjson.dumps(record, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]

    def folder(self, home: str) -> str:
        return files.join(home, "stages", f"{self.name}-{self.key}")


def part(folder: str, shard: int, suffix: str = "parquet") -> str:
    return files.join(folder, f"part-{shard:05d}.{suffix}")


def ledger_part(folder: str, shard: int) -> str:
    return files.join(folder, "ledger", f"part-{shard:05d}.parquet")


def edits_part(folder: str, shard: int) -> str:
    return files.join(folder, "edits", f"part-{shard:05d}.parquet")


def done_record(folder: str, phase: str, shard: int) -> dict | None:
    """The record of a finished shard of a phase, or None."""
    path = _done(folder, phase, shard)
    return files.read_json(path) if files.exists(path) else None


def mark_done(folder: str, phase: str, shard: int, record: dict) -> None:
    """Say that the shard's files are all in place; call it after they are."""
    files.write_json(_done(folder, phase, shard), record)


def _done(folder: str, phase: str, shard: int) -> str:
    return files.join(folder, "done", f"{phase}-{shard:05d}.json")


def manifest(folder: str) -> dict | None:
    """The manifest of a finished stage, or None."""
    path = files.join(folder, "manifest.json")
    return files.read_json(path) if files.exists(path) else None


def finish(folder: str, stage: Stage, record: dict) -> dict:
    """Check that all documents are accounted for, then write the manifest that makes the stage finished."""
    value = {
        "stage": stage.name,
        "key": stage.key,
        "code": dict(stage.code),
        "settings": dict(stage.settings),
        "inputs": dict(stage.inputs),
        **record,
    }
    check(folder, value)
    files.write_json(files.join(folder, "manifest.json"), value)
    return value


def check(folder: str, value: dict) -> None:
    """Balance every shard that counts documents: its ledger and its rows are read back from the files.

    Holds the ledgers of sixteen shards, since reading is mostly waiting. Raises LedgerError.
    """

    def check_shard(numbered: tuple[int, dict]) -> None:
        index, shard = numbered
        where = f"{folder}, shard {index}"
        kept = parquet.rows(part(folder, index))
        if kept != shard["rows_out"]:
            raise ledger.LedgerError(f"{where}: {kept} rows in the file, {shard['rows_out']} in its record")
        dropped = parquet.read_table(ledger_part(folder, index), ["step", "rule"])
        ledger.balance(where, shard["rows_in"], kept, shard["steps"], dropped)
        if any("edits" in step for step in shard["steps"]):
            ledger.balance_edits(where, shard["steps"], parquet.read_table(edits_part(folder, index), ["step", "rule"]))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(check_shard, enumerate(value.get("shards", []))))


def write_ledger(folder: str, shard: int, dropped: pa.Table) -> None:
    parquet.write_table(ledger_part(folder, shard), dropped)


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
    parquet.write_table(part(folder, shard), alive.cast(pa.schema([*SELECTION, *further])))
    write_ledger(folder, shard, pa.concat_tables([LEDGER.empty_table(), *(dropped for _, dropped in drops)]))
    return {
        "rows_in": len(arriving),
        "rows_out": len(alive),
        "steps": steps,
        "checksum": files.checksum(part(folder, shard)),
    }


def _characters(table: pa.Table) -> int:
    return pc.sum(table["characters"]).as_py() or 0
