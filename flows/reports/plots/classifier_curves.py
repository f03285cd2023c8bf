"""How well a classifier separates, and what its probabilities mean: plots of the documents that it has not seen."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from sklearn.metrics import precision_recall_curve

from gristmill.flows.reports.plots.figures import BLUE, GREY, png, svg
from gristmill.flows.stages.corpus import Corpus
from gristmill.storage import parquet
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.models.classifier.measures import calibration
from gristmill.tasks.models.quality.quality import CROSS_FITTED

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
    `gristmill.tasks.models.classifier.measures.label_measures` gives it."""
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
