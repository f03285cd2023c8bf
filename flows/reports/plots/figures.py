"""Plots for reports: as SVG, of which the same numbers give the same bytes, or as PNG for other viewers."""

import io
import re
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib
import numpy as np
from lxml import etree
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.metrics import precision_recall_curve

from gristmill.flows.stages.corpus import Corpus
from gristmill.storage import parquet
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.models.classifiers import calibration
from gristmill.tasks.models.quality import CROSS_FITTED

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


# How well a classifier separates, and what its probabilities mean: plots of the documents that it has not seen.


_POINTS = 500  # drawn of a curve


def curves(name: str, good: np.ndarray, scores: np.ndarray) -> Markup:
    """Precision over recall, and the share of good documents over the score: as SVG. `good`: bool (n,); `scores`:
    float64 (n,). `name` sets the plot apart from others on a page."""
    return svg(name, "precision by recall; share of good documents by score", _draw(good, scores), columns=2)


def curves_png(good: np.ndarray, scores: np.ndarray) -> bytes:
    """The same as PNG."""
    return png(_draw(good, scores), columns=2)


def confusion(name: str, measured: Mapping[str, Any]) -> Markup:
    """Of each label the share of its documents that were given each label, and its F1: as SVG. `measured`: as
    `gristmill.tasks.models.classifiers.label_measures` gives it."""
    labels = list(measured["by_label"])
    counts = np.asarray(measured["confusion"], np.float64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)

    def draw(given: Axes, separation: Axes) -> None:
        places = np.arange(len(labels))
        given.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        given.set_xticks(places, labels, rotation=90)
        given.set_yticks(places, labels)
        given.set_xlabel("label that was given")
        separation.barh(places, [each["f1"] for each in measured["by_label"].values()], color=BLUE)
        separation.set_xlim(0, 1)
        separation.set_xlabel("F1")

    return svg(name, "labels that were given by label; F1 by label", draw, (max(3.0, 0.25 * len(labels)),), columns=2)


def trained_classifier(corpus: Corpus) -> StageResult | None:
    """The stage in which a corpus has trained its classifier, if it has."""
    return next((stage for stage in corpus.stages if stage.name == "quality_model"), None)


def cross_fitted(model: StageResult) -> tuple[np.ndarray, np.ndarray]:
    """`good` and `scores` of the examples of a stage `quality_model`, each by the model that has not seen it."""
    table = parquet.read_table(model.file(CROSS_FITTED).path)
    return table["good"].to_numpy(), table["score"].to_numpy()


def _draw(good: np.ndarray, scores: np.ndarray) -> Callable[[Axes, Axes], None]:
    def draw(separation: Axes, meaning: Axes) -> None:
        precision, recall, _ = precision_recall_curve(good, scores, drop_intermediate=True)
        some = np.unique(np.linspace(0, len(recall) - 1, _POINTS).astype(np.int64))
        separation.plot(recall[some], precision[some], color=BLUE)
        separation.axhline(float(np.mean(good)), color=GREY, linestyle=":", label="by chance")
        separation.set_xlabel("recall")
        separation.set_ylabel("precision; share of good documents")
        count, mean, share = calibration(good, scores)
        meaning.plot([0, 1], [0, 1], color=GREY, linestyle=":", label="as claimed")
        meaning.plot(mean, share, color=BLUE)
        meaning.scatter(mean, share, s=4 + 60 * count / count.max(), color=BLUE)
        meaning.set_xlabel("score")
        for axes in (separation, meaning):
            axes.set_xlim(0, 1)
            axes.set_ylim(0, 1.02)
            axes.grid(color="#dddddd")
            axes.legend(loc="lower right", frameon=False)

    return draw
