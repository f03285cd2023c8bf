"""Documents of takedown lists, of which no page shows anything, whatever dropped them, and entries of the lists that
name no document."""

from collections.abc import Iterable

import pyarrow as pa

from gristmill.storage import parquet
from gristmill.storage.home import open_stage
from gristmill.tasks.dedup.takedowns import STEP, entries, taken_down
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.url.step import Url

MAX_ENTRIES = 10_000  # of lists that are compared with what they matched


def hidden_ids(lists: Url, documents: Iterable[tuple[str, str | None]]) -> set[str]:
    """Return the ids of the documents (id, URL) that takedown lists name."""
    given = list(documents)
    if not given or not lists.takedowns:
        return set()
    ids, urls = zip(*given, strict=True)
    named = taken_down(pa.table({"id": ids, "url": pa.array([url or "" for url in urls])}), lists)
    return {id_ for id_, entry in zip(ids, named.to_pylist(), strict=True) if entry is not None}


def unmatched_entries(lists: Url, made: StageResult) -> list[str]:
    """Return the entries that named no document in a finished stage `takedowns`, as `list: entry`; none for long lists.

    A host above a host that was matched counts as matched, since a document has only its longest entry in the ledger.
    """
    given = entries(lists, MAX_ENTRIES)
    if given is None:
        return []
    stage = open_stage(made.folder)
    matched: set[str] = set()
    for shard in range(len(stage.part_records)):
        rows = parquet.read_table(stage.ledger(shard), ["step", "detail"]).to_pylist()
        matched |= {row["detail"] for row in rows if row["step"] == STEP}
    above = {
        f"{label}: {host.split('.', n)[-1]}"
        for label, _, host in (one.partition(": ") for one in matched)
        for n in range(1, host.count(".") + 1)
    }
    return [one for one in given if one not in matched and one not in above]
