"""Documents of a selection that takedown lists name, dropped."""

import pyarrow.compute as pc

from gristmill.storage import ledger, parquet, shards
from gristmill.storage.schema import SELECTION
from gristmill.tasks.dedup.takedowns import taken_down
from gristmill.tasks.documents.selection import select
from gristmill.tasks.url.step import Url

STEP = "takedowns"


def keep_allowed(folder: str, shard: int, documents: str, kept: str, takedowns: Url) -> dict:
    """Write which documents of a shard may stay, and the ledger of the others with the entries that name them. Holds
    the ids and URLs of the shard."""
    named = select(documents, kept, ["url"])
    named = named.append_column("detail", taken_down(named, takedowns))
    named = named.filter(pc.is_valid(named["detail"]))
    rows = [{"step": STEP, "rule": "takedown"} | row for row in named.select(["id", "detail"]).to_pylist()]
    return shards.write_selection(
        folder, shard, parquet.read_table(kept, SELECTION.names), [(STEP, ledger.from_rows(rows))]
    )
