"""The distribution of a column under a slider, on the slider's own axis."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from gristmill.flows.diff.columns import Numbers
from gristmill.flows.reports.plots import charts

_BINS = 48
_TAIL = 0.005  # of the documents, that the axis leaves out at either end


def axis(numbers: Numbers, marks: Sequence[float]) -> tuple[float, float, bool]:
    """The ends of an axis over most of the values and all marks, and whether it is logarithmic."""
    ends = [number for number in (numbers.quantile(_TAIL), numbers.quantile(1 - _TAIL)) if number is not None]
    return charts.axis([*ends, *marks])


def distribution(numbers: Numbers, marks: Sequence[float], label: str) -> Markup:
    """How many documents have each value, with lines at the marks."""
    low, high, logarithmic = axis(numbers, marks)
    edges = np.geomspace(low, high, _BINS + 1) if logarithmic else np.linspace(low, high, _BINS + 1)
    counts = numbers.histogram(edges)
    return charts.histogram(
        edges, [("part", np.zeros_like(counts), counts)], [(mark, "cut") for mark in marks], label, logarithmic
    )
