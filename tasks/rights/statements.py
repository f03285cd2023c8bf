"""What a page and its HTTP response state about machine use: X-Robots-Tag, meta robots, TDMRep and Content-Usage.

A statement is a line `protocol source agent value` of the column `rights_signals`, such as `robots_tag header * noai`.
This column and the others of recorded rights are declared here, so that a recipe is read without the HTML parsers.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import wrapt

from gristmill.tasks.documents.step import Signal

if TYPE_CHECKING:
    import http_sf
    from resiliparse.parse.html import ElementNode
else:
    http_sf = wrapt.lazy_import("http_sf")

VERSION = 1  # of the columns below; raised when pages get other values in them
SIGNALS = (
    Signal(
        "rights_signals",
        "string",
        "lines",
        "X-Robots-Tag and meta robots; TDMRep, W3C report of May 2024; draft-ietf-aipref-attach, August 2026",
        "statements of the page and its HTTP headers about machine use, a line `protocol source agent value` each",
    ),
    Signal("rights_license", "string", "SPDX", "own", "the license that the page states; null if it states none"),
    Signal("rights_license_scope", "string", "", "own", "what the license is for: `page`, or `part` of it"),
    Signal(
        "rights_license_source",
        "string",
        "",
        "own",
        "where the license is stated: header, link, meta, json-ld, rel, footer or text",
    ),
    Signal("rights_copyright", "string", "", "own", "the page's last line with a copyright sign and a year"),
)
# The distributions whose releases decide these columns.
LIBRARIES = ("http-sf", "license-expression", "resiliparse")
# The columns by which the step `rights` judges a page.
PAGE = ("rights_signals", "rights_license", "rights_license_scope")
# How to get a column, for the error message about a missing one.
ADVICE = dict.fromkeys(PAGE, "`rights: true` to the step `extract`")

ROBOTS_TAG, TDM, CONTENT_USAGE = "robots_tag", "tdm", "content_usage"
ANY_AGENT = "*"
RESERVED, ALLOWED = "1", "0"  # of `tdm-reservation` (TDMRep final report, section 5.1); other values are unset

# Directives that say something about use. `none` is `noindex, nofollow` (Google's robots meta tag specification).
DIRECTIVES = ("noai", "noimageai", "noindex", "noarchive", "nocache", "nosnippet")
# Directives with a value after a colon, which is therefore no agent's.
_VALUED = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_AGENT = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,60}")
_CONTROLS = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029]+")
_MAX_STATEMENTS = 50
_MAX_VALUE = 300  # characters
_MAX_FIELD = 8000  # characters of a header field or attribute that are read

# The `meta` elements that may hold a statement: a page may have thousands of others.
META_TAGS = ", ".join(
    [*(f'meta[content*="{directive}" i]' for directive in (*DIRECTIVES, "none")), 'meta[name^="tdm-" i]']
)

# The labels of draft-ietf-aipref-vocab up to -08, some of which have `ai-use`; unknown ones must be ignored (section
# 6.5). Only `train-ai` is about training.
USES = ("train-ai", "ai-use", "search")


class Statement(NamedTuple):
    """`source`: `header`, or `meta` for a tag in the page; `agent`: product token in lower case, `*` for all."""

    protocol: str
    source: str
    agent: str
    value: str

    def __str__(self) -> str:
        return " ".join(self)


def written(statements: Iterable[Statement]) -> str | None:
    """The statements as a value of the column `rights_signals`; None for none. Each once, 50 at most."""
    lines = list(dict.fromkeys(map(str, statements)))[:_MAX_STATEMENTS]
    return "\n".join(lines) or None


def read(signals: str | None) -> list[Statement]:
    """The statements in a value of the column `rights_signals`."""
    return [Statement(*line.split(" ", 3)) for line in (signals or "").split("\n") if line.count(" ") >= 3]


def of_headers(headers: Iterable[Sequence[str]]) -> Iterator[Statement]:
    """The statements of an HTTP response, given as (name in lower case, value)."""
    usage = []
    for name, value in headers:
        value = value[:_MAX_FIELD]
        if name == "x-robots-tag":
            yield from _directives("header", ANY_AGENT, value, has_agents=True)
        elif name in ("tdm-reservation", "tdm-policy"):
            yield from _tdm("header", name, value)
        elif name == "content-usage":
            usage.append(value)
    # lines of one field are one list (RFC 9651, section 4.2)
    yield from (Statement(CONTENT_USAGE, "header", ANY_AGENT, each) for each in usages(", ".join(usage)))


def of_metas(metas: "Iterable[ElementNode]") -> Iterator[Statement]:
    """The statements of the `meta` elements of a page."""
    for meta in metas:
        name = (meta.getattr("name") or "").strip().lower()
        content = (meta.getattr("content") or "")[:_MAX_FIELD]
        if name in ("tdm-reservation", "tdm-policy"):
            yield from _tdm("meta", name, content)
        elif name == "robots" or _AGENT.fullmatch(name):
            if content.strip().lower() == "none" and "bot" not in name:
                continue  # as a value of any other setting it is not a directive
            yield from _directives("meta", ANY_AGENT if name == "robots" else name, content, has_agents=False)


def usages(value: str) -> list[str]:
    """The preferences of a `Content-Usage` value, such as `train-ai=n`; empty if it is not a dictionary of RFC 9651."""
    if not value.strip():
        return []
    try:
        # bytes beyond ASCII are an error there, too
        preferences = cast(Mapping[str, Any], http_sf.parse(value.encode("utf-8", "replace"), tltype="dictionary"))
    except (ValueError, RecursionError):
        return []
    stated = []
    for use in USES:
        preference = preferences.get(use, (None, {}))[0]
        # a string "n" is not a token n, and is unknown
        if isinstance(preference, http_sf.Token) and str(preference) in ("y", "n"):
            stated.append(f"{use}={preference}")
    return stated


def _directives(source: str, agent: str, value: str, has_agents: bool) -> Iterator[Statement]:
    """The directives of one field line or tag. With `has_agents`, `googlebot: noindex` begins the directives of an
    agent."""
    for part in value.split(","):
        name, colon, rest = (piece.strip() for piece in part.partition(":"))
        if colon and has_agents and name.lower() not in _VALUED and _AGENT.fullmatch(name):
            agent, name = name.lower(), rest
        for directive in ["noindex"] if name.lower() == "none" else [name.lower()]:
            if directive in DIRECTIVES:
                yield Statement(ROBOTS_TAG, source, agent, directive)


def _tdm(source: str, name: str, value: str) -> Iterator[Statement]:
    value = _CONTROLS.sub(" ", value).strip()
    if name == "tdm-policy" and value:
        yield Statement(TDM, source, ANY_AGENT, f"policy={value[:_MAX_VALUE]}")
    elif name == "tdm-reservation" and value in (RESERVED, ALLOWED):
        yield Statement(TDM, source, ANY_AGENT, f"reservation={value}")
