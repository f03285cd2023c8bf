"""Documents joined with what later steps know of them: always by id, never by position."""

import pyarrow as pa
import pyarrow.compute as pc

from storage import shards


def select(documents: str, kept: str, columns: list[str]) -> pa.Table:
    """The rows of a documents shard whose ids the selection shard `kept` holds, in the documents' order.

    Holds the chosen columns of one shard. Raises LookupError if the selection names a document that the shard
    does not have.
    """
    ids = shards.read_table(kept, ["id"])["id"]
    table = shards.read_table(documents, ["id", *(c for c in columns if c != "id")])
    chosen = table.filter(pc.is_in(table["id"], ids.combine_chunks()))
    if len(chosen) != len(ids):
        raise LookupError(f"{kept} names {len(ids)} documents, {documents} holds {len(chosen)} of them")
    return chosen
