"""Lines that are on many pages of one host: terms in a dialog, banners, facets, related products."""

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from pydantic import Field

from gristmill.storage import files, parquet
from gristmill.storage.schema import carried
from gristmill.tasks import kernels
from gristmill.tasks.dedup import exchange
from gristmill.tasks.dedup.exchange import CollectedShards, KeyRanges, SortedFiles
from gristmill.tasks.dedup.passages import (
    Passages,
    covered,
    passages_files,
    ranks,
    repeated_files,
    write_without,
)
from gristmill.tasks.documents.measure import slices
from gristmill.tasks.documents.selection import select
from gristmill.tasks.url.canonical import PUBLIC_SUFFIXES, host_columns, known_hosts


class HostLines(Passages):
    """Cut lines that are on many pages of one host. The first of these pages keeps them.

    One page cannot tell its own text from what its site repeats on every page. A crawl can: the step counts on how many
    pages of a host a line is. Lines are compared as by `line_dedup`: without case, punctuation and accents, and with
    all digits alike. Rows of tables, which begin with `|`, and lines with more digits than letters are compared
    unchanged, since their numbers are data. A line counts once for each page. The first page is the page with the
    smallest id, so each line stays in the corpus.

    Lines without a blank line between them belong together, such as lines of code, a table or a stanza, and so do all
    lines of a Markdown code block. They are cut together if all of them are repeated, or not at all. In a text without
    any blank line, each line is by itself.

    The host is the host of the URL, without `www.`, or the source's column `host`. Documents without either keep
    all lines. Put the step after `url_dedup` and `content_dedup`: copies of one page are many pages that share lines.
    """

    package_data: ClassVar = (PUBLIC_SUFFIXES,)

    # 2: lines that belong together are cut together, or not at all; numbers of tables are compared
    # 3: the numbers of lines with more digits than letters are compared
    work_version: ClassVar[int] = 3
    rule: ClassVar = "host_line"
    step: Literal["host_lines"] = "host_lines"
    min_characters: int = Field(
        20,
        ge=1,
        description="Minimum number of letters, numbers and symbols in lines that belong together. Fewer may repeat, "
        "such as headings, dates and prices.",
    )
    min_pages: int = Field(5, ge=2, description="Minimum number of pages of the host with the line.")
    min_share: float = Field(0.2, ge=0, le=1, description="Minimum share of the host's pages with the line.")

    def job_memory(self, documents: int, text_bytes: int) -> Iterator[tuple[int, str]]:
        yield from super().job_memory(documents, text_bytes)
        yield exchange.partition_bytes(documents * HOST_BYTES, None), "hosts of a partition"


# Repeated lines of hosts, as phases:
#
#     for all shards:             count_pages
#     for all partitions:         add_pages
#     for all ranges of shards:   `gristmill.tasks.dedup.exchange.collect_shards`
#     for all shards:             hash_lines
#     for all partitions:         find_lines
#     for all ranges of shards:   `gristmill.tasks.dedup.exchange.collect_shards`
#     for all shards:             cut_lines
#
#     pages/00000.parquet       by `host` uint64: shard int64, pages int64, of a shard
#     needed/00000.parquet      by `shard` int64: host uint64, needed int64, of the hosts that have enough pages
#     passages/00000.parquet    by `hash` uint64: rank uint64, shard int32, place int64, needed int64
#     repeated/00000.parquet    by `shard` int64: place int64, of all that is cut for a partition
#
# `hash` is that of the line and of its host, so the lines of one host are in all partitions. Only hosts with at least
# `min_pages` pages have rows there. Ranks and places are defined in `gristmill.tasks.dedup.passages`.

# What a job that adds holds for a host of a shard, and what a shard's range holds for one of its hosts.
HOST_BYTES, NEEDED_BYTES = 100, 24


def count_pages(folder: str, number: int, shard: int, documents: str, kept: str, ranges: KeyRanges | None) -> dict:
    """Write how many pages of each host a shard has, as the sorted file `number`. Holds the shard's URLs."""
    known, keys = _keys(select(documents, kept, host_columns(documents)))
    host, pages = np.unique(keys[known], return_counts=True)
    table = pa.table({"host": host, "shard": np.full(len(host), shard, np.int64), "pages": pages.astype(np.int64)})
    exchange.write(pages_files(folder, number + 1).path(number), table, "host", ranges)
    return {"hosts": len(host), "without_host": int(np.count_nonzero(~known))}


