"""One page of a crawl to its main text and its metadata, as plain data.

XHTML becomes the HTML that means the same, for engines that know HTML alone. A browser reads `application/xhtml+xml` by
the rules of XML: `<script/>` and `<title/>` end where they stand, a CDATA section is text, a name with a prefix is that
of its namespace.
"""

import html
import re
from collections.abc import Sequence
from xml.parsers import expat

from resiliparse.parse.encoding import detect_mime

from gristmill.tasks.extraction.engines import Refused, blocks
from gristmill.tasks.extraction.engines import engine as engine_of
from gristmill.tasks.extraction.metadata import Metadata, metadata
from gristmill.tasks.extraction.payload_types import PDF, is_binary, is_html, is_pdf, payload_type
from gristmill.tasks.reading import charset as encodings

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

    def start(self, name: str, given: dict[str, str]) -> None:
        tag = _name(name)
        attributes = [f' {key}="{html.escape(value)}"' for key, value in given.items() if " " not in key]
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
) -> dict:
    """Text, charset, content_type, title, canonical_url, published and engine of a page; or rule and detail of a drop.

    content_type: the essence in lower case, sniffed if it is empty. charset: of the HTTP header. engine: as
    `gristmill.tasks.extraction.engines.engine` finds it; "text" is answered for `text/plain`, which is passed as it is,
    "pdf" for a PDF document, with the columns of `gristmill.tasks.pdf.signals`. types: those that are read. format:
    "plain" or "markdown", which of HTML is the engine blocks' alone. Rules: `content_type` for what is of none of the
    types, whatever it is declared as, `too_deep` for a page that the engine's parser must not see, `empty_text`, and
    those of `gristmill.tasks.pdf.document.read`. XHTML that is well-formed is read by the rules of XML, other XHTML as
    HTML. Holds the page some four times, XHTML six.
    """
    kind = payload_type(payload, content_type, charset, given) or content_type or _sniff(payload)
    if not any(kind in _TYPES[name] for name in types):
        return _drop("content_type", kind)
    if kind in PDFS:
        # imported here, since its library is loaded where it is needed alone
        from gristmill.tasks.pdf.document import read

        return read(payload, format == "markdown")
    charset = encodings.detect(payload, charset, kind in HTML)
    page = encodings.decode(payload, charset)
    if kind == XHTML:
        page = to_html(page) or page
    found = Metadata(title=None, canonical_url=None, published=None)
    if kind in PLAIN:
        text, engine = page, "text"
    else:
        try:
            text = blocks(page, markdown=True) if format == "markdown" else engine_of(engine)(page)
        except Refused as error:
            return _drop("too_deep", str(error))
        found = metadata(page, url)
    text = text.encode("utf-8", "replace").decode().rstrip()
    text = _BLANK_LINES.sub("", text) if engine in ("blocks", "text") else text.lstrip()
    if not text:
        return _drop("empty_text", url)
    return {"text": text, "charset": charset, "content_type": kind, **found, "engine": engine}


def _drop(rule: str, detail: str) -> dict:
    return {"rule": rule, "detail": detail[:200]}


def _sniff(payload: bytes) -> str:
    if is_html(payload):
        return "text/html"
    found = detect_mime(payload)
    return "text/plain" if found == "application/octet-stream" and not is_binary(payload) else found
