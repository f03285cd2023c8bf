"""The charts of all pages: SVG of numbers and escaped names, without styles, as the policy of the local pages asks.

Classes are those of `style.css`; the attribute `color` has the light page's colors, where there is no stylesheet, as in
a notebook or in a file of its own. `bar`, `stack`, `strip` and `interval` fit into a cell of a table.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from markupsafe import Markup

from gristmill.flows.reports.tables import span
from gristmill.storage.printable import one_line, printable

_LOGARITHMIC = 50  # from so much between the ends of an axis on
_BINS = 40
_FARTHEST = 1e30  # of an axis: beyond, its arithmetic overflows
_TAIL = 0.005  # of the documents, that the axis may leave out at either end: they are in the outermost bins
_WIDTH, _HEIGHT = 480, 100
_LEFT, _RIGHT, _BOTTOM, _LINE = 58, 14, 38, 17  # around a plot; a line of its legend
_LETTER = 8  # the width of a letter in a legend, for larger ones on a small screen
_TICKS = 5

# Of single series, by meaning; then of several series beside each other.
_COLORS = {"part": "#1f5fa8", "light": "#9bb8d6", "cut": "#b3261e", "soft": "#5c5c5c", "line": "#dfe6ee"}
_COLORS |= {"kept": "#1f5fa8", "arrived": "#9bb8d6", "tick": "#5c5c5c", "language": "#5c5c5c"}
_COLORS |= {"fails": "#b3261e", "mark": "#b3261e"}
SERIES = ("part", "orange", "green", "purple", "teal", "brown", "soft")
_COLORS |= {"orange": "#b85c00", "green": "#1a7f4b", "purple": "#8250a0", "teal": "#0b7a8c", "brown": "#7a5c2e"}

Bars = tuple[str, np.ndarray, np.ndarray]  # class, and of each bin the documents where a bar begins and ends
Mark = tuple[float, str]  # a value, and a class


@dataclass(frozen=True)
class Axis:
    """`names`: of categories at 0, 1, ..., instead of numbers; `show`: values that it has at least; `form`: of its
    numbers, as Python's `format` reads it."""

    label: str
    log: bool = False
    names: Sequence[str] = ()
    show: Sequence[float] = ()
    form: str = ""


@dataclass(frozen=True)
class Layer:
    """A line, points, or a band from `low` to `high`, over x and y, float64 (n,); infinite ones end at the axis.
    `color`: a class; `label`: in the legend. Points have a whisker from `low` to `high`, where these are given."""

    kind: Literal["line", "dotted", "points", "band"]
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray = ()
    color: str = "part"
    label: str = ""
    low: Sequence[float] | np.ndarray = field(default=())
    high: Sequence[float] | np.ndarray = field(default=())


class Counted(Protocol):
    """Values that documents have, of which so large a share does not exceed one; None without documents."""

    def quantile(self, share: float) -> float | None: ...