def add_pages(
    folder: str, partition: int, ranges: KeyRanges, counted: SortedFiles, shards: KeyRanges | None, step: HostLines
) -> dict:
    """Write for each shard how many pages of a host must have a line that is cut, of hosts with enough pages. Holds
    about 100 bytes for each host of each shard."""
    table = pa.concat_tables(counted.each(*ranges.bounds(partition)))
    host, number = np.unique(table["host"].to_numpy(), return_inverse=True)
    pages = np.zeros(len(host), np.int64)
    np.add.at(pages, number, table["pages"].to_numpy())
    # 0.7 * 10 is a little more than 7 in floating point, and 7 of 10 pages are enough
    needed = np.maximum(step.min_pages, np.ceil(step.min_share * pages - 1e-9)).astype(np.int64)
    enough = (pages >= step.min_pages)[number]
    columns = {"shard": table["shard"].to_numpy(), "host": host[number], "needed": needed[number]}
    chosen = pa.table({name: column[enough] for name, column in columns.items()})
    exchange.write(needed_files(folder, partition + 1).path(partition), chosen, "shard", shards)
    return {"hosts": int(np.count_nonzero(pages >= step.min_pages)), "rows": len(chosen)}


def hash_lines(
    folder: str,
    number: int,
    shard: int,
    documents: str,
    kept: str,
    step: HostLines,
    hosts: CollectedShards,
    ranges: KeyRanges | None,
) -> dict:
    """Write the keys of a shard's lines as the sorted file `number`. `hosts`: those with enough pages, by shards.

    Holds the texts of a shard and 90 bytes for each line.
    """
    table = select(documents, kept, ["text", *host_columns(documents)])
    enough = hosts.read(shard, ["host", "needed"])
    order = np.argsort(enough["host"].to_numpy())
    host, least = enough["host"].to_numpy()[order], enough["needed"].to_numpy()[order]
    known, keys = _keys(table)
    at = np.searchsorted(host, keys)
    known &= at < len(host)
    known[known] = host[at[known]] == keys[known]
    row = np.flatnonzero(known)
    rank, needed, keys = ranks(table["id"])[row], least[at[row]], keys[row]
    hashes, position, lines, done = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    some = table.select(["text"]).filter(pa.array(known))
    for part in slices(some):
        text = kernels.scan.scan(part["text"])
        found, size = _folded(text)
        counts = np.flatnonzero((size > 0) & (_size_together(text, size) >= step.min_characters))
        document = np.searchsorted(text.lines, counts, side="right") - 1
        hashes.append(found[counts] ^ keys[done + document])
        position.append(done + document)
        lines.append(counts - text.lines[document])
        done += len(part)
    where = np.concatenate(position)
    columns = {"hash": np.concatenate(hashes), "rank": rank[where], "shard": np.full(len(where), shard, np.int32)}
    columns |= {"place": (row[where] << 32) + np.concatenate(lines), "needed": needed[where]}
    exchange.write(passages_files(folder, number + 1).path(number), pa.table(columns), "hash", ranges)
    return {"passages": len(where), "pages": len(row)}


def find_lines(folder: str, partition: int, ranges: KeyRanges, among: SortedFiles, shards: KeyRanges | None) -> dict:
    """Write the places of all lines of a range of keys that enough pages have, except on the first page.
    `shards`: the ranges by which the file is read, see `exchange.write`.

    Holds about 120 bytes for each line of the range.
    """
    lines = pa.concat_tables(among.each(*ranges.bounds(partition)))
    key, rank, shard, place = (lines[name].to_numpy() for name in ("hash", "rank", "shard", "place"))
    order = np.lexsort((place, shard, rank, key))
    key, rank, shard, place = key[order], rank[order], shard[order], place[order]
    # of each line whether it is the first of its key, and of its key and page
    of_key = np.ones(len(key), bool)
    of_key[1:] = key[1:] != key[:-1]
    of_page = of_key.copy()
    of_page[1:] |= (rank[1:] != rank[:-1]) | (shard[1:] != shard[:-1]) | (place[1:] >> 32 != place[:-1] >> 32)
    group, page = np.cumsum(of_key) - 1, np.cumsum(of_page)
    first = page[of_key]
    pages = np.bincount(group[of_page], minlength=len(first))
    enough = pages >= lines["needed"].to_numpy()[order][of_key]
    gone = enough[group] & (page > first[group])
    table = pa.table({"shard": shard[gone].astype(np.int64), "place": place[gone]})
    exchange.write(repeated_files(folder, partition + 1).path(partition), table, "shard", shards)
    return {"lines": int(np.count_nonzero(enough)), "repeated": len(table)}


