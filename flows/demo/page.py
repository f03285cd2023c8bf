"""A page as a server would give it, and the two ways in which the harvest makes one from text."""

import html
from dataclasses import dataclass

# RFC 6761: no name under .invalid is ever delegated, so these addresses can be nobody's.
MODULES = "https://modules.harvest.invalid/"
PACKAGES = "https://packages.harvest.invalid/"
MANUAL = "https://manual.harvest.invalid/"
SERVICES = "https://services.harvest.invalid/"


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
