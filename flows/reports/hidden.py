"""Documents of takedown lists, of which no page shows anything, whatever dropped them. Separate: reports and `browse`
ask for them."""

from collections.abc import Iterable

import pyarrow as pa

from gristmill.tasks.dedup.takedowns import taken_down
from gristmill.tasks.url.step import Url


def hidden_ids(lists: Url, documents: Iterable[tuple[str, str | None]]) -> set[str]:
    """Return the ids of the documents (id, URL) that takedown lists name."""
    given = list(documents)
    if not given or not lists.takedowns:
        return set()
    ids, urls = zip(*given, strict=True)
    entries = taken_down(pa.table({"id": ids, "url": pa.array([url or "" for url in urls])}), lists)
    return {id_ for id_, entry in zip(ids, entries.to_pylist(), strict=True) if entry is not None}
