"""The page of a plan: its sentences, memory and time of layouts, and what the laws say of as much compute."""

from collections.abc import Callable

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from gristmill.flows.planning import sentences
from gristmill.flows.planning.plan import TrainingPlan
from gristmill.flows.reports import templates
from gristmill.flows.reports.plots.figures import BLUE, GREY, LIGHT, RED, svg
from gristmill.storage import files


def write(made: TrainingPlan, home: str) -> str:
    """Write the page into the home's `reports`, under the recipe and a hash of what the page has; returns its path."""
    content = page(made).encode()
    path = files.join(home, "reports", f"plan-{made.recipe}-{files.digest(content)[:16]}.html")
    files.write_bytes(path, content)
    return path


def page(made: TrainingPlan) -> str:
    """The page; the same plan gives the same bytes."""
    rows = sentences.layouts(made)
    return templates.template("plan_page.html").render(
        plan=made,
        said=list(sentences.lines(made)),
        columns=list(rows[0]),
        layouts=[list(row.values()) for row in rows],
        laws=list(sentences.laws(made)),
        memory=svg("memory", "memory of a device by part, for each layout", memory(made)),
        time=svg("time", "seconds of a step, for each layout", time(made)),
        split=svg("split", "parameters and tokens of as much compute, by law", split(made), heights=(4,)),
    )


def memory(made: TrainingPlan) -> Callable[[Axes], None]:
    """Draws a bar for each layout, its parts on each other, and what a device has."""

    def draw(axes: Axes) -> None:
        shown = made.choices[: sentences.MOST]
        colours = matplotlib.colormaps["viridis"](np.linspace(0.1, 0.9, len(sentences.PARTS)))
        below = np.zeros(len(shown))
        for part, colour in zip(sentences.PARTS, colours, strict=True):
            sizes = np.array([getattr(one.memory, part) for one in shown]) / 1e9
            axes.bar(range(len(shown)), sizes, bottom=below, color=colour, label=part)
            below += sizes
        axes.axhline(made.devices.usable / 1e9, color=RED, linewidth=1.2, label="of a device, less a reserve")
        _ticks(axes, made)
        axes.set_ylabel("GB a device")
        axes.legend(loc="lower right", frameon=True, fontsize=8)

    return draw


def time(made: TrainingPlan) -> Callable[[Axes], None]:
    """Draws what computing, sending and waiting take in a step of each layout."""

    def draw(axes: Axes) -> None:
        shown = made.choices[: sentences.MOST]
        at = np.arange(len(shown))
        axes.bar(at - 0.2, [one.computing for one in shown], 0.4, color=BLUE, label="computing, bubble included")
        sending = [one.sending for one in shown]
        axes.bar(at + 0.2, sending, 0.4, color=LIGHT, label="weights and gradients on their way meanwhile")
        waited = [one.waiting for one in shown]
        axes.bar(at + 0.2, waited, 0.4, bottom=sending, color=GREY, label="activations that are waited for")
        _ticks(axes, made)
        axes.set_ylabel("seconds a step")
        axes.legend(loc="lower right", frameon=True, fontsize=8)

    return draw


def split(made: TrainingPlan) -> Callable[[Axes], None]:
    """Draws the splits of the plan's compute on the line of 6 N D, and the plan."""

    def draw(axes: Axes) -> None:
        sizes = [one.parameters for one in made.splits] + [made.parameters]
        line = np.geomspace(min(sizes) / 2, max(sizes) * 2, 50)
        axes.plot(line, made.compute_6nd / 6 / line, color=GREY, linestyle=":", label="6 N D of this training")
        colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(made.splits)))
        for one, colour in zip(made.splits, colours, strict=True):
            axes.plot(one.parameters, one.tokens, "o", color=colour, markersize=6, label=one.law)
        axes.plot(made.parameters, made.tokens, "D", color=RED, markersize=7, label="this training")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("parameters")
        axes.set_ylabel("tokens")
        axes.grid(color="#dddddd")
        axes.legend(loc="upper right", frameon=False, fontsize=8)

    return draw


def _ticks(axes: Axes, made: TrainingPlan) -> None:
    shown = [one.layout for one in made.choices[: sentences.MOST]]
    axes.set_xticks(range(len(shown)))
    names = [f"{one.shards} x {one.replicas} x {one.tensor} x {one.pipeline}" for one in shown]
    axes.set_xticklabels(names, fontsize=8)
    axes.set_xlabel("shards x replicas x tensor x pipeline")
