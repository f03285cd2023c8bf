"""How well a classifier separates, and what its probabilities mean: plots of documents that it has not seen."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from wrapt import lazy_import

from gristmill.flows.reports.pages import charts
from gristmill.flows.reports.pages.charts import Axis, Layer
from gristmill.flows.stages.corpus import Corpus
from gristmill.storage import parquet
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.models.classifiers import calibration
from gristmill.tasks.models.quality import CROSS_FITTED

if TYPE_CHECKING:
    from sklearn import metrics
else:
    metrics = lazy_import("sklearn.metrics")

_POINTS = 500  # drawn of a curve


def curves(good: np.ndarray, scores: np.ndarray) -> tuple[Markup, Markup]:
    """Precision over recall, and the share of good documents over the score. `good`: bool (n,); `scores`: float64
    (n,)."""
    precision, recall, _ = metrics.precision_recall_curve(good, scores, drop_intermediate=True)
    some = np.unique(np.linspace(0, len(recall) - 1, _POINTS).astype(np.int64))
    chance = [float(np.mean(good))] * 2
    separation = charts.plot(
        "precision by recall",
        Axis("recall", show=(0, 1)),
        Axis("precision", show=(0, 1)),
        Layer("dotted", [0, 1], chance, "soft", "by chance: the share of good documents"),
        Layer("line", recall[some], precision[some]),
    )
    _, mean, share = calibration(good, scores)
    meaning = charts.plot(
        "share of good documents by score",
        Axis("score", show=(0, 1)),
        Axis("share of good documents", show=(0, 1)),
        Layer("dotted", [0, 1], [0, 1], "soft", "as claimed"),
        Layer("line", mean, share),
        Layer("points", mean, share),
    )
    return separation, meaning


def curves_file(good: np.ndarray, scores: np.ndarray) -> bytes:
    """Both beside each other as an SVG file."""
    return charts.beside("precision by recall; share of good documents by score", *curves(good, scores)).encode()


def confusion_file(measured: Mapping[str, Any]) -> bytes:
    """Of each label the share of its documents that were given each label, and its F1, as an SVG file. `measured`: as
    `gristmill.tasks.models.classifiers.label_measures` gives it."""
    labels = list(measured["by_label"])
    counts = np.asarray(measured["confusion"], np.float64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    given = charts.matrix("number of labels by label", labels, shares)
    f1 = [(name, each["f1"], f"{each['f1']:.3f}") for name, each in measured["by_label"].items()]
    return charts.beside("number of labels, and F1, by label", given, charts.bars("F1 by label", f1)).encode()


def trained_classifier(corpus: Corpus) -> StageResult | None:
    """The stage in which a corpus has trained its classifier, if it has."""
    return next((stage for stage in corpus.stages if stage.name == "quality_model"), None)


def cross_fitted(model: StageResult) -> tuple[np.ndarray, np.ndarray]:
    """`good` and `scores` of the examples of a stage `quality_model`, each by the model that has not seen it."""
    table = parquet.read_table(model.file(CROSS_FITTED).path)
    return table["good"].to_numpy(), table["score"].to_numpy()
