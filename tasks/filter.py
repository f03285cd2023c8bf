"""Document steps as shard functions: signals where they are not yet measured, decisions over those that are."""

import pyarrow as pa

from storage import shards, stages
from storage.schema import LEDGER, SELECTION
from tasks.decisions import Decisions, decide
from tasks.selection import select
from tasks.step import DocumentStep


def measure_shard(folder: str, shard: int, documents: str, kept: str, steps: tuple[DocumentStep, ...]) -> dict:
    """Signals of `steps` for the documents of a selection: for steps that come after a corpus step."""
    table = select(documents, kept, ["url", "text"])
    columns = {name: column for step in steps for name, column in step.measure(table).items()}
    shards.write_table(stages.part(folder, shard), pa.table({"id": table["id"], **columns}))
    return {"rows": len(table)}


def decide_shard(folder: str, shard: int, signals: str, kept: str, decisions: Decisions) -> dict:
    """Apply decisions to stored signals; writes the ids that stay, and the ledger of the others."""
    wanted = [rule.signal for _, rules in decisions for rule in rules]
    table = select(signals, kept, list(dict.fromkeys(wanted)))
    arriving = shards.read_table(kept, SELECTION.names)
    return stages.write_selection(folder, shard, arriving, decide(table, decisions))


def keep_shard(folder: str, shard: int, kept: str, step: str) -> dict:
    """Let a shard through a step that does not judge it: the same ids, and a count that says so."""
    arriving = shards.read_table(kept, SELECTION.names)
    return stages.write_selection(folder, shard, arriving, [(step, LEDGER.empty_table())])
