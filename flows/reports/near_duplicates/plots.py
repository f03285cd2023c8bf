"""The page's two plots as SVG elements: the same numbers give the same bytes."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from gristmill.flows.reports.plots.figures import BLUE, GREY, LIGHT, RED, svg
from gristmill.tasks.dedup.near.settings import MinHash, s_curve
from gristmill.tasks.dedup.near_reports.recall import Bin
from gristmill.tasks.dedup.near_reports.summary import Clusters


def sizes(clusters: Clusters) -> Markup:
    """How many clusters have each size, on logarithmic axes."""

    def draw(axes: Axes) -> None:
        axes.loglog(clusters.sizes, clusters.counts, "o", color=BLUE, markersize=4)
        axes.set_xlabel("documents of a cluster")
        axes.set_ylabel("clusters")
        axes.set_xlim(1, 2 * clusters.sizes.max(initial=5))
        axes.set_ylim(0.5, 2 * clusters.counts.max(initial=5))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:,.0f}")
            axis.set_minor_formatter("")
        axes.grid(color="#dddddd")

    return svg("sizes", "number of clusters by size", draw)


def recall(bins: Sequence[Bin], settings: MinHash) -> Markup:
    """Measured shares with their intervals, what the S-curve expects of the same pairs, and how many pairs that are."""

    def draw(axes: Axes, counts: Axes) -> None:
        at = np.linspace(0, 1, 401)
        label = f"1 - (1 - J^{settings.rows})^{settings.bands}"
        axes.plot(at, s_curve(settings.bands, settings.rows, at), color=GREY, linewidth=1, label=label)
        middle = [one.jaccard for one in bins]
        ends = [[one.measured - one.least for one in bins], [one.most - one.measured for one in bins]]
        measured = [one.measured for one in bins]
        axes.errorbar(
            middle, measured, ends, fmt="o", color=BLUE, markersize=4, capsize=2, label="measured, 95% interval"
        )
        axes.plot(middle, [one.expected for one in bins], "x", color=RED, label="expected of the same pairs")
        if settings.threshold is not None:
            axes.axvline(settings.threshold, color=GREY, linestyle=":", label="threshold")
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.03, 1.03)
        axes.set_ylabel("pairs that share a band")
        axes.grid(color="#dddddd")
        axes.legend(loc="upper left", frameon=False)
        counts.bar(
            [one.low for one in bins],
            [one.pairs for one in bins],
            width=[one.high - one.low for one in bins],
            align="edge",
            color=LIGHT,
            edgecolor="white",
        )
        counts.set_yscale("log")
        counts.set_ylim(0.5)
        counts.yaxis.set_major_formatter("{x:,.0f}")
        counts.set_ylabel("pairs")
        counts.set_xlabel("Jaccard similarity J")

    return svg("recall", "share of pairs that share a band, by similarity", draw, heights=(3, 1))
