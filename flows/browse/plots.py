"""Distributions as small SVG elements, of numbers alone and without styles in them, as the pages' policy asks."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from gristmill.flows.diff.columns import Numbers

_BINS = 48
_LOGARITHMIC = 50  # from so much between the ends of an axis on
_TAIL = 0.005  # of the documents, that the axis leaves out at either end


def axis(numbers: Numbers, marks: Sequence[float] = ()) -> tuple[float, float, bool]:
    """The ends of an axis over most of the values and all marks, and whether it is logarithmic."""
    ends = [number for number in (numbers.quantile(_TAIL), numbers.quantile(1 - _TAIL)) if number is not None]
    there = [number for number in (*ends, *marks) if np.isfinite(number)] or [0.0]
    low, high = min(there), max(there)
    if low == high:
        low, high = low - max(abs(low), 1) / 20, high + max(abs(high), 1) / 20
    return low, high, low > 0 and high >= _LOGARITHMIC * low


def histogram(numbers: Numbers, marks: Sequence[float], label: str) -> Markup:
    """How many documents have each value, with lines at the marks."""
    low, high, logarithmic = axis(numbers, marks)
    edges = np.geomspace(low, high, _BINS + 1) if logarithmic else np.linspace(low, high, _BINS + 1)
    counts = numbers.histogram(edges)
    most = max(int(counts.max()), 1)
    bars = "".join(
        f'<rect class="bin" x="{10 * at + 1}" y="{100 - 96 * count / most:.1f}" width="8" '
        f'height="{96 * count / most:.1f}"/>'
        for at, count in enumerate(counts.tolist())
    )
    lines = "".join(_line(_share(mark, low, high, logarithmic)) for mark in marks if np.isfinite(mark))
    scale = ", logarithmic" if logarithmic else ""
    return Markup(
        '<figure class="histogram"><svg viewBox="0 0 480 104" preserveAspectRatio="none" role="img" aria-label="{}">{}'
        "</svg><figcaption><span>{}</span><span>{}</span><span>{}</span></figcaption></figure>"
    ).format(label, Markup(bars + lines), f"{low:.4g}", scale.strip(", "), f"{high:.4g}")


def strip(share: float, label: str) -> Markup:
    """Where a value stands among all: a line with quarters, and a mark at the share of documents below it."""
    ticks = "".join(f'<rect class="tick" x="{at}" y="3" width="0.6" height="6"/>' for at in (25, 50, 75))
    mark = f'<rect class="mark" x="{min(max(100 * share - 0.75, 0), 98.5):.1f}" y="0" width="1.5" height="12"/>'
    return Markup(
        '<svg class="strip" viewBox="0 0 100 12" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="line" x="0" y="5" width="100" height="2"/>{}</svg>'
    ).format(label, Markup(ticks + mark))


def bar(share: float, label: str) -> Markup:
    """A share of all."""
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="line" width="100" height="8"/><rect class="part" width="{}" height="8"/></svg>'
    ).format(label, f"{100 * share:.2f}")


def _share(value: float, low: float, high: float, logarithmic: bool) -> float:
    if logarithmic:
        value, low, high = np.log([value, low, high]).tolist()
    return (value - low) / (high - low)


def _line(share: float) -> str:
    return f'<rect class="cut" x="{480 * share - 1:.1f}" y="0" width="2" height="104"/>'
