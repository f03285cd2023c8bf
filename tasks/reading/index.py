"""Which records of a crawl are wanted, by Common Crawl's columnar index: one pass over its files, then one order.

The index has a row for every capture (https://commoncrawl.org/columnar-index). `match` filters one of its files, as a
job of its own; `gather` puts what they found into shards.
"""

import logging
import re
from collections.abc import Mapping
from functools import reduce
from operator import and_, or_

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from gristmill.storage import files, layout, parquet
from gristmill.storage.printable import redact_url
from gristmill.storage.remote import streams
from gristmill.tasks.reading.formats.crawls import SNAPSHOT, IndexFilters

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
        raise ValueError(f"{redact_url(listing)} is not valid JSON ({error}); use a copy of {LISTING}") from error
    entries = listing_json if isinstance(listing_json, list) else []
    names = [str(entry.get("id")) for entry in entries if isinstance(entry, Mapping)]
    snapshots = [name for name in names if re.fullmatch(SNAPSHOT, name)]
    if not snapshots:
        raise ValueError(
            f"{redact_url(listing)} lists no crawl with a name like CC-MAIN-2024-22; use a copy of {LISTING}"
        )
    return max(snapshots)


log = logging.getLogger(__name__)

SELECTION = pa.schema(
    [
        pa.field("warc_filename", pa.string(), nullable=False),
        pa.field("warc_record_offset", pa.int64(), nullable=False),
        pa.field("warc_record_length", pa.int64(), nullable=False),
        pa.field("url", pa.string()),
    ]
)
_ORDER = [("warc_filename", "ascending"), ("warc_record_offset", "ascending")]


def match(folder: str, shard: int, path: str, filters: IndexFilters) -> dict:
    """Filter one file of the index; what fits is written to `matches/` under the stage's folder, in order.

    Row groups that cannot fit, by their statistics, and columns that are not asked for are not fetched. Holds a row
    group's columns and what fits, of which `limit` is enough. Raises ValueError for a file without the columns.
    """
    with streams.open_ranges(path) as f:
        # imported here: it brings pandas, and most runs have no such source
        import pyarrow.dataset as ds

        fragment = ds.ParquetFileFormat().make_fragment(f)
        expression = _filter(filters)
        has = set(fragment.physical_schema.names)
        if missing := sorted((set(_columns(filters)) | set(SELECTION.names)) - has):
            raise ValueError(
                f"the index file {path} has no column {', '.join(missing)}; some older crawls lack it: "
                "remove the filter, or use a newer crawl"
            )
        scanner = fragment.scanner(
            columns=SELECTION.names,
            filter=expression,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
            fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True),
        )
        records, pieces = SELECTION.empty_table(), []
        for batch in scanner.to_batches():
            pieces.append(pa.table(batch).cast(SELECTION))
            if filters.limit and sum(map(len, pieces)) > filters.limit:
                records, pieces = _sample(pa.concat_tables([records, *pieces]), filters.limit), []
        records = pa.concat_tables([records, *pieces])
    records = _ordered(records, filters.limit)
    parquet.write_table(_matches(folder, shard), records)
    log.debug("%s: %d records fit", path, len(records))
    return {"found": len(records)}


def gather(folder: str, shard: int, matched: int, filters: IndexFilters) -> dict:
    """Write the selection's shards as the stage's parts, sorted by file and offset, from `matched` files' matches.

    Holds all that was selected: some 250 bytes a record. Raises LookupError if there is none.
    """
    tables = [parquet.read_table(_matches(folder, i)) for i in range(matched)]
    records = _ordered(pa.concat_tables(tables), filters.limit)
    if not len(records):
        raise LookupError(f"no record of the index meets all filters: {filters.model_dump(exclude_defaults=True)}")
    starts = range(0, len(records), filters.records_per_shard)
    for part, start in enumerate(starts):
        parquet.write_table(layout.part(folder, part), records.slice(start, filters.records_per_shard))
    return {"records": len(records), "parts": len(starts)}


def _matches(folder: str, shard: int) -> str:
    return layout.part(files.join(folder, "matches"), shard)


def _columns(filters: IndexFilters) -> dict[str, tuple]:
    """The values that a column may have, for every filter that is not empty."""
    allowed_values = {
        "url_host_name": filters.hosts,
        "url_host_registered_domain": filters.domains,
        "url_host_tld": filters.tlds,
        "content_languages": filters.languages,
        "content_mime_detected": filters.mime,
        "fetch_status": filters.status,
        "url": filters.url_prefixes,
    }
    return {column: values for column, values in allowed_values.items() if values}


def _filter(filters: IndexFilters) -> pc.Expression | None:
    terms = []
    for column, values in _columns(filters).items():
        field = pc.field(column)
        # languages are a list with the most frequent first: `isl,eng`
        begins = column in ("url", "content_languages")
        terms.append(reduce(or_, (pc.starts_with(field, v) for v in values)) if begins else field.isin(list(values)))
    return reduce(and_, terms) if terms else None


def _ordered(records: pa.Table, limit: int | None) -> pa.Table:
    records = records.sort_by(_ORDER)
    # a capture that two of the index's files have is one record
    names, offsets = (records[column].combine_chunks() for column, _ in _ORDER)
    again = np.asarray(pc.and_(pc.equal(names[1:], names[:-1]), pc.equal(offsets[1:], offsets[:-1])), bool)
    records = records.filter(pa.array(np.concatenate([np.ones(min(len(records), 1), bool), ~again])))
    return _sample(records, limit).sort_by(_ORDER) if limit else records


def _sample(records: pa.Table, size: int) -> pa.Table:
    """The records with the smallest hashes: which these are depends on nothing but the records."""
    places = zip(records["warc_filename"].to_pylist(), records["warc_record_offset"].to_pylist(), strict=True)
    hashes = np.array([xxhash.xxh3_64_intdigest(f"{name}\n{offset}".encode()) for name, offset in places], np.uint64)
    return records.take(np.argsort(hashes, kind="stable")[:size])
