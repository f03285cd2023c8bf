"""The documents of a shard that the files of their sites, and lists of hosts, let through."""

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import ledger, parquet
from gristmill.storage.schema import SELECTION
from gristmill.tasks.dedup.takedowns import taken_down
from gristmill.tasks.documents.selection import gather, select
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.rights.robots import Block, Robots
from gristmill.tasks.rights.sites import ROBOTS, TDMREP, SiteFile, TdmRules, host_of_url, read_sites
from gristmill.tasks.rights.statements import ALLOWED, ANY_AGENT, CONTENT_USAGE, PAGE, RESERVED, TDM, read
from gristmill.tasks.rights.step import TRAINING_USE, judged, of_page, reservation
from gristmill.tasks.url.step import Url

STEP = "site_rights"
HOSTS, SILENCE = "hosts", "silence"


class SitePolicy(Settings):
    """What of the step `rights` decides by the files of sites. `agents`: product tokens; `hosts`: lists of hosts, tied
    to their content; `drops_silence`: documents about which nothing is stated are dropped; `reads_pages`: what pages
    state is known."""

    agents: tuple[str, ...]
    protocols: tuple[str, ...]
    hosts: Url
    drops_silence: bool
    reads_pages: bool


def keep_permitted(
    folder: str, shard: int, documents: str, kept: str, extracted: str, sites: str, policy: SitePolicy
) -> dict:
    """Write which documents of a shard may stay, and the ledger of the others: the protocol as the rule, and as detail
    the agents and the line of the file that decided. `extracted`: the part with what pages state; `sites`: the table of
    their sites' files. Holds the URLs of the shard and the files of its hosts, parsed one host after the other."""
    table = select(documents, kept, ["url"])
    stated = _stated(extracted, kept, table, policy)
    urls = [url or "" for url in table["url"].to_pylist()]
    hosts = [host_of_url(url) for url in urls]
    files = read_sites(sites, hosts)
    on_lists = taken_down(table, policy.hosts).to_pylist()
    reasons: list[tuple[str, str] | None] = [None] * len(urls)
    for host, rows in _by_host(hosts).items():
        site = _Site(files.get((host, ROBOTS)), files.get((host, TDMREP)), policy, [urls[row] for row in rows])
        for row in rows:
            reasons[row] = site.reason(urls[row], stated[row], on_lists[row])
    ids = table["id"].to_pylist()
    drops = [
        {"id": id_, "step": STEP, "rule": reason[0], "detail": reason[1]}
        for id_, reason in zip(ids, reasons, strict=True)
        if reason is not None
    ]
    arriving = parquet.read_table(kept, SELECTION.names)
    return ledger.write_selection(folder, shard, arriving, [(STEP, ledger.from_rows(drops))])


def _by_host(hosts: list[str]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, host in enumerate(hosts):
        rows.setdefault(host, []).append(row)
    return rows


class _Stated(Settings):
    """What a page states itself: its TDM reservation, "" for none, and what it grants."""

    reservation: str = ""
    granted: str = ""


_NOTHING = _Stated()


def _stated(extracted: str, kept: str, table: pa.Table, policy: SitePolicy) -> list[_Stated]:
    if not policy.reads_pages:
        return [_NOTHING] * len(table)
    columns = gather((extracted,), kept, [*PAGE])
    columns = columns.take(pc.index_in(table["id"], columns["id"].combine_chunks()))
    licenses = of_page(columns["rights_license"].to_pylist(), columns["rights_license_scope"].to_pylist())
    return [
        _stated_by(policy.protocols, signals, license)
        for signals, license in zip(columns["rights_signals"].to_pylist(), licenses, strict=True)
    ]


@lru_cache(1024)
def _stated_by(protocols: tuple[str, ...], signals: str | None, license: str) -> _Stated:
    if not signals and not license:
        return _NOTHING
    statements = read(signals)
    tdm = reservation(statements)
    row = judged((), protocols, (), statements, license)
    return _Stated(reservation=tdm[0] if tdm else "", granted=row["rights_granted"])


class _Site:
    """The files of a host, parsed when they are first asked."""

    def __init__(self, robots: SiteFile | None, tdmrep: SiteFile | None, policy: SitePolicy, urls: list[str]) -> None:
        self.robots = Robots(robots.text, urls) if robots and robots.text else None
        self.tdmrep = TdmRules(tdmrep.text) if tdmrep and tdmrep.text else None
        self.policy = policy

    def reason(self, url: str, stated: _Stated, entry: str | None) -> tuple[str, str] | None:
        """Why a document may not stay, as rule and detail; None if it may."""
        policy, granted = self.policy, stated.granted
        if self.robots is not None and ROBOTS in policy.protocols:
            if block := self.robots.block(url, policy.agents):
                return ROBOTS, _detail(block)
        if self.robots is not None and CONTENT_USAGE in policy.protocols:
            if usage := self.robots.usage(url, policy.agents, TRAINING_USE):
                preference, block = usage
                if preference == "n":
                    return CONTENT_USAGE, _detail(block)
                granted = granted or _detail(block)
        # what the page states itself supersedes the file (TDMRep, section 6.6)
        if self.tdmrep is not None and TDM in policy.protocols and not stated.reservation:
            if rule := self.tdmrep.reservation(url):
                value, number = rule
                if value == RESERVED:
                    return TDM, f"{ANY_AGENT}: rule {number} of tdmrep.json"
                granted = granted or f"tdm-reservation: {ALLOWED}"
        if entry is not None:
            return HOSTS, f"{ANY_AGENT}: {entry}"
        return (SILENCE, f"{ANY_AGENT}: nothing stated") if policy.drops_silence and not granted else None


def _detail(block: Block) -> str:
    return f"{', '.join(block.agents)}: {block.line or 'robots.txt'}"