def cut_lines(folder: str, shard: int, documents: str, kept: str, step: HostLines, cuts: CollectedShards) -> dict:
    """Write a shard's documents without the lines of `cuts`, by shards, that go together with all that they belong to;
    and the ledgers of cuts and drops. Holds what `passages.cut_shard` does."""
    arriving = select(documents, kept, carried(parquet.schema(documents)))
    place = np.sort(cuts.read(shard, ["place"])["place"].to_numpy())
    touched, document = np.unique(place >> 32, return_inverse=True)
    number, whole, done = place & 0xFFFFFFFF, [np.empty(0, np.int64)], 0
    for part in slices(arriving.take(pa.array(touched)).select(["text"])):
        first, last = np.searchsorted(document, [done, done + len(part)])
        text = kernels.scan.scan(part["text"])
        gone = np.zeros(text.lines[-1], bool)
        gone[text.lines[document[first:last] - done] + number[first:last]] = True
        line = np.flatnonzero(_together(text, gone))
        row = np.searchsorted(text.lines, line, side="right") - 1
        whole.append((touched[done + row] << 32) + line - text.lines[row])
        done += len(part)
    return write_without(folder, shard, step, arriving, np.concatenate(whole))


def _folded(text: "kernels.scan.Scan") -> tuple[np.ndarray, np.ndarray]:
    """(hash, size) of all lines, as `folded` has them; the hash of lines whose numbers are data is that of all their
    bytes: rows of tables, and lines with more digits than letters and symbols, such as those of separated values."""
    start, stop = text.spans("lines")
    hashes, size = kernels.folding.folded(text.data, start, stop)
    is_data = size > 0
    is_data[is_data] = text.data[start[is_data]] == ord("|")
    is_data |= 2 * kernels.folding.without_digits(text.data, start, stop) < size
    return np.where(is_data, text.line_hash, hashes), size


def _blocks(text: "kernels.scan.Scan") -> tuple[np.ndarray, np.ndarray]:
    """First and last line, that one excluded, of all lines that belong together."""
    start, stop = text.paragraph_start, text.paragraph_stop
    paragraphs = np.diff(text.paragraphs)
    is_alone = np.repeat(paragraphs == 1, paragraphs)
    joined = _in_listing(text)[start] & ~is_alone
    last = ~np.append(joined, False)[1:]
    start, stop, is_alone = start[~joined], stop[last], is_alone[~joined]
    lines = np.flatnonzero(covered(start[is_alone], stop[is_alone], text.lines[-1]))
    start, stop = np.append(start[~is_alone], lines), np.append(stop[~is_alone], lines + 1)
    order = np.argsort(start)
    return start[order], stop[order]


def _in_listing(text: "kernels.scan.Scan") -> np.ndarray:
    """Whether each line is in a listing of Markdown, after its first line. Listings begin and end with ```."""
    start, stop = text.spans("lines")
    is_fence = stop - start >= 3
    for at in range(3):
        is_fence[is_fence] = text.data[start[is_fence] + at] == ord("`")
    before = np.append(0, np.cumsum(is_fence))
    return (before[:-1] - np.repeat(before[text.lines[:-1]], np.diff(text.lines))) % 2 == 1


def _size_together(text: "kernels.scan.Scan", size: np.ndarray) -> np.ndarray:
    """For each line the size of all lines that it belongs to, including its own; 0 for a blank line."""
    start, stop = _blocks(text)
    before = np.append(0, np.cumsum(size))
    sizes = np.zeros(len(size), np.int64)
    sizes[covered(start, stop, len(size))] = np.repeat(before[stop] - before[start], stop - start)
    return sizes


def _together(text: "kernels.scan.Scan", gone: np.ndarray) -> np.ndarray:
    """The lines that go if lines which belong together go together: bool. Lines without anything that is compared, such
    as rules, go with the others."""
    start, stop = _blocks(text)
    _, size = _folded(text)
    staying = np.append(0, np.cumsum(~gone & (size > 0)))
    going = np.append(0, np.cumsum(gone))
    whole = (staying[stop] == staying[start]) & (going[stop] > going[start])
    return covered(start[whole], stop[whole], len(gone))


def _keys(documents: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """(known, key) of each document: whether its host is known, and the hash of it, uint64."""
    hosts = known_hosts(documents).dictionary_encode()
    known = np.asarray(pc.is_valid(hosts))
    hashes = np.array(
        [xxhash.xxh3_64_intdigest(host.encode()) for host in hosts.dictionary.to_pylist()] or [0], np.uint64
    )
    return known, hashes[pc.fill_null(hosts.indices, 0).to_numpy(zero_copy_only=False)]


def pages_files(folder: str, count: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "pages"), count)


def needed_files(folder: str, partitions: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "needed"), partitions)
