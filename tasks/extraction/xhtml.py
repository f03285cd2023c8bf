"""XHTML as the HTML that means the same, for engines that know HTML alone.

A browser reads `application/xhtml+xml` by the rules of XML: `<script/>` and `<title/>` end where they stand, a CDATA
section is text, a name with a prefix is that of its namespace.
"""

import html
from xml.parsers import expat

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
