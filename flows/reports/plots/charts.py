"""Bars, strips, histograms and intervals as every page shows them: small SVG elements of numbers alone.

They have no styles in them, as the policy of the local pages asks; their classes are those of `style.css`. Attributes
give the colours of the light page where there is no stylesheet, as in a notebook.
"""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from gristmill.storage.printable import one_line

_LOGARITHMIC = 50  # from so much between the ends of an axis on
_WIDTH, _HEIGHT = 480, 100

Series = tuple[str, np.ndarray, np.ndarray]  # class, and of each bin the documents where a bar begins and ends
Mark = tuple[float, str]  # a value, and a class


def axis(ends: Sequence[float]) -> tuple[float, float, bool]:
    """The ends of an axis that has all finite ones of these values, and whether it is logarithmic."""
    there = [end for end in ends if np.isfinite(end)] or [0.0]
    low, high = min(there), max(there)
    if low == high:
        low, high = low - max(abs(low), 1) / 20, high + max(abs(high), 1) / 20
    return low, high, low > 0 and high >= _LOGARITHMIC * low


def histogram(
    edges: np.ndarray, series: Sequence[Series], marks: Sequence[Mark], label: str, logarithmic: bool
) -> Markup:
    """Documents by the bins between `edges` (n + 1,), each series over those before it, with lines at the marks; below
    it the axis, named by `label`."""
    most = max([1, *(int(tops.max(initial=0)) for _, _, tops in series)])
    at = _WIDTH * _shares(edges, edges, logarithmic)
    bars = "".join(
        f'<rect class="{name}" x="{left:.1f}" y="{_HEIGHT - scale * top:.1f}" '
        f'width="{max(right - left - min(1, (right - left) / 4), 0.5):.1f}" height="{scale * (top - bottom):.1f}"/>'
        for scale in (0.96 * _HEIGHT / most,)
        for name, bottoms, tops in series
        for left, right, bottom, top in zip(at, at[1:], bottoms.tolist(), tops.tolist(), strict=False)
        if top > bottom
    )
    inside = [(value, name) for value, name in marks if edges[0] <= value <= edges[-1]]
    places = _shares(np.array([value for value, _ in inside], float), edges, logarithmic)
    lines = "".join(
        f'<rect class="{name}" x="{_WIDTH * place - 1:.1f}" y="0" width="2" height="{_HEIGHT}"/>'
        for place, (_, name) in zip(places, inside, strict=True)
    )
    scale_name = ", logarithmic" if logarithmic else ""
    return Markup(
        '<figure class="histogram"><svg viewBox="0 0 480 100" preserveAspectRatio="none" role="img" '
        'aria-label="documents by {label}">{drawn}</svg><div class="axis"><span>{low}</span>'
        "<span>{label}{scale}; at most {most} in a bar</span><span>{high}</span></div></figure>"
    ).format(
        label=label,
        drawn=Markup(bars + lines),
        low=_end(edges[0]),
        scale=scale_name,
        most=f"{most:,}",
        high=_end(edges[-1]),
    )


def strip(share: float, label: str) -> Markup:
    """Where a value stands among all: a line with quarters, and a mark at the share of documents below it."""
    ticks = "".join(f'<rect class="tick" x="{at}" y="3" width="0.6" height="6"/>' for at in (25, 50, 75))
    mark = f'<rect class="mark" x="{min(max(100 * share - 0.75, 0), 98.5):.1f}" y="0" width="1.5" height="12"/>'
    return Markup(
        '<svg class="strip" viewBox="0 0 100 12" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="line" x="0" y="5" width="100" height="2"/>{}</svg>'
    ).format(label, Markup(ticks + mark))


def bar(part: float, whole: float, fails: bool = False) -> Markup:
    """A share of all; `fails`: of what a rule does not keep."""
    share = part / whole if whole else 0.0
    name, colour = ("fails", "#b3261e") if fails else ("part", "#1f5fa8")
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" width="144" height="13" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><rect class="line" width="100" height="8" fill="#dfe6ee"/>'
        '<rect class="{}" width="{}" height="8" fill="{}"/></svg>'
    ).format(f"{share:.2%}" if whole else "-", name, f"{100 * share:.2f}", colour)


def scatter(points: Sequence[tuple[float, float, str, str]], label: str) -> Markup:
    """Points with (x, y, address, name), x and y from 0 to 1 and y upwards: each leads to its address."""
    circle = Markup(
        '<a tabindex="-1" href="{}"><circle class="part" cx="{:.1f}" cy="{:.1f}" r="3"><title>{}</title></circle></a>'
    )
    drawn = Markup("").join(
        circle.format(address, 480 * x, 360 - 360 * y, one_line(name[:160])) for x, y, address, name in points
    )
    return Markup(
        '<figure><svg class="map" viewBox="-5 -5 490 370" role="img" aria-label="{}">{}</svg></figure>'
    ).format(label, drawn)


def interval(low: float, high: float, form: str = ".2%") -> str:
    """The two ends of an interval in words; `form`: of a number, as Python's `format` reads it."""
    return f"{format(low, form)} to {format(high, form)}"


def _end(value: float) -> str:
    """An end of an axis: to four digits, whole from a thousand to a thousand millions."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"


def _shares(values: np.ndarray, edges: np.ndarray, logarithmic: bool) -> np.ndarray:
    """Where values stand between the first and the last edge, in [0, 1]."""
    if logarithmic:
        values, edges = np.log(values), np.log(edges)
    return (values - edges[0]) / (edges[-1] - edges[0])
