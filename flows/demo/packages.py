"""Pages of the installed distributions, their long descriptions and the texts among their files, and the archives.

`write_archive` writes pages as a server would give them, as WARC 1.1 files: the same bytes for the same pages.
"""

import base64
import csv
import gzip
import html
import io
import json
import os
import re
import sys
import sysconfig
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from hashlib import sha1
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from pydoc_data import topics
from typing import cast
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from markdown_it import MarkdownIt
from resiliparse.extract.html2text import extract_plain_text
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

# RFC 6761: no name under .invalid is ever delegated, so these addresses can be nobody's.
MANUAL = "https://manual.harvest.invalid/"
SERVICES = "https://services.harvest.invalid/"


def site(kind: str, project: str) -> str:
    """The address of a project, which has a host of its own, as projects on the web have: its pages are alike."""
    return f"https://{project}.{kind}.harvest.invalid/"


@dataclass(frozen=True)
class Page:
    """`kind` is the source it is filed under; `edited` marks what may become reference prose."""

    url: str
    kind: str
    content_type: str
    payload: bytes
    edited: bool = False


def html_page(title: str, body: str) -> bytes:
    """A whole HTML document in UTF-8. `body` is markup already, `title` is text."""
    title = html.escape(title)
    page = f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title></head>\n'
    return f"{page}<body>\n{body}\n</body>\n</html>\n".encode("utf-8", "replace")


def preformatted(title: str, text: str) -> bytes:
    """An HTML document that shows `text` as it is."""
    return html_page(title, f"<h1>{html.escape(title)}</h1>\n<pre>\n{html.escape(text)}\n</pre>")


# The files do not depend on when they were made: each harvest of an environment is the same.
DATE = "2024-01-01T00:00:00Z"
HTTP_DATE = "Mon, 01 Jan 2024 00:00:00 GMT"
SOFTWARE = "gristmill harvest"


def write_archive(path: Path, pages: Sequence[Page]) -> None:
    """A warcinfo record and a response record per page, gzip per record (WARC 1.1, annex D)."""
    with path.open("wb") as stream:
        writer = WARCWriter(stream, gzip=True, warc_version="WARC/1.1")
        info = f"software: {SOFTWARE}\r\nformat: WARC File Format 1.1\r\nconformsTo: {_STANDARD}\r\n".encode()
        info_id = _record_id("warcinfo", path.name, info)
        record = writer.create_warc_record(
            "",
            "warcinfo",
            payload=io.BytesIO(info),
            warc_content_type="application/warc-fields",
            warc_headers_dict={"WARC-Record-ID": info_id, "WARC-Filename": path.name, "WARC-Date": DATE},
        )
        writer.write_record(record)
        for page in pages:
            record = writer.create_warc_record(
                page.url,
                "response",
                payload=io.BytesIO(page.payload),
                http_headers=_http_headers(page),
                warc_headers_dict={
                    "WARC-Record-ID": _record_id("response", page.url, page.payload),
                    "WARC-Warcinfo-ID": info_id,
                    "WARC-Date": DATE,
                    "WARC-IP-Address": "127.0.0.1",
                },
            )
            writer.write_record(record)


_STANDARD = "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"


def _record_id(kind: str, name: str, payload: bytes) -> str:
    digest = base64.b32encode(sha1(payload).digest()).decode()
    return f"<urn:uuid:{uuid5(NAMESPACE_URL, f'{kind} {name} sha1:{digest}')}>"


def _http_headers(page: Page) -> StatusAndHeaders:
    headers = [
        ("Date", HTTP_DATE),
        ("Server", SOFTWARE),
        ("Content-Type", page.content_type),
        ("Content-Length", str(len(page.payload))),
        ("Last-Modified", HTTP_DATE),
    ]
    return StatusAndHeaders("200 OK", headers, protocol="HTTP/1.1")


def write_list(path: Path, names: Sequence[str]) -> None:
    """A `warc.paths.gz` as Common Crawl gives: one path a line, relative to the list."""
    path.write_bytes(gzip.compress("".join(f"{name}\n" for name in names).encode(), mtime=0))


