"""The host of a document: what is drawn in a sample of pages, since the documents of one site are alike."""

from functools import lru_cache
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import parquet
from gristmill.tasks.url.canonical import canonical_host
from gristmill.tasks.url.lists import without_www

OWN = "host"  # the name that a source gives a column of its own that is to count in place of the URL's host
_READ = ["url", "file"]


def host_columns(documents: str) -> list[str]:
    """The columns of a part with documents that `hosts` needs."""
    return [*_READ, *([OWN] if OWN in parquet.columns(documents) else [])]


def hosts(documents: pa.Table) -> pa.Array:
    """The host of each document, a string that is never empty.

    It is what the documents' own column `host` says, where a source has one that is no list and no mapping; else the
    host of the URL, without `www.`; else the file that the document was read from.
    """
    own = pa.nulls(len(documents), pa.string())
    if OWN in documents.column_names and not pa.types.is_nested(documents[OWN].type):
        own = documents[OWN].cast(pa.string()).combine_chunks()
    of_urls = pa.array(map(_of_url, documents["url"].to_pylist()), pa.string())
    files = pc.coalesce(documents["file"].cast(pa.string()), "-").combine_chunks()
    return pc.coalesce(*(pc.if_else(pc.equal(given, ""), None, given) for given in (own, of_urls)), files)


def _of_url(url: str | None) -> str | None:
    try:
        return None if url is None else _site(urlsplit(url).hostname or "")
    except ValueError:  # brackets without an address in them
        return None


@lru_cache(1 << 16)
def _site(host: str) -> str:
    return without_www(canonical_host(host))