def bins(values: Counted, ends: Sequence[float], whole: bool = False) -> tuple[np.ndarray, bool]:
    """The edges of bins over most of the values and all of `ends`, float64 (n + 1,), and whether their axis is
    logarithmic. Bins of whole numbers have whole numbers in their middle, or several of them."""
    tails = [each for each in (values.quantile(_TAIL), values.quantile(1 - _TAIL)) if each is not None]
    there = np.clip([*tails, *ends] or [0.0], -_FARTHEST, _FARTHEST)
    low, high = float(there.min()), float(there.max())
    if low == high:
        low, high = low - max(abs(low), 1) / 20, high + max(abs(high), 1) / 20
    logarithmic = low > 1 / _FARTHEST and high >= _LOGARITHMIC * low
    if logarithmic:
        edges = np.geomspace(low, high, _BINS + 1)
        firsts = np.unique(np.floor(edges))
        return np.append(firsts, firsts[-1] + 1) - 0.5 if whole else edges, True
    if whole:
        step = max(1, -(-int(high - low + 1) // _BINS))
        return np.arange(np.floor(low), high + step + 1, step) - 0.5, False
    return np.linspace(low, high, _BINS + 1), False


def plot(label: str, x: Axis, y: Axis, *layers: Layer, height: int = 190) -> Markup:
    """Layers over two axes, the first below the others, with a legend; `label` describes it."""
    legend, top = _legend([layer for layer in layers if layer.label])
    bottom = top + height
    across = _Scale(x, [each.x for each in layers], _LEFT, _WIDTH - _RIGHT)
    up = _Scale(y, [each for one in layers for each in (one.y, one.low, one.high)], bottom, top)
    drawn = [legend, _text(4, top - 6, y.label)]
    for tick, name in up.ticks:
        drawn += [_shape("rect", "line", x=_LEFT, y=tick, width=_WIDTH - _LEFT - _RIGHT, height=1)]
        drawn += [_text(_LEFT - 5, tick + 4, name, "end")]
    for tick, name in across.ticks:
        drawn += [_shape("rect", "line", x=tick, y=bottom, width=1, height=5), _text(tick, bottom + 17, name, "middle")]
    drawn.append(_text(_WIDTH - _RIGHT, bottom + 33, x.label, "end"))
    for layer in layers:
        drawn += _layer(layer, across, up)
    return _svg(label, _WIDTH, bottom + _BOTTOM, drawn, "plot")


def beside(label: str, *drawn: Markup) -> Markup:
    """Charts beside each other as one, for a file of its own."""
    inner = Markup("").join(
        Markup('<svg x="{}" width="{}" {}').format(_WIDTH * number, _WIDTH, Markup(one.removeprefix("<svg ")))
        for number, one in enumerate(drawn)
    )
    height = max(int(one.split('viewBox="0 0 ')[1].split('"')[0].split()[1]) for one in drawn)
    return _svg(label, _WIDTH * len(drawn), height, [inner], "plot")


def bars(label: str, rows: Sequence[tuple[str, float, str]]) -> Markup:
    """A bar for each name, value and what is written at its end, below each other."""
    most, left, room = max([1e-300, *(value for _, value, _ in rows)]), 150, 240
    drawn: list[Markup] = []
    for number, (name, value, written) in enumerate(rows):
        top, width = 20 * number + 4, room * value / most
        drawn += [_text(left - 6, top + 11, one_line(name)[:24], "end"), _text(left + width + 5, top + 11, written)]
        drawn += [_shape("rect", "part", x=left, y=top, width=width, height=14)]
    return _svg(label, _WIDTH, 20 * len(rows) + 8, drawn, "plot")


def matrix(label: str, names: Sequence[str], shares: np.ndarray) -> Markup:
    """Shares, float64 (rows, columns), as squares, the darker the larger; names of rows and columns are the same."""
    size = min(40, (_WIDTH - 160) / max(1, len(names)))
    drawn: list[Markup] = []
    for row, name in enumerate(names):
        drawn += [_text(144, size * (row + 0.5) + 4, one_line(name)[:20], "end")]
        drawn += [_text(150 + size * (row + 0.5), size * len(names) + 16, one_line(name)[: int(size / 7)], "middle")]
        for column, share in enumerate(shares[row].tolist()):
            x, y, shade = 150 + size * column, size * row, max(0.04, share)
            drawn.append(_shape("rect", "part", x=x, y=y, width=size - 1, height=size - 1, fill_opacity=shade))
    return _svg(label, _WIDTH, int(size * len(names)) + 24, drawn, "plot")


def histogram(
    edges: np.ndarray, series: Sequence[Bars], marks: Sequence[Mark], label: str, logarithmic: bool
) -> Markup:
    """Documents by the bins between `edges` (n + 1,), each series over those before it, with lines at the marks; below
    it the axis, named by `label`."""
    most = max([1, *(int(tops.max(initial=0)) for _, _, tops in series)])
    at = _WIDTH * _shares(edges, edges, logarithmic)
    scale = 0.96 * _HEIGHT / most
    drawn = [
        _shape("rect", name, x=left, y=_HEIGHT - scale * top, height=scale * (top - bottom),
               width=max(right - left - min(1, (right - left) / 4), 0.5))
        for name, bottoms, tops in series
        for left, right, bottom, top in zip(at, at[1:], bottoms.tolist(), tops.tolist(), strict=False)
        if top > bottom
    ]  # fmt: skip
    inside = [(value, name) for value, name in marks if edges[0] <= value <= edges[-1]]
    places = _shares(np.array([value for value, _ in inside], float), edges, logarithmic)
    drawn += [
        _shape("rect", name, x=_WIDTH * place - 1, y=0, width=2, height=_HEIGHT)
        for place, (_, name) in zip(places, inside, strict=True)
    ]
    return Markup(
        '<figure class="histogram">{drawn}<div class="axis"><span>{low}</span><span>{label}{scale}; at most '
        "{most} in a bar</span><span>{high}</span></div></figure>"
    ).format(
        label=label,
        drawn=_svg(f"documents by {label}", _WIDTH, _HEIGHT, drawn, stretched=True),
        low=_number(edges[0]),
        scale=", logarithmic" if logarithmic else "",
        most=f"{most:,}",
        high=_number(edges[-1]),
    )


def strip(share: float, label: str) -> Markup:
    """The rank of a value among all: a line with quarters, and a mark at the share of documents below it."""
    drawn = [_shape("rect", "line", x=0, y=5, width=100, height=2)]
    drawn += [_shape("rect", "tick", x=at, y=3, width=0.6, height=6) for at in (25, 50, 75)]
    drawn += [_shape("rect", "mark", x=min(max(100 * share - 0.75, 0), 98.5), y=0, width=1.5, height=12)]
    return _svg(label, 100, 12, drawn, "strip", stretched=True)


def interval(low: float, value: float, high: float, ends: tuple[float, float], form: str = "+.4f") -> Markup:
    """A value and its interval between the ends of a common axis, with a line at 0: right of it in one color, left of
    it in another, gray where the interval has it."""
    name = "part" if low > 0 else "cut" if high < 0 else "soft"
    place = [240 * (min(max(each, ends[0]), ends[1]) - ends[0]) / (ends[1] - ends[0]) for each in (low, value, high, 0)]
    drawn = [_shape("rect", "tick", x=place[3] - 0.5, y=0, width=1, height=16)]
    drawn += [_shape("rect", name, x=place[0], y=7, width=max(place[2] - place[0], 1), height=2)]
    drawn += [_shape("rect", name, x=place[1] - 3, y=4, width=6, height=8)]
    label = f"{format(value, form)}, {span(low, high, form)}"
    return _svg(label, 240, 16, drawn, "interval", stretched=True)


def stack(parts: Sequence[tuple[str, float]], whole: float, label: str) -> Markup:
    """Parts of a whole one after the other, each a class and an amount."""
    drawn, at = [_shape("rect", "line", width=100, height=8)], 0.0
    for name, part in parts:
        width = 100 * part / whole if whole else 0.0
        drawn += [_shape("rect", name, x=at, width=width, height=8)]
        at += width
    return _svg(label, 100, 8, drawn, "bar", stretched=True, size=(144, 13))


def bar(part: float, whole: float, fails: bool = False) -> Markup:
    """A share of all; `fails`: of what a rule does not keep."""
    return stack([("fails" if fails else "part", part)], whole, f"{part / whole:.2%}" if whole else "-")


def scatter(points: Sequence[tuple[float, float, str, str]], label: str) -> Markup:
    """Points with (x, y, address, name), x and y from 0 to 1 and y upwards: each leads to its address."""
    circle = Markup('<a tabindex="-1" href="{}">{}</a>')
    drawn = [
        circle.format(address, _shape("circle", "part", one_line(name[:160]), cx=5 + 470 * x, cy=365 - 360 * y, r=3))
        for x, y, address, name in points
    ]
    return _svg(label, _WIDTH, 370, drawn, "map")


class _Scale:
    """Where the values of an axis are, between two ends in pixels."""

    def __init__(self, of: Axis, values: Sequence[Sequence[float] | np.ndarray], first: float, last: float) -> None:
        self._axis, self._first, self._last = of, first, last
        given = np.concatenate([[], of.show, *(np.asarray(each, np.float64) for each in values)])
        given = given[np.isfinite(given) & ((given > 0) | (not of.log))]
        low, high = (float(given.min()), float(given.max())) if given.size else (1.0, 1.0)
        if of.names:
            low, high = -0.5, len(of.names) - 0.5
        elif of.log:
            margin = max((high / low) ** 0.05, 1.05)
            low, high = low / margin, high * margin
        else:
            margin = 0.05 * (high - low) or max(abs(high), 1) / 20
            is_point = low == high  # an end that is shown anyway needs no margin, unless it is both ends
            low = low if low in of.show and not is_point else low - margin
            high = high if high in of.show and not is_point else high + margin
        self._low, self._high = low, high

    def place(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        """Pixels, those beyond the axis at its ends."""
        low, high, given = self._low, self._high, np.asarray(values, np.float64)
        given = np.clip(given, low, high)
        share = np.log(given / low) / np.log(high / low) if self._axis.log else (given - low) / (high - low)
        return self._first + (self._last - self._first) * share

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Where round numbers, or names, are."""
        if self._axis.names:
            values, names = (
                [float(at) for at in range(len(self._axis.names))],
                [one_line(name) for name in self._axis.names],
            )
        else:
            values = [float(each) for each in self._round() if self._low <= each <= self._high]
            names = [format(each, self._axis.form) if self._axis.form else _tick(each) for each in values]
        return list(zip(self.place(values).tolist(), names, strict=True))

    def _round(self) -> np.ndarray:
        if self._axis.log:
            decades = np.arange(np.floor(np.log10(self._low)), np.ceil(np.log10(self._high)) + 1)
            if len(decades) > 3:
                return 10.0 ** decades[:: -(-len(decades) // (_TICKS + 2))]
            return np.sort(np.concatenate([step * 10.0**decades for step in (1, 2, 5)]))
        rough = (self._high - self._low) / _TICKS
        unit = 10.0 ** np.floor(np.log10(rough))
        step = unit * next(each for each in (1, 2, 5, 10) if each * unit >= rough * 0.999)
        found = step * np.arange(np.ceil(self._low / step), np.floor(self._high / step) + 1)
        return np.round(found, 12) + 0.0


def _layer(layer: Layer, across: _Scale, up: _Scale) -> list[Markup]:
    name, x = layer.color, across.place(layer.x)
    if layer.kind == "band":
        ends = zip(across.place([-np.inf, np.inf]).tolist(), up.place([layer.low[0], layer.high[0]]), strict=True)
        (left, bottom), (right, top) = ends
        return [_shape("rect", name, x=left, y=top, width=right - left, height=bottom - top, fill_opacity=0.25)]
    y = up.place(layer.y)
    if layer.kind in ("line", "dotted"):
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True) if np.isfinite(a + b))
        dots = {"stroke_dasharray": "4 3"} if layer.kind == "dotted" else {}
        return [_shape("polyline", name, points=points, fill="none", stroke="currentColor", stroke_width=1.5, **dots)]
    drawn = []
    if len(layer.low):
        for a, low, high in zip(x, up.place(layer.low), up.place(layer.high), strict=True):
            drawn.append(_shape("rect", name, x=a - 0.75, y=high, width=1.5, height=max(low - high, 1)))
    return drawn + [_shape("circle", name, cx=a, cy=b, r=3.5) for a, b in zip(x, y, strict=True)]


def _legend(layers: Sequence[Layer]) -> tuple[Markup, int]:
    """The labels in lines above a plot, and where the plot begins."""
    drawn, at, line = [], 4, 0
    for layer in layers:
        label = one_line(layer.label)[:60]
        wide = _LETTER * len(label) + 26
        if at > 4 and at + wide > _WIDTH:
            at, line = 4, line + 1
        top = 6 + _LINE * line
        thin = layer.kind in ("line", "dotted")
        drawn.append(_shape("rect", layer.color, x=at, y=top + 4 * thin, width=10, height=2 if thin else 10))
        drawn.append(_text(at + 15, top + 9, label))
        at += wide
    return Markup("").join(drawn), (_LINE * (line + 1) if layers else 0) + 24


def _svg(
    label: str, width: int, height: int, drawn: Sequence[Markup], name: str = "", stretched: bool = False,
    size: tuple[int, int] | None = None,
) -> Markup:  # fmt: skip
    given = {"class": name, "viewBox": f"0 0 {width} {height}", "xmlns": "http://www.w3.org/2000/svg"}
    given |= {"fill": "currentColor", "font-family": "system-ui, sans-serif", "font-size": "11"}
    if stretched:
        given |= {"preserveAspectRatio": "none"}
    if size:
        given |= {"width": f"{size[0]}", "height": f"{size[1]}"}
    return Markup('<svg {} role="img" aria-label="{}">{}</svg>').format(
        _attributes(given), printable(label), Markup("").join(drawn)
    )


def _shape(tag: str, name: str, title: str = "", **given: float | str) -> Markup:
    """`name`: a class with a color; `title`: shown beside the mouse."""
    own = {"class": name, "color": _COLORS[name]} | {
        key.replace("_", "-"): each if isinstance(each, str) else f"{each:.2f}".rstrip("0").rstrip(".")
        for key, each in given.items()
    }
    inner = Markup("<title>{}</title>").format(printable(title)) if title else ""
    return Markup("<{0} {1}>{2}</{0}>" if title else "<{0} {1}/>").format(Markup(tag), _attributes(own), inner)


def _attributes(given: dict[str, str]) -> Markup:
    return Markup(" ").join(Markup('{}="{}"').format(name, value) for name, value in given.items() if value)


def _text(x: float, y: float, text: str, anchor: str = "start") -> Markup:
    # a control character is no XML, whatever it is escaped as
    shown = printable(text)
    return Markup('<text color="#1b1b1b" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, shown)


def _number(value: float) -> str:
    """An end of an axis: to four digits, whole from a thousand to a thousand millions."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"


def _tick(value: float) -> str:
    """The same as short as it goes: 5M, 2B, 1e13."""
    for unit, most, letter in ((1e6, 1e9, "M"), (1e9, 1e11, "B")):
        if unit <= abs(value) < most:
            return f"{value / unit:.4g}{letter}"
    return _number(value).replace("e+", "e")


def _shares(values: np.ndarray, edges: np.ndarray, logarithmic: bool) -> np.ndarray:
    """Where values are between the first and the last edge, in [0, 1]."""
    if logarithmic:
        values, edges = np.log(values), np.log(edges)
    return (values - edges[0]) / (edges[-1] - edges[0])
