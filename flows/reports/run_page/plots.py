"""Plots of a run: lengths of documents, funnel, losses."""

from collections.abc import Callable

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from flows.reports.plotting import BLUE, GREY, LIGHT, RED, svg
from flows.reports.run import Report
from flows.reports.run_page.counts import EDGES, Counts


def lengths(counts: Counts) -> Markup:
    """How many documents have each length, extracted and kept."""

    def draw(axes: Axes) -> None:
        axes.stairs(counts.lengths_arrived, EDGES, fill=True, color=LIGHT, label="extracted")
        axes.stairs(counts.lengths_kept, EDGES, fill=True, color=BLUE, label="kept")
        axes.set_xscale("log")
        there = np.flatnonzero(counts.lengths_arrived)
        if there.size:
            axes.set_xlim(EDGES[there[0]], EDGES[there[-1] + 1])
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("characters of a document")
        axes.set_ylabel("documents")
        axes.legend(loc="upper right", frameon=False)

    return svg("lengths", "number of documents by length", draw)


def losses(report: Report) -> Callable[[Axes], None]:
    """Draws training and held-out loss over steps, and the loss of the unigram model."""

    def draw(axes: Axes) -> None:
        lines = report.metrics
        axes.plot(
            [line["step"] for line in lines], report.training_losses, color=LIGHT, linewidth=1, label="training batch"
        )
        held_out = [(line["step"], line["heldout/loss"]) for line in lines if "heldout/loss" in line]
        axes.plot(*zip(*held_out, strict=True), "o-", color=BLUE, markersize=4, label="held-out documents")
        axes.axhline(report.result["unigram/loss"], color=RED, linestyle=":", label="unigram model, held-out documents")
        axes.set_xlabel("step")
        axes.set_ylabel("loss, nats a token")
        axes.grid(color="#dddddd")
        axes.legend(loc="upper right", frameon=False)

    return draw


def losses_svg(report: Report) -> Markup:
    """Training and held-out loss over steps."""
    return svg("losses", "training and held-out loss by step", losses(report))


def funnel(report: Report) -> Callable[[Axes], None]:
    """Draws the documents behind each step."""

    def draw(axes: Axes) -> None:
        rows = report.steps
        names = ["arrived", *(row.name for row in rows)]
        documents = [rows[0].documents_in, *(row.documents_out for row in rows)]
        bars = axes.barh(range(len(names)), documents, color=BLUE)
        axes.bar_label(bars, [f"{count:,}" for count in documents], padding=3, color=GREY)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("documents")
        axes.figure.subplots_adjust(left=0.22)

    return draw
