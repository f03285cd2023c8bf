"""Takedown lists: documents that may not stay, by id or by address, and their removal."""

from collections.abc import Iterable
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import ledger, parquet
from gristmill.storage.home import open_stage
from gristmill.storage.schema import SELECTION
from gristmill.tasks.documents.selection import select
from gristmill.tasks.url.lists import read_entries
from gristmill.tasks.url.lists import taken_down as listed_address
from gristmill.tasks.url.step import Url, takedown_entries


def taken_down(documents: pa.Table, lists: Url) -> pa.ChunkedArray:
    """For each document (columns `id`, `url`) the entry that names it, `list: entry`; null for those that may stay."""
    if not lists.takedowns:
        return pa.chunked_array([pa.nulls(len(documents), pa.string())])
    by_url = [entry or None for entry in takedown_entries(lists, documents["url"].to_pylist())]
    entries = pa.chunked_array([pa.array(by_url, pa.string())])
    for label, ids in _listed_ids(lists):
        is_listed = pc.is_in(documents["id"], ids)
        entry = pc.binary_join_element_wise(label, documents["id"], ": ")
        entries = pc.coalesce(entries, pc.if_else(is_listed, entry, pa.scalar(None, pa.string())))
    return entries


def allowed(documents: pa.Table, lists: Url) -> pa.Table:
    """The documents (columns `id`, `url`) that no list names."""
    return documents.filter(pc.is_null(taken_down(documents, lists))) if len(documents) else documents


@lru_cache(1)
def _listed_ids(lists: Url) -> list[tuple[str, pa.Array]]:
    """The lines of the lists, some megabytes at a time, each with its list's label; read once per process, and held."""
    return [
        (entries.label, pa.array([line.decode("utf-8", "replace") for line in lines], pa.string()))
        for address, checksum in lists.checksums
        for entries in read_entries(address, (), checksum)
        for lines in entries.lines
    ]


def entries(lists: Url, max_entries: int) -> list[str] | None:
    """All entries of the lists, as `taken_down` names them (`list: entry`); None for more lines than `max_entries`."""
    names: list[str] = []
    for address, checksum in lists.checksums:
        for one in read_entries(address, (), checksum):
            for lines in one.lines:
                if len(names) + len(lines) > max_entries:
                    return None
                texts = [line.decode("utf-8", "replace") for line in lines]
                keys = [listed_address(text, lists.canonical).removeprefix("=") or text for text in texts]
                names += [f"{one.label}: {key}" for key in keys]
    return names


MAX_ENTRIES = 10_000  # of lists that are compared with what they matched
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


def hidden_ids(lists: Url, documents: Iterable[tuple[str, str | None]]) -> set[str]:
    """Return the ids of the documents (id, URL) that takedown lists name."""
    pairs = list(documents)
    if not pairs or not lists.takedowns:
        return set()
    ids, urls = zip(*pairs, strict=True)
    named = taken_down(pa.table({"id": ids, "url": pa.array([url or "" for url in urls])}), lists)
    return {id_ for id_, entry in zip(ids, named.to_pylist(), strict=True) if entry is not None}


def unmatched_entries(lists: Url, folders: Iterable[str]) -> list[str]:
    """Return entries (`list: entry`) by which no stage in some folders dropped a document; none of long lists.

    An entry counts as matched if another list with it matched. A host above a host that was matched counts, too, since
    a document has only its longest entry in the ledger.
    """
    all_entries = entries(lists, MAX_ENTRIES)
    if all_entries is None:
        return []
    details: set[str] = set()
    for folder in folders:
        stage = open_stage(folder)
        for shard in range(len(stage.part_records)):
            rows = parquet.read_table(stage.ledger(shard), ["rule", "detail"])
            details |= set(rows.filter(pc.equal(rows["rule"], RULE))["detail"].unique().to_pylist())
    matched = {each.partition(": ")[2] for each in details if each}
    matched |= {host.split(".", n)[-1] for host in matched for n in range(1, host.count(".") + 1)}
    return [one for one in all_entries if one.partition(": ")[2] not in matched]