PARAGRAPH = re.compile(r"\n\s*\n")
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
SENTENCE_END = re.compile(r"[.!?:][\"')\]]*$")
NO_PROSE = re.compile(r"[^\w\s.,;:'’()\"`-]|[\d_]")
FIELD = re.compile(r"^\s*(?:>>>|\.\.|[-=~*^]{3}|:\w+|\S+ : )", re.MULTILINE)
FUNCTION_WORDS = frozenset(
    "a an and are as at be been but by can for from has have if in into is it its may must no not of on or "
    "should so such than that the their then there these they this to use used was when where which will "
    "with you".split()
)


MAX_SERVICE = 45_000
"""Bytes of a service's page: the few longer ones would be half the text of all."""


def manual_pages() -> Iterator[Page]:
    """Chapters of the Python language reference, which the interpreter carries for `help('topics')`."""
    for topic, text in sorted(topics.topics.items()):
        yield Page(
            f"{MANUAL}{topic}.html",
            "modules",
            "text/html; charset=utf-8",
            preformatted(topic, text),
            edited=True,
        )


def service_pages() -> Iterator[Page]:
    """One page for each web service that botocore describes: overview and operations, in botocore's own HTML.

    The newest description of each service, its operations in the order of their names. Nothing where botocore
    is not installed. One service's description is held in memory.
    """
    spec = find_spec("botocore")
    if spec is None or spec.origin is None:
        return
    for folder in sorted((Path(spec.origin).parent / "data").iterdir()):
        described = sorted(folder.glob("*/service-2.json*"))
        if not described:
            continue
        data = described[-1].read_bytes()
        service = json.loads(gzip.decompress(data) if described[-1].suffix == ".gz" else data)
        parts = [
            f"<h1>{html.escape(service['metadata']['serviceFullName'])}</h1>",
            service.get("documentation", ""),
        ]
        for name, operation in sorted(service["operations"].items()):
            parts += [f"<h2>{html.escape(name)}</h2>", operation.get("documentation", "")]
        payload = html_page(service["metadata"]["serviceFullName"], "\n".join(parts))
        if len(payload) <= MAX_SERVICE:
            yield Page(f"{SERVICES}{folder.name}.html", "packages", "text/html; charset=utf-8", payload, edited=True)


def main_text(page: Page) -> str:
    """The text a reader of the page sees."""
    charset = page.content_type.rpartition("charset=")[2]
    text = page.payload.decode(charset, "replace")
    return extract_plain_text(text, main_content=True) if page.content_type.startswith("text/html") else text


def prose_words(text: str) -> tuple[int, int]:
    """Words that stand in running English prose, and all words.

    A paragraph is prose if it has 15 words or more, ends like a sentence, has no field, underline, directive
    or prompt at a line's start, if at least a quarter of its words are function words, and if digits,
    operators and the like are at most a twentieth of it.
    """
    prose = total = 0
    for paragraph in PARAGRAPH.split(text):
        words = WORD.findall(paragraph)
        total += len(words)
        if len(words) < 15 or not SENTENCE_END.search(paragraph.rstrip()) or FIELD.search(paragraph):
            continue
        function = sum(word.lower() in FUNCTION_WORDS for word in words)
        if function >= len(words) / 4 and len(NO_PROSE.findall(paragraph)) <= len(paragraph) / 20:
            prose += len(words)
    return prose, total


def is_reference(page: Page, text: str, share: float) -> bool:
    """Whether an edited page becomes reference: 150 words and 30% of all or more are prose, and it is drawn.

    `share` of such pages, drawn by the digest of their address, become reference. The others stay where they
    were: good pages are found among the raw ones too, and a classifier cannot win by the style of a source alone.
    """
    if not page.edited:
        return False
    prose, total = prose_words(text)
    draw = int.from_bytes(sha1(page.url.encode()).digest()[:4], "big") / 2**32
    return prose >= 150 and prose >= 0.3 * total and draw < share


NOTICES = re.compile(r"licen[cs]e|^(copying|copyright|notice|authors|contributors|thanks|patents)", re.IGNORECASE)
GUIDES = re.compile(r"^(readme|changelog|changes|history|news|todo|release|whatsnew)", re.IGNORECASE)
TRANSLATIONS = frozenset("cjkencodings i18n locale locales stoplists translations".split())
"""Folders whose .txt and .po files are texts in other languages."""

MAX_TRANSLATION = 16_000
"""Bytes: word lists of whole languages run to 300 kB and show no more than the shorter ones."""

