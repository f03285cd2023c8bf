"""Plots for reports: as SVG, of which the same numbers give the same bytes, or as PNG for other viewers."""

import io
import re
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
from lxml import etree
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, LIGHT, RED, GREY = "#1f5fa8", "#9bb8d6", "#b3261e", "#5c5c5c"
# Colours of the stylesheet; in a notebook, which has none, those that were drawn with.
_NAMES = {
    BLUE: "part", LIGHT: "light", RED: "cut", GREY: "soft", "#dddddd": "edge", "#000000": "text", "#ffffff": "paper",
}  # fmt: skip
_COLOUR = re.compile("#[0-9a-f]{6}")


def svg(
    name: str,
    label: str,
    draw: Callable[..., None],
    heights: tuple[float, ...] = (3,),
    columns: int = 1,
    width: float = 8,
) -> Markup:
    """Axes of some `heights` in inches under each other, or `columns` of one height beside each other, drawn on by
    `draw`, as an element that is described by `label`. `name` sets the ids of one plot apart from those of the others
    on a page; `width`: of them all, in inches."""
    drawn = _drawn(name, draw, heights, "svg", columns, width, metadata={"Date": None, "Creator": None})
    root = etree.fromstring(drawn)
    for group in root.iter("{*}g"):
        group.attrib.pop("id", None)  # nothing refers to groups, and the other plot names its own alike
    for element in root.iter("{*}*"):
        if style := element.get("style"):
            element.set("style", _COLOUR.sub(_named, style))
    root.set("role", "img")
    root.set("aria-label", label)
    return Markup(etree.tostring(root, encoding="unicode"))


def _named(colour: re.Match) -> str:
    name = _NAMES.get(colour[0])
    return f"var(--{name}, {colour[0]})" if name else colour[0]


def png(draw: Callable[..., None], heights: tuple[float, ...] = (3,), columns: int = 1) -> bytes:
    """The same as a PNG of 1,200 pixels width."""
    return _drawn("png", draw, heights, "png", columns, dpi=150, metadata={"Software": None})


def _drawn(
    name: str,
    draw: Callable[..., None],
    heights: tuple[float, ...],
    kind: str,
    columns: int,
    width: float = 8,
    **options: Any,
) -> bytes:
    with matplotlib.rc_context():
        # a user's own settings would change the bytes
        matplotlib.rcdefaults()
        # names of clip paths and markers are hashes of what they are and of the salt, so two plots share none
        matplotlib.rcParams.update({"svg.hashsalt": name, "svg.fonttype": "none", "font.family": "sans-serif"})
        figure = Figure(figsize=(width, 1.5 + sum(heights)))
        figure.subplots_adjust(left=0.1, right=0.98, top=0.97, bottom=0.6 / (1.5 + sum(heights)), hspace=0.08)
        beside = columns > 1
        grid = figure.subplots(len(heights), columns, height_ratios=heights, sharex=not beside, sharey=beside)
        axes: list[Axes] = np.ravel(grid).tolist()
        draw(*axes)
        out = io.BytesIO()
        figure.savefig(out, format=kind, **options)
    return out.getvalue()
