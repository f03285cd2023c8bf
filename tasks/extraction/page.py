"""One page of a crawl to its main text and its metadata, as plain data.

XHTML becomes the HTML that means the same, for engines that know HTML alone. A browser reads `application/xhtml+xml` by
the rules of XML: `<script/>` and `<title/>` end where they stand, a CDATA section is text, a name with a prefix is that
of its namespace.
"""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypedDict
from urllib.parse import urldefrag, urljoin, urlsplit
from xml.parsers import expat

from resiliparse.parse.encoding import detect_mime

from gristmill.tasks.engine.own_code import OwnCodeError
from gristmill.tasks.extraction.classifier import main_text
from gristmill.tasks.extraction.engines import DATA, Refused
from gristmill.tasks.extraction.engines import engine as engine_of
from gristmill.tasks.extraction.page_data import text_of_data
from gristmill.tasks.extraction.payload_types import PDF, is_binary, is_html, is_pdf, payload_type
from gristmill.tasks.extraction.shells import shell
from gristmill.tasks.kernels.phrases import places
from gristmill.tasks.reading import charset as encodings

# Every repetition has a limit: a page of unclosed tags must cost no more than its length.
_HEAD_ENDS = re.compile(r"</head|<body", re.IGNORECASE)
_TAG = re.compile(r"<(meta|link)\b((?:[^>\"']|\"[^\"]{0,4000}\"|'[^']{0,4000}'){0,400})", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"([\w:.-]{1,40})\s{0,9}=\s{0,9}(?:\"([^\"]{0,4000})\"|'([^']{0,4000})'|([^\s\"'>]{1,4000}))")
# what a tag with one of the three holds, in lower case; most have other metadata
_WANTED = re.compile(r"canonical|og:|date|publi[sc]|created|&")
_TITLE = re.compile(r"<title\b[^>]{0,400}>", re.IGNORECASE)
_H1 = re.compile(r"<h1\b[^>]{0,1000}>", re.IGNORECASE)
_ENDS = {"title": re.compile(r"</title", re.IGNORECASE), "h1": re.compile(r"</h1", re.IGNORECASE)}
_ANY_TAG = re.compile(r"<[^<>]{0,4000}>")
_SCRIPT_DATE = re.compile(r"\"datePublished\"\s{0,9}:\s{0,9}\"([^\"]{4,40})\"")
_TIME = re.compile(r"<time\b([^>]{0,1000})", re.IGNORECASE)
# The attribute and the word in it by which an element says that it has the day of publication, the best first:
# microdata, hAtom and h-entry, RDFa.
_SAID = (
    ("itemprop", "datePublished"),
    *(("class", "published"), ("class", "dt-published"), ("property", "dc:date"), ("property", "dc:created")),
)
_DAY = re.compile(r"\s*(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?!\d)")
# A head without an end is read this far, in characters.
_HEAD = 300_000
_TITLE_LENGTH = 1000

_DATE_NAMES = (
    *("article:published_time", "datepublished", "og:published_time", "dc.date.issued", "dcterms.issued"),
    *("dc.date", "date", "pubdate", "publishdate", "parsely-pub-date", "sailthru.date", "citation_date"),
    *("publish_date", "publication_date", "publicationdate", "originalpublicationdate", "article:published"),
    *("rnews:datepublished", "dc.date.created", "dcterms.created"),
)


class Metadata(TypedDict):
    """`published` is a day, YYYY-MM-DD."""

    title: str | None
    canonical_url: str | None
    published: str | None


