"""The files in which sites state how their pages may be used, as a table by host: robots.txt and tdmrep.json.

They come from the archives of a crawl (`robotstxt` of Common Crawl) or tables of host and text. Of a host the newest
answer of an archive counts, and what a later list has of it replaces what an earlier one has.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from urllib.parse import urljoin

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import layout, parquet
from gristmill.storage.printable import redact_url
from gristmill.storage.remote.config import configured
from gristmill.tasks.documents.selection import read_rows
from gristmill.tasks.reading import archives, tables
from gristmill.tasks.reading.listing import expand
from gristmill.tasks.reading.record import Columns, Record
from gristmill.tasks.rights.robots import matches, text_of
from gristmill.tasks.rights.statements import ALLOWED, RESERVED
from gristmill.tasks.url.canonical import Canonical, canonical_host, canonicalizer

log = logging.getLogger(__name__)

Kind = Literal["robots", "tdmrep"]
ROBOTS: Kind = "robots"
TDMREP: Kind = "tdmrep"
PATHS: dict[Kind, str] = {ROBOTS: "/robots.txt", TDMREP: "/.well-known/tdmrep.json"}

_MAX_PAYLOAD = 32 << 20  # of an answer; of a robots.txt the first 500 KiB are read
_MAX_REDIRECTS = 5  # RFC 9309, section 2.3.1.2
_MAX_RULES = 10_000  # of a tdmrep.json
_TABLE = re.compile(r"\.(parquet|jsonl|ndjson|json)(?:\.(?:gz|zst|lz4))?\Z", re.I)
_COLUMNS = Columns(text="text", url="host")
_USUAL_PORTS = (80, 443)

SCHEMA = pa.schema(
    [
        pa.field("host", pa.string(), nullable=False, metadata={"what": "with a port that is not the usual one"}),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("file", pa.string(), metadata={"what": "the list that has it"}),
        pa.field("text", pa.large_string(), nullable=False),
    ]
)


class SiteFile(NamedTuple):
    """A file of a site, and the name of the list that has it."""

    text: str
    file: str


@dataclass
class _Answers:
    """What an archive has, by canonical URL: (date, status, text, address that it redirects to)."""

    by_url: dict[str, tuple[str, int, str, str]] = field(default_factory=dict)
    unread: Counter[str] = field(default_factory=Counter)

    def add(self, record: Record) -> None:
        url = _canonical(record.url)
        if record.kind != "response" or not url:
            return
        if record.problem:
            self.unread[record.problem[0]] += 1
            return
        earlier = self.by_url.get(url)
        # an answer without information about the file counts only if there is no other
        rank = (_is_informative(record.status or 0), record.date)
        if earlier is None or (_is_informative(earlier[1]), earlier[0]) <= rank:
            location = next((value for name, value in record.headers if name == "location"), "")
            text = text_of(record.payload) if record.status == 200 else ""
            self.by_url[url] = (record.date, record.status or 0, text, location)

    def text(self, url: str) -> str | None:
        """The text at a URL, after up to five redirects; "" if there is none, None if the answer is missing."""
        for _ in range(_MAX_REDIRECTS + 1):
            if (answer := self.by_url.get(url)) is None:
                return None
            _, status, text, location = answer
            if not 300 <= status < 400:
                return text if status == 200 else "" if _is_informative(status) else None
            url = _canonical(urljoin(url, location)) if location else ""
        return None


def _is_informative(status: int) -> bool:
    """Whether an answer says what the file has, or that there is none: 4xx (RFC 9309, section 2.3.1.3) but 429, which
    asks to come again later."""
    return status == 200 or (300 <= status < 500 and status != 429)


_canonical = canonicalizer(Canonical())


def host_of_url(url: str) -> str:
    """The host of a URL, with its port if that is not the usual one; "" for a URL without a canonical form."""
    address = _canonical(url)
    return address.split("/", 3)[2] if address else ""


def write_sites(folder: str, number: int, lists: Sequence[tuple[Kind, str, str]]) -> dict:
    """Write the table of the files in some lists: (kind, address, name). Returns the hosts of each kind, and what could
    not be read. Holds the texts of all lists, at most 500 KiB of each."""
    sites: dict[tuple[str, str], SiteFile] = {}
    unread: Counter[str] = Counter()
    for kind, address, name in lists:
        for host, text in _read(kind, address, unread):
            sites[host, kind] = SiteFile(text, name)
    keys = sorted(sites)
    columns = {
        "host": [host for host, _ in keys],
        "kind": [kind for _, kind in keys],
        "file": [sites[key].file for key in keys],
        "text": [sites[key].text for key in keys],
    }
    parquet.write_table(layout.part(folder, number), pa.table(columns, schema=SCHEMA))
    counts = Counter(kind for _, kind in keys)
    return {"hosts": {kind: counts[kind] for kind in PATHS if counts[kind]}, "unread": dict(sorted(unread.items()))}


def _read(kind: Kind, address: str, unread: Counter[str]) -> Iterator[tuple[str, str]]:
    """The hosts of a list, each with the text of its file, "" where it has none."""
    if match := _TABLE.search(address):
        unnamed: list[str] = []
        form = "parquet" if match[1].lower() == "parquet" else "jsonl"
        for record in tables.records(address, form, _COLUMNS, _MAX_PAYLOAD, configured()):
            host = host_named(record.url)
            # a host whose file is empty has one
            if record.problem and record.problem[0] != "no_text":
                unread[record.problem[0]] += 1
            elif not host:
                unread["no_host"] += 1
                unnamed.append(record.url)
            else:
                yield host, text_of(record.payload)
        if unnamed:
            log.warning(
                "%s: rows whose `host` is not a host are left out: %d, such as %r. Write hosts as example.com",
                redact_url(address),
                len(unnamed),
                unnamed[0][:200],
            )
        return
    answers = _Answers()
    for record in archives.records(address, _MAX_PAYLOAD, configured()):
        answers.add(record)
    unread.update(answers.unread)
    for url in answers.by_url:
        scheme, _, rest = url.partition("://")
        host, slash, path = rest.partition("/")
        if slash + path == PATHS[kind] and scheme in ("http", "https") and (text := answers.text(url)) is not None:
            # of both schemes the newer answer counts, if it says something
            other = f"{'http' if scheme == 'https' else 'https'}://{rest}"
            if answers.text(other) is None or answers.by_url[other][0] <= answers.by_url[url][0]:
                yield host, text


def host_named(name: str) -> str:
    """The host that a table names, by itself, with a port or as a URL; "" for what is none. Without a scheme, the ports
    of http and https are both the usual one."""
    if "://" in name:
        return host_of_url(name)
    authority = name.strip().removeprefix("//").partition("/")[0]
    host, colon, port = authority.rpartition(":")
    if not colon or not port.isdigit():
        return canonical_host(authority)
    if int(port) in _USUAL_PORTS:
        return canonical_host(host)
    return f"{host}:{int(port)}" if (host := canonical_host(host)) else ""


def read_sites(path: str, hosts: Sequence[str]) -> dict[tuple[str, str], SiteFile]:
    """The files of some hosts in a table, by (host, kind). Holds the table's column of hosts and the texts of these."""
    table_hosts = parquet.read_table(path, ["host"])["host"]
    # pyarrow 25 crashes on a chunked array without chunks
    wanted = pc.is_in(table_hosts.combine_chunks(), pa.array(sorted(set(hosts)), pa.string()))
    rows = pc.indices_nonzero(wanted)
    site_files = read_rows(path, rows.to_numpy().astype("int64"), SCHEMA.names).to_pylist()
    return {(row["host"], row["kind"]): SiteFile(row["text"], row["file"]) for row in site_files}


class TdmRules:
    """The rules of a tdmrep.json: an array of objects with `location`, `tdm-reservation` and perhaps `tdm-policy`
    (TDMRep final report, section 6.1). Anything else is not a file of the protocol and has no rules."""

    def __init__(self, text: str) -> None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        self.rules: list[dict[str, Any]] = (
            [each for each in value if isinstance(each, dict)][:_MAX_RULES] if (isinstance(value, list)) else []
        )

    def reservation(self, url: str) -> tuple[str, int] | None:
        """What the first rule states whose location fits a URL, and its number from 1; None for none, and for a value
        that is neither 0 nor 1."""
        for number, rule in enumerate(self.rules, 1):
            location = rule.get("location")
            if isinstance(location, str) and "tdm-reservation" in rule and matches(url, location[:2000]):
                value = rule["tdm-reservation"]
                known = type(value) is int and str(value) in (RESERVED, ALLOWED)
                return (str(value), number) if known else None
        return None


def list_problem(address: str) -> str:
    """Why lists of sites' files, given by an address or a glob, cannot be read; "" if nothing is known against them."""
    try:
        expand([address])
    except (OSError, ValueError) as error:
        return f"{redact_url(address)}: {error}. Correct the address, or remove it"
    return ""
