"""What HTML reports have in common: templates that escape every text, and plots as SVG, or as PNG for other viewers.

The same numbers give the same bytes of SVG.
"""

import io
from collections.abc import Callable
from functools import cache
from typing import Any

import jinja2
import matplotlib
import numpy as np
from lxml import etree
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, LIGHT, RED, GREY = "#1f5fa8", "#9bb8d6", "#b3261e", "#777777"
# Control characters have pictures of their own; HTML has no way to write most of them.
_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}
# Lone surrogates have no UTF-8; non-characters are errors in HTML.
_PICTURES |= dict.fromkeys((*range(0xD800, 0xE000), 0xFFFE, 0xFFFF), 0xFFFD)


def template(name: str) -> jinja2.Template:
    """A template of this folder. What it is given is escaped, control characters are shown as their pictures."""
    return _environment().get_template(name)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("flows.reports", "."),
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
    return environment


def _written(value: Any) -> Any:
    """A value as it is to be escaped, or the markup that needs no escaping."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) else str(value).translate(_PICTURES)


def _short(value: str | None, characters: int = 300) -> str:
    """The beginning of a title or an address, which a page may have made as long as it likes."""
    if value is None:
        return ""
    return value if len(value) <= characters else f"{value[:characters]}…"


def svg(name: str, label: str, draw: Callable[..., None], heights: tuple[float, ...] = (3,)) -> Markup:
    """Axes of some `heights` in inches under each other, drawn on by `draw`, as an element that is described by
    `label`. `name` sets the ids of one plot apart from those of the others on a page."""
    root = etree.fromstring(_drawn(name, draw, heights, "svg", metadata={"Date": None, "Creator": None}))
    for group in root.iter("{*}g"):
        group.attrib.pop("id", None)  # nothing refers to groups, and the other plot names its own alike
    root.set("role", "img")
    root.set("aria-label", label)
    return Markup(etree.tostring(root, encoding="unicode"))


def png(draw: Callable[..., None], heights: tuple[float, ...] = (3,)) -> bytes:
    """The same as a PNG of 1,200 pixels width."""
    return _drawn("png", draw, heights, "png", dpi=150, metadata={"Software": None})


def _drawn(name: str, draw: Callable[..., None], heights: tuple[float, ...], kind: str, **options: Any) -> bytes:
    with matplotlib.rc_context():
        # a user's own settings would change the bytes
        matplotlib.rcdefaults()
        # names of clip paths and markers are hashes of what they are and of the salt, so two plots share none
        matplotlib.rcParams.update({"svg.hashsalt": name, "svg.fonttype": "none", "font.family": "sans-serif"})
        figure = Figure(figsize=(8, 1.5 + sum(heights)))
        figure.subplots_adjust(left=0.1, right=0.98, top=0.97, bottom=0.6 / (1.5 + sum(heights)), hspace=0.08)
        axes: list[Axes] = np.ravel(figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)).tolist()
        draw(*axes)
        out = io.BytesIO()
        figure.savefig(out, format=kind, **options)
    return out.getvalue()