def metadata(page: str, source: bytes, url: str) -> Metadata:
    """Title (og:title, <title>, <h1>), canonical address (link, og:url), day of publication (meta, JSON-LD, microdata,
    hAtom, RDFa, <time>).

    Each is None if the page does not have it, or not as a valid http(s) address or date. `source`: the page in UTF-8,
    in which words are found faster.
    """
    end = _HEAD_ENDS.search(page, 0, _HEAD)
    head = _without_comments(page[: end.start() if end else _HEAD])
    metas: dict[str, str] = {}
    canonical = None
    for match in _TAG.finditer(head):
        if not _WANTED.search(match[2].lower()):
            continue
        attributes = _attributes(match[2])
        if match[1].lower() == "link":
            if "canonical" in attributes.get("rel", "").lower().split() and not canonical:
                canonical = attributes.get("href")
        else:
            name = attributes.get("property") or attributes.get("name") or attributes.get("itemprop") or ""
            if attributes.get("content", "").strip():
                metas.setdefault(name.lower(), attributes["content"])
    title = metas.get("og:title") or _inner(head, _TITLE, "title") or _title_of_body(page) or _inner(page, _H1, "h1")
    return {
        "title": _plain(title),
        "canonical_url": _address(canonical, url) or _address(metas.get("og:url"), url),
        "published": _published(page, source, metas),
    }


def _without_comments(head: str) -> str:
    parts, position = [], 0
    while (begin := head.find("<!--", position)) >= 0 and (end := head.find("-->", begin + 2)) >= 0:
        parts.append(head[position:begin])
        position = end + 3
    return "".join([*parts, head[position:]])


def _attributes(text: str) -> dict[str, str]:
    """Attributes of a tag by their names in lower case; of two of one name the first counts."""
    attributes: dict[str, str] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(text):
        attributes.setdefault(name.lower(), html.unescape(double or single or bare))
    return attributes


def _inner(page: str, begins: re.Pattern, name: str) -> str | None:
    if not (begin := begins.search(page)):
        return None
    end = _ENDS[name].search(page, begin.end(), begin.end() + 20_000)
    return html.unescape(_ANY_TAG.sub(" ", page[begin.end() : end.start()])) if end else None


def _title_of_body(page: str) -> str | None:
    """A `title` that stands behind the head, as in pages of the 1990s; not that of a drawing."""
    begin = _TITLE.search(page, 0, _HEAD)
    return _inner(page, _TITLE, "title") if begin and page.find("<svg", 0, begin.start()) < 0 else None


def _plain(title: str | None) -> str | None:
    title = " ".join((title or "").split())[:_TITLE_LENGTH]
    return title.encode("utf-8", "replace").decode() or None


def _address(link: str | None, url: str) -> str | None:
    if not link:
        return None
    try:
        address = urldefrag(urljoin(url, link.strip())).url
        parts = urlsplit(address)
    except ValueError:
        return None
    whole = parts.scheme in ("http", "https") and parts.hostname
    return address.encode("utf-8", "replace").decode() if whole and not re.search(r"\s", address) else None


def _published(page: str, source: bytes, metas: dict[str, str]) -> str | None:
    for name in _DATE_NAMES:
        if day := _day(metas.get(name)):
            return day
    position = -1
    while (position := page.find("application/ld+json", position + 1)) >= 0:
        end = page.find("</script", position)
        match = _SCRIPT_DATE.search(page, position, end if end >= 0 else len(page))
        if match and (day := _day(match[1])):
            return day
        if end < 0:
            break
        position = end
    for attribute, word in _SAID:
        for attributes in _tags_with(page, word) if places(source, word.encode()) else ():
            if word in attributes.get(attribute, "").split():
                days = (_day(attributes.get(name)) for name in ("content", "datetime", "title"))
                if day := next(filter(None, days), None):
                    return day
    # of later ones most are those of other articles
    first = _TIME.search(page) if places(source, b"<time", any_case=True) else None
    return _day(_attributes(first[1]).get("datetime")) if first else None


def _tags_with(page: str, word: str) -> Iterator[dict[str, str]]:
    """The attributes of the tags in which a word stands."""
    position = page.find(word)
    while position >= 0:
        begin, end = page.rfind("<", max(0, position - 1000), position), page.find(">", position, position + 1000)
        if 0 <= begin < end and ">" not in page[begin:position]:
            yield _attributes(page[begin + 1 : end])
        position = page.find(word, position + len(word))


def _day(text: str | None) -> str | None:
    """The day of an ISO 8601 or RFC 5322 date, else None."""
    if not text:
        return None
    try:
        if match := _DAY.match(text):
            return date(*map(int, match.groups())).isoformat()
        if text.strip()[:1].isalpha():
            return parsedate_to_datetime(text).date().isoformat()
        return datetime.fromisoformat(text.strip()).date().isoformat()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


