"""What a run's page counts over all documents, by source, language, length and encoding; and its plots."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from gristmill.flows.reports.pages import charts
from gristmill.flows.reports.pages.charts import Axis, Layer
from gristmill.flows.reports.run import Run
from gristmill.flows.reports.run_page.signals import Judged
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stats.distributions import Distribution
from gristmill.storage import parquet

# ten bins a decade, from one character to a hundred million; longer texts are in the last
EDGES = np.logspace(0, 8, 81)


@dataclass
class Both:
    """Documents and their characters, that arrived and that are kept."""

    arrived: int = 0
    kept: int = 0
    characters_arrived: int = 0
    characters_kept: int = 0

    def add(self, arrived: int, kept: int, characters_arrived: int = 0, characters_kept: int = 0) -> None:
        self.arrived += arrived
        self.kept += kept
        self.characters_arrived += characters_arrived
        self.characters_kept += characters_kept


@dataclass
class Counts:
    """`languages`: empty where none were identified; `lengths_arrived`, `lengths_kept`: documents by the bins of EDGES,
    int64 (80,); `encodings`: documents by the encoding of their records."""

    sources: dict[str, Both] = field(default_factory=dict)
    languages: dict[str, Both] = field(default_factory=dict)
    encodings: Counter[str] = field(default_factory=Counter)
    lengths_arrived: np.ndarray = field(default_factory=lambda: np.zeros(len(EDGES) - 1, np.int64))
    lengths_kept: np.ndarray = field(default_factory=lambda: np.zeros(len(EDGES) - 1, np.int64))


def count(corpus: Corpus) -> Counts:
    """Reads the ids, lengths, encodings and languages of all documents, a shard at a time, and no text."""
    extracted = corpus.extracted
    counts = Counts()
    places = corpus.places
    for number, source in enumerate(places.sources):
        there = [name for name in ("characters", "charset") if name in parquet.columns(extracted.part(number))]
        table = parquet.read_table(extracted.part(number), ["id", *there])
        arrived = table["characters"].to_numpy()
        if "charset" in there:
            counts.encodings.update(_tally(table["charset"]))
        kept = parquet.read_table(places.kept[number], ["id", "characters"])
        lengths = kept["characters"].to_numpy()
        both = counts.sources.setdefault(source, Both())
        both.add(len(arrived), len(lengths), int(arrived.sum()), int(lengths.sum()))
        counts.lengths_arrived += _binned(arrived)
        counts.lengths_kept += _binned(lengths)
        having = [part for part in (extracted.part(number), *places.signals[number]) if _identified(part)]
        if having:
            table = parquet.read_table(having[-1], ["id", "language"])
            here = _tally(table["language"])
            stays = _tally(table.filter(pc.is_in(table["id"], kept["id"].combine_chunks()))["language"])
            for language, documents in here.items():
                counts.languages.setdefault(language, Both()).add(documents, stays.get(language, 0))
    return counts


def _identified(part: str) -> bool:
    return "language" in parquet.columns(part)


def _binned(lengths: np.ndarray) -> np.ndarray:
    return np.histogram(np.clip(lengths, EDGES[0], EDGES[-1]), EDGES)[0]


def _tally(values: pa.ChunkedArray) -> dict[str, int]:
    found = values.value_counts()
    return {one["values"] or "none": one["counts"] for one in found.to_pylist()}


def lengths(counts: Counts) -> Markup:
    """How many documents have each length, extracted and kept."""
    there = np.flatnonzero(counts.lengths_arrived)
    first, last = (there[0], there[-1] + 1) if there.size else (0, len(EDGES) - 1)
    arrived, kept = counts.lengths_arrived[first:last], counts.lengths_kept[first:last]
    series = [("arrived", np.zeros_like(arrived), arrived), ("kept", np.zeros_like(kept), kept)]
    return charts.histogram(EDGES[first : last + 1], series, [], "characters per document", True)


_FEW = 6  # thresholds of languages that are drawn


def signal(one: Judged) -> Markup:
    """How many documents have each value of a rule's signal, those that fail it apart, and its thresholds."""
    marks = [(end, "language") for end in one.language_ends if len(one.language_ends) <= _FEW]
    marks += [(end, "cut") for end in one.ends]
    every = Distribution()
    for each in one.values:
        every.join(each)
    edges, logarithmic = charts.bins(every, one.ends or one.language_ends, pa.types.is_integer(one.kind))
    label = f"{one.rule.signal}{f', {one.unit}' if one.unit else ''}"
    fails = one.values[1].histogram(edges)
    series = [("part", fails, every.histogram(edges)), ("fails", np.zeros_like(fails), fails)]
    return charts.histogram(edges, series, marks, label, logarithmic)


def losses(report: Run) -> Markup:
    """Training and held-out loss over steps, and the loss of the unigram model."""
    lines = report.metrics
    held_out = [(line["step"], line["heldout/loss"]) for line in lines if "heldout/loss" in line]
    steps, values = np.array(held_out, np.float64).reshape(-1, 2).T
    unigram = [report.result["unigram/loss"]] * 2
    return charts.plot(
        "training and held-out loss by step",
        Axis("step"),
        Axis("loss, nats per token"),
        Layer("line", [line["step"] for line in lines], report.training_losses, "light", "training batch"),
        Layer("line", steps, values, "part", "held-out documents"),
        Layer("points", steps, values, "part"),
        Layer("dotted", [-np.inf, np.inf], unigram, "cut", "unigram model, held-out documents"),
    )


def funnel(report: Run) -> Markup:
    """The documents after each step, for a file of its own."""
    rows = [("arrived", report.steps[0].documents_in), *((row.name, row.documents_out) for row in report.steps)]
    return charts.bars("documents after each step", [(name, number, f"{number:,}") for name, number in rows])
