"""The kit of all pages: layout, tables, funnels, documents and charts, every text escaped.

`page.html` is the layout and `kit.html` has the parts, which every template has as `kit`; `charts` are the charts, and
`style.css` is the stylesheet, light and dark. A page is a function from what it shows to HTML, by `render`. It loads
nothing, and its policy lets nothing run but a script whose digest it names.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as resources
from typing import Any

import jinja2
from markupsafe import Markup

from gristmill.flows.reports.dropped import Dropped
from gristmill.flows.reports.marking import Piece, excerpt
from gristmill.flows.reports.pages import charts
from gristmill.flows.reports.tables import Table, cell, column, short
from gristmill.storage import files
from gristmill.storage.printable import redact_user

# Control characters have pictures of their own; HTML has no way to write most of them.
_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}
# Lone surrogates have no UTF-8; non-characters are errors in HTML.
_PICTURES |= dict.fromkeys((*range(0xD800, 0xE000), 0xFFFE, 0xFFFF), 0xFFFD)
# What sets or isolates a direction would show words in another order than they are in; C1 controls, and tag characters
# that spell text, would not be seen: they are written out.
_INVISIBLE = (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xE0000, 0xE0080))
_WRITTEN = _PICTURES | {code: f"⟨U+{code:04X}⟩" for code in _INVISIBLE}


@dataclass(frozen=True)
class Vote:
    """The buttons of a reader's vote: the address that is told, and the vote so far."""

    to: str
    now: str


@dataclass(frozen=True)
class Shown:
    """A document on a page. `pieces`: of its text, None where there is none; `notes`: on what is marked; `href`: of its
    own page."""

    name: str
    facts: Mapping[str, Any]
    pieces: Sequence[Piece] | None
    notes: Sequence[str] = ()
    href: str = ""
    vote: Vote | None = None


def shown_drop(one: Dropped, characters: int, href: str = "", vote: Vote | None = None) -> Shown:
    """A document that a rule dropped, with about so many characters of its text around what offended the rule."""
    facts = {name: value for name, value in one.row.items() if name not in ("url", "step", "rule")}
    notes = [note for note in (one.unmarked and f"Nothing is marked: {one.unmarked}", one.remark) if note]
    pieces = None if one.text is None else excerpt(one.text, one.marks, characters)
    return Shown(one.row.get("url") or one.row["id"], facts, pieces, notes, href, vote)


@cache
def resource(name: str, package: str = __name__) -> str:
    """A file beside the templates."""
    return resources(package).joinpath(name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """SHA-256 of a style or a script, as a policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def render(template: str, package: str = __name__, **shown: Any) -> str:
    """A page, by a template of a package or of this one. What is shown is escaped, control characters are shown as
    their pictures."""
    return _environment(package).get_template(template).render(shown)


def notebook(sentences: Sequence[str], tables: Sequence[Table] = ()) -> str:
    """Sentences and tables as HTML for a cell of a notebook, every text escaped."""
    return render("result.html", sentences=sentences, tables=tables)


def write(folder: str, name: str, page: str) -> str:
    """Write a page into the `reports` of a home, and return its path."""
    path = files.join(folder, "reports", name)
    files.write_bytes(path, page.encode())
    return path


@cache
def _environment(package: str) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(each, ".") for each in dict.fromkeys((package, __name__))]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_written,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": lambda number: f"{number:,}",
        "share": share,
        "short": short,
        "cell": cell,
        "column": column,
        "address": address,
    }
    style = resource("style.css")
    environment.globals |= {"style": Markup(style), "style_digest": digest(style), "digest": digest, "charts": charts}
    environment.globals["kit"] = environment.get_template("kit.html").module
    return environment


def _written(value: Any) -> Any:
    """A value as it is to be escaped, or the markup that needs no escaping."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) else str(value).translate(_WRITTEN)


def address(value: Any) -> str:
    """A URL of a document, or another value, without user and password."""
    return redact_user(str(value))


def anchor(href: str, text: str) -> Markup:
    """A link, for a cell of a table."""
    return Markup('<a href="{}">{}</a>').format(href, _written(text))


def share(part: int, whole: int) -> str:
    """A part of a whole in percent."""
    return f"{part / whole:.2%}" if whole else "-"
