"""Takedown lists: documents that may not stay, by id or by address, and their removal."""

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import ledger, parquet
from gristmill.storage.schema import SELECTION
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.selection import select
from gristmill.tasks.documents.step import work_of
from gristmill.tasks.url.lists import read_entries
from gristmill.tasks.url.lists import taken_down as listed_address
from gristmill.tasks.url.step import Url


def taken_down(documents: pa.Table, lists: Url) -> pa.ChunkedArray:
    """For each document (columns `id`, `url`) the entry that names it, `list: entry`; null for those that may stay."""
    if not lists.takedowns:
        return pa.chunked_array([pa.nulls(len(documents), pa.string())])
    by_url = work_of(lists).measure(lists, Batch(documents.select(["id", "url"])))["url_takedown"]
    entries = pc.if_else(pc.equal(by_url, ""), pa.scalar(None, pa.string()), by_url)
    for label, ids in _listed_ids(lists):
        is_listed = pc.is_in(documents["id"], ids)
        entry = pc.binary_join_element_wise(label, documents["id"], ": ")
        entries = pc.coalesce(entries, pc.if_else(is_listed, entry, pa.scalar(None, pa.string())))
    return entries


@lru_cache(1)
def _listed_ids(lists: Url) -> list[tuple[str, pa.Array]]:
    """The lines of the lists, some megabytes at a time, each with its list's label; read once per process, and held."""
    return [
        (entries.label, pa.array([line.decode("utf-8", "replace") for line in lines], pa.string()))
        for address, checksum in lists.checksums
        for entries in read_entries(address, (), checksum)
        for lines in entries.lines
    ]


def entries(lists: Url, most: int) -> list[str] | None:
    """All entries of the lists, as `taken_down` names them (`list: entry`); None for more lines than `most`."""
    found: list[str] = []
    for address, checksum in lists.checksums:
        for one in read_entries(address, (), checksum):
            for lines in one.lines:
                if len(found) + len(lines) > most:
                    return None
                texts = [line.decode("utf-8", "replace") for line in lines]
                keys = [listed_address(text, lists.canonical).removeprefix("=") or text for text in texts]
                found += [f"{one.label}: {key}" for key in keys]
    return found


STEP = "takedowns"
RULE = "takedown"  # of every step that reads a takedown list


def keep_allowed(folder: str, shard: int, documents: str, kept: str, takedowns: Url) -> dict:
    """Write which documents of a shard may stay, and the ledger of the others with the entries that name them. Holds
    the ids and URLs of the shard."""
    table = select(documents, kept, ["url"])
    table = table.append_column("detail", taken_down(table, takedowns))
    table = table.filter(pc.is_valid(table["detail"]))
    rows = [{"step": STEP, "rule": RULE} | row for row in table.select(["id", "detail"]).to_pylist()]
    return ledger.write_selection(
        folder, shard, parquet.read_table(kept, SELECTION.names), [(STEP, ledger.from_rows(rows))]
    )