_XHTML = "http://www.w3.org/1999/xhtml"
_FOREIGN = ("http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML")
# HTML standard, 13.1.2: without an end tag
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
# HTML reads no entity in them
_RAW = frozenset({"script", "style"})


def to_html(page: str) -> str | None:
    """The page as HTML; None if it is not well-formed XML.

    A browser shows such a page not at all, or up to its first error; servers send most of them to most browsers as
    `text/html`. So they are for the caller to read as HTML. Entities of HTML are known where a document type is
    named, as in browsers, and those that the page itself declares. Elements of namespaces other than XHTML, SVG and
    MathML become custom elements, `x-` before their name. Raises nothing; holds the page twice more.
    """
    writer = _Writer()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = writer.start, writer.end
    parser.CharacterDataHandler, parser.SkippedEntityHandler = writer.text, writer.entity
    try:
        parser.Parse(page, True)
    except (expat.ExpatError, UnicodeEncodeError):
        return None
    return "".join(writer.parts)


class _Writer:
    """Events of a parser as HTML. `raw`: of how many open elements the text is written as it stands."""

    def __init__(self) -> None:
        self.parts: list[str] = ["<!DOCTYPE html>"]
        self.raw = 0

    def start(self, name: str, values: dict[str, str]) -> None:
        tag = _name(name)
        attributes = [f' {key}="{html.escape(value)}"' for key, value in values.items() if " " not in key]
        self.parts.append(f"<{tag}{''.join(attributes)}>")
        self.raw += tag in _RAW

    def end(self, name: str) -> None:
        tag = _name(name)
        self.raw -= tag in _RAW
        if tag not in _VOID:
            self.parts.append(f"</{tag}>")

    def text(self, data: str) -> None:
        # in JSON and in scripts `<\/` is `</`, which would end the element
        self.parts.append(data.replace("</", "<\\/") if self.raw else html.escape(data, quote=False))

    def entity(self, name: str, parameter: bool) -> None:
        if not parameter:
            self.parts.append(f"&{name};")


def _name(name: str) -> str:
    namespace, _, local = name.rpartition(" ")
    return local if namespace in ("", _XHTML, *_FOREIGN) else f"x-{local}"


_TEMPLATE = re.compile(r"""<(?P<end>/?)template(?=[\s>/])(?P<attributes>(?:"[^"]*"|'[^']*'|[^>"'])*)>""", re.IGNORECASE)
_SHADOW_ROOT = re.compile(r"""(?:^|[\s"'])shadowroot(?:mode)?\s*=\s*["']?(?:open|closed)\b""", re.IGNORECASE)


def with_shadow_roots(page: str) -> str:
    """The page with its declarative shadow roots as ordinary content: a browser shows them without any script.

    `<template shadowrootmode=open>` or `closed` (HTML standard, 4.12.3), and `shadowroot=`, its name before, become
    `<div>`; other templates stay what they are, content of no page.
    """
    roots: list[bool] = []  # of the open templates, whether each is a shadow root

    def as_content(tag: re.Match) -> str:
        if not tag["end"]:
            roots.append(bool(_SHADOW_ROOT.search(tag["attributes"])))
            return "<div>" if roots[-1] else tag[0]
        return "</div>" if roots and roots.pop() else tag[0]

    return _TEMPLATE.sub(as_content, page)


XHTML = "application/xhtml+xml"
HTML = ("text/html", XHTML)
PLAIN = ("text/plain",)
PDFS = (PDF, "application/x-pdf")
_TYPES = {"html": HTML, "text": PLAIN, "pdf": PDFS}

# what a text begins with is dropped but for the indentation of its first line, which may be code
_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")


def is_read(payload: bytes, content_type: str, types: Sequence[str]) -> bool:
    """Whether a record may be one that is read, by its type as it is declared, or by the bytes of a PDF document."""
    if "pdf" in types and is_pdf(payload):
        return True
    return not content_type or any(content_type in _TYPES[name] for name in types)


