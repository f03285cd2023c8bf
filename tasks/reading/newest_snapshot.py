"""The newest crawl of Common Crawl that its index lists."""

import re
from collections.abc import Mapping

import orjson

from gristmill.storage import files
from gristmill.storage.remote.redact import redact_url
from gristmill.tasks.reading.formats.crawls import SNAPSHOT

LISTING = "https://index.commoncrawl.org/collinfo.json"


def newest_snapshot(listing: str = LISTING) -> str:
    """The name of the newest crawl, as `CC-MAIN-2024-22`: names of this form sort by year and week.

    `listing`: address or path of a JSON list of objects with an `id`, as Common Crawl publishes it; crawls with names
    of another form, those before 2013, are passed over. Raises ValueError for a file that lists none, and what reading
    it raises.
    """
    with files.open_file(listing) as f:
        data = f.read()
    try:
        listing_json = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"{redact_url(listing)} is no JSON ({error}); name a copy of {LISTING}") from error
    entries = listing_json if isinstance(listing_json, list) else []
    names = [str(entry.get("id")) for entry in entries if isinstance(entry, Mapping)]
    snapshots = [name for name in names if re.fullmatch(SNAPSHOT, name)]
    if not snapshots:
        raise ValueError(f"{redact_url(listing)} lists no crawl named as CC-MAIN-2024-22; name a copy of {LISTING}")
    return max(snapshots)
