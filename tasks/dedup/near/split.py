"""Last phase: the selection and the ledger of a shard, and what is known of its kept documents, for later crawls.

part-00000.parquet, ledger/   the kept documents with their `cluster_size`, and why the others are gone
kept/00000.parquet            by `doc`: what `gather.known_documents` gives of the kept documents
"""

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, ledger, parquet, sorted_files
from gristmill.storage.schema import DOCUMENTS, SELECTION
from gristmill.tasks.dedup.exchange import CollectedShards
from gristmill.tasks.dedup.near.documents import OwnShard
from gristmill.tasks.dedup.near.gather import known_documents
from gristmill.tasks.dedup.near.settings import Verifying
from gristmill.tasks.dedup.order import KeepOrder
from gristmill.tasks.dedup.takedowns import taken_down
from gristmill.tasks.documents.selection import gather
from gristmill.tasks.url.step import Url

_NAMED = pa.schema([SELECTION.field("id"), DOCUMENTS.field("url")])


def kept_file(folder: str, shard: int) -> str:
    return files.join(folder, "kept", f"{shard:05d}.parquet")


def split_shard(
    folder: str,
    number: int,
    shard: OwnShard,
    verdicts: CollectedShards,
    takedowns: Url,
    order: KeepOrder,
    verifying: Verifying,
) -> dict:
    """Write the kept documents of a shard, and what is known of them; the ledger names the representative of each
    duplicate. `verdicts`: what was decided on this crawl, by shards.

    Held: the selection, what is known of its documents, and ids and URLs where there are takedowns.
    """
    decided = verdicts.read(shard.shard)
    arriving = parquet.read_table(shard.selection, SELECTION.names)
    losers = decided.filter(pc.not_equal(decided["doc"], decided["kept_doc"]))
    duplicates = {
        "id": losers["id"],
        "value": losers["jaccard"],
        "threshold": pa.repeat(pa.scalar(verifying.least, pa.float64()), len(losers)),
        "detail": pc.binary_join_element_wise("cluster of", losers["cluster_size"].cast(pa.string()), " "),
        "representative": losers["representative"],
    }
    listed_documents = _NAMED.empty_table()
    if takedowns.takedowns:
        listed_documents = gather((shard.documents,), shard.selection, ["url"])
    listed_documents = listed_documents.append_column("detail", taken_down(listed_documents, takedowns))
    listed_documents = listed_documents.filter(pc.is_valid(listed_documents["detail"]))
    takedown = {"id": listed_documents["id"], "detail": listed_documents["detail"]}
    losses = pa.concat_tables([_losses("takedown", takedown), _losses("near_duplicate", duplicates)])

    facts = known_documents(shard, order)
    remaining = facts.filter(pc.invert(pc.is_in(facts["id"], losses["id"].combine_chunks())))
    sorted_files.write(kept_file(folder, number), remaining, "doc")
    indices = pc.index_in(arriving["id"], decided["id"].combine_chunks())
    sizes = pc.fill_null(decided["cluster_size"].take(indices), 1)
    return ledger.write_selection(folder, number, arriving.append_column("cluster_size", sizes), [("minhash", losses)])


def _losses(rule: str, columns: dict) -> pa.Table:
    rows = len(columns["id"])
    return ledger.from_columns({"step": pa.repeat("minhash", rows), "rule": pa.repeat(rule, rows), **columns})
