"""Rows of the step `rights` and its stages: pages, files of sites, licenses, and silence. Separate: they have their own
crawl."""

from typing import Any

from tests.golden.rows.row import SEEN, Row, Settings, row

CRAWL: Settings = {"name": "rights", "warc": ["{fixture}/rights/pages.warc.gz"], "range_bytes": 12_000}
RECORDED: Settings = {"step": "extract", "rights": True}
LATE = (*SEEN, "site_files", "site_rights")


def _list(*names: str) -> list[str]:
    return [f"{{fixture}}/rights/{name}" for name in names]


def _rights(name: str, covers: tuple[str, ...], extract: Settings = RECORDED, **given: Any) -> Row:
    return row(name, [CRAWL], [extract, {"step": "rights", **given}], covers)


ROWS = (
    _rights("rights", SEEN),
    _rights(
        "rights-licenses",
        SEEN,
        RECORDED | {"engine": "union", "engines": ["blocks", "plain"]},
        agents=["search", "otherbot"],
        directives=["noindex", "noai"],
        keep_licenses=["CC-BY", "CC-BY-SA", "GFDL"],
        drop_licenses=["CC-BY-ND"],
        silence="drop",
    ),
    _rights(
        "rights-sites",
        LATE,
        robots=_list("robots.jsonl"),
        tdmrep=_list("tdmrep.jsonl"),
        hosts=_list("hosts.txt"),
        silence="drop",
    ),
    _rights(
        "rights-archives",
        LATE,
        {"step": "extract"},
        protocols=["robots"],
        robots=_list("robots.jsonl", "sites.warc.gz"),
        tdmrep=_list("sites.warc.gz"),
        agents=["CCBot"],
    ),
)