MARKUP = {".html": "text/html", ".htm": "text/html", ".md": "text/html"}
NO_TEXT = frozenset(
    ".c .css .gz .h .ini .ipynb .js .json .map .mo .pem .png .po .py .pyc .pyi .pyx .sh .so .svg .toml .tmpl "
    ".ts .xml .yaml .yml".split()
)
"""Suffixes of files that are something else, though their name begins like a licence's or a readme's."""


def installed(search_path: Collection[str] = ()) -> list[Distribution]:
    """Installed distributions, the first of each name on the path, sorted by name.

    Those installed in place (editable) are left out: their text is their working tree's.
    """
    first: dict[str, Distribution] = {}
    for distribution in distributions(path=[*search_path, *sys.path]):
        first.setdefault(canonical(distribution.name), distribution)
    return [first[name] for name in sorted(first) if not _in_place(first[name])]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _in_place(dist: Distribution) -> bool:
    origin = dist.read_text("direct_url.json")
    return json.loads(origin).get("dir_info", {}).get("editable", False) if origin else False


def pages(dists: list[Distribution], max_bytes: int) -> Iterator[Page]:
    """Of each distribution its long description, then its text files by path. One page is held."""
    for dist in dists:
        root = f"{site('packages', canonical(dist.name))}{quote(dist.version)}/"
        if (described := _description(dist, root)) is not None:
            yield described
        record = (dist.read_text("RECORD") or "").splitlines()
        for path in sorted({row[0] for row in csv.reader(record) if row and not row[0].startswith(("../", "/"))}):
            if (page := _file(Path(str(dist.locate_file(path))), path, root, max_bytes)) is not None:
                yield page


def standard_library_files(max_bytes: int) -> Iterator[Page]:
    """Texts that came with the interpreter itself: notes, HTML, samples in East Asian encodings."""
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    root = f"{site('packages', 'python')}{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}/"
    for folder, inner, names in os.walk(stdlib):
        inner[:] = sorted(set(inner) - {"site-packages", "dist-packages", "__pycache__"})
        for name in sorted(names):
            file = Path(folder, name)
            if (page := _file(file, file.relative_to(stdlib).as_posix(), root, max_bytes)) is not None:
                yield page


def _description(dist: Distribution, root: str) -> Page | None:
    metadata = cast(Message, dist.metadata)  # PackageMetadata, its protocol, leaves out these methods
    text = cast(str, metadata.get_payload()) or metadata.get("Description") or ""
    if not text.strip():
        return None
    title = f"{dist.name} {dist.version}"
    markdown = "markdown" in (metadata.get("Description-Content-Type") or "").lower()
    payload = _rendered(title, text) if markdown else preformatted(title, text)
    return Page(f"{root}description.html", "packages", "text/html; charset=utf-8", payload, edited=True)


def _rendered(title: str, text: str) -> bytes:
    return html_page(title, MarkdownIt("commonmark").enable("table").render(text))


def _file(file: Path, path: str, root: str, max_bytes: int) -> Page | None:
    """The page of an installed file, None if it is no text for readers, is empty, missing or too long."""
    *folders, name = path.split("/")
    suffix = os.path.splitext(name)[1].lower()
    notice = bool(NOTICES.search(name))
    if suffix in MARKUP:
        kind = MARKUP[suffix]
    elif suffix == ".rst" or ((notice or GUIDES.match(name)) and suffix not in NO_TEXT):
        kind = "text/plain"
    elif suffix in (".txt", ".po") and not TRANSLATIONS.isdisjoint(folders):
        kind, max_bytes = "text/plain", min(max_bytes, MAX_TRANSLATION)
    else:
        return None
    if not file.is_file() or not 0 < file.stat().st_size <= max_bytes:
        return None
    payload = file.read_bytes()
    if b"\0" in payload:
        return None
    charset = _charset(file.stem, payload)
    if suffix == ".md":
        payload, charset = _rendered(name, payload.decode(charset, "replace")), "utf-8"
    edited = suffix in (*MARKUP, ".rst") and not notice and {"test", "tests"}.isdisjoint(folders)
    return Page(f"{root}files/{quote(path)}", "packages", f"{kind}; charset={charset}", payload, edited)


def _charset(stem: str, payload: bytes) -> str:
    """UTF-8 if the bytes are, else the encoding the file is named after, else Latin-1, as all bytes are."""
    for name in ("utf-8", stem):
        try:
            payload.decode(name)
        except (LookupError, UnicodeError):
            continue
        return name.replace("_", "-")
    return "iso-8859-1"