def extract_page(
    payload: bytes,
    content_type: str,
    charset: str | None,
    url: str,
    engine: str,
    format: str,
    types: Sequence[str] = ("html", "text"),
    given: bool = False,
    options: Mapping[str, Any] | None = None,
    headers: Sequence[Sequence[str]] | None = None,
) -> dict:
    """Text, charset, charset_declared, content_type, title, canonical_url, published and engine of a page; or rule and
    detail of a drop.

    content_type: the essence in lower case, sniffed if it is empty. charset: of the HTTP header. engine: as
    `gristmill.tasks.extraction.engines.engine` finds it; "text" is answered for `text/plain`, which is passed as it is,
    "pdf" for a PDF document, with the columns of `gristmill.tasks.extraction.extract`, "data" where the text is from
    the data in the page because its HTML lacks it (`page_data`), without marks of Markdown. options: of the engine.
    headers: of the HTTP response, if rights are recorded, whose columns are then in the result, too; else None.
    types: those that are read. format: "plain" or "markdown", which only the engine blocks has for HTML. Rules:
    `content_type` for what is of none of the types, whatever it is declared as, `too_deep` for a page that the engine's
    parser must not see, `page_shell` for a note that stands in place of a document (`shells`), with its kind and text,
    `empty_text`, `extractor_error` for what a user's engine does wrong, and those of
    `gristmill.tasks.pdf.document.read`. XHTML that is well-formed is read by the rules of XML, other XHTML as HTML.
    Holds the page some four times, XHTML six.
    """
    kind = payload_type(payload, content_type, charset, given) or content_type or _sniff(payload)
    if not any(kind in _TYPES[name] for name in types):
        return _drop("content_type", kind)
    if kind in PDFS:
        # imported here, since its library is loaded where it is needed alone
        from gristmill.tasks.pdf.document import read

        return {**read(payload, format == "markdown"), **_rights("", headers)}
    encoding = encodings.encoding_of(payload, charset, kind in HTML)
    page = encodings.decode(payload, encoding.name)
    # of a table's text the reader says what it is, and nobody declares it
    encodings_by_column = {"charset": encoding.name, "charset_declared": None if given else encoding.declared}
    if kind == XHTML:
        page = to_html(page) or page
    source = page.encode("utf-8", "replace") if kind in HTML else b""
    if places(source, b"hadowroot"):
        page = with_shadow_roots(page)
        source = page.encode("utf-8", "replace")
    page_metadata = Metadata(title=None, canonical_url=None, published=None)
    if kind in PLAIN:
        text, engine = page, "text"
    else:
        try:
            is_blocks = engine == "blocks" or format == "markdown"
            text = main_text(source, format == "markdown") if is_blocks else engine_of(engine)(page, **(options or {}))
        except Refused as error:
            return _drop("too_deep", str(error))
        except OwnCodeError as error:
            return _drop("extractor_error", str(error))
        page_metadata = metadata(page, source, url)
        shell_kind = shell(text)
        if text_in_data := text_of_data(page, text, shell_kind is not None):
            text, engine = text_in_data, DATA
        elif shell_kind:
            return _drop("page_shell", f"{shell_kind}: {' '.join(text.split())}")
    rights = _rights(page if kind in HTML else "", headers)
    text = text.encode("utf-8", "replace").decode().rstrip()
    text = _BLANK_LINES.sub("", text) if engine in ("blocks", "text") else text.lstrip()
    if not text:
        return _drop("empty_text", url)
    return {"text": text, **encodings_by_column, "content_type": kind, **page_metadata, "engine": engine, **rights}


def _rights(page: str, headers: Sequence[Sequence[str]] | None) -> Mapping[str, Any]:
    """The columns of `gristmill.tasks.rights.statements` of a page, "" for what is no HTML; none without `headers`."""
    if headers is None:
        return {}
    # imported here, since recipes without rights do without its libraries
    from gristmill.tasks.rights.page import page_rights

    return page_rights(page, headers)


def _drop(rule: str, detail: str) -> dict:
    return {"rule": rule, "detail": detail[:200]}


def _sniff(payload: bytes) -> str:
    if is_html(payload):
        return "text/html"
    mime_type = detect_mime(payload)
    return "text/plain" if mime_type == "application/octet-stream" and not is_binary(payload) else mime_type
