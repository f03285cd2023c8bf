"""Decisions over stored signals as jobs: which documents of a shard are kept, and the ledger of the others."""

from gristmill.storage import parquet, shards
from gristmill.storage.schema import LEDGER, SELECTION
from gristmill.tasks.documents.decisions import Decisions, decide, wanted
from gristmill.tasks.documents.selection import gather


def decide_shard(folder: str, shard: int, signals: tuple[str, ...], kept: str, decisions: Decisions) -> dict:
    """Apply decisions to stored signals, which may lie in several parts; writes the ids that stay, and the ledger."""
    table = gather(signals, kept, wanted(decisions))
    arriving = parquet.read_table(kept, SELECTION.names)
    return shards.write_selection(folder, shard, arriving, decide(table, decisions))


def keep_shard(folder: str, shard: int, kept: str, step: str) -> dict:
    """Let a shard through a step that does not judge it: the same ids, and a count of them."""
    arriving = parquet.read_table(kept, SELECTION.names)
    return shards.write_selection(folder, shard, arriving, [(step, LEDGER.empty_table())])
