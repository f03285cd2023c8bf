"""Templates of HTML reports. They escape every text."""

from functools import cache
from importlib.resources import files as resources
from typing import Any

import jinja2
from markupsafe import Markup

from gristmill.flows.reports.plots import charts

# Control characters have pictures of their own; HTML has no way to write most of them.
_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}
# Lone surrogates have no UTF-8; non-characters are errors in HTML.
_PICTURES |= dict.fromkeys((*range(0xD800, 0xE000), 0xFFFE, 0xFFFF), 0xFFFD)
# What sets or isolates a direction would show words in another order than they are in; C1 controls, and tag characters
# that spell text, would not be seen: they are written out.
_INVISIBLE = (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xE0000, 0xE0080))
_WRITTEN = _PICTURES | {code: f"⟨U+{code:04X}⟩" for code in _INVISIBLE}


_REPORTS = "gristmill.flows.reports"


@cache
def style() -> str:
    """The stylesheet of all pages, light and dark."""
    return resources(_REPORTS).joinpath("style.css").read_text(encoding="utf-8")


def template(name: str, package: str = _REPORTS) -> jinja2.Template:
    """A template of a package's folder, or else of this one. What it is given is escaped, control characters are shown
    as their pictures."""
    return _environment(package).get_template(name)


@cache
def _environment(package: str) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(each, ".") for each in dict.fromkeys((package, _REPORTS))]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_written,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": lambda number: f"{number:,}",
        "share": lambda part, whole: f"{part / whole:.2%}" if whole else "-",
        "short": _short,
    }
    environment.globals |= {
        "style": Markup(style()),
        "bar": charts.bar,
        "strip": charts.strip,
        "interval": charts.interval,
    }
    return environment


def _written(value: Any) -> Any:
    """A value as it is to be escaped, or the markup that needs no escaping."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) else str(value).translate(_WRITTEN)


def _short(value: str | None, characters: int = 300) -> str:
    """The beginning of a title or an address, which a page may have made as long as it likes."""
    if value is None:
        return ""
    return value if len(value) <= characters else f"{value[:characters]}…"
